//! Tenants, pods and policies, and what the API says of a packet.

use std::net::IpAddr;

use program::Service;
use proptest::{collection::vec, option, prelude::*, sample::select};

/// Ports that rules and packets have: few, so that they meet.
pub const PORTS: [u16; 5] = [80, 81, 82, 443, 8080];

#[derive(Clone, Debug)]
pub struct World {
    pub tenants: Vec<Tenant>,
    pub clusters: Vec<Cluster>,
}

#[derive(Clone, Debug)]
pub struct Tenant {
    pub team: u8,
    /// The last one is a remote with labels; the others are ports.
    pub pods: Vec<Pod>,
    pub networks: Vec<Network>,
    pub natives: Vec<Native>,
}

#[derive(Clone, Debug)]
pub struct Pod {
    pub role: u8,
    pub has_mark: bool,
    /// Protocol and number of its port `web`.
    pub web: Option<(u8, u16)>,
}

#[derive(Clone, Debug)]
pub struct Network {
    pub pods: Select,
    /// Ingress and egress, when given.
    pub types: Option<(bool, bool)>,
    pub ingress: Vec<Allow>,
    pub egress: Vec<Allow>,
}

#[derive(Clone, Debug)]
pub struct Allow {
    pub peers: Option<Vec<Peer>>,
    pub ports: Option<Vec<Ports>>,
}

/// A TenantPolicy for all pods with one role, each rule for one TCP port from anybody.
#[derive(Clone, Debug)]
pub struct Native {
    pub role: u8,
    pub priority: u8,
    pub egress: Vec<(Action, u16)>,
    pub ingress: Vec<(Action, u16)>,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    pub is_admin: bool,
    pub priority: u8,
    pub tenants: Tenants,
    pub pods: Option<Select>,
    pub ingress: Vec<ClusterRule>,
    pub egress: Vec<ClusterRule>,
}

#[derive(Clone, Debug)]
pub struct ClusterRule {
    pub action: Action,
    pub peers: Vec<Peer>,
    pub ports: Vec<Ports>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Action {
    Accept,
    Deny,
    Pass,
}

#[derive(Clone, Debug)]
pub enum Peer {
    Pods(Option<Tenants>, Select),
    /// Low byte of an address, prefix length above 24, and an exception as long as is added.
    Block(u8, u8, Option<u8>),
}

#[derive(Clone, Debug)]
pub enum Ports {
    All(u8),
    Range(u8, u16, u16),
    Web(u8),
}

#[derive(Clone, Debug)]
pub enum Select {
    Any,
    Role(u8),
    In(Vec<u8>),
    NotIn(Vec<u8>),
    Marked,
    Unmarked,
}

#[derive(Clone, Debug)]
pub enum Tenants {
    Any,
    Team(u8),
    Name(usize),
}

#[derive(Clone, Debug)]
pub struct Packet {
    pub tenant: usize,
    pub pod: usize,
    pub is_egress: bool,
    pub peer: IpAddr,
    pub protocol: u8,
    pub port: u16,
}

pub fn world() -> impl Strategy<Value = World> {
    (vec(tenant(), 1..3), vec(cluster(), 0..4)).prop_map(|(tenants, clusters)| World { tenants, clusters })
}

fn tenant() -> impl Strategy<Value = Tenant> {
    let pod = (0..3u8, any::<bool>(), option::of((protocol(), port())))
        .prop_map(|(role, has_mark, web)| Pod { role, has_mark, web });
    (0..2u8, vec(pod, 2..5), vec(network(), 0..4), vec(native(), 0..2))
        .prop_map(|(team, pods, networks, natives)| Tenant { team, pods, networks, natives })
}

fn network() -> impl Strategy<Value = Network> {
    let allow = || (option::of(vec(peer(), 0..3)), option::of(vec(ports(), 0..3)));
    let allows = || vec(allow().prop_map(|(peers, ports)| Allow { peers, ports }), 0..3);
    (selects(), option::of((any::<bool>(), any::<bool>())), allows(), allows())
        .prop_map(|(pods, types, ingress, egress)| Network { pods, types, ingress, egress })
}

fn native() -> impl Strategy<Value = Native> {
    let rules = || vec((action(), port()), 0..4);
    (0..3u8, 0..2u8, rules(), rules()).prop_map(|(role, priority, egress, ingress)| Native {
        role,
        priority,
        egress,
        ingress,
    })
}

fn cluster() -> impl Strategy<Value = Cluster> {
    let rule = || {
        (action(), vec(peer().prop_map(Peer::without_except), 1..3), vec(ports(), 0..3))
            .prop_map(|(action, peers, ports)| ClusterRule { action, peers, ports })
    };
    (any::<bool>(), 0..2u8, tenants(), option::of(selects()), vec(rule(), 0..4), vec(rule(), 0..4)).prop_map(
        |(is_admin, priority, tenants, pods, ingress, egress)| Cluster {
            is_admin,
            priority,
            tenants,
            pods,
            ingress,
            egress,
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    select(vec![Action::Accept, Action::Deny, Action::Pass])
}

fn peer() -> impl Strategy<Value = Peer> {
    prop_oneof![
        2 => (option::of(tenants()), selects()).prop_map(|(tenants, pods)| Peer::Pods(tenants, pods)),
        1 => (low(), prop_oneof![4 => 24..=32u8, 1 => Just(0)], option::of(0..4u8)).prop_map(|(low, len, except)| Peer::Block(low, len, except)),
    ]
}

fn low() -> impl Strategy<Value = u8> {
    prop_oneof![3 => 10..15u8, 1 => any::<u8>()]
}

fn ports() -> impl Strategy<Value = Ports> {
    prop_oneof![
        1 => protocol().prop_map(Ports::All),
        3 => (protocol(), port(), port()).prop_map(|(p, a, b)| Ports::Range(p, a.min(b), a.max(b))),
        2 => protocol().prop_map(Ports::Web),
    ]
}

fn selects() -> impl Strategy<Value = Select> {
    prop_oneof![
        Just(Select::Any),
        (0..3u8).prop_map(Select::Role),
        vec(0..3u8, 1..3).prop_map(Select::In),
        vec(0..3u8, 1..3).prop_map(Select::NotIn),
        Just(Select::Marked),
        Just(Select::Unmarked),
    ]
}

fn tenants() -> impl Strategy<Value = Tenants> {
    prop_oneof![Just(Tenants::Any), (0..2u8).prop_map(Tenants::Team), (0..2usize).prop_map(Tenants::Name)]
}

fn protocol() -> impl Strategy<Value = u8> {
    select(vec![6u8, 17, 132])
}

fn port() -> impl Strategy<Value = u16> {
    select(PORTS.to_vec())
}

pub fn packet() -> impl Strategy<Value = Packet> {
    let protocol = prop_oneof![5 => protocol(), 1 => Just(1u8)];
    (0..2usize, 0..8usize, any::<bool>(), low(), protocol, port()).prop_map(
        |(tenant, pod, is_egress, low, protocol, port)| Packet {
            tenant,
            pod,
            is_egress,
            peer: address(low),
            protocol,
            port,
        },
    )
}

/// All tenants have the same addresses, so that nothing hangs on them being different.
pub fn address(low: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, low])
}

pub fn pod_address(pod: usize) -> IpAddr {
    address(10 + pod as u8)
}

impl Packet {
    /// The same packet at a port that is there.
    pub fn within(self, world: &World) -> Self {
        let tenant = self.tenant % world.tenants.len();
        let ports = world.tenants[tenant].pods.len() - 1;
        Self { tenant, pod: self.pod % ports, ..self }
    }

