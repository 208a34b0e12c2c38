//! Conformance files of network-policy-api (ClusterNetworkPolicy of v1alpha2).
//!
//! They speak of four namespaces that reach each other. Tenants do not, so the files are run twice: unchanged, where
//! nothing passes between tenants whatever they say, and with the four namespaces folded into one tenant, where the
//! verdicts are those of the project's own tests.

use program::Service;

use crate::world::{self, OUTSIDE, Tenant};

/// Who may open what to whom.
type Expected = &'static [(&'static str, &'static str, Service, bool)];

const T80: Service = Service::Tcp(80);
const T8080: Service = Service::Tcp(8080);
const U53: Service = Service::Udp(53);
const U5353: Service = Service::Udp(5353);
const S9003: Service = Service::Sctp(9003);
const S9005: Service = Service::Sctp(9005);

/// Four houses, by their first letters.
const HOUSES: Tenant = Tenant {
    name: "cluster",
    labels: "",
    pods: &[
        (
            "g",
            "conformance-house: gryffindor, kubernetes.io/metadata.name: network-policy-conformance-gryffindor",
        ),
        (
            "s",
            "conformance-house: slytherin, kubernetes.io/metadata.name: network-policy-conformance-slytherin",
        ),
        (
            "h",
            "conformance-house: hufflepuff, kubernetes.io/metadata.name: network-policy-conformance-hufflepuff",
        ),
        (
            "r",
            "conformance-house: ravenclaw, kubernetes.io/metadata.name: network-policy-conformance-ravenclaw",
        ),
    ],
};

/// It selects nobody: it makes the tenant one whose pods are open unless a policy closes them.
const AS_KUBERNETES: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: nobody, namespace: cluster}\nspec: {podSelector: {matchLabels: {no: body}}}\n";

const EGRESS_TCP: Expected = &[
    ("g", "r", T80, true),
    ("g", "r", T8080, true),
    ("g", "s", T80, false),
    ("g", "s", T8080, true),
    ("g", "h", T8080, true),
    ("g", "h", T80, false),
    ("h", "g", T80, true),
];
const INGRESS_TCP: Expected = &[
    ("r", "g", T80, true),
    ("r", "g", T8080, true),
    ("s", "g", T80, false),
    ("s", "g", T8080, true),
    ("h", "g", T80, true),
    ("h", "g", T8080, false),
    ("g", "h", T8080, true),
];
const EGRESS_UDP: Expected = &[
    ("h", "r", U53, true),
    ("h", "r", U5353, true),
    ("h", "s", U5353, false),
    ("h", "s", U53, true),
    ("h", "g", U53, true),
    ("h", "g", U5353, false),
];
const INGRESS_UDP: Expected = &[
    ("r", "h", U53, true),
    ("r", "h", U5353, true),
    ("s", "h", U5353, false),
    ("s", "h", U53, true),
    ("g", "h", U53, true),
    ("g", "h", U5353, false),
];
const EGRESS_SCTP: Expected = &[
    ("r", "g", S9003, true),
    ("r", "g", S9005, true),
    ("r", "s", S9003, false),
    ("r", "s", S9005, true),
    ("r", "h", S9003, true),
    ("r", "h", S9005, false),
];
const INGRESS_SCTP: Expected = &[
    ("g", "r", S9003, true),
    ("g", "r", S9005, true),
    ("s", "r", S9003, false),
    ("s", "r", S9005, true),
    ("h", "r", S9003, true),
    ("h", "r", S9005, false),
];
const COMBINED: Expected = &[
    ("g", "r", T80, true),
    ("g", "r", S9005, true),
    ("g", "s", T80, false),
    ("g", "s", U53, false),
    ("g", "s", S9003, false),
    ("g", "s", T8080, true),
    ("g", "s", U5353, true),
    ("g", "s", S9005, true),
    ("g", "h", T8080, true),
    ("g", "h", U5353, true),
    ("g", "h", S9003, true),
    ("g", "h", T80, false),
    ("g", "h", U53, false),
    ("g", "h", S9005, false),
    ("r", "g", U53, true),
    ("s", "g", T80, false),
    ("s", "g", U53, false),
    ("s", "g", S9003, false),
    ("s", "g", T8080, true),
    ("h", "g", T80, true),
    ("h", "g", U5353, true),
    ("h", "g", S9003, true),
    ("h", "g", T8080, false),
    ("h", "g", U53, false),
    ("h", "g", S9005, false),
];
/// The rule for the whole of IPv4 holds for pods too.
const CIDR: Expected =
    &[("g", "s", T80, true), ("g", "h", T80, false), ("g", OUTSIDE, T80, false), ("s", OUTSIDE, T80, true)];
