//! Tenants are apart: no packet that enters at a port or in the VNI of one leaves at a port or in the VNI of another.
//!
//! That follows from six facts about the program, whatever its rules say. A packet's tenant is that of its port, or of its
//! VNI ([`Fact::Devices`], [`Fact::Vnis`], [`Fact::Ids`]); where it goes is looked up in that tenant's hosts and routes and
//! nowhere else ([`Fact::Lookup`]); each place found there is a port of the same tenant ([`Fact::Places`]) or a tunnel,
//! which carries the tenant's own VNI to another box ([`Fact::Tunnels`]).

use std::collections::{BTreeMap, BTreeSet};

use program::{Endpoint, Place, Program, Route, Tenant, TenantId};

use super::{Answer, CounterExample, End, Expect, Prover, Question};

/// Most broken facts that are told; more are counted only.
pub const BROKEN_MAX: usize = 100;

const VNI_MAX: u32 = 0xff_ffff;

/// Something that isolation rests on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fact {
    /// Tenants and ports have the ids that they are found by, and each port's tenant exists.
    Ids,
    /// No device is opened twice, and the uplink is no tenant's port.
    Devices,
    /// Each tenant has a VNI from 1 to 0xffffff that no other tenant has.
    Vnis,
    /// Every host at a port is at a port of its own tenant.
    Places,
    /// Every tunnel ends at an endpoint that exists, is not this box, and has an address of its own.
    Tunnels,
    /// Each tenant's hosts are sorted by address, each address once: what is looked up is what was proven.
    Lookup,
}

impl Fact {
    /// All, in the order in which they are checked.
    pub const ALL: [Self; 6] =
        [Self::Ids, Self::Devices, Self::Vnis, Self::Places, Self::Tunnels, Self::Lookup];

    /// The name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ids => "ids",
            Self::Devices => "devices",
            Self::Vnis => "vnis",
            Self::Places => "places",
            Self::Tunnels => "tunnels",
            Self::Lookup => "lookup",
        }
    }
}

/// A fact that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// Which one.
    pub fact: Fact,
    /// What is wrong, in a sentence without a full stop.
    pub message: String,
    /// A packet that goes astray because of it; `None` when the rules happen to stop every one, or when the fact is
    /// not about a pair of tenants.
    pub example: Option<CounterExample>,
}

/// What was found out about isolation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Isolation {
    /// The first [`BROKEN_MAX`] facts that do not hold; none means that tenants are apart.
    pub broken: Vec<Broken>,
    /// How many more there are.
    pub omitted: usize,
}

impl Isolation {
    /// True when no packet goes from one tenant to another.
    pub const fn is_proven(&self) -> bool {
        self.broken.is_empty()
    }
}

/// Checks every fact that isolation rests on.
pub fn isolation(program: &Program) -> Isolation {
    let mut check =
        Check { program, prover: Prover::new(program), found: Isolation::default(), pairs: BTreeMap::new() };
    check.ids();
    check.devices();
    check.vnis();
    check.places();
    check.tunnels();
    check.lookup();
    check.found
}

struct Check<'p> {
    program: &'p Program,
    prover: Prover<'p>,
    found: Isolation,
    /// Packets from one tenant to another, as far as they were looked for.
    pairs: BTreeMap<(TenantId, TenantId), Option<CounterExample>>,
}

impl<'p> Check<'p> {
    fn broken(&mut self, fact: Fact, message: String) {
        self.add(Broken { fact, message, example: None });
    }

    /// With a packet that comes from one of the tenants and leaves at the other.
    fn leak(&mut self, fact: Fact, message: String, from: TenantId, to: TenantId) {
        let is_told = self.found.broken.len() < BROKEN_MAX;
        let example = if is_told { self.example(from, to) } else { None };
        self.add(Broken { fact, message, example });
    }

    fn add(&mut self, broken: Broken) {
        match self.found.broken.len() < BROKEN_MAX {
            true => self.found.broken.push(broken),
            false => self.found.omitted += 1,
        }
    }

    fn example(&mut self, from: TenantId, to: TenantId) -> Option<CounterExample> {
        if let Some(known) = self.pairs.get(&(from, to)) {
            return *known;
        }
        let question =
            Question { expect: Expect::Deny, from: End::all(from), to: End::all(to), services: None };
        let example = match self.prover.answer(&question) {
            Answer::False(example) => Some(example),
            // The fact is broken all the same.
            Answer::Proven | Answer::Vacuous | Answer::Undecided(_) => None,
        };
        self.pairs.insert((from, to), example);
        example
    }

    fn tenants(&self) -> impl Iterator<Item = &'p Tenant> + use<'p> {
        self.program.tenants.iter().flatten()
    }