    pub fn service(&self) -> Service {
        match self.protocol {
            6 => Service::Tcp(self.port),
            17 => Service::Udp(self.port),
            132 => Service::Sctp(self.port),
            _ => Service::Icmp(8, 0),
        }
    }
}

impl Peer {
    /// A ClusterNetworkPolicy has no exceptions.
    fn without_except(self) -> Self {
        match self {
            Self::Block(low, len, _) => Self::Block(low, len, None),
            pods => pods,
        }
    }
}

impl World {
    pub fn is_accepted(&self, packet: &Packet) -> bool {
        self.decided(packet).1
    }

    /// Which tier decides, and what.
    pub fn decided(&self, packet: &Packet) -> (&'static str, bool) {
        let tenant = &self.tenants[packet.tenant];
        let by = |tier, answer: Option<bool>| answer.map(|is_accepted| (tier, is_accepted));
        by("Admin", self.by_cluster(true, packet))
            .or_else(|| by("Tenant", tenant.by_own(packet, self)))
            .or_else(|| by("Baseline", self.by_cluster(false, packet)))
            .unwrap_or_else(|| ("Default", tenant.is_open(packet)))
    }

    /// The answer of a tier, if it has one.
    fn by_cluster(&self, is_admin: bool, packet: &Packet) -> Option<bool> {
        let pod = &self.tenants[packet.tenant].pods[packet.pod];
        let mut order: Vec<&Cluster> = self.clusters.iter().filter(|own| own.is_admin == is_admin).collect();
        order.sort_by_key(|cluster| cluster.priority);
        for cluster in order {
            let is_subject = self.is_meant(&cluster.tenants, packet.tenant)
                && cluster.pods.as_ref().is_none_or(|pods| pods.holds(pod));
            let rules = if packet.is_egress { &cluster.egress } else { &cluster.ingress };
            for rule in rules.iter().filter(|_| is_subject) {
                let is_peer = rule.peers.iter().any(|peer| self.is_peer(peer, packet, !packet.is_egress));
                let is_service =
                    rule.ports.is_empty() || rule.ports.iter().any(|p| self.is_port(p, packet, true));
                if is_peer && is_service {
                    return match rule.action {
                        Action::Accept => Some(true),
                        Action::Deny => Some(false),
                        Action::Pass => None,
                    };
                }
            }
        }
        None
    }

