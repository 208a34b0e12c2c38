//! What must become of a packet, written from the documents alone: slow, and nothing of the pipeline's code.

use std::collections::HashMap;

use program::DropReason;

use crate::world::{Addr, DstMac, Packet, Peer, Place, Program, Rule, Service, Tenant, What};

/// The packet's fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It leaves there, to be received by that address's host.
    Forwarded(Place),
    /// The gateway answers it.
    Answered,
    /// Until its first fragment comes.
    Held,
    Dropped(DropReason),
}

/// A flow's identity. RoCEv2 by queue pair; an echo by identifier and direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Flow {
    tenant: usize,
    ingress: Place,
    six: bool,
    src: Addr,
    dst: Addr,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Opener,
    Reply,
}

/// What is known of a datagram of two fragments. One that is complete is forgotten.
#[derive(Clone, Copy, Debug)]
enum Datagram {
    /// This later one waits for its first.
    Waits(Packet),
    /// The first was of this flow.
    Open(Flow),
    /// Two firsts were not of one flow.
    Spoilt,
}

/// What it remembers: who opened a flow, and who answers; datagrams by where they came in and their ends.
#[derive(Default)]
pub struct Oracle {
    flows: HashMap<Flow, Role>,
    datagrams: HashMap<(usize, Place, bool, Addr, Addr), Datagram>,
}

impl Oracle {
    /// Whose packet it is; an error when it gets no further than that.
    pub fn tenant(program: &Program, packet: &Packet) -> Result<usize, DropReason> {
        match packet.entry {
            Place::Port(port) => program.owner(port).ok_or(DropReason::NoTenant),
            Place::Vtep(2) => Err(DropReason::UnknownVtep),
            Place::Vtep(_) if packet.vni_of < program.tenants.len() => Ok(packet.vni_of),
            Place::Vtep(_) => Err(DropReason::UnknownVni),
        }
    }

    /// Judges a packet and remembers what follows from it; says what becomes of it, and of one that waited for it.
    pub fn judge(&mut self, program: &Program, packet: &Packet) -> Vec<(Packet, Fate)> {
        let mut freed = None;
        let fate = self.fate(program, packet, &mut freed).unwrap_or_else(Fate::Dropped);
        let mut fates = vec![(*packet, fate)];
        if let Some(later) = freed {
            let index = Self::tenant(program, packet).expect("its first has one");
            let flow = identity(index, packet);
            fates.push((
                later,
                self.follow(&program.tenants[index], flow, &later).unwrap_or_else(Fate::Dropped),
            ));
        }
        fates
    }

    fn fate(
        &mut self,
        program: &Program,
        packet: &Packet,
        freed: &mut Option<Packet>,
    ) -> Result<Fate, DropReason> {
        let index = Self::tenant(program, packet)?;
        let tenant = &program.tenants[index];
        let from_port = matches!(packet.entry, Place::Port(_));
        if from_port && packet.spoofed_mac {
            return Err(DropReason::SpoofedMac);
        }
        if from_port && packet.dst == Addr::Gateway {
            return Ok(Self::gateway(tenant, packet));
        }
        let flow = identity(index, packet);
        if matches!(packet.what, What::First(..) | What::Later) {
            way(tenant, &flow)?;
            let id = (index, packet.entry, packet.six, packet.src, packet.dst);
            let is_first = packet.what != What::Later;
            match (self.datagrams.get(&id).copied(), is_first) {
                (None, true) => drop(self.datagrams.insert(id, Datagram::Open(flow))),
                (None, false) => {
                    self.datagrams.insert(id, Datagram::Waits(*packet));
                    return Ok(Fate::Held);
                }
                (Some(Datagram::Waits(later)), true) => {
                    self.datagrams.remove(&id);
                    *freed = Some(later);
                }
                (Some(Datagram::Open(first)), false) => {
                    self.datagrams.remove(&id);
                    return self.follow(tenant, first, packet);
                }
                (Some(Datagram::Open(first)), true) if first != flow => {
                    self.datagrams.insert(id, Datagram::Spoilt);
                    return Err(DropReason::FragmentOverlap);
                }
                (Some(Datagram::Spoilt), _) => return Err(DropReason::FragmentOverlap),
                (Some(_), _) => return Err(DropReason::FragmentDuplicate),
            }
        }
        self.allow(tenant, flow)?;
        Ok(Self::hop(tenant, packet))
    }

