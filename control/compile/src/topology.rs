//! Devices, uplink, tunnel endpoints, tenants and their ports.

use std::collections::BTreeMap;
use std::{cmp::Reverse, net::IpAddr};

use ipnet::IpNet;
use policy::{Diagnostics, Dscp, Policy};
use program::{
    Device, DscpMode, Endpoint, Hop, Learn, Order, Place, Port, PortId, Program, Roce, Route, Tenant,
    TenantId, UnknownQp, Uplink, Vni, Vtep, VtepId, limit,
};

use crate::{
    error,
    ids::{ByKey, Ids},
    rules::PortLists,
};

/// The devices, which must be those of `previous` unless that had none.
pub(crate) fn devices(policy: &Policy, previous: &Program, errors: &mut Diagnostics) -> Vec<Device> {
    let fabric = &policy.fabric;
    if let Some(port) = fabric.ports.get(limit::PORTS) {
        let message =
            format!("a Fabric has at most {} ports; this one has {}", limit::PORTS, fabric.ports.len());
        errors.push(error(policy.place(port.name.at), message));
        return Vec::new();
    }
    let device = |port: &policy::FabricPort| Device {
        name: port.name.to_string(),
        device: port.device.value.clone(),
        mtu: fabric.mtu_bytes(port),
    };
    let devices: Vec<Device> = fabric.ports.iter().map(device).collect();
    if !previous.devices.is_empty() && previous.devices != devices {
        errors.push(changed_device(policy, &devices, &previous.devices));
    }
    devices
}

/// Names the first port that differs.
fn changed_device(policy: &Policy, new: &[Device], old: &[Device]) -> policy::Diagnostic {
    let ports = &policy.fabric.ports;
    let index = new.iter().zip(old).take_while(|(new, old)| new == old).count();
    let (at, change) = match (new.get(index), old.get(index)) {
        (Some(new), Some(old)) => {
            (ports[index].name.at, format!("port {} was {}", describe(new), describe(old)))
        }
        (Some(new), None) => (ports[index].name.at, format!("port {} is new", describe(new))),
        (None, Some(old)) => (policy.fabric.name.at, format!("port {} is gone", describe(old))),
        (None, None) => (policy.fabric.name.at, "the list of ports differs".into()),
    };
    error(policy.place(at), format!("{change}; ports are opened at start: restart floodwayd"))
        .with_help("everything but the Fabric's `ports` can change while floodwayd runs")
}

fn describe(device: &Device) -> String {
    format!("{} ({}, mtu {})", device.name, device.device, device.mtu)
}

pub(crate) fn uplink(policy: &Policy) -> Uplink {
    let uplink = &policy.fabric.uplink;
    Uplink {
        // A checked policy names only ports that exist.
        port: PortId(policy.fabric.port(&uplink.port).map_or(0, |(index, _)| index) as u16),
        addresses: uplink.addresses.iter().map(|address| address.value.0).collect(),
        gateways: uplink.gateways.iter().map(|gateway| gateway.value).collect(),
        dscp: match uplink.dscp {
            Dscp::Copy => DscpMode::Copy,
            Dscp::Fixed(value) => DscpMode::Fixed(value),
        },
    }
}

/// The Fabric's ports and their places, by name.
type PortsByName<'a> = ByKey<&'a str, (PortId, &'a policy::FabricPort)>;

fn ports_by_name(policy: &Policy) -> PortsByName<'_> {
    // There are fewer than limit::PORTS.
    let ids = (0..).map(PortId);
    ids.zip(&policy.fabric.ports).map(|(id, port)| (&*port.name.value, (id, port))).collect()
}

pub(crate) fn vteps(policy: &Policy, ids: &Ids<IpAddr, VtepId>) -> Vec<Option<Vtep>> {
    let mut table = vec![None; ids.table_len];
    for vtep in &policy.fabric.vteps {
        let address = vtep.address.value;
        table[usize::from(ids.get(&address).0)] = Some(Vtep {
            name: vtep.name.to_string(),
            address,
            // A checked policy has a next hop for each.
            next_hop: policy.fabric.next_hop(address).unwrap_or(address),
            mac: vtep.mac.map(|mac| mac.value),
        });
    }
    table
}