    fn is_meant(&self, tenants: &Tenants, tenant: usize) -> bool {
        match tenants {
            Tenants::Any => true,
            Tenants::Team(team) => self.tenants[tenant].team == *team,
            Tenants::Name(name) => tenant == *name,
        }
    }

    /// Blocks are peers of egress rules only in a ClusterNetworkPolicy: `is_cluster_ingress` makes them any pod.
    fn is_peer(&self, peer: &Peer, packet: &Packet, is_cluster_ingress: bool) -> bool {
        match peer {
            Peer::Pods(tenants, pods) => {
                tenants.as_ref().is_none_or(|tenants| self.is_meant(tenants, packet.tenant))
                    && self.peer_pod(packet).is_some_and(|pod| pods.holds(pod))
            }
            Peer::Block(..) if is_cluster_ingress => self.peer_pod(packet).is_some(),
            Peer::Block(low, len, except) => {
                let (IpAddr::V4(net), IpAddr::V4(peer)) = (address(*low), packet.peer) else {
                    unreachable!()
                };
                let differs = u32::from(net) ^ u32::from(peer);
                let is_in = |len: u8| differs.checked_shr(32 - u32::from(len)).unwrap_or(0) == 0;
                is_in(*len) && !except.is_some_and(|more| is_in((*len + more).min(32)))
            }
        }
    }

    fn peer_pod(&self, packet: &Packet) -> Option<&Pod> {
        let pods = &self.tenants[packet.tenant].pods;
        (0..pods.len()).find(|pod| pod_address(*pod) == packet.peer).map(|pod| &pods[pod])
    }

    fn is_port(&self, ports: &Ports, packet: &Packet, is_cluster: bool) -> bool {
        match ports {
            Ports::All(protocol) => packet.protocol == *protocol,
            Ports::Range(protocol, first, last) => {
                packet.protocol == *protocol && (*first..=*last).contains(&packet.port)
            }
            Ports::Web(protocol) => {
                let own = Some(&self.tenants[packet.tenant].pods[packet.pod]);
                let destination = if packet.is_egress { self.peer_pod(packet) } else { own };
                let web = destination.and_then(|pod| pod.web);
                web == Some((packet.protocol, packet.port)) && (is_cluster || packet.protocol == *protocol)
            }
        }
    }
}

impl Tenant {
    fn by_own(&self, packet: &Packet, world: &World) -> Option<bool> {
        let mut natives: Vec<&Native> = self.natives.iter().filter(|one| self.is_of(one, packet)).collect();
        natives.sort_by_key(|native| native.priority);
        for native in natives {
            let rules = if packet.is_egress { &native.egress } else { &native.ingress };
            if let Some((action, _)) = rules.iter().find(|(_, port)| packet.service() == Service::Tcp(*port))
            {
                return match action {
                    Action::Accept => Some(true),
                    Action::Deny => Some(false),
                    Action::Pass => None,
                };
            }
        }
        let isolating: Vec<&Network> =
            self.networks.iter().filter(|one| self.isolates(one, packet)).collect();
        let allows = isolating
            .iter()
            .flat_map(|network| if packet.is_egress { &network.egress } else { &network.ingress });
        let mut matching = allows.filter(|allow| allow.holds(packet, world));
        (!isolating.is_empty()).then(|| matching.next().is_some())
    }

    fn is_of(&self, native: &Native, packet: &Packet) -> bool {
        self.pods[packet.pod].role == native.role
    }

    fn isolates(&self, network: &Network, packet: &Packet) -> bool {
        let (ingress, egress) = network
            .types
            .filter(|types| *types != (false, false))
            .unwrap_or((true, !network.egress.is_empty()));
        let is_listed = if packet.is_egress { egress } else { ingress };
        is_listed && network.pods.holds(&self.pods[packet.pod])
    }

    /// Where no policy says anything: Kubernetes' default when the tenant has its policies, else floodway's.
    fn is_open(&self, packet: &Packet) -> bool {
        !self.networks.is_empty()
            && !self.networks.iter().any(|network| self.isolates(network, packet))
            && !self.natives.iter().any(|native| self.is_of(native, packet))
    }
}

impl Allow {
    fn holds(&self, packet: &Packet, world: &World) -> bool {
        let given = |list: &Option<Vec<Peer>>| list.clone().filter(|list| !list.is_empty());
        let is_peer =
            given(&self.peers).is_none_or(|list| list.iter().any(|one| world.is_peer(one, packet, false)));
        let ports = self.ports.as_ref().filter(|list| !list.is_empty());
        is_peer && ports.is_none_or(|list| list.iter().any(|one| world.is_port(one, packet, false)))
    }
}

impl Select {
    fn holds(&self, pod: &Pod) -> bool {
        match self {
            Self::Any => true,
            Self::Role(role) => pod.role == *role,
            Self::In(roles) => roles.contains(&pod.role),
            Self::NotIn(roles) => !roles.contains(&pod.role),
            Self::Marked => pod.has_mark,
            Self::Unmarked => !pod.has_mark,
        }
    }
}
