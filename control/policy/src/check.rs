//! Checks between documents and within one: names that are used exist, nothing is owned twice, every endpoint can be
//! reached. Each check runs on what could be read, and none complains of a name that may stand in what could not.

mod again;
mod rules;
mod shadow;

pub(crate) use again::Checked;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv6Net};
use program::limit::HOPS as HOPS_MAX;
use wire::Mac;

use crate::{
    Fabric, FabricPort, Name, Position, Spanned, Tenant, Vtep, documents::Documents, read::Report,
    suggest::did_you_mean,
};

/// IPv6 addresses that are on every link (RFC 4291, section 2.5.6).
const LINK_LOCAL: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);

/// Bytes that a tunnel adds to an inner IP packet: inner Ethernet 14, VXLAN 8, UDP 8, and the outer IP header.
const OVERHEAD_V4_BYTES: u32 = 14 + 8 + 8 + 20;
const OVERHEAD_V6_BYTES: u32 = 14 + 8 + 8 + 40;

/// With `checked`, what was checked before and still holds is not checked again.
pub(crate) fn all(documents: &Documents, mut checked: Option<&mut Checked>, report: &mut Report) {
    one_fabric(documents, report);
    for fabric in &documents.fabrics {
        fabric_ports(fabric, report);
        uplink(fabric, report);
        vteps(fabric, report);
    }
    tenants_are_apart(documents, report);
    // Several say nothing of what they have.
    let fabric = documents.fabrics.first().filter(|_| documents.fabrics.len() == 1);
    let known = fabric.map(|fabric| Known::of(fabric, documents.unread.fabrics));
    Checked::tenants(checked.as_deref_mut(), documents, fabric, report, |tenant, report| {
        addresses_have_one_owner(tenant, report);
        prefixes_have_hops(tenant, report);
        macs_have_one_home(tenant, report);
        remotes(tenant, report);
        named_ports(tenant, report);
        if let Some(known) = &known {
            names_of_fabric(tenant, known, report);
            mtu_fits(tenant, known, report);
        }
    });
    rules::all(documents, checked, report);
}

/// Who had a key first.
struct Seen<K>(BTreeMap<K, Position>);

impl<K: Ord> Seen<K> {
    const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The place of the first owner, unless this is the first.
    fn before(&mut self, key: K, at: Position) -> Option<Position> {
        let first = *self.0.entry(key).or_insert(at);
        (first != at).then_some(first)
    }

    /// Reports that `what` is taken already.
    fn claim(&mut self, key: K, at: Position, what: impl FnOnce() -> String, report: &mut Report) {
        if let Some(first) = self.before(key, at) {
            report.error(at, what()).related(first, "it is first used here");
        }
    }
}

fn one_fabric(documents: &Documents, report: &mut Report) {
    if let [first, others @ ..] = &documents.fabrics[..] {
        for other in others {
            let message = format!("a second Fabric, {}: a policy has exactly one", other.name.value);
            report.error(other.name.at, message).related(first.name.at, "the first one");
        }
    } else if !documents.unread.fabrics {
        report.nowhere("no document is of kind Fabric; a policy has exactly one");
    }
}

fn fabric_ports(fabric: &Fabric, report: &mut Report) {
    let (mut names, mut devices) = (Seen::new(), Seen::new());
    for port in &fabric.ports {
        let name = || format!("port name {} is given twice", port.name.value);
        names.claim(&port.name.value, port.name.at, name, report);
        // Memory ports have no identity of their own.
        if port.device.value != "memory:" {
            let device = || format!("device {} is opened twice", crate::read::quote(&port.device));
            devices.claim(&port.device.value, port.device.at, device, report);
        }
    }
}

