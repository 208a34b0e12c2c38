//! Where each address of a tenant lives, as [`program::Tenant::locate`] says it of one address.

use std::collections::BTreeMap;

use program::{Ingress, Place, Program, Tenant};

use super::{Undecided, address::Family, set::Set, walk::Budget};

/// All addresses of a family, each in the set of every place that it may be at.
#[derive(Debug)]
pub(crate) struct Reach {
    /// By place: ports first, then tunnel endpoints.
    pub places: Vec<(Place, Set<u128>)>,
    /// Those that no host and no route has.
    pub nowhere: Set<u128>,
}

impl Reach {
    pub fn of(tenant: &Tenant, family: Family, budget: &mut Budget) -> Result<Self, Undecided> {
        let mut spans: BTreeMap<(u8, u16), Vec<(u128, u128)>> = BTreeMap::new();
        let mut hosts = Vec::new();
        for endpoint in &tenant.endpoints {
            if let Some(point) = family.point(endpoint.address) {
                spans.entry(key(endpoint.hop.place)).or_default().push((point, point));
                hosts.push((point, point));
            }
        }
        let mut left = family.all().minus(&Set::of_spans(hosts));
        // The first route that holds an address has it.
        for route in &tenant.routes {
            let Some((first, last)) = family.net(route.prefix) else { continue };
            budget.spend(left.spans().len())?;
            let net = Set::span(first, last);
            let own = left.intersect(&net);
            for hop in &route.hops {
                spans.entry(key(hop.place)).or_default().extend(own.spans());
            }
            left = left.minus(&net);
        }
        let places = spans.into_iter().map(|(key, spans)| (place(key), Set::of_spans(spans))).collect();
        Ok(Self { places, nowhere: left })
    }
}

/// Every way in for packets of the tenant, with the sources that they may have: those that are not martian, and that the
/// port owns or that live behind the tunnel endpoint.
pub(crate) fn ways_in(
    program: &Program,
    tenant: &Tenant,
    reach: &Reach,
    family: Family,
) -> Vec<(Ingress, Set<u128>)> {
    let martians = family.martians();
    let own = program.ports.iter().enumerate().filter_map(|(index, port)| Some((index, port.as_ref()?)));
    let own = own.filter(|(_, port)| port.tenant == tenant.id);
    let ports = own.map(|(index, port)| {
        let points = port.addresses.iter().filter_map(|address| family.point(*address));
        let sources = Set::of_spans(points.map(|point| (point, point)).collect());
        (Ingress::Port(program::PortId(index as u16)), sources)
    });
    let tunnels = reach.places.iter().filter(|(place, _)| matches!(place, Place::Vtep(_)));
    let tunnels = tunnels.map(|(place, set)| (Ingress::from(*place), set.clone()));
    ports.chain(tunnels).map(|(ingress, sources)| (ingress, sources.minus(&martians))).collect()
}

const fn key(place: Place) -> (u8, u16) {
    match place {
        Place::Port(port) => (0, port.0),
        Place::Vtep(vtep) => (1, vtep.0),
    }
}

const fn place(key: (u8, u16)) -> Place {
    match key {
        (0, port) => Place::Port(program::PortId(port)),
        (_, vtep) => Place::Vtep(program::VtepId(vtep)),
    }
}
