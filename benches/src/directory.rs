//! A policy directory of any size, the same for the same seed: one file for the Fabric, one for each tenant.

use std::fmt::Write;

use policy::Source;

/// Devices of a card besides the uplink: as many tenants have a port here, the others have remote hosts only.
const PORTS: usize = program::limit::PORTS - 1;
const VTEPS: usize = 64;
const HEAD: &str = "apiVersion: floodway.dev/v1alpha1\n";

/// How large.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Tenants, at most 4096.
    pub tenants: usize,
    /// Rules of each tenant, half of them in each direction.
    pub rules: usize,
}

/// The files, the Fabric's first.
pub fn sources(size: Size, seed: u64) -> Vec<Source> {
    let tenants = (0..size.tenants).map(|number| tenant(number, size.rules, seed, 0));
    std::iter::once(fabric()).chain(tenants).collect()
}

/// The file of one tenant after so many changes, each of which is to other ports of one rule.
pub fn tenant(number: usize, rules: usize, seed: u64, change: usize) -> Source {
    let mut random = Random(seed ^ (number as u64) << 32);
    let mut text = format!("{HEAD}kind: Tenant\nmetadata: {{name: t{number:04}}}\nspec:\n");
    let vni = 1000 + number;
    writeln!(text, "  vni: {vni}\n  gateway: {{addresses: [10.0.0.1]}}").expect("a string takes it");
    if number < PORTS {
        let port = format!(
            "{{port: p{number:04}, mac: 02:00:00:00:{:02x}:{:02x}, addresses: [10.0.0.10], labels: {{role: web}}}}",
            number >> 8,
            number & 0xff
        );
        writeln!(text, "  ports:\n    - {port}").expect("a string takes it");
    }
    text += "  remotes:\n";
    for host in 0..4 {
        let vtep = random.below(VTEPS);
        writeln!(text, "    - {{name: far{host}, vtep: v{vtep:02}, mac: 02:00:00:01:00:{vtep:02x}, addresses: [10.0.1.{host}]}}")
            .expect("a string takes it");
    }
    write!(text, "---\n{HEAD}kind: TenantPolicy\nmetadata: {{name: rules}}\nspec:\n  tenant: t{number:04}\n")
        .expect("a string takes it");
    for (direction, peers) in [("egress", "to"), ("ingress", "from")] {
        writeln!(text, "  {direction}:").expect("a string takes it");
        for rule in 0..rules / 2 {
            // Each rule has ports of its own, so that none is shadowed.
            let port = 1024 + 64 * rule + if rule == 0 { change % 64 } else { random.below(64) };
            text += &rule_text(peers, port, &mut random);
        }
    }
    Source { name: format!("policy/t{number:04}.yaml"), bytes: text.into() }
}

/// As people write them: block style, one field a line.
fn rule_text(peers: &str, port: usize, random: &mut Random) -> String {
    let action = if random.below(4) == 0 { "Deny" } else { "Accept" };
    let protocol = ["TCP", "UDP"][random.below(2)];
    let (a, b) = (random.below(256), random.below(256));
    let peer = match random.below(4) {
        0 => format!("- ipBlock: {{cidr: 10.{a}.{b}.0/24, except: [10.{a}.{b}.128/25]}}"),
        1 => format!("- remote: far{}", random.below(4)),
        _ => format!("- ipBlock: {{cidr: 10.{a}.0.0/16}}"),
    };
    format!(
        "    - action: {action}\n      {peers}:\n        {peer}\n      services:\n        - {{protocol: {protocol}, port: {port}}}\n"
    )
}

fn fabric() -> Source {
    let mut text = format!(
        "{HEAD}kind: Fabric\nmetadata: {{name: box}}\nspec:\n  ports:\n    - {{name: up, device: 'memory:', mtu: 9000}}\n"
    );
    for port in 0..PORTS {
        writeln!(text, "    - {{name: p{port:04}, device: 'memory:'}}").expect("a string takes it");
    }
    text += "  uplink: {port: up, addresses: [192.0.2.1/24]}\n  vteps:\n";
    for vtep in 0..VTEPS {
        writeln!(text, "    - {{name: v{vtep:02}, address: 192.0.2.{}}}", 100 + vtep)
            .expect("a string takes it");
    }
    Source { name: "policy/fabric.yaml".into(), bytes: text.into() }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}
