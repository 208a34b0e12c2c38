//! The model as documents, some in JSON's notation, some in a List.

use policy::Source;

use crate::model::{
    Action, Allow, Cluster, ClusterRule, Native, Network, Peer, Pod, Ports, Select, Tenant, Tenants, World,
    address, pod_address,
};

const HEAD: &str = "apiVersion: floodway.dev/v1alpha1\n";

pub fn port_name(tenant: usize, pod: usize) -> String {
    format!("t{tenant}p{pod}")
}

pub fn sources(world: &World) -> Vec<Source> {
    let mut ports = String::from("    - {name: up, device: 'memory:', mtu: 9000}\n");
    let mut tenants = String::new();
    for (index, tenant) in world.tenants.iter().enumerate() {
        for pod in 0..tenant.pods.len() - 1 {
            ports += &format!("    - {{name: {}, device: 'memory:'}}\n", port_name(index, pod));
        }
        tenants += &tenant_text(index, tenant);
    }
    let fabric = format!(
        "{HEAD}kind: Fabric\nmetadata: {{name: box}}\nspec:\n  ports:\n{ports}  uplink: {{port: up, addresses: [192.0.2.1/24]}}\n  vteps: [{{name: far, address: 192.0.2.2}}]\n"
    );
    let clusters: Vec<String> =
        world.clusters.iter().enumerate().map(|(index, one)| cluster(index, one)).collect();
    let list = format!("apiVersion: v1\nkind: List\nitems: [{}]\n", clusters.join(",\n"));
    [("fabric.yaml", fabric), ("tenants.yaml", tenants), ("clusters.yaml", list)]
        .map(|(name, text)| Source { name: name.into(), bytes: text.into() })
        .into()
}

fn tenant_text(index: usize, tenant: &Tenant) -> String {
    let mut text = format!(
        "---\n{HEAD}kind: Tenant\nmetadata: {{name: t{index}, labels: {{team: t{}}}}}\nspec:\n  vni: {}\n",
        tenant.team,
        index + 1
    );
    let (remote, ports) = tenant.pods.split_last().unwrap();
    text += "  ports:\n";
    for (pod, own) in ports.iter().enumerate() {
        let (name, address) = (port_name(index, pod), pod_address(pod));
        text += &format!(
            "    - {{port: {name}, mac: 02:00:00:00:00:{pod:02x}, addresses: [{address}], {}}}\n",
            own.text()
        );
    }
    let address = pod_address(ports.len());
    text += &format!(
        "  remotes: [{{vtep: far, mac: 02:00:00:00:ff:01, addresses: [{address}], {}}}]\n",
        remote.text()
    );
    for (number, policy) in tenant.networks.iter().enumerate() {
        text += &format!("---\n{}\n", network(index, number, policy));
    }
    for (number, policy) in tenant.natives.iter().enumerate() {
        text += &native(index, number, policy);
    }
    text
}

impl Pod {
    fn text(&self) -> String {
        let mark = if self.has_mark { ", mark: there" } else { "" };
        let web = self
            .web
            .map(|(protocol, port)| format!("{{name: web, protocol: {}, port: {port}}}", name(protocol)));
        format!("labels: {{role: r{}{mark}}}, namedPorts: [{}]", self.role, web.unwrap_or_default())
    }
}

fn name(protocol: u8) -> &'static str {
    match protocol {
        6 => "TCP",
        17 => "UDP",
        _ => "SCTP",
    }
}

fn network(tenant: usize, number: usize, policy: &Network) -> String {
    let types = policy.types.map_or(String::new(), |(ingress, egress)| {
        let names = [("Ingress", ingress), ("Egress", egress)].into_iter().filter(|(_, is_on)| *is_on);
        format!(
            ", \"policyTypes\": [{}]",
            names.map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
        )
    });
    let rules = |rules: &[Allow], field: &str| {
        rules.iter().map(|rule| allow(rule, field)).collect::<Vec<_>>().join(", ")
    };
    format!(
        "{{\"apiVersion\": \"networking.k8s.io/v1\", \"kind\": \"NetworkPolicy\", \"metadata\": {{\"name\": \"n{number}\", \"namespace\": \"t{tenant}\"}}, \"spec\": {{\"podSelector\": {}{types}, \"ingress\": [{}], \"egress\": [{}]}}}}",
        select(&policy.pods),
        rules(&policy.ingress, "from"),
        rules(&policy.egress, "to"),
    )
}

fn allow(rule: &Allow, field: &str) -> String {
    let peers = rule.peers.as_ref().map_or("null".into(), |peers| joined(peers, network_peer));
    let ports = rule.ports.as_ref().map_or("null".into(), |ports| joined(ports, network_ports));
    format!("{{\"{field}\": {peers}, \"ports\": {ports}}}")
}

fn joined<T>(items: &[T], text: fn(&T) -> String) -> String {
    format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", "))
}

fn network_peer(peer: &Peer) -> String {
    match peer {
        Peer::Pods(None, pods) => format!("{{\"podSelector\": {}}}", select(pods)),
        Peer::Pods(Some(among), Select::Any) => format!("{{\"namespaceSelector\": {}}}", tenants(among)),
        Peer::Pods(Some(among), pods) => {
            format!("{{\"namespaceSelector\": {}, \"podSelector\": {}}}", tenants(among), select(pods))
        }
        Peer::Block(low, len, except) => {
            let except = except.map(|more| format!("\"{}\"", prefix(*low, (*len + more).min(32))));
            format!(
                "{{\"ipBlock\": {{\"cidr\": \"{}\", \"except\": [{}]}}}}",
                prefix(*low, *len),
                except.unwrap_or_default()
            )
        }
    }
}

