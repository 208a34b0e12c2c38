//! NetworkPolicies: each file alone, in a tenant with the pods that it speaks of.

use program::Service;

use crate::world::{self, OUTSIDE, Tenant};

/// A file, its tenant, and who may open what to whom.
struct Case {
    files: &'static [&'static str],
    tenant: Tenant,
    expected: Expected,
}

type Expected = &'static [(&'static str, &'static str, Service, bool)];

const TCP_80: Service = Service::Tcp(80);
const ALL: [Service; 4] = [TCP_80, Service::Udp(53), Service::Sctp(7), Service::Icmp(8, 0)];

/// The pods of the recipes.
const fn recipes(labels: &'static str) -> Tenant {
    Tenant {
        name: "default",
        labels,
        pods: &[
            ("web", "app: web"),
            ("api", "app: bookstore, role: api"),
            ("search", "app: bookstore, role: search"),
            ("db", "app: bookstore, role: db"),
            ("inventory", "app: inventory, role: web"),
            ("apiserver", "app: apiserver"),
            ("monitor", "role: monitoring, type: monitoring"),
            ("foo", "app: foo"),
            ("other", "app: other"),
        ],
    }
}

const fn abc(name: &'static str) -> Tenant {
    Tenant { name, labels: "tier: one", pods: &[("a", "pod: a, app: qrs"), ("b", "pod: b"), ("c", "pod: c")] }
}