    /// A later fragment gets the verdict of its first one's flow as it is now, and opens nothing.
    fn follow(&mut self, tenant: &Tenant, flow: Flow, packet: &Packet) -> Result<Fate, DropReason> {
        match self.role(tenant, &flow) {
            Ok(_) => Ok(Self::hop(tenant, packet)),
            Err(reason) => {
                self.flows.remove(&flow);
                Err(reason)
            }
        }
    }

    fn hop(tenant: &Tenant, packet: &Packet) -> Fate {
        match (packet.dst_mac, packet.last_hop) {
            (DstMac::Wrong, _) => Fate::Dropped(DropReason::UnknownDestinationMac),
            (DstMac::Gateway, true) => Fate::Dropped(DropReason::TtlExpired),
            _ => Fate::Forwarded(tenant.locate(packet.dst).expect("an allowed packet has a receiver")),
        }
    }

    /// Judges an ICMP error about `quoted`: it passes when that is of an open flow of the same tenant, went to where the
    /// error comes from, and came from whom it is for.
    pub fn judge_error(&self, program: &Program, error: &Packet, quoted: &Packet) -> Fate {
        let index = match Self::tenant(program, error) {
            Ok(index) => index,
            Err(reason) => return Fate::Dropped(reason),
        };
        let tenant = &program.tenants[index];
        if error.src == error.dst {
            return Fate::Dropped(DropReason::Martian);
        }
        if tenant.locate(error.src) != Some(error.entry) {
            return Fate::Dropped(DropReason::SpoofedAddress);
        }
        let Some(place) = tenant.locate(error.dst) else { return Fate::Dropped(DropReason::NoRoute) };
        let transit = matches!((error.entry, place), (Place::Vtep(_), Place::Vtep(_)));
        if transit || error.entry == place {
            return Fate::Dropped(DropReason::NoRoute);
        }
        let sender = tenant.locate(quoted.src).map(|ingress| Flow {
            ingress,
            six: error.six,
            ..identity(index, quoted)
        });
        let open = |flow: &Flow| self.flows.get(flow) == Some(&Role::Opener) && allowed(tenant, flow).is_ok();
        let is_open = sender
            .is_some_and(|flow| open(&flow) || reverse(tenant, &flow).is_some_and(|opener| open(&opener)));
        let related = is_open && quoted.src == error.dst && tenant.locate(quoted.dst) == Some(error.entry);
        if related { Fate::Forwarded(place) } else { Fate::Dropped(DropReason::UnrelatedIcmpError) }
    }

    fn gateway(tenant: &Tenant, packet: &Packet) -> Fate {
        if tenant.locate(packet.src) != Some(packet.entry) || !matches!(packet.src, Addr::Host(_)) {
            return Fate::Dropped(DropReason::SpoofedAddress);
        }
        match (packet.dst_mac, packet.what) {
            (DstMac::Gateway, What::Echo(_, true)) => Fate::Answered,
            (DstMac::Gateway, _) => Fate::Dropped(DropReason::NoService),
            _ => Fate::Dropped(DropReason::UnknownDestinationMac),
        }
    }

    /// Rules, and replies to what rules have let through.
    fn allow(&mut self, tenant: &Tenant, flow: Flow) -> Result<(), DropReason> {
        match self.role(tenant, &flow) {
            Ok(role) => self.flows.insert(flow, role),
            Err(reason) => {
                self.flows.remove(&flow);
                return Err(reason);
            }
        };
        Ok(())
    }

    /// As what a packet of that flow passes, if it does.
    fn role(&self, tenant: &Tenant, flow: &Flow) -> Result<Role, DropReason> {
        let by_rules = allowed(tenant, flow);
        let opener = reverse(tenant, flow);
        let opened = opener.is_some_and(|opener| self.flows.get(&opener) == Some(&Role::Opener));
        let opener_allowed = opener.is_some_and(|opener| allowed(tenant, &opener).is_ok());
        let known = self.flows.get(flow).copied();
        let refused_by_rule = matches!(by_rules, Err(DropReason::PolicyDeny | DropReason::PolicyDefault));
        match (by_rules, known) {
            (Ok(()), Some(role)) => Ok(role),
            (Ok(()), None) if opened => Ok(Role::Reply),
            (Ok(()), None) => Ok(Role::Opener),
            (Err(_), Some(Role::Reply)) if refused_by_rule && opener_allowed => Ok(Role::Reply),
            (Err(_), _) if refused_by_rule && opened && opener_allowed => Ok(Role::Reply),
            (Err(reason), _) => Err(reason),
        }
    }
}

