//! The program in the form that packets are looked up in: built off to the side, published whole, never changed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use program::{
    Answers, Decision, DscpMode, Generation, Hop, Place, PortId, Program, RuleListId, Service, Tenant,
    TenantId, Uplink, VtepId,
};
use wire::{Mac, vxlan};

use crate::action::MAX_TUNNELS;
use crate::rules::Rules;
use crate::whereabouts::Whereabouts;

/// What is known of an opened device, by its [`PortId`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its own MAC.
    pub mac: Mac,
}

/// Everything that a worker looks packets up in.
pub struct Tables {
    /// What it was built from; reports and explanations read it.
    pub program: Arc<Program>,
    generation: Generation,
    rules: Rules,
    /// The index is the [`TenantId`].
    whereabouts: Vec<Option<Whereabouts>>,
    pub(crate) ports: Vec<PortView>,
    pub(crate) uplink: Option<UplinkView>,
    pub(crate) tunnels: Vec<Tunnel>,
    /// Some rule asks for flows to be logged.
    pub(crate) has_logs: bool,
    tunnel_of: HashMap<(TenantId, VtepId), u32, FixedState>,
    vnis: HashMap<u32, TenantId, FixedState>,
    vteps: HashMap<IpAddr, VtepId, FixedState>,
}

/// The part of a port that packets meet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortView {
    pub(crate) role: Role,
    pub(crate) tenant: TenantId,
    pub(crate) mac: Mac,
    pub(crate) gateway_mac: Mac,
    /// Largest IP packet.
    pub(crate) mtu: u16,
}

/// What a port is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Nothing: what comes from it is dropped.
    Unused,
    /// A tenant's host.
    Tenant,
    /// The fabric.
    Uplink,
}

/// This box as a tunnel endpoint.
#[derive(Clone, Debug)]
pub(crate) struct UplinkView {
    pub(crate) port: PortId,
    pub(crate) mac: Mac,
    pub(crate) v4: Option<Ipv4Addr>,
    pub(crate) v6: Option<Ipv6Addr>,
    pub(crate) dscp: DscpMode,
}

impl UplinkView {
    /// True for the addresses of this tunnel endpoint.
    pub(crate) fn is_ours(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.v4 == Some(v4),
            IpAddr::V6(v6) => self.v6 == Some(v6),
        }
    }

    /// The address of that family, which outer headers carry as their source.
    pub(crate) fn source(&self, family_of: IpAddr) -> Option<IpAddr> {
        match family_of {
            IpAddr::V4(_) => self.v4.map(IpAddr::V4),
            IpAddr::V6(_) => self.v6.map(IpAddr::V6),
        }
    }
}

/// A tenant's tunnel to an endpoint.
pub(crate) struct Tunnel {
    pub(crate) template: vxlan::Template,
    pub(crate) vtep: VtepId,
    pub(crate) tenant: TenantId,
    pub(crate) gateway_mac: Mac,
    /// Largest inner IP packet.
    pub(crate) mtu: u16,
}

/// The program cannot be run on these devices.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// The files name more devices than were opened.
    #[error("the program speaks of {named} devices, {opened} are open: restart floodwayd")]
    Devices {
        /// In the program.
        named: usize,
        /// In this daemon.
        opened: usize,
    },
    /// More pairs of tenant and tunnel endpoint than an entry can number.
    #[error(
        "more than {MAX_TUNNELS} pairs of tenant and tunnel endpoint: spread the tenants over more cards"
    )]
    Tunnels,
}

impl Tables {
    /// Builds the tables of `program` for devices of which `facts` are known.
    pub fn build(program: Arc<Program>, facts: &[Facts]) -> Result<Self, BuildError> {
        Self::build_knowing(program, facts, &Rules::default())
    }

    /// The same; rules that are those of `known`, of an earlier program, are not compiled again.
    pub fn build_knowing(program: Arc<Program>, facts: &[Facts], known: &Rules) -> Result<Self, BuildError> {
        if program.devices.len() > facts.len() {
            return Err(BuildError::Devices { named: program.devices.len(), opened: facts.len() });
        }
        let mut tables = Self {
            ports: port_views(&program, facts),
            uplink: program.uplink.as_ref().map(|uplink| uplink_view(uplink, facts)),
            tunnels: Vec::new(),
            has_logs: program.rules.iter().any(|(_, rule)| rule.log),
            tunnel_of: HashMap::default(),
            vnis: program.tenants.iter().flatten().map(|tenant| (tenant.vni.0, tenant.id)).collect(),
            vteps: vtep_ids(&program),
            generation: program.generation,
            rules: Rules::compile(&program, known),
            whereabouts: program.tenants.iter().map(|tenant| tenant.as_ref().map(Whereabouts::of)).collect(),
            program: program.clone(),
        };
        for tenant in program.tenants.iter().flatten() {
            tables.add_tunnels(tenant)?;
        }
        Ok(tables)
    }

    /// Tables that drop everything.
    pub fn empty(ports: usize) -> Self {
        let facts = vec![Facts { mac: Mac::default() }; ports];
        let program = Arc::new(Program::default());
        Self {
            ports: port_views(&program, &facts),
            uplink: None,
            tunnels: Vec::new(),
            has_logs: false,
            tunnel_of: HashMap::default(),
            vnis: HashMap::default(),
            vteps: HashMap::default(),
            generation: program.generation,
            rules: Rules::default(),
            whereabouts: Vec::new(),
            program,
        }
    }

