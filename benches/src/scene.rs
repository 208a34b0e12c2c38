//! The policy of a measurement, as text: one tenant with a port here and hosts behind a tunnel endpoint whose MAC is given.

use std::fmt::Write;

use crate::traffic::DST_PORTS;

const WORLD: &str = include_str!("../policies/edge.yaml");

/// The documents with `rules` egress rules that accept: each one block of sixteen addresses and one port, as
/// [`crate::traffic`] spreads its flows over them. The first ten are those of the file.
pub fn policy(rules: u32) -> String {
    let mut text = WORLD.to_string();
    for rule in 0..rules {
        let (third, fourth, port) = rule_of(rule);
        let _ = writeln!(
            text,
            "    - {{action: Accept, to: [{{ipBlock: {{cidr: 10.2.{third}.{fourth}/28}}}}], \
             services: [{{protocol: UDP, port: {port}}}]}}"
        );
    }
    if rules == 0 {
        let (first, last) = (DST_PORTS.start, DST_PORTS.end - 1);
        text.push_str("    - {action: Accept, services: [{protocol: RoCEv2}]}\n");
        for protocol in ["UDP", "TCP"] {
            let _ = writeln!(
                text,
                "    - {{action: Accept, services: [{{protocol: {protocol}, port: {first}, endPort: {last}}}]}}"
            );
        }
    }
    text
}

/// Third and fourth byte of the prefix 10.2.x.y/28, and port, of a rule.
pub fn rule_of(rule: u32) -> (u8, u8, u16) {
    let block = rule % 4096;
    ((block >> 4) as u8, (block << 4) as u8, DST_PORTS.start + (rule / 4096) as u16 % DST_PORTS.len() as u16)
}

/// The compiled program of [`policy`].
pub fn program(rules: u32) -> Result<program::Program, String> {
    let source = policy::Source { name: "edge.yaml".into(), bytes: policy(rules).into_bytes() };
    let parsed = policy::parse(&[source]).map_err(|errors| errors.to_string())?;
    Ok(compile::compile(&parsed.policy, None).map_err(|errors| errors.to_string())?.program)
}