fn prefix(low: u8, len: u8) -> String {
    let kept = u32::from(low) & (0xffff_ffff_u32 << (32 - u32::from(len)).min(31));
    format!("{}/{len}", address(kept as u8))
}

fn network_ports(ports: &Ports) -> String {
    match ports {
        Ports::All(protocol) => format!("{{\"protocol\": \"{}\"}}", name(*protocol)),
        Ports::Range(6, first, last) if first == last => format!("{{\"port\": {first}}}"),
        Ports::Range(protocol, first, last) => {
            format!("{{\"protocol\": \"{}\", \"port\": {first}, \"endPort\": {last}}}", name(*protocol))
        }
        Ports::Web(protocol) => format!("{{\"protocol\": \"{}\", \"port\": \"web\"}}", name(*protocol)),
    }
}

fn select(pods: &Select) -> String {
    let roles = |roles: &[u8]| joined(roles, |role| format!("\"r{role}\""));
    let expression = |key: &str, operator: &str, values: String| {
        format!("{{\"matchExpressions\": [{{\"key\": \"{key}\", \"operator\": \"{operator}\"{values}}}]}}")
    };
    match pods {
        Select::Any => "{}".into(),
        Select::Role(role) => format!("{{\"matchLabels\": {{\"role\": \"r{role}\"}}}}"),
        Select::In(list) => expression("role", "In", format!(", \"values\": {}", roles(list))),
        Select::NotIn(list) => expression("role", "NotIn", format!(", \"values\": {}", roles(list))),
        Select::Marked => expression("mark", "Exists", String::new()),
        Select::Unmarked => expression("mark", "DoesNotExist", String::new()),
    }
}

fn tenants(tenants: &Tenants) -> String {
    match tenants {
        Tenants::Any => "{}".into(),
        Tenants::Team(team) => format!("{{\"matchLabels\": {{\"team\": \"t{team}\"}}}}"),
        Tenants::Name(index) => {
            format!("{{\"matchLabels\": {{\"kubernetes.io/metadata.name\": \"t{index}\"}}}}")
        }
    }
}

fn native(tenant: usize, number: usize, policy: &Native) -> String {
    let rules = |rules: &[(Action, u16)]| {
        joined(rules, |(action, port)| {
            format!("{{action: {action:?}, services: [{{protocol: TCP, port: {port}}}]}}")
        })
    };
    format!(
        "---\n{HEAD}kind: TenantPolicy\nmetadata: {{name: p{number}}}\nspec: {{tenant: t{tenant}, priority: {}, ports: {{matchLabels: {{role: r{}}}}}, egress: {}, ingress: {}}}\n",
        policy.priority,
        policy.role,
        rules(&policy.egress),
        rules(&policy.ingress),
    )
}

fn cluster(index: usize, policy: &Cluster) -> String {
    let tier = if policy.is_admin { "Admin" } else { "Baseline" };
    let subject = match &policy.pods {
        None => format!("{{namespaces: {}}}", tenants(&policy.tenants)),
        Some(pods) => format!(
            "{{pods: {{namespaceSelector: {}, podSelector: {}}}}}",
            tenants(&policy.tenants),
            select(pods)
        ),
    };
    format!(
        "{{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {{name: c{index}}}, spec: {{tier: {tier}, priority: {}, subject: {subject}, ingress: {}, egress: {}}}}}",
        policy.priority,
        joined(&policy.ingress, |rule| cluster_rule(rule, "from")),
        joined(&policy.egress, |rule| cluster_rule(rule, "to")),
    )
}

fn cluster_rule(rule: &ClusterRule, field: &str) -> String {
    let peer = |peer: &Peer| match peer {
        // Ingress rules have no networks.
        Peer::Block(..) if field == "from" => "{namespaces: {}}".into(),
        Peer::Block(low, len, _) => format!("{{networks: [{}]}}", prefix(*low, *len)),
        Peer::Pods(None, pods) => {
            format!("{{pods: {{namespaceSelector: {{}}, podSelector: {}}}}}", select(pods))
        }
        Peer::Pods(Some(among), Select::Any) => format!("{{namespaces: {}}}", tenants(among)),
        Peer::Pods(Some(among), pods) => {
            format!("{{pods: {{namespaceSelector: {}, podSelector: {}}}}}", tenants(among), select(pods))
        }
    };
    let peers: Vec<String> = rule.peers.iter().map(peer).collect();
    let protocols = if rule.ports.is_empty() { "null".into() } else { joined(&rule.ports, cluster_ports) };
    format!(
        "{{name: rule, action: {:?}, {field}: [{}], protocols: {protocols}}}",
        rule.action,
        peers.join(", ")
    )
}

fn cluster_ports(ports: &Ports) -> String {
    let lower = |protocol: u8| name(protocol).to_lowercase();
    match ports {
        Ports::All(protocol) => format!("{{{}: {{}}}}", lower(*protocol)),
        Ports::Range(protocol, first, last) if first == last => {
            format!("{{{}: {{destinationPort: {{number: {first}}}}}}}", lower(*protocol))
        }
        Ports::Range(protocol, first, last) => {
            format!(
                "{{{}: {{destinationPort: {{range: {{start: {first}, end: {last}}}}}}}}}",
                lower(*protocol)
            )
        }
        Ports::Web(_) => "{destinationNamedPort: web}".into(),
    }
}
