//! Tiers that decide nothing are warned of, with the places of both rules; tiers that decide something are not.
#![allow(clippy::unwrap_used)] // what a test sets up may fail it

use policy::Source;

const HEAD: &str = "apiVersion: floodway.dev/v1alpha1\n";

const WORLD: &str = "kind: Fabric
metadata: {name: box}
spec:
  ports:
    - {name: up, device: 'memory:', mtu: 9000}
    - {name: a0, device: 'memory:'}
    - {name: b0, device: 'memory:'}
    - {name: c0, device: 'memory:'}
  uplink: {port: up, addresses: [192.0.2.1/24]}
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: red}
spec:
  vni: 100
  ports:
    - {port: a0, mac: 02:00:00:00:00:10, addresses: [10.1.0.10, 'fd00::10'], labels: {app: a}}
    - {port: b0, mac: 02:00:00:00:00:11, addresses: [10.1.0.11], labels: {app: b}}
---
apiVersion: floodway.dev/v1alpha1
kind: Tenant
metadata: {name: blue}
spec:
  vni: 200
  ports:
    - {port: c0, mac: 02:00:00:00:00:12, addresses: [10.1.0.10], labels: {app: a}}
";

/// The warnings of the compile step for these documents, each in a file of its own name.
fn warned(documents: &[(&str, String)]) -> Vec<String> {
    let world = ("world", format!("{HEAD}{WORLD}"));
    let all = documents.iter().chain([&world]);
    let sources: Vec<Source> =
        all.map(|(name, text)| Source { name: format!("{name}.yaml"), bytes: text.clone().into() }).collect();
    let parsed = policy::parse(&sources).unwrap_or_else(|errors| panic!("{}", errors.render(&sources)));
    let warnings = compile::compile(&parsed.policy, None).unwrap().warnings;
    warnings.list.iter().map(ToString::to_string).collect()
}

fn cluster(tier: &str, rules: &str) -> String {
    format!(
        "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {{name: {}}}\nspec: {{tier: {tier}, priority: 1, subject: {{namespaces: {{}}}},\n {rules}}}\n",
        tier.to_lowercase()
    )
}

fn own(tenant: &str, rules: &str) -> String {
    format!("{HEAD}kind: TenantPolicy\nmetadata: {{name: own}}\nspec: {{tenant: {tenant},\n {rules}}}\n")
}

fn network(tenant: &str, pods: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: n, namespace: {tenant}}}\nspec: {{podSelector: {pods}, policyTypes: [Ingress]}}\n"
    )
}

const ALL: &str = "to: [{networks: [0.0.0.0/0, '::/0']}]";
const BASE_IN: &str = "ingress: [{action: Accept, from: [{namespaces: {}}]}]";

#[test]
fn an_admin_rule_for_everything_closes_what_is_behind() {
    for action in ["Accept", "Deny"] {
        let admin = cluster("Admin", &format!("egress: [{{action: {action}, {ALL}}}]"));
        let base = cluster("Baseline", &format!("egress: [{{action: Deny, {ALL}}}]"));
        let red = own("red", "egress: [{action: Accept}]");
        assert_eq!(
            warned(&[("admin", admin), ("base", base), ("red", red)]),
            [
                "base.yaml:5:11: warning: no packet that ports of the tenants blue, red send comes to the Baseline tier, of which this is the first rule\n  note: admin.yaml:5:11: this decides all of them before",
                "red.yaml:5:11: warning: no packet that ports of tenant red send comes to the Tenant tier, of which this is the first rule\n  note: admin.yaml:5:11: this decides all of them before",
            ]
        );
    }
}