fn uplink(fabric: &Fabric, report: &mut Report) {
    let uplink = &fabric.uplink;
    if fabric.is_whole && fabric.port(&uplink.port).is_none() {
        let names = fabric.ports.iter().map(|port| &**port.name);
        unknown("port", &uplink.port, names, "the Fabric lists none", report);
    }
    if uplink.addresses.is_empty() && fabric.is_whole {
        report.error(uplink.at, "the uplink has no address; tunnels need one of each family that they use");
    }
    let mut families = Seen::new();
    for address in &uplink.addresses {
        let family = address.value.0.addr().is_ipv4();
        families.claim(
            family,
            address.at,
            || format!("a second {} address of the uplink", family_name(family)),
            report,
        );
    }
    let mut families = Seen::new();
    for gateway in &uplink.gateways {
        let family = gateway.is_ipv4();
        families.claim(family, gateway.at, || format!("a second {} gateway", family_name(family)), report);
        let Some(local) = uplink.address_like(gateway.value) else {
            let message = format!(
                "the uplink has no {} address to reach gateway {}",
                family_name(family),
                gateway.value
            );
            report.error(gateway.at, message);
            continue;
        };
        if local.addr() == gateway.value {
            report.error(gateway.at, format!("gateway {} is the uplink's own address", gateway.value));
        } else if !local.contains(&gateway.value) && !is_link_local(gateway.value) {
            report.error(
                gateway.at,
                format!("gateway {} is not on link: it is outside {local}", gateway.value),
            );
        }
    }
}

const fn family_name(is_ipv4: bool) -> &'static str {
    if is_ipv4 { "IPv4" } else { "IPv6" }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if LINK_LOCAL.contains(&v6))
}

fn vteps(fabric: &Fabric, report: &mut Report) {
    let (mut names, mut addresses) = (Seen::new(), Seen::new());
    let mut next_hops: BTreeMap<IpAddr, Spanned<Mac>> = BTreeMap::new();
    for vtep in &fabric.vteps {
        names.claim(
            &vtep.name.value,
            vtep.name.at,
            || format!("vtep name {} is given twice", vtep.name.value),
            report,
        );
        let Spanned { value: address, at } = vtep.address;
        addresses.claim(address, at, || format!("vtep address {address} is given twice"), report);
        let local = fabric.uplink.address_like(address);
        if local.is_some_and(|local| local.addr() == address) {
            report.error(at, format!("vtep {} has the uplink's own address", vtep.name.value));
            continue;
        }
        let Some(next_hop) = fabric.next_hop(address) else {
            unreachable(fabric, vtep.address, local, report);
            continue;
        };
        let Some(mac) = vtep.mac else { continue };
        let first = *next_hops.entry(next_hop).or_insert(mac);
        if first.value != mac.value {
            let message =
                format!("next hop {next_hop} has MAC {} here and {} elsewhere", mac.value, first.value);
            report.error(mac.at, message).related(first.at, "the other MAC of that next hop");
        }
    }
}

fn unreachable(fabric: &Fabric, vtep: Spanned<IpAddr>, local: Option<IpNet>, report: &mut Report) {
    // An address or a gateway that could not be read may be the one that is missing.
    if !fabric.is_whole {
        return;
    }
    let Spanned { value: address, at } = vtep;
    let family = family_name(address.is_ipv4());
    match local {
        Some(local) => report
            .error(
                at,
                format!("vtep address {address} is not on link ({local}) and there is no {family} gateway"),
            )
            .help(format!("add an {family} address to the uplink's `gateways`")),
        None => report
            .error(at, format!("the uplink has no {family} address to reach vtep address {address}"))
            .help(format!("add an {family} address to the uplink's `addresses`")),
    };
}

/// Names, VNIs and ports of tenants are each used once.
fn tenants_are_apart(documents: &Documents, report: &mut Report) {
    let (mut names, mut vnis, mut ports) = (Seen::new(), Seen::new(), Seen::new());
    for tenant in &documents.tenants {
        names.claim(
            &tenant.name.value,
            tenant.name.at,
            || format!("tenant {} is given twice", tenant.name.value),
            report,
        );
        vnis.claim(
            tenant.vni.value,
            tenant.vni.at,
            || format!("VNI {} is used twice", tenant.vni.value),
            report,
        );
        for port in &tenant.ports {
            ports.claim(
                &port.port.value,
                port.port.at,
                || format!("port {} is used twice", port.port.value),
                report,
            );
        }
    }
}