    fn ids(&mut self) {
        for (index, tenant) in self.program.tenants.iter().enumerate() {
            let Some(tenant) = tenant.as_ref().filter(|tenant| usize::from(tenant.id.0) != index) else {
                continue;
            };
            self.broken(
                Fact::Ids,
                format!("tenant {} is entry {index} and has id {}", tenant.name, tenant.id),
            );
        }
        for (index, port) in self.program.ports.iter().enumerate() {
            let Some(port) = port else { continue };
            let name = self.program.port_name(port.id);
            if usize::from(port.id.0) != index || index >= self.program.devices.len() {
                self.broken(Fact::Ids, format!("port {name} is entry {index} and has id {}", port.id));
            }
            if self.program.tenant(port.tenant).is_none() {
                self.broken(
                    Fact::Ids,
                    format!("port {name} is of tenant {}, which does not exist", port.tenant),
                );
            }
        }
    }

    fn devices(&mut self) {
        let mut opened = BTreeMap::new();
        for device in &self.program.devices {
            // Memory ports have no identity of their own.
            if device.device == "memory:" {
                continue;
            }
            if let Some(first) = opened.insert(&device.device, &device.name) {
                self.broken(Fact::Devices, format!("ports {first} and {} are one device", device.name));
            }
        }
        let Some(uplink) = &self.program.uplink else { return };
        if let Some(port) = self.program.port(uplink.port) {
            let tenant = self.name(port.tenant);
            let port = self.program.port_name(uplink.port);
            self.broken(Fact::Devices, format!("the uplink {port} is a port of tenant {tenant}"));
        }
    }

    fn vnis(&mut self) {
        let mut owners: BTreeMap<u32, &Tenant> = BTreeMap::new();
        for tenant in self.tenants() {
            let vni = tenant.vni.0;
            if !(1..=VNI_MAX).contains(&vni) {
                self.broken(Fact::Vnis, format!("tenant {} has VNI {vni}, which is none", tenant.name));
            }
            if let Some(first) = owners.insert(vni, tenant) {
                let message = format!("tenants {} and {} have one VNI, {vni}", first.name, tenant.name);
                self.leak(Fact::Vnis, message, first.id, tenant.id);
            }
        }
    }

    fn places(&mut self) {
        for tenant in self.tenants() {
            for Endpoint { address, hop } in &tenant.endpoints {
                let Place::Port(id) = &hop.place else { continue };
                let port = self.program.port_name(*id);
                match self.program.port(*id) {
                    Some(port) if port.tenant == tenant.id => {}
                    Some(other) => {
                        let owner = self.name(other.tenant);
                        let message = format!(
                            "host {address} of tenant {} is at port {port} of tenant {owner}",
                            tenant.name
                        );
                        self.leak(Fact::Places, message, tenant.id, other.tenant);
                    }
                    None => {
                        let message = format!(
                            "host {address} of tenant {} is at port {port}, which is no tenant's",
                            tenant.name
                        );
                        self.broken(Fact::Places, message);
                    }
                }
            }
        }
    }

    fn tunnels(&mut self) {
        let ours: BTreeSet<_> =
            self.program.uplink.iter().flat_map(|uplink| &uplink.addresses).map(|net| net.addr()).collect();
        let mut ends = BTreeMap::new();
        for vtep in self.program.vteps.iter().flatten() {
            let address = vtep.address;
            if ours.contains(&address) {
                self.broken(Fact::Tunnels, format!("tunnel endpoint {} is this box, {address}", vtep.name));
            }
            if let Some(first) = ends.insert(address, &vtep.name) {
                let message = format!("tunnel endpoints {first} and {} are both {address}", vtep.name);
                self.broken(Fact::Tunnels, message);
            }
        }
        for tenant in self.tenants() {
            let hosts = tenant.endpoints.iter().map(|host| (host.hop, host.address.into()));
            let routes = tenant.routes.iter();
            let routes = routes.flat_map(|Route { prefix, hops }| hops.iter().map(|hop| (*hop, *prefix)));
            for (hop, prefix) in hosts.chain(routes) {
                let Place::Vtep(vtep) = hop.place else { continue };
                if self.program.vtep(vtep).is_none() {
                    let name = &tenant.name;
                    let message = format!(
                        "{prefix} of tenant {name} is behind tunnel endpoint {vtep}, which does not exist"
                    );
                    self.broken(Fact::Tunnels, message);
                }
            }
        }
    }

    fn lookup(&mut self) {
        for tenant in self.tenants() {
            if let Some(pair) = tenant.endpoints.windows(2).find(|pair| pair[0].address >= pair[1].address) {
                let (first, second) = (pair[0].address, pair[1].address);
                let message =
                    format!("the hosts of tenant {} are out of order: {first}, {second}", tenant.name);
                self.broken(Fact::Lookup, message);
            }
        }
    }

    fn name(&self, tenant: TenantId) -> &'p str {
        self.program.tenant(tenant).map_or("?", |tenant| &tenant.name)
    }
}