const NODES: Expected = &[("g", "s", T80, false), ("g", "h", T80, false), ("g", OUTSIDE, T80, false)];
const NODES_BASELINE: Expected = &[("g", OUTSIDE, S9005, false), ("s", OUTSIDE, S9005, true)];

/// A file, what its test changes in it, and the verdicts.
type Case = (&'static str, &'static [(&'static str, &'static str)], Expected);

const CASES: &[Case] = &[
    ("admin_tier_standard-egress-tcp-rules", &[], EGRESS_TCP),
    ("admin_tier_standard-ingress-tcp-rules", &[], INGRESS_TCP),
    ("admin_tier_standard-egress-udp-rules", &[], EGRESS_UDP),
    ("admin_tier_standard-ingress-udp-rules", &[], INGRESS_UDP),
    ("admin_tier_standard-egress-sctp-rules", &[], EGRESS_SCTP),
    ("admin_tier_standard-ingress-sctp-rules", &[], INGRESS_SCTP),
    ("admin_tier_standard-gress-rules-combined", &[], COMBINED),
    ("admin_tier_standard-egress-inline-cidr-rules", &[], CIDR),
    ("admin_tier_experimental-egress-selector-rules", &[], NODES),
    ("admin_tier_standard-priority-field", &[], &[("s", "g", T80, false), ("g", "s", T80, false)]),
    (
        "admin_tier_standard-priority-field",
        &[("priority: 60", "priority: 40")],
        &[("s", "g", T80, true), ("g", "s", T80, true)],
    ),
    (
        "api_integration_standard-anp-np-banp",
        &[],
        &[("s", "g", T80, false), ("g", "s", T80, false), ("h", "g", T80, false)],
    ),
    (
        "api_integration_standard-anp-np-banp",
        &[("\"Deny\" # test", "\"Pass\" # test"), ("\"Deny\" # test", "\"Pass\" # test")],
        &[("s", "g", T80, true), ("g", "s", T80, true), ("h", "g", T80, false), ("g", "h", T80, false)],
    ),
    (
        // The NetworkPolicy is gone: it selects what no pod has.
        "api_integration_standard-anp-np-banp",
        &[
            ("\"Deny\" # test", "\"Pass\" # test"),
            ("\"Deny\" # test", "\"Pass\" # test"),
            ("podSelector:\n  policyTypes", "podSelector: {matchLabels: {no: body}}\n  policyTypes"),
        ],
        &[("s", "g", T80, false), ("g", "s", T80, false), ("h", "g", T80, true), ("g", "h", T80, true)],
    ),
    ("baseline_tier_standard-egress-tcp-rules", &[], EGRESS_TCP),
    ("baseline_tier_standard-ingress-tcp-rules", &[], INGRESS_TCP),
    ("baseline_tier_standard-egress-udp-rules", &[], EGRESS_UDP),
    ("baseline_tier_standard-ingress-udp-rules", &[], INGRESS_UDP),
    ("baseline_tier_standard-egress-sctp-rules", &[], EGRESS_SCTP),
    ("baseline_tier_standard-ingress-sctp-rules", &[], INGRESS_SCTP),
    ("baseline_tier_standard-gress-rules-combined", &[], COMBINED),
    ("baseline_tier_standard-egress-inline-cidr-rules", &[], CIDR),
    ("baseline_tier_experimental-egress-selector-rules", &[], NODES_BASELINE),
];

/// The form before v1alpha2. They are refused with the name of their successor.
const SUPERSEDED: [&str; 10] = [
    "policy_assistant/demos_kubecon-eu-2024_policies_anp1.yaml",
    "policy_assistant/demos_kubecon-eu-2024_policies_anp2.yaml",
    "policy_assistant/demos_kubecon-eu-2024_policies_anp3.yaml",
    "policy_assistant/demos_kubecon-eu-2024_policies_banp.yaml",
    "policy_assistant/demos_walkthrough_policies_anp1.yaml",
    "policy_assistant/demos_walkthrough_policies_anp2.yaml",
    "policy_assistant/demos_walkthrough_policies_banp.yaml",
    "policy_assistant/example-policies_anps_anp-list.yaml",
    "policy_assistant/example-policies_anps_anp.yaml",
    "policy_assistant/example-policies_banp_banp.yaml",
];

fn path(name: &str) -> String {
    format!("npapi_conformance/{name}.yaml")
}

pub fn files() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|(name, ..)| &*path(name).leak()).chain(SUPERSEDED)
}

/// The file as it is, with numbers where the conformance tests put the ports of their hosts.
fn read(folder: &std::path::Path, name: &str) -> String {
    let mut text = world::read(folder, &path(name));
    for number in 0..8 {
        text = text.replace(&format!("{{{{ index .HostNetworkPorts {number} }}}}"), &format!("3444{number}"));
    }
    text
}

