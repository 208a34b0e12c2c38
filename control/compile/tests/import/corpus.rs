//! The corpus's DASH files, and the examples that are shipped.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use policy::{Format, Source};
use program::Service;

use super::{compiled, is_accepted};

/// File, ENIs with a policy, warnings. None of them has a rule: they test routing, and bind empty groups at most.
const DASH: &[(&str, usize, usize)] = &[
    ("config_outbound_setup_commands.json", 0, 11),
    ("vips_create.json", 0, 1),
    ("vnet_inbound_setup_commands.json", 1, 0),
    ("vnet_outbound_setup_commands_scale.json", 0, 8),
    ("vnet_outbound_setup_commands_simple.json", 0, 10),
    ("vnet_route_setup_commands_bidirectional.json", 0, 0),
    ("vnet_route_setup_commands_unidirectional.json", 0, 10),
];

fn corpus() -> Option<PathBuf> {
    let folder = std::env::var_os("FLOODWAY_CORPUS").map(|root| PathBuf::from(root).join("policy/dash"));
    let folder = folder.filter(|folder| folder.is_dir());
    if folder.is_none() {
        eprintln!("skipped: FLOODWAY_CORPUS does not name the corpus");
    }
    folder
}

fn read(path: &Path) -> Source {
    let name = path.file_name().unwrap().to_str().unwrap().into();
    Source { name, bytes: fs::read(path).unwrap() }
}

#[test]
fn every_dash_file_is_read() {
    let Some(folder) = corpus() else { return };
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.collect::<BTreeSet<_>>(), DASH.iter().map(|(name, ..)| (*name).to_owned()).collect());
    for (name, policies, _) in DASH {
        let file = read(&folder.join(name));
        let imported = policy::import(Format::Dash, std::slice::from_ref(&file), Some("red"))
            .unwrap_or_else(|errors| panic!("{errors}"));
        let found: usize = imported.files.iter().map(|file| file.policies).sum();
        assert_eq!(found, *policies, "{name}: {}", imported.warnings);
        assert_eq!(imported.files.iter().map(|file| file.rules).sum::<usize>(), 0);
        assert!(!imported.warnings.is_empty(), "{name}");
    }
}

#[test]
fn the_shipped_examples_say_what_they_are_meant_to_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/import");
    // The file, its format, and how many warnings it gives.
    let examples = [
        ("dash.json", Format::Dash, 3),
        ("security-groups.json", Format::SecurityGroups, 0),
        ("ovn.json", Format::Ovn, 0),
        ("nico.json", Format::Nico, 2),
    ];
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(
        names.collect::<BTreeSet<_>>(),
        examples.iter().map(|(name, ..)| (*name).to_owned()).collect()
    );
    let [dash, groups, ovn, nico] = examples.map(|(name, format, warnings)| {
        let imported = policy::import(format, &[read(&folder.join(name))], None).unwrap();
        assert_eq!(imported.warnings.list.len(), warnings, "{}", imported.warnings);
        compiled(&imported).0
    });
    let cases = [
        (&dash, "host0", true, "10.7.0.1", Service::Tcp(2049), true),
        (&dash, "host0", true, "10.9.0.1", Service::Tcp(2049), false),
        (&dash, "host0", true, "10.1.0.11", Service::Roce(9), true),
        (&dash, "host0", true, "169.254.169.254", Service::Tcp(2049), false),
        (&dash, "host0", false, "10.1.0.11", Service::Tcp(80), false),
        (&groups, "host0", false, "203.0.113.1", Service::Tcp(443), true),
        (&groups, "host0", true, "10.1.0.11", Service::Tcp(5432), true),
        (&groups, "host1", false, "10.1.0.10", Service::Tcp(5432), true),
        (&groups, "host1", false, "203.0.113.1", Service::Tcp(5432), false),
        (&groups, "host0", false, "203.0.113.1", Service::Icmp(8, 0), true),
        (&groups, "host0", false, "203.0.113.1", Service::Icmp(13, 0), false),
        (&ovn, "host0", false, "203.0.113.1", Service::Tcp(443), true),
        (&ovn, "host0", false, "203.0.113.1", Service::Tcp(22), false),
        (&ovn, "host0", false, "203.0.113.1", Service::Icmp(8, 0), true),
        (&ovn, "host0", true, "10.7.0.1", Service::Tcp(2049), true),
        (&ovn, "host0", true, "10.1.0.11", Service::Tcp(5432), true),
        (&ovn, "host0", true, "10.9.0.1", Service::Tcp(2049), false),
        (&ovn, "host1", false, "10.1.0.10", Service::Tcp(5432), true),
        (&ovn, "host1", false, "203.0.113.1", Service::Tcp(5432), false),
        (&nico, "host0", false, "203.0.113.1", Service::Tcp(443), true),
        (&nico, "host0", true, "10.9.0.1", Service::Udp(53), true),
        (&nico, "host0", true, "203.0.113.1", Service::Udp(53), false),
        (&nico, "host0", true, "169.254.169.254", Service::Tcp(80), false),
    ];
    for (program, port, is_egress, peer, service, expected) in cases {
        let found = is_accepted(program, port, is_egress, peer.parse().unwrap(), service);
        assert_eq!(found, expected, "{port} {peer} {service:?}");
    }
}