#[test]
fn a_rule_of_each_family_is_as_good_as_one_for_all_and_half_is_not() {
    let admin = |egress: &str| ("admin", cluster("Admin", &format!("egress: [{egress}]")));
    let red = || ("red", own("red", "ports: [a0], egress: [{action: Accept}]"));
    let v4 = "{action: Deny, to: [{networks: [0.0.0.0/0]}]}";
    let v6 = "{action: Accept, to: [{networks: ['::/0']}]}";
    assert_eq!(warned(&[admin(v4), red()]), [""; 0]);
    let both = warned(&[admin(&format!("{v4},\n {v6}")), red()]);
    assert!(both.len() == 1 && both[0].contains("admin.yaml:6:2: this decides"), "{both:?}");
    // The port of the other policy has IPv4 only.
    assert_eq!(warned(&[admin(v4), ("red", own("red", "ports: [b0], egress: [{action: Accept}]"))]).len(), 1);
    for partly in [
        "{action: Deny, to: [{networks: [0.0.0.0/1, 128.0.0.0/1, '::/0']}], protocols: [{tcp: {}}, {udp: {}}, {sctp: {}}]}",
        "{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}], protocols: [{tcp: {}}]}",
        "{action: Deny, to: [{namespaces: {}}]}",
        "{action: Pass, to: [{networks: [0.0.0.0/0, '::/0']}]}",
    ] {
        assert_eq!(warned(&[admin(partly), red()]), [""; 0], "{partly}");
    }
}

#[test]
fn what_is_passed_on_comes_through() {
    let admin = |rules: &str| ("admin", cluster("Admin", &format!("egress: [{rules}]")));
    let red = || ("red", own("red", "egress: [{action: Accept}]"));
    let pass = "{action: Pass, to: [{networks: [10.0.0.0/8]}], protocols: [{tcp: {}}]}";
    let deny = format!("{{action: Deny, {ALL}}}");
    assert_eq!(warned(&[admin(&format!("{pass}, {deny}")), red()]), [""; 0]);
    assert_eq!(warned(&[admin(&format!("{deny}, {pass}")), red()]).len(), 1);
    // What Admin passes on, the tenant decides, so that nothing comes to Baseline.
    let base = || ("base", cluster("Baseline", &format!("egress: [{deny}]")));
    let told = warned(&[admin(&format!("{pass}, {deny}")), red(), base()]);
    let own = "base.yaml:5:11: warning: no packet that ports of tenant red send comes to the Baseline tier, of which this is the first rule\n  note: red.yaml:5:11: this decides all of them before";
    // Not to red's; to blue's it does.
    assert_eq!(told, [own]);
}

#[test]
fn baseline_is_for_ports_that_no_network_policy_closes() {
    let base = || ("base", cluster("Baseline", BASE_IN));
    // One port of red is left for Baseline to speak of.
    assert_eq!(warned(&[base(), ("red", network("red", "{matchLabels: {app: a}}"))]), [""; 0]);
    assert_eq!(
        warned(&[base(), ("red", network("red", "{}"))]),
        [
            "base.yaml:5:12: warning: no packet that ports of tenant red are sent comes to the Baseline tier, of which this is the first rule\n  note: red.yaml:3:18: this decides all of them before"
        ]
    );
    assert_eq!(warned(&[base(), ("red", network("red", "{}")), ("blue", network("blue", "{}"))]).len(), 2);
}

#[test]
fn many_tenants_make_one_warning() {
    let tenant = |number: usize| {
        format!(
            "---\n{HEAD}kind: Tenant\nmetadata: {{name: t{number}}}\nspec: {{vni: {number}, ports: [{{port: p{number}, mac: 02:00:00:00:00:01, addresses: [10.0.0.1]}}]}}\n"
        )
    };
    let ports: Vec<String> =
        (1..=5).map(|number| format!("{{name: p{number}, device: 'memory:'}}")).collect();
    let fabric = format!(
        "{HEAD}kind: Fabric\nmetadata: {{name: box}}\nspec: {{ports: [{{name: up, device: 'memory:'}}, {}], uplink: {{port: up, addresses: [192.0.2.1/24]}}}}\n",
        ports.join(", ")
    );
    let rules = |tier: &str| format!("---\n{}", cluster(tier, &format!("egress: [{{action: Deny, {ALL}}}]")));
    let text = fabric + &(1..=5).map(tenant).collect::<String>() + &rules("Admin") + &rules("Baseline");
    let sources = [Source { name: "all.yaml".into(), bytes: text.into() }];
    let parsed = policy::parse(&sources).unwrap_or_else(|errors| panic!("{}", errors.render(&sources)));
    let warnings = compile::compile(&parsed.policy, None).unwrap().warnings;
    assert_eq!(warnings.list.len(), 1);
    assert!(
        warnings.list[0].message.contains("ports of the tenants t1, t2, t3 and 2 more send"),
        "{warnings}"
    );
}