    /// The generation that entries are stamped with.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The compiled rules, for the tables of the next program.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(crate) fn port(&self, id: PortId) -> Option<&PortView> {
        self.ports.get(usize::from(id.0))
    }

    pub(crate) fn tenant_of_vni(&self, vni: u32) -> Option<TenantId> {
        self.vnis.get(&vni).copied()
    }

    pub(crate) fn vtep_of(&self, address: IpAddr) -> Option<VtepId> {
        self.vteps.get(&address).copied()
    }

    pub(crate) fn tunnel_to(&self, tenant: TenantId, vtep: VtepId) -> Option<u32> {
        self.tunnel_of.get(&(tenant, vtep)).copied()
    }

    fn add_tunnels(&mut self, tenant: &Tenant) -> Result<(), BuildError> {
        let hosts = tenant.endpoints.iter().map(|endpoint| &endpoint.hop);
        for hop in hosts.chain(tenant.routes.iter().flat_map(|route| &route.hops)) {
            let Place::Vtep(vtep) = hop.place else { continue };
            if self.tunnel_of.contains_key(&(tenant.id, vtep)) {
                continue;
            }
            let Some(tunnel) = self.tunnel(tenant, vtep) else { continue };
            if self.tunnels.len() == MAX_TUNNELS {
                return Err(BuildError::Tunnels);
            }
            self.tunnel_of.insert((tenant.id, vtep), self.tunnels.len() as u32);
            self.tunnels.push(tunnel);
        }
        Ok(())
    }

    fn tunnel(&self, tenant: &Tenant, vtep: VtepId) -> Option<Tunnel> {
        let remote = self.program.vtep(vtep)?;
        let uplink = self.uplink.as_ref()?;
        let addresses = match (uplink.source(remote.address)?, remote.address) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                vxlan::Addresses::V4 { src: src.octets(), dst: dst.octets() }
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                vxlan::Addresses::V6 { src: src.octets(), dst: dst.octets() }
            }
            _ => return None,
        };
        // The next hop's MAC is stamped on each packet: it is resolved while the program runs.
        let outer = vxlan::Outer::new(uplink.mac, Mac::default(), addresses, vxlan::Vni::new(tenant.vni.0)?);
        let template = vxlan::Template::new(&outer);
        let uplink_mtu = self.program.devices.get(usize::from(uplink.port.0)).map_or(0, |device| device.mtu);
        let mtu = uplink_mtu.saturating_sub(template.overhead() as u16);
        Some(Tunnel { template, vtep, tenant: tenant.id, gateway_mac: tenant.gateway_mac, mtu })
    }
}

/// As the program itself answers, without going through its lists.
impl Answers for Tables {
    fn program(&self) -> &Program {
        &self.program
    }

    fn locate<'a>(&'a self, tenant: &'a Tenant, address: IpAddr) -> &'a [Hop] {
        let known = self.whereabouts.get(usize::from(tenant.id.0)).and_then(Option::as_ref);
        known.map_or(&[], |known| known.locate(address))
    }

    fn decide(&self, list: RuleListId, peer: IpAddr, service: Service) -> Decision {
        self.rules.decide(&self.program, list, peer, service)
    }
}

fn port_views(program: &Program, facts: &[Facts]) -> Vec<PortView> {
    let uplink = program.uplink.as_ref().map(|uplink| uplink.port);
    let view = |(index, facts): (usize, &Facts)| {
        let id = PortId(index as u16);
        let tenant = program.port(id).and_then(|port| Some((port, program.tenant(port.tenant)?)));
        let unused = PortView {
            role: Role::Unused,
            tenant: TenantId::default(),
            mac: facts.mac,
            gateway_mac: Mac::default(),
            mtu: program.devices.get(index).map_or(0, |device| device.mtu),
        };
        match tenant {
            Some((port, tenant)) => PortView {
                role: Role::Tenant,
                tenant: tenant.id,
                mac: port.mac,
                gateway_mac: tenant.gateway_mac,
                mtu: port.mtu,
            },
            None if uplink == Some(id) => PortView { role: Role::Uplink, ..unused },
            None => unused,
        }
    };
    facts.iter().enumerate().map(view).collect()
}

fn uplink_view(uplink: &Uplink, facts: &[Facts]) -> UplinkView {
    let addresses = || uplink.addresses.iter().map(ipnet::IpNet::addr);
    let v4 = addresses().find_map(|address| if let IpAddr::V4(v4) = address { Some(v4) } else { None });
    let v6 = addresses().find_map(|address| if let IpAddr::V6(v6) = address { Some(v6) } else { None });
    let mac = facts.get(usize::from(uplink.port.0)).map_or(Mac::default(), |facts| facts.mac);
    UplinkView { port: uplink.port, mac, v4, v6, dscp: uplink.dscp }
}

fn vtep_ids(program: &Program) -> HashMap<IpAddr, VtepId, FixedState> {
    let known = program.vteps.iter().enumerate();
    known.filter_map(|(index, vtep)| Some((vtep.as_ref()?.address, VtepId(index as u16)))).collect()
}