/// Within a tenant. The same address in two tenants is what tenants are for.
fn addresses_have_one_owner(tenant: &Tenant, report: &mut Report) {
    let ports = tenant.ports.iter().flat_map(|port| &port.addresses);
    let remotes = tenant.remotes.iter().flat_map(|remote| &remote.addresses);
    let mut owners = Seen::new();
    for address in tenant.gateway.addresses.iter().chain(ports).chain(remotes) {
        let what = || format!("address {} is owned twice in tenant {}", address.value, tenant.name.value);
        owners.claim(address.value, address.at, what, report);
    }
}

/// Within a tenant, remotes with one prefix are its hops: each is one once, and they are not too many. A prefix that is a
/// single address is nobody's own.
fn prefixes_have_hops(tenant: &Tenant, report: &mut Report) {
    let name = &tenant.name.value;
    let ports = tenant.ports.iter().flat_map(|port| &port.addresses);
    let remotes = tenant.remotes.iter().flat_map(|remote| &remote.addresses);
    let own = tenant.gateway.addresses.iter().chain(ports).chain(remotes);
    let own: BTreeMap<IpNet, Position> = own.map(|address| (address.value.into(), address.at)).collect();
    let mut hops: BTreeMap<IpNet, Vec<(Mac, Position)>> = BTreeMap::new();
    for (mac, prefix) in tenant
        .remotes
        .iter()
        .flat_map(|remote| remote.prefixes.iter().map(|prefix| (remote.mac.value, prefix)))
    {
        let Spanned { value: net, at } = *prefix;
        if let Some(owner) = own.get(&net) {
            let message = format!("prefix {net} is routed in tenant {name}, and a host's own address");
            report.error(at, message).related(*owner, "it is owned here");
        }
        let hops = hops.entry(net).or_default();
        if let Some((_, first)) = hops.iter().find(|(known, _)| *known == mac) {
            let message = format!("prefix {net} is routed twice to MAC {mac} in tenant {name}");
            report.error(at, message).related(*first, "it is first routed here");
            continue;
        }
        hops.truncate(HOPS_MAX);
        if let (Some((_, first)), true) = (hops.first(), hops.len() == HOPS_MAX) {
            let message = format!("prefix {net} has more than {HOPS_MAX} hops in tenant {name}");
            report.error(at, message).related(*first, "its first hop");
        }
        hops.push((mac, at));
    }
}

/// Where a MAC lives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home<'a> {
    Gateway,
    Port(&'a str),
    Vtep(&'a str),
}

/// Within a tenant, a MAC is the gateway's, one port's, or of hosts behind one endpoint.
fn macs_have_one_home(tenant: &Tenant, report: &mut Report) {
    let ports = tenant.ports.iter().map(|port| (Home::Port(&port.port), port.mac));
    let remotes = tenant.remotes.iter().map(|remote| (Home::Vtep(&remote.vtep), remote.mac));
    let gateway = (Home::Gateway, tenant.gateway.mac);
    let mut homes = BTreeMap::new();
    for (home, mac) in std::iter::once(gateway).chain(ports).chain(remotes) {
        let (first, first_at) = *homes.entry(mac.value).or_insert((home, mac.at));
        if first_at == mac.at || (first == home && matches!(home, Home::Vtep(_))) {
            continue;
        }
        let is_derived = first_at == tenant.vni.at;
        let note =
            if is_derived { "it is the gateway's, made from this VNI" } else { "it is first used here" };
        let message = format!("MAC address {} is in two places of tenant {}", mac.value, tenant.name.value);
        report.error(mac.at, message).related(first_at, note);
    }
}

fn remotes(tenant: &Tenant, report: &mut Report) {
    let mut names = Seen::new();
    for name in tenant.remotes.iter().filter_map(|remote| remote.name.as_ref()) {
        names.claim(&name.value, name.at, || format!("remote name {} is given twice", name.value), report);
    }
}

/// A host gives a name to one port only.
fn named_ports(tenant: &Tenant, report: &mut Report) {
    let ports = tenant.ports.iter().map(|port| &port.named_ports);
    let remotes = tenant.remotes.iter().map(|remote| &remote.named_ports);
    for named in ports.chain(remotes) {
        let mut names = Seen::new();
        for port in named {
            let name = &port.name;
            names.claim(&name.value, name.at, || format!("named port {} is given twice", name.value), report);
        }
    }
}

/// What a Fabric has, by name.
struct Known<'a> {
    fabric: &'a Fabric,
    ports: BTreeMap<&'a str, &'a FabricPort>,
    vteps: BTreeMap<&'a str, &'a Vtep>,
    /// A name that is not there is wrong: nothing was left out because of an error.
    is_all: bool,
}