const CASES: &[Case] = &[
    Case {
        files: &["recipes/01-deny-all-traffic-to-an-application.yaml"],
        tenant: recipes(""),
        expected: &[
            ("other", "web", TCP_80, false),
            (OUTSIDE, "web", TCP_80, false),
            ("web", "other", TCP_80, true),
            ("other", "foo", TCP_80, true),
            (OUTSIDE, "foo", TCP_80, true),
        ],
    },
    Case {
        files: &["recipes/02-limit-traffic-to-an-application.yaml"],
        tenant: recipes(""),
        expected: &[
            ("search", "api", TCP_80, true),
            ("db", "api", Service::Udp(9), true),
            ("other", "api", TCP_80, false),
            (OUTSIDE, "api", TCP_80, false),
            ("other", "search", TCP_80, true),
        ],
    },
    Case {
        files: &["recipes/02a-allow-all-traffic-to-an-application.yaml"],
        tenant: recipes(""),
        expected: &[("other", "web", TCP_80, true), (OUTSIDE, "web", TCP_80, true)],
    },
    Case {
        files: &["recipes/03-deny-all-non-whitelisted-traffic-in-the-namespace.yaml"],
        tenant: recipes(""),
        expected: &[
            ("other", "web", TCP_80, false),
            (OUTSIDE, "foo", TCP_80, false),
            ("web", OUTSIDE, TCP_80, true),
        ],
    },
    Case {
        // Together with the one before, as its page says: policies are a union.
        files: &[
            "recipes/03-deny-all-non-whitelisted-traffic-in-the-namespace.yaml",
            "recipes/02a-allow-all-traffic-to-an-application.yaml",
        ],
        tenant: recipes(""),
        expected: &[("other", "web", TCP_80, true), ("other", "foo", TCP_80, false)],
    },
    Case {
        files: &["recipes/04-deny-traffic-from-other-namespaces.yaml"],
        tenant: recipes(""),
        expected: &[
            ("other", "web", TCP_80, true),
            (OUTSIDE, "web", TCP_80, false),
            ("elsewhere/a", "web", TCP_80, false),
        ],
    },
    Case {
        // A pod of another tenant is let in by the rule, and has no way all the same.
        files: &["recipes/05-allow-traffic-from-all-namespaces.yaml"],
        tenant: recipes(""),
        expected: &[
            ("other", "web", TCP_80, true),
            (OUTSIDE, "web", TCP_80, false),
            ("elsewhere/a", "web", TCP_80, false),
        ],
    },
    Case {
        files: &["recipes/06-allow-traffic-from-a-namespace.yaml"],
        tenant: recipes(""),
        expected: &[("other", "web", TCP_80, false), ("other", "foo", TCP_80, true)],
    },
    Case {
        files: &["recipes/06-allow-traffic-from-a-namespace.yaml"],
        tenant: recipes("purpose: production"),
        expected: &[("other", "web", TCP_80, true), (OUTSIDE, "web", TCP_80, false)],
    },
    Case {
        files: &["recipes/07-allow-traffic-from-some-pods-in-another-namespace.yaml"],
        tenant: recipes("team: operations"),
        expected: &[("monitor", "web", TCP_80, true), ("other", "web", TCP_80, false)],
    },
    Case {
        files: &["recipes/07-allow-traffic-from-some-pods-in-another-namespace.yaml"],
        tenant: recipes("team: sales"),
        expected: &[("monitor", "web", TCP_80, false), ("other", "web", TCP_80, false)],
    },
    Case {
        files: &["recipes/08-allow-external-traffic_0.yaml"],
        tenant: recipes(""),
        expected: &[(OUTSIDE, "web", TCP_80, true), ("other", "web", TCP_80, true)],
    },
    Case {
        files: &["recipes/09-allow-traffic-only-to-a-port_0.yaml"],
        tenant: recipes(""),
        expected: &[
            ("monitor", "apiserver", Service::Tcp(5000), true),
            ("monitor", "apiserver", Service::Udp(5000), false),
            ("monitor", "apiserver", Service::Tcp(8000), false),
            ("other", "apiserver", Service::Tcp(5000), false),
            ("other", "apiserver", Service::Tcp(8000), false),
        ],
    },
    Case {
        files: &["recipes/10-allowing-traffic-with-multiple-selectors.yaml"],
        tenant: recipes(""),
        expected: &[
            ("search", "db", TCP_80, true),
            ("api", "db", TCP_80, true),
            ("inventory", "db", TCP_80, true),
            ("other", "db", TCP_80, false),
        ],
    },
    Case {
        files: &["recipes/11-deny-egress-traffic-from-an-application_0.yaml"],
        tenant: recipes(""),
        expected: &[
            ("foo", "web", TCP_80, false),
            ("foo", OUTSIDE, Service::Udp(53), false),
            ("other", "foo", TCP_80, true),
            ("other", OUTSIDE, TCP_80, true),
        ],
    },
    Case {
        // DNS is in the namespace kube-system, which is another tenant and cannot be reached.
        files: &["recipes/11-deny-egress-traffic-from-an-application_1.yaml"],
        tenant: recipes(""),
        expected: &[("foo", "web", Service::Udp(53), false), ("foo", OUTSIDE, Service::Udp(53), false)],
    },
    Case {
        files: &["recipes/12-deny-all-non-whitelisted-traffic-from-the-namespace.yaml"],
        tenant: recipes(""),
        expected: &[
            ("web", "other", TCP_80, false),
            ("web", OUTSIDE, TCP_80, false),
            (OUTSIDE, "web", TCP_80, true),
        ],
    },
    Case {
        files: &["recipes/14-deny-external-egress-traffic.yaml"],
        tenant: recipes(""),
        expected: &[
            ("foo", OUTSIDE, TCP_80, false),
            ("foo", "web", TCP_80, false),
            ("web", "foo", TCP_80, true),
        ],
    },
    Case {
        files: &["policy_assistant/demos_kubecon-eu-2024_policies_npv1.yaml"],
        tenant: abc("demo"),
        expected: &[("b", "a", TCP_80, false), ("a", "b", TCP_80, true), ("b", "a", Service::Tcp(81), false)],
    },
    Case {
        files: &["policy_assistant/demos_walkthrough_policies_npv1.yaml"],
        tenant: abc("demo"),
        expected: &[("b", "a", TCP_80, false), ("a", "b", TCP_80, true)],
    },
];