fn identity(tenant: usize, packet: &Packet) -> Flow {
    let what = match packet.what {
        What::Roce { qp, .. } => What::Roce { qp, entropy: 0 },
        // A first fragment is of the flow that whole packets are of.
        What::First(src, dst) => What::Udp(src, dst),
        other => other,
    };
    Flow { tenant, ingress: packet.entry, six: packet.six, src: packet.src, dst: packet.dst, what }
}

/// The flow that this one may be the answer to. An echo request answers nothing, and of RoCEv2 the other queue pair is
/// not known.
fn reverse(tenant: &Tenant, flow: &Flow) -> Option<Flow> {
    let what = match flow.what {
        What::Tcp(src, dst) => What::Tcp(dst, src),
        What::Udp(src, dst) => What::Udp(dst, src),
        What::Echo(id, false) => What::Echo(id, true),
        What::Echo(_, true) | What::Roce { .. } | What::First(..) | What::Later | What::Error(_) => {
            return None;
        }
    };
    Some(Flow { ingress: tenant.locate(flow.dst)?, src: flow.dst, dst: flow.src, what, ..*flow })
}

/// The rules' word on a flow as its opener.
fn allowed(tenant: &Tenant, flow: &Flow) -> Result<(), DropReason> {
    let to = way(tenant, flow)?;
    if let Place::Port(from) = flow.ingress {
        ask(tenant, from, &tenant.egress, flow, flow.dst)?;
    }
    match to {
        Place::Port(port) => ask(tenant, port, &tenant.ingress, flow, flow.src),
        Place::Vtep(_) => Ok(()),
    }
}

/// Where a flow goes, whatever rules say of it.
fn way(tenant: &Tenant, flow: &Flow) -> Result<Place, DropReason> {
    if flow.src == flow.dst {
        return Err(DropReason::Martian);
    }
    let genuine = tenant.locate(flow.src) == Some(flow.ingress);
    if !genuine {
        return Err(DropReason::SpoofedAddress);
    }
    let to = tenant.locate(flow.dst).ok_or(DropReason::NoRoute)?;
    // Whether there is a way at all comes before any rule.
    if flow.ingress == to || matches!((flow.ingress, to), (Place::Vtep(_), Place::Vtep(_))) {
        return Err(DropReason::NoRoute);
    }
    Ok(to)
}

/// The first rule of a port that matches; none means no.
fn ask(tenant: &Tenant, port: usize, rules: &[Rule], flow: &Flow, peer: Addr) -> Result<(), DropReason> {
    let more: &[Rule] = if tenant.ports.first() == Some(&port) { &tenant.first_port } else { &[] };
    let rule = rules
        .iter()
        .chain(more)
        .find(|rule| matches_peer(rule.peer, flow.six, peer) && matches_service(rule, flow.what));
    match rule {
        Some(rule) if rule.accept => Ok(()),
        Some(_) => Err(DropReason::PolicyDeny),
        None => Err(DropReason::PolicyDefault),
    }
}

fn matches_peer(peer: Peer, six: bool, addr: Addr) -> bool {
    match (peer, addr) {
        (Peer::Any, _) => true,
        (Peer::One(number), Addr::Host(host)) => number == host,
        (Peer::Low4, Addr::Host(host)) => !six && host <= 3,
        (Peer::Low6, Addr::Host(host)) => six && host <= 3,
        (Peer::Prefix, Addr::Behind(_)) => true,
        _ => false,
    }
}

fn matches_service(rule: &Rule, what: What) -> bool {
    match (rule.service, what) {
        (Service::Any, _) | (Service::Echo(None), What::Echo(..)) => true,
        (Service::Tcp(first, last), What::Tcp(_, dst)) | (Service::Udp(first, last), What::Udp(_, dst)) => {
            (first..=last).contains(&dst)
        }
        (Service::AllUdp, What::Udp(..) | What::Roce { .. }) => true,
        (Service::Echo(Some(request)), What::Echo(_, is_request)) => request == is_request,
        (Service::Roce(first, last), What::Roce { qp, .. }) => (first..=last).contains(&qp),
        _ => false,
    }
}
