//! Tiers, named ports and Kubernetes' defaults one by one; public bug reports of other engines by their row in the
//! corpus's bugs.tsv.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use std::net::IpAddr;

use policy::Source;
use program::{Place, PortId, Program, Service, Verdict, VtepId};

const HEAD: &str = "apiVersion: floodway.dev/v1alpha1\n";

const WORLD: &str = "kind: Fabric
metadata: {name: box}
spec:
  ports:
    - {name: up, device: 'memory:', mtu: 9000}
    - {name: a0, device: 'memory:'}
    - {name: b0, device: 'memory:'}
  uplink: {port: up, addresses: [192.0.2.1/24]}
  vteps: [{name: far, address: 192.0.2.2}]
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red, labels: {team: one}}
spec:
  vni: 100
  ports:
    - {port: a0, mac: 02:00:00:00:00:10, addresses: [10.1.0.10, 'fd00::10'], labels: {app: a}, namedPorts: [{name: web, protocol: TCP, port: 80}]}
    - {port: b0, mac: 02:00:00:00:00:11, addresses: [10.1.0.11, 'fd00::11'], labels: {app: b}, namedPorts: [{name: web, protocol: TCP, port: 81}, {name: sig, protocol: SCTP, port: 3301}]}
  remotes:
    - {vtep: far, mac: 02:00:00:00:00:20, addresses: [10.1.0.20], prefixes: [10.9.0.0/16, 0.0.0.0/0, '::/0', 10.0.1.0/25, 10.0.0.128/25], labels: {app: c}}
";

fn compile(documents: &[String]) -> (Program, String) {
    let text = format!("{HEAD}{WORLD}{}", documents.concat());
    let sources = [Source { name: "all.yaml".into(), bytes: text.into() }];
    let parsed = policy::parse(&sources).unwrap_or_else(|errors| panic!("{}", errors.render(&sources)));
    (compile::compile(&parsed.policy, None).unwrap().program, parsed.warnings.to_string())
}

fn network(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: red}}\nspec: {spec}\n"
    )
}

fn cluster(name: &str, tier: &str, priority: u16, rules: &str) -> String {
    format!(
        "---\napiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {{name: {name}}}\nspec: {{tier: {tier}, priority: {priority}, subject: {{namespaces: {{}}}}, {rules}}}\n"
    )
}