/// Files that both cyclonus and policy-assistant have, by the last part of their names.
const SHARED: &[(&str, &str, Expected)] = &[
    ("allow-all-internal", "abcd", &[("b", "a", TCP_80, true), (OUTSIDE, "a", TCP_80, false)]),
    ("allow-all", "abcd", &[("b", "a", TCP_80, true), (OUTSIDE, "a", TCP_80, true)]),
    (
        // Pod a of namespace y is of another tenant; DNS may go anywhere.
        "features_portrange1",
        "x",
        &[
            ("a", "b", Service::Tcp(90), false),
            ("a", OUTSIDE, Service::Tcp(80), false),
            ("a", "b", Service::Udp(53), true),
            ("a", OUTSIDE, Service::Udp(53), true),
            ("b", "a", Service::Tcp(90), true),
        ],
    ),
    (
        "simple-example_allow-all-egress-by-label",
        "y",
        &[("a", OUTSIDE, TCP_80, true), ("b", "c", TCP_80, true), ("c", "a", TCP_80, true)],
    ),
    ("simple-example_allow-all-for-label", "y", &[("a", "b", TCP_80, true), (OUTSIDE, "b", TCP_80, true)]),
    (
        "simple-example_allow-by-ip",
        "y",
        &[("a", "c", TCP_80, false), (OUTSIDE, "c", TCP_80, false), ("a", "b", TCP_80, true)],
    ),
    (
        "simple-example_allow-label-to-label",
        "y",
        &[("c", "a", TCP_80, true), ("b", "a", TCP_80, false), ("a", "b", TCP_80, true)],
    ),
    (
        "simple-example_deny-all-egress",
        "y",
        &[("a", "b", TCP_80, false), ("a", OUTSIDE, TCP_80, false), (OUTSIDE, "a", TCP_80, true)],
    ),
    ("simple-example_deny-all-for-label", "y", &[("b", "a", TCP_80, false), ("a", "b", TCP_80, true)]),
    (
        "simple-example_deny-all",
        "y",
        &[("b", "a", TCP_80, false), (OUTSIDE, "c", TCP_80, false), ("a", OUTSIDE, TCP_80, true)],
    ),
    (
        "upstream_test_cases_allow-to-ns-y-pod-a",
        "x",
        &[("a", "b", TCP_80, false), ("a", OUTSIDE, Service::Udp(53), true), ("b", "a", TCP_80, true)],
    ),
    (
        // Pod a has app: qrs, to which the third policy lets all namespaces.
        "yaml-syntax_yaml-list",
        "ns-y",
        &[
            ("b", "a", TCP_80, true),
            (OUTSIDE, "a", TCP_80, false),
            (OUTSIDE, "b", Service::Tcp(8080), false),
            ("a", OUTSIDE, TCP_80, true),
        ],
    ),
];

const NAMES: [&str; 2] = ["cyclonus/", "policy_assistant/example-policies_networkpolicies_"];

pub fn files() -> impl Iterator<Item = &'static str> {
    let shared =
        SHARED.iter().flat_map(|(name, ..)| NAMES.map(|start| &*format!("{start}{name}.yaml").leak()));
    CASES.iter().flat_map(|case| case.files).copied().chain(shared)
}

fn check(folder: &std::path::Path, files: &[&str], tenant: Tenant, expected: &[(&str, &str, Service, bool)]) {
    let elsewhere = Tenant { name: "elsewhere", labels: "purpose: production", pods: &[("a", "pod: a")] };
    let name = tenant.name;
    let documents: Vec<String> = files.iter().map(|file| world::read(folder, file)).collect();
    let parsed =
        world::parse(&[tenant, elsewhere], &documents).unwrap_or_else(|errors| panic!("{files:?}: {errors}"));
    let program = compile::compile(&parsed.policy, None).unwrap().program;
    for (from, to, service, is_allowed) in expected {
        let allowed = world::is_allowed(&program, name, from, to, *service);
        assert_eq!(allowed, *is_allowed, "{files:?}: {from} to {to}, {service:?}");
    }
}

#[test]
fn network_policies_say_what_their_authors_say() {
    let Some(folder) = world::corpus() else { return };
    for case in CASES {
        let Tenant { name, labels, pods } = case.tenant;
        check(&folder, case.files, Tenant { name, labels, pods }, case.expected);
    }
    for (name, tenant, expected) in SHARED {
        for start in NAMES {
            check(&folder, &[&format!("{start}{name}.yaml")], abc(tenant), expected);
        }
    }
}

#[test]
fn what_is_denied_as_a_whole_is_denied_for_every_protocol() {
    let Some(folder) = world::corpus() else { return };
    let deny = "simple-example_deny-all";
    for service in ALL {
        check(&folder, &[&format!("cyclonus/{deny}.yaml")], abc("y"), &[("b", "a", service, false)]);
        check(&folder, &["cyclonus/allow-all.yaml"], abc("abcd"), &[("b", "a", service, true)]);
    }
}
