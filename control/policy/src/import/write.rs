//! Native policies to YAML. Everything from the source is a name that was made native, an address, or in a comment
//! without control characters.

use std::{collections::BTreeMap, fmt::Write};

use ipnet::IpNet;

use crate::{
    API_VERSION, Action, Name, Position,
    limit::FILE_BYTES_MAX,
    read::{Report, quote},
};

use super::{
    Format, IMPORTED_MARK, ImportedFile,
    conditions::Range,
    native::{Far, ICMP, ICMPV6, NativePolicy, NativePorts, NativeRule, NativeService, SCTP, TCP, UDP},
};

/// One file for each tenant; policies by name.
pub(super) fn files(
    format: Format,
    policies: Vec<NativePolicy>,
    sources: &[String],
    report: &mut Report,
) -> Vec<ImportedFile> {
    let mut tenants: BTreeMap<Name, BTreeMap<Name, NativePolicy>> = BTreeMap::new();
    for policy in policies {
        tenants.entry(policy.tenant.clone()).or_default().insert(policy.name.clone(), policy);
    }
    let mut files = Vec::new();
    for (tenant, policies) in tenants {
        let mut text = format!("{IMPORTED_MARK}: a rule stands below its place in the source.\n");
        for policy in policies.values() {
            // Writing to a string cannot fail.
            let _ = write_policy(&mut text, policy, sources);
        }
        if text.len() > FILE_BYTES_MAX {
            report.nowhere(format!("the policies of tenant {tenant} are larger than a policy file may be"));
        }
        let name = format!("{tenant}-{}.yaml", format.name());
        let rules = policies.values().map(|policy| policy.egress.len() + policy.ingress.len()).sum();
        files.push(ImportedFile { name, text, policies: policies.len(), rules });
    }
    files
}

fn write_policy(out: &mut String, policy: &NativePolicy, sources: &[String]) -> std::fmt::Result {
    let NativePolicy { tenant, name, of, ports, egress, ingress } = policy;
    writeln!(out, "---\n# {}\napiVersion: {API_VERSION}\nkind: TenantPolicy", origin(of, sources))?;
    writeln!(out, "metadata:\n  name: \"{name}\"\nspec:\n  tenant: \"{tenant}\"")?;
    match ports {
        NativePorts::Named(names) => {
            let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            writeln!(out, "  ports: [{}]", names.join(", "))?;
        }
        NativePorts::Label(label) => writeln!(out, "  ports: {}", labelled(label))?,
    }
    for (direction, peers, rules) in [("egress", "to", egress), ("ingress", "from", ingress)] {
        if !rules.is_empty() {
            writeln!(out, "  {direction}:")?;
        }
        rules.iter().try_for_each(|rule| write_rule(out, peers, rule, sources))?;
    }
    Ok(())
}

fn write_rule(out: &mut String, peers: &str, rule: &NativeRule, sources: &[String]) -> std::fmt::Result {
    for of in &rule.of {
        writeln!(out, "    # {}", origin(of, sources))?;
    }
    let action = match rule.action {
        Action::Accept => "Accept",
        Action::Deny => "Deny",
        Action::Pass => "Pass",
    };
    let far: Vec<String> = rule.far.iter().map(peer).collect();
    writeln!(out, "    - action: {action}\n      {peers}: [{}]", far.join(", "))?;
    if let Some(services) = &rule.services {
        let services: Vec<String> = services.iter().map(service).collect();
        writeln!(out, "      services: [{}]", services.join(", "))?;
    }
    if rule.log {
        writeln!(out, "      log: true")?;
    }
    Ok(())
}

/// `acl.json:12 web:3`.
fn origin((at, name): &(Position, String), sources: &[String]) -> String {
    let source: String = sources
        .get(at.source as usize)
        .map_or("", String::as_str)
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    format!("{source}:{} {}", at.line, quote(name))
}

fn peer(far: &Far) -> String {
    match far {
        Far::Net(net @ IpNet::V4(_)) => format!("{{ipBlock: {{cidr: {net}}}}}"),
        Far::Net(net @ IpNet::V6(_)) => format!("{{ipBlock: {{cidr: \"{net}\"}}}}"),
        Far::Label(label) => format!("{{ports: {}}}", labelled(label)),
    }
}

fn labelled(label: &str) -> String {
    format!("{{matchLabels: {{\"{label}\": member}}}}")
}

fn service(service: &NativeService) -> String {
    match service {
        NativeService::Whole(protocol) => format!("{{protocol: {}}}", protocol_name(*protocol)),
        NativeService::Ports(protocol, Range { first, last }) if first == last => {
            format!("{{protocol: {}, port: {first}}}", protocol_name(*protocol))
        }
        NativeService::Ports(protocol, Range { first, last }) => {
            format!("{{protocol: {}, port: {first}, endPort: {last}}}", protocol_name(*protocol))
        }
        NativeService::Icmp(protocol, kind, code) => {
            let code = code.map_or(String::new(), |code| format!(", code: {code}"));
            format!("{{protocol: {}, type: {kind}{code}}}", protocol_name(*protocol))
        }
    }
}

fn protocol_name(protocol: u8) -> String {
    match protocol {
        ICMP => "ICMP".into(),
        TCP => "TCP".into(),
        UDP => "UDP".into(),
        ICMPV6 => "ICMPv6".into(),
        SCTP => "SCTP".into(),
        other => other.to_string(),
    }
}