pub(crate) fn tenants(
    policy: &Policy,
    ids: &Ids<&str, TenantId>,
    vteps: &Ids<IpAddr, VtepId>,
) -> Vec<Option<Tenant>> {
    let mut table = vec![None; ids.table_len];
    let all = &policy.fabric.vteps;
    let vteps = all.iter().map(|vtep| (&*vtep.name.value, vteps.get(&vtep.address.value))).collect();
    let ports = ports_by_name(policy);
    for tenant in &policy.tenants {
        let id = ids.get(&&*tenant.name.value);
        table[usize::from(id.0)] = Some(Tenant {
            id,
            name: tenant.name.to_string(),
            vni: Vni(tenant.vni.value),
            gateway_mac: tenant.gateway.mac.value,
            gateways: tenant.gateway.addresses.iter().map(|address| address.value).collect(),
            endpoints: endpoints(tenant, &ports, &vteps),
            routes: routes(tenant, &vteps),
            flow_quota: tenant.flow_quota,
            fragment_quota: tenant.fragment_quota,
            connections: tenant.connections,
            queue_pair_quota: tenant.queue_pair_quota,
            roce: roce(tenant.roce),
        });
    }
    table
}

fn roce(roce: policy::Roce) -> Roce {
    Roce {
        learn: match roce.learn {
            policy::Learn::Traffic => Learn::Traffic,
            policy::Learn::ConnectionManager => Learn::ConnectionManager,
        },
        unknown_qp: match roce.unknown_qp {
            policy::UnknownQp::Accept => UnknownQp::Accept,
            policy::UnknownQp::Deny => UnknownQp::Deny,
        },
        order: match roce.order {
            policy::Order::Count => Order::Count,
            policy::Order::Drop => Order::Drop,
        },
    }
}

fn endpoints(tenant: &policy::Tenant, ports: &PortsByName, vteps: &VtepsByName) -> Vec<Endpoint> {
    let ports = tenant.ports.iter().flat_map(|port| {
        let place = Place::Port(ports.get(&*port.port.value).map_or(PortId(0), |(id, _)| *id));
        port.addresses
            .iter()
            .map(move |address| Endpoint { address: address.value, hop: Hop { mac: port.mac.value, place } })
    });
    let remotes = tenant.remotes.iter().flat_map(|remote| {
        let place = Place::Vtep(vtep_id(&remote.vtep, vteps));
        remote.addresses.iter().map(move |address| Endpoint {
            address: address.value,
            hop: Hop { mac: remote.mac.value, place },
        })
    });
    let mut endpoints: Vec<Endpoint> = ports.chain(remotes).collect();
    endpoints.sort_by_key(|endpoint| endpoint.address);
    endpoints
}

/// Remotes with one prefix are its hops, in the order of their MACs: that of the files has no meaning.
fn routes(tenant: &policy::Tenant, vteps: &VtepsByName) -> Vec<Route> {
    let mut hops: BTreeMap<IpNet, Vec<Hop>> = BTreeMap::new();
    for remote in &tenant.remotes {
        let hop = Hop { mac: remote.mac.value, place: Place::Vtep(vtep_id(&remote.vtep, vteps)) };
        for prefix in &remote.prefixes {
            hops.entry(prefix.value).or_default().push(hop);
        }
    }
    let route = |(prefix, mut hops): (IpNet, Vec<Hop>)| {
        hops.sort_by_key(|hop| hop.mac.0);
        Route { prefix, hops }
    };
    let mut routes: Vec<Route> = hops.into_iter().map(route).collect();
    routes.sort_by_key(|route| (Reverse(route.prefix.prefix_len()), route.prefix));
    routes
}

type VtepsByName<'a> = ByKey<&'a str, VtepId>;

/// A checked policy names only endpoints that exist.
fn vtep_id(name: &str, vteps: &VtepsByName) -> VtepId {
    vteps.get(name).copied().unwrap_or_default()
}

pub(crate) fn ports(policy: &Policy, ids: &Ids<&str, TenantId>, lists: &PortLists) -> Vec<Option<Port>> {
    let mut table = vec![None; policy.fabric.ports.len()];
    let by_name = ports_by_name(policy);
    for tenant in &policy.tenants {
        for port in &tenant.ports {
            let Some((id, device)) = by_name.get(&*port.port.value).copied() else { continue };
            let (egress, ingress) = lists[&*port.port.value];
            table[usize::from(id.0)] = Some(Port {
                id,
                tenant: ids.get(&&*tenant.name.value),
                mac: port.mac.value,
                addresses: port.addresses.iter().map(|address| address.value).collect(),
                mtu: policy.fabric.mtu_bytes(device),
                egress,
                ingress,
            });
        }
    }
    table
}