/// Namespaces become labels of pods of one tenant.
fn fold(text: &str) -> String {
    let mut lines = Vec::new();
    // Inside a selector that moves or goes: its column, and how far to move; `None` drops it.
    let mut inside: Option<(usize, Option<usize>)> = None;
    for line in text.lines() {
        let key = line.trim_start_matches([' ', '-']);
        let column = line.len() - key.len();
        let (indent, start) = (" ".repeat(column), &line[..column]);
        inside = inside.filter(|(outer, _)| column > *outer);
        match (key, inside) {
            (_, Some((_, None))) => {}
            (_, Some((_, Some(by)))) => lines.push(format!("{}{line}", " ".repeat(by))),
            ("namespaces:", None) => {
                lines
                    .push(format!("{start}pods:\n{indent}  namespaceSelector: {{}}\n{indent}  podSelector:"));
                inside = Some((column, Some(2)));
            }
            ("namespaceSelector:", None) if start.contains('-') => lines.push(format!("{start}podSelector:")),
            ("namespaceSelector:", None) => {
                lines.push(format!("{start}namespaceSelector: {{}}"));
                inside = Some((column, None));
            }
            ("podSelector:", None) if column == 2 => {
                lines.push(format!("{start}podSelector: {{matchLabels: {{conformance-house: gryffindor}}}}"));
            }
            ("namespace: network-policy-conformance-gryffindor", None) => {
                lines.push(format!("{start}namespace: cluster"));
            }
            _ => lines.push(line.into()),
        }
    }
    lines.join("\n")
}

#[test]
fn folded_into_one_tenant_the_verdicts_are_those_of_the_project() {
    let Some(folder) = world::corpus() else { return };
    for (name, changes, expected) in CASES {
        let mut text = read(&folder, name);
        for (from, to) in *changes {
            assert!(text.contains(from), "{name}: {from}");
            text = text.replacen(from, to, 1);
        }
        let Tenant { name: tenant, labels, pods } = HOUSES;
        let documents = [fold(&text), AS_KUBERNETES.to_owned()];
        let parsed = world::parse(&[Tenant { name: tenant, labels, pods }], &documents)
            .unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let program = compile::compile(&parsed.policy, None).unwrap().program;
        for (from, to, service, is_allowed) in *expected {
            let allowed = world::is_allowed(&program, tenant, from, to, *service);
            assert_eq!(allowed, *is_allowed, "{name} {changes:?}: {from} to {to}, {service:?}");
        }
    }
}

#[test]
fn unchanged_they_let_nothing_pass_between_tenants_and_say_so() {
    let Some(folder) = world::corpus() else { return };
    let tenants = || {
        [("g", "gryffindor"), ("s", "slytherin"), ("h", "hufflepuff"), ("r", "ravenclaw")].map(
            |(_, house)| Tenant {
                name: format!("network-policy-conformance-{house}").leak(),
                labels: format!("conformance-house: {house}").leak(),
                pods: match house {
                    "gryffindor" => &[("a", "conformance-house: gryffindor")],
                    "slytherin" => &[("a", "conformance-house: slytherin")],
                    "hufflepuff" => &[("a", "conformance-house: hufflepuff")],
                    _ => &[("a", "conformance-house: ravenclaw")],
                },
            },
        )
    };
    for (file, ..) in CASES {
        let parsed = world::parse(&tenants(), &[read(&folder, file)])
            .unwrap_or_else(|errors| panic!("{file}: {errors}"));
        let warnings = parsed.warnings.to_string();
        let is_told = warnings.contains("this is none of the rule's own: the peer is nobody")
            || warnings.contains("has no nodes in it: the peer is nobody");
        assert!(is_told && warnings.contains("document0.yaml:"), "{file}: {warnings}");
        let program = compile::compile(&parsed.policy, None).unwrap().program;
        for from in tenants() {
            for to in tenants().into_iter().filter(|to| to.name != from.name) {
                for service in [T80, U53, S9003] {
                    let pod = format!("{}/a", to.name);
                    assert!(!world::is_allowed(&program, from.name, "a", &pod, service), "{file}");
                }
            }
        }
    }
}

#[test]
fn the_form_before_is_refused_with_the_name_of_its_successor() {
    let Some(folder) = world::corpus() else { return };
    for file in SUPERSEDED {
        let Tenant { name, labels, pods } = HOUSES;
        let errors =
            world::parse(&[Tenant { name, labels, pods }], &[world::read(&folder, file)]).unwrap_err();
        let successor =
            "rewrite it as a ClusterNetworkPolicy of policy.networking.k8s.io/v1alpha2, its successor";
        assert!(errors.contains(successor), "{file}: {errors}");
    }
}