fn tenant(name: &str, rules: &str) -> String {
    format!("---\n{HEAD}kind: TenantPolicy\nmetadata: {{name: {name}}}\nspec: {{tenant: red, {rules}}}\n")
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[derive(Clone, Copy)]
enum At {
    A,
    B,
}

/// What a port says of what it sends to `peer`.
fn egress(program: &Program, at: At, peer: &str, service: Service) -> bool {
    let port = program.port(PortId(at as u16 + 1)).unwrap();
    program.decide(port.egress, ip(peer), service).verdict == Verdict::Accept
}

/// What a port says of what `peer` sends it.
fn ingress(program: &Program, at: At, peer: &str, service: Service) -> bool {
    let port = program.port(PortId(at as u16 + 1)).unwrap();
    program.decide(port.ingress, ip(peer), service).verdict == Verdict::Accept
}

const TCP_80: Service = Service::Tcp(80);

fn to_a(action: &str) -> String {
    format!("egress: [{{action: {action}, to: [{{networks: [10.1.0.20/32]}}]}}]")
}

#[test]
fn b059_tiers_are_asked_in_their_order_and_pass_leads_to_the_next() {
    let own = |action: &str| tenant("own", &format!("egress: [{{action: {action}}}]"));
    let ask = |documents: &[String]| egress(&compile(documents).0, At::A, "10.1.0.20", TCP_80);
    for (admin, own_action, baseline, expected) in [
        ("Accept", "Deny", "Deny", true),
        ("Deny", "Accept", "Accept", false),
        ("Pass", "Accept", "Deny", true),
        ("Pass", "Deny", "Accept", false),
        ("Pass", "Pass", "Accept", true),
        ("Pass", "Pass", "Deny", false),
        ("Pass", "Pass", "Pass", false),
    ] {
        let documents = [
            cluster("base", "Baseline", 0, &to_a(baseline)),
            own(own_action),
            cluster("first", "Admin", 1000, &to_a(admin)),
        ];
        assert_eq!(ask(&documents), expected, "{admin} {own_action} {baseline}");
    }
    // Within a tier the lower priority is asked first, and Pass leaves the tier, not the policy.
    let pass = cluster("pass", "Admin", 1, &to_a("Pass"));
    let deny = cluster("deny", "Admin", 2, &to_a("Deny"));
    assert!(ask(&[deny.clone(), pass, own("Accept")]));
    assert!(!ask(&[deny, cluster("pass", "Admin", 3, &to_a("Pass")), own("Accept")]));
}

#[test]
fn the_order_of_a_tenants_own_policies() {
    let closing = network("closed", "{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress]}");
    let open = network("open", "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}");
    let ask = |documents: &[String], service| egress(&compile(documents).0, At::A, "10.1.0.20", service);
    assert!(!ask(std::slice::from_ref(&closing), TCP_80));
    // A union: one that allows nothing takes nothing from another.
    assert!(ask(&[closing.clone(), open.clone()], TCP_80));
    assert!(!ask(&[closing.clone(), open.clone()], Service::Tcp(81)));
    // A TenantPolicy is asked before, and may open or close what NetworkPolicies say.
    assert!(!ask(&[open.clone(), tenant("no", "egress: [{action: Deny}]")], TCP_80));
    assert!(ask(&[closing.clone(), tenant("yes", "egress: [{action: Accept}]")], TCP_80));
    // Its Pass leaves the tenant's tier, NetworkPolicies and what they close along with it.
    let pass = tenant("pass", "egress: [{action: Pass}]");
    let base = cluster("base", "Baseline", 0, &to_a("Accept"));
    assert!(ask(&[closing.clone(), pass.clone(), base], TCP_80));
    assert!(!ask(&[closing, pass], TCP_80));
}

#[test]
fn a_tenant_with_a_network_policy_is_open_where_none_closes_it() {
    let one = network("one", "{podSelector: {matchLabels: {app: a}}, ingress: []}");
    let (program, _) = compile(std::slice::from_ref(&one));
    assert!(!ingress(&program, At::A, "10.1.0.11", TCP_80));
    assert!(egress(&program, At::A, "10.1.0.11", TCP_80));
    assert!(ingress(&program, At::B, "10.1.0.10", TCP_80));
    let port = program.port(PortId(1)).unwrap();
    let closed = program.decide(port.ingress, ip("10.1.0.11"), TCP_80).rule.unwrap();
    let open = program.decide(port.egress, ip("10.1.0.11"), TCP_80).rule.unwrap();
    // Both are said by the policy, at its name.
    assert_eq!((program.origin(closed), program.origin(open)), ("all.yaml:25".into(), "all.yaml:25".into()));
    // A port that a TenantPolicy speaks of keeps floodway's default.
    let (program, _) = compile(&[one, tenant("b", "ports: [b0], egress: [{action: Accept}]")]);
    assert!(!ingress(&program, At::B, "10.1.0.10", TCP_80));
    // Without any policy, and with those of the operator only, a tenant is closed.
    let (program, _) = compile(&[cluster("pass", "Baseline", 0, &to_a("Pass"))]);
    assert!(!egress(&program, At::A, "10.1.0.20", TCP_80));
}

#[test]
fn b049_and_b050_hold_for_network_policies() {
    let block = |cidr: &str, rest: &str| format!("{{ipBlock: {{cidr: {cidr}{rest}}}}}");
    let all = block("0.0.0.0/0", ", except: [10.0.0.0/8]");
    let spec = |rules: String| format!("{{podSelector: {{}}, policyTypes: [Egress], egress: [{rules}]}}");
    let rules = format!("{{to: [{all}]}}, {{to: [{}], ports: [{{port: 9090}}]}}", block("10.0.0.0/8", ""));
    let (program, _) = compile(&[network("one", &spec(rules))]);
    assert!(!egress(&program, At::A, "10.1.1.1", Service::Tcp(22)));
    assert!(egress(&program, At::A, "10.1.1.1", Service::Tcp(9090)));
    assert!(egress(&program, At::A, "11.1.1.1", Service::Tcp(22)));
    let one = network("one", &spec(format!("{{to: [{}]}}", block("10.0.0.0/8", ", except: [10.0.3.0/24]"))));
    let two = network("two", &spec(format!("{{to: [{}]}}", block("10.0.3.209/32", ""))));
    let (program, _) = compile(&[one, two]);
    assert!(egress(&program, At::A, "10.0.3.209", TCP_80));
    assert!(!egress(&program, At::A, "10.0.3.208", TCP_80));
}

#[test]
fn b051_a_named_port_is_what_its_own_destination_calls_so() {
    let ports = "ports: [{port: web}]";
    let both = format!(
        "{{podSelector: {{}}, policyTypes: [Ingress, Egress], ingress: [{{{ports}}}], egress: [{{{ports}}}]}}"
    );
    let (program, warnings) = compile(&[network("named", &both)]);
    assert_eq!(warnings, "");
    let answers = |ask: &dyn Fn(u16) -> bool| [80, 81].map(ask);
    assert_eq!(answers(&|port| ingress(&program, At::A, "10.1.0.20", Service::Tcp(port))), [true, false]);
    assert_eq!(answers(&|port| ingress(&program, At::B, "fd00::10", Service::Tcp(port))), [false, true]);
    assert_eq!(answers(&|port| egress(&program, At::A, "10.1.0.10", Service::Tcp(port))), [true, false]);
    assert_eq!(answers(&|port| egress(&program, At::A, "fd00::11", Service::Tcp(port))), [false, true]);
    // What has no name has no such port, whoever is meant.
    assert_eq!(answers(&|port| egress(&program, At::A, "10.1.0.20", Service::Tcp(port))), [false, false]);
    // The protocol is part of it.
    assert!(!ingress(&program, At::A, "10.1.0.20", Service::Udp(80)));
}

#[test]
fn b052_sctp_has_named_ports_too() {
    let spec = "{podSelector: {}, ingress: [{ports: [{protocol: SCTP, port: sig}]}]}";
    let (program, _) = compile(&[network("sctp", spec)]);
    assert!(ingress(&program, At::B, "10.1.0.10", Service::Sctp(3301)));
    assert!(!ingress(&program, At::B, "10.1.0.10", Service::Sctp(3302)));
    assert!(!ingress(&program, At::B, "10.1.0.10", Service::Tcp(3301)));
    // The rule is no rule on a port that names none, not one for everything.
    assert!(!ingress(&program, At::A, "10.1.0.11", Service::Sctp(3301)));
}

#[test]
fn b054_an_egress_policy_to_nobody_closes() {
    let spec = "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: nobody}}}]}]}";
    let (program, warnings) = compile(&[network("nobody", spec)]);
    for peer in ["10.1.0.11", "10.1.0.20", "8.8.8.8", "fd00::11"] {
        assert!(!egress(&program, At::A, peer, TCP_80), "{peer}");
    }
    assert!(warnings.contains("no pod of tenant red has these labels: the peer is nobody"), "{warnings}");
}

#[test]
fn b055_both_families_of_a_policy_stay_whatever_follows() {
    let spec = "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.9.0.0/16}}, {ipBlock: {cidr: 'fd00:9::/64'}}]}]}";
    let documents = [network("both", spec)];
    let (first, _) = compile(&documents);
    let text = format!("{HEAD}{WORLD}{}", documents.concat());
    let parsed = policy::parse(&[Source { name: "all.yaml".into(), bytes: text.into() }]).unwrap();
    let again = compile::compile(&parsed.policy, Some(&first)).unwrap().program;
    assert_eq!(again.rules, first.rules);
    for peer in ["10.9.3.4", "fd00:9::34"] {
        assert!(ingress(&again, At::A, peer, TCP_80), "{peer}");
    }
    assert!(!ingress(&again, At::A, "fd00:8::34", TCP_80));
}

#[test]
fn b057_what_only_a_deleted_policy_allowed_is_denied() {
    let allow = |name, port| {
        network(name, &format!("{{podSelector: {{}}, ingress: [{{ports: [{{port: {port}}}]}}]}}"))
    };
    let (program, _) = compile(&[allow("one", 80), allow("two", 81)]);
    assert!(
        ingress(&program, At::A, "10.1.0.11", TCP_80)
            && ingress(&program, At::A, "10.1.0.11", Service::Tcp(81))
    );
    let (program, _) = compile(&[allow("two", 81)]);
    assert!(
        !ingress(&program, At::A, "10.1.0.11", TCP_80)
            && ingress(&program, At::A, "10.1.0.11", Service::Tcp(81))
    );
    // Created again under the same name with other content, nothing of the first is left.
    let (program, _) = compile(&[allow("two", 80)]);
    assert!(
        ingress(&program, At::A, "10.1.0.11", TCP_80)
            && !ingress(&program, At::A, "10.1.0.11", Service::Tcp(81))
    );
}

#[test]
fn b060_every_address_of_adjacent_prefixes_has_its_way() {
    let (program, _) = compile(&[]);
    let tenant = program.tenants[0].as_ref().unwrap();
    for low in 0..=255u8 {
        for third in [0, 1] {
            let place = tenant.locate(IpAddr::from([10, 0, third, low]))[0].place;
            assert_eq!(place, Place::Vtep(VtepId(0)), "10.0.{third}.{low}");
        }
    }
}

#[test]
fn b061_removing_one_direction_leaves_the_other() {
    let inward = network("in", "{podSelector: {}, ingress: [{ports: [{port: 80}]}]}");
    let outward = network("out", "{podSelector: {}, policyTypes: [Egress], egress: []}");
    let (program, _) = compile(&[inward.clone(), outward]);
    assert!(
        !egress(&program, At::A, "10.1.0.11", TCP_80)
            && !ingress(&program, At::A, "10.1.0.11", Service::Tcp(81))
    );
    let (program, _) = compile(&[inward]);
    assert!(
        egress(&program, At::A, "10.1.0.11", TCP_80)
            && !ingress(&program, At::A, "10.1.0.11", Service::Tcp(81))
    );
}

#[test]
fn b063_well_known_tunnel_ports_are_the_tenants_own() {
    let spec = "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{protocol: UDP, port: 1000, endPort: 4791}]}]}";
    let (program, _) = compile(&[network("udp", spec)]);
    for service in [Service::Udp(4789), Service::Udp(1000), Service::Roce(17)] {
        assert!(egress(&program, At::A, "10.1.0.11", service), "{service:?}");
    }
    assert!(!egress(&program, At::A, "10.1.0.11", Service::Udp(4792)));
}

#[test]
fn b068_default_routes_of_both_families_are_found() {
    let (program, _) = compile(&[]);
    let tenant = program.tenants[0].as_ref().unwrap();
    for address in ["8.8.8.8", "2001:db8::1"] {
        assert_eq!(tenant.locate(ip(address))[0].place, Place::Vtep(VtepId(0)), "{address}");
    }
}

#[test]
fn a_fragment_of_what_may_have_been_passed_on_needs_both_answers() {
    let admin = |action: &str| {
        cluster(
            "admin",
            "Admin",
            0,
            &format!(
                "egress: [{{action: Pass, to: [{{networks: [0.0.0.0/0]}}], protocols: [{{tcp: {{destinationPort: {{number: 80}}}}}}]}}, {{action: {action}, to: [{{networks: [0.0.0.0/0]}}]}}]"
            ),
        )
    };
    let own = |action: &str| tenant("own", &format!("egress: [{{action: {action}}}]"));
    let fragment = Service::Opaque(6);
    for (first, second, expected) in [
        ("Accept", "Accept", true),
        ("Accept", "Deny", false),
        ("Deny", "Accept", false),
        ("Deny", "Deny", false),
    ] {
        let (program, _) = compile(&[admin(first), own(second)]);
        assert_eq!(egress(&program, At::A, "10.1.0.20", fragment), expected, "{first} {second}");
    }
    // Of another protocol than the rule's there is no doubt.
    let (program, _) = compile(&[admin("Accept"), own("Deny")]);
    assert!(egress(&program, At::A, "10.1.0.20", Service::Opaque(17)));
}

#[test]
fn tags_and_tenants_mean_their_prefixes() {
    let tag = format!(
        "---\n{HEAD}kind: PrefixTag\nmetadata: {{name: lab}}\nspec: {{prefixes: [10.9.8.0/24, 'fd00:9::/64']}}\n"
    );
    let (program, _) = compile(&[tag, tenant("own", "egress: [{action: Accept, to: [{tag: lab}]}]")]);
    assert!(egress(&program, At::A, "10.9.8.1", TCP_80) && egress(&program, At::A, "fd00:9::1", TCP_80));
    assert!(!egress(&program, At::A, "10.9.7.1", TCP_80));
    let (program, _) = compile(&[tenant("own", "ingress: [{action: Accept, from: [{tenant: red}]}]")]);
    // The tenant's remote has the default route.
    for peer in ["10.1.0.10", "10.1.0.20", "10.9.7.1", "8.8.8.8"] {
        assert!(ingress(&program, At::B, peer, TCP_80), "{peer}");
    }
    let other = format!("---\n{HEAD}kind: Tenant\nmetadata: {{name: blue}}\nspec: {{vni: 7}}\n");
    let (program, warnings) =
        compile(&[other, tenant("own", "ingress: [{action: Accept, from: [{tenant: blue}]}]")]);
    assert!(!ingress(&program, At::B, "10.1.0.10", TCP_80));
    assert!(
        warnings.contains("tenant blue cannot be reached from another: the peer is nobody"),
        "{warnings}"
    );
}