impl<'a> Known<'a> {
    fn of(fabric: &'a Fabric, has_unread: bool) -> Self {
        let ports = fabric.ports.iter().map(|port| (&**port.name, port)).collect();
        let vteps = fabric.vteps.iter().map(|vtep| (&**vtep.name, vtep)).collect();
        Self { fabric, ports, vteps, is_all: fabric.is_whole && !has_unread }
    }
}

/// Ports and endpoints that a tenant names exist.
fn names_of_fabric(tenant: &Tenant, known: &Known, report: &mut Report) {
    let uplink = &known.fabric.uplink;
    for port in tenant.ports.iter().map(|port| &port.port) {
        if known.is_all && !known.ports.contains_key(&*port.value) {
            let names = known.fabric.ports.iter().map(|port| &**port.name);
            unknown("port", port, names, "the Fabric lists none", report);
        }
        if **port == *uplink.port {
            let message = format!("port {} is the uplink; it serves no single tenant", port.value);
            report.error(port.at, message).related(uplink.port.at, "the uplink is chosen here");
        }
    }
    for vtep in tenant.remotes.iter().map(|remote| &remote.vtep) {
        if known.is_all && !known.vteps.contains_key(&*vtep.value) {
            let names = known.fabric.vteps.iter().map(|vtep| &**vtep.name);
            unknown("vtep", vtep, names, "the Fabric lists none", report);
        }
    }
}

/// Reports a name that nothing has, with the nearest that something has, or with all when they are few.
fn unknown<'a>(
    what: &str,
    name: &Spanned<Name>,
    known: impl Iterator<Item = &'a str> + Clone,
    if_none: &str,
    report: &mut Report,
) {
    const LISTED_MAX: usize = 8;
    let is_full = report.diagnostics.is_full();
    let entry = report.error(name.at, format!("unknown {what} {}", name.value));
    if is_full {
        return;
    }
    let names: Vec<&str> = known.clone().take(LISTED_MAX).collect();
    let all = if names.is_empty() { if_none.into() } else { format!("known: {}", names.join(", ")) };
    let ellipsis = if known.clone().nth(LISTED_MAX).is_some() { ", ..." } else { "" };
    entry.help(did_you_mean(name, known).unwrap_or(all + ellipsis));
}

/// Warns when a tenant's largest packet does not fit a tunnel.
fn mtu_fits(tenant: &Tenant, known: &Known, report: &mut Report) {
    let fabric = known.fabric;
    let Some(uplink) = known.ports.get(&*fabric.uplink.port.value) else { return };
    let endpoints = tenant.remotes.iter().filter_map(|remote| known.vteps.get(&*remote.vtep.value));
    let overheads = endpoints.map(|vtep| match vtep.address.value {
        IpAddr::V4(_) => OVERHEAD_V4_BYTES,
        IpAddr::V6(_) => OVERHEAD_V6_BYTES,
    });
    let Some(overhead) = overheads.max() else { return };
    let carried = u32::from(fabric.mtu_bytes(uplink)).saturating_sub(overhead);
    for port in &tenant.ports {
        let device = known.ports.get(&*port.port.value).filter(|device| !fabric.is_uplink(device));
        let Some(device) = device else { continue };
        let mtu = u32::from(fabric.mtu_bytes(device));
        if mtu > carried {
            let message =
                format!("port {} has an MTU of {mtu} bytes; tunnels carry {carried}", port.port.value);
            let help =
                format!("raise the uplink's mtu to {} or lower the port's to {carried}", mtu + overhead);
            report.warning(port.port.at, message).help(help);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_is_fe80_slash_10() {
        assert!(is_link_local("fe80::1".parse().unwrap()));
        assert!(is_link_local("febf::1".parse().unwrap()));
        assert!(!is_link_local("fec0::1".parse().unwrap()));
    }
}
