//! What the flow table adds to an explanation: whether a flow that its verdict hangs on is open.

use program::{Flow, FlowRecord, Ingress, PortId, Program, VtepId};
use serde::{Deserialize, Serialize};

use super::{Explanation, Outcome, Packet, is_echo_request, mirror, words::Headers};
use crate::diff::service_of;

/// Flow entries that an explanation shows.
pub const FLOWS_SHOWN_MAX: usize = 16;

/// What becomes of the packet at the moment of asking.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Live {
    /// True when it passes.
    pub passes: bool,
    /// Why, in a sentence.
    pub why: String,
    /// Entries of the packet's flow or of the one that it answers; of an ICMP error those of the flow that it quotes.
    pub flows: Vec<FlowRecord>,
}

/// Flows that tell whether a packet passes: its own and the one that it answers, or for an error those of its quote.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Concern {
    own: Option<Flow>,
    opener: Option<Flow>,
    /// Of an echo; without one all echoes between the two hosts are meant.
    identifier: Option<u16>,
}

impl Concern {
    /// Of an explanation by this program.
    pub fn of(program: &Program, told: &Explanation) -> Self {
        let (from, headers) = match &told.quoted {
            Some(quoted) => (quoted.from.as_ref(), quoted.headers.as_ref()),
            None if told.verdict == Outcome::ByState => (None, None),
            None => (Some(&told.from), told.headers.as_ref()),
        };
        let (Some(from), Some(headers), Some(tenant)) = (from, headers, told.tenant.as_ref()) else {
            return Self::default();
        };
        let Headers { src, dst, service, identifier, .. } = headers;
        let Some(flow) = flow_of(program, tenant, from, (*src, *dst), service) else {
            return Self::default();
        };
        let packet = Packet::default_of(flow);
        let opener = if is_echo_request(flow.service) { None } else { mirror(program, &packet) };
        let opener = opener.map(|opener| by_any_hop(program, opener));
        Self { own: Some(flow), opener, identifier: *identifier }
    }

    /// True for an entry of one of these flows.
    pub fn covers(&self, program: &Program, record: &FlowRecord) -> bool {
        let flow = flow_of(program, &record.tenant, &record.from, (record.src, record.dst), &record.service);
        let is_same = |own: Option<Flow>| own.is_some() && own == flow;
        let words: Vec<&str> = record.service.split(' ').collect();
        let found: Option<u16> =
            words.iter().position(|word| *word == "id").and_then(|at| words.get(at + 1)?.parse().ok());
        (is_same(self.own) || is_same(self.opener))
            && self.identifier.zip(found).is_none_or(|(own, found)| own == found)
    }

    fn is_open(&self, program: &Program, flow: Option<Flow>, records: &[FlowRecord]) -> bool {
        let Some(flow) = flow.filter(|flow| program.judge(flow).is_ok()) else { return false };
        let is_of = |record: &&FlowRecord| {
            flow_of(program, &record.tenant, &record.from, (record.src, record.dst), &record.service)
                == Some(flow)
        };
        // An answer's entry opens nothing.
        records.iter().filter(is_of).any(|record| record.verdict == "accept")
    }
}

/// The flow of an entry, or of an explanation, by the names and words that it is listed with.
fn flow_of(
    program: &Program,
    tenant: &str,
    from: &str,
    (src, dst): (std::net::IpAddr, std::net::IpAddr),
    service: &str,
) -> Option<Flow> {
    let (service, src_port) = service_of(service)?;
    let tenant = program.tenants.iter().flatten().find(|own| own.name == tenant)?.id;
    let named = |vtep: &Option<program::Vtep>| vtep.as_ref().is_some_and(|vtep| vtep.name == from);
    let port = program.devices.iter().position(|device| device.name == from);
    let ingress = match port {
        Some(port) => Ingress::Port(PortId(port as u16)),
        None => Ingress::Vtep(VtepId(program.vteps.iter().position(named)? as u16)),
    };
    Some(by_any_hop(program, Flow { tenant, ingress, src, dst, service, src_port }))
}

/// A flow by whichever of its source's hops it comes in is one flow: it is named by the first of them.
fn by_any_hop(program: &Program, flow: Flow) -> Flow {
    let hops = program.tenant(flow.tenant).map_or(&[][..], |tenant| tenant.locate(flow.src));
    match hops {
        [first, ..] if hops.iter().any(|hop| Ingress::from(hop.place) == flow.ingress) => {
            Flow { ingress: Ingress::from(first.place), ..flow }
        }
        _ => flow,
    }
}

/// What becomes of an explained packet, given the entries that its [`Concern`] covers. `None` where no flow has a say in it.
pub fn live(
    program: &Program,
    told: &Explanation,
    concern: &Concern,
    mut flows: Vec<FlowRecord>,
) -> Option<Live> {
    concern.own?;
    let [own, opener] = [concern.own, concern.opener].map(|flow| concern.is_open(program, flow, &flows));
    flows.truncate(FLOWS_SHOWN_MAX);
    let (passes, why) = match told.verdict {
        Outcome::Forwarded if opener => (true, "rules allow it, and it answers a flow that is open"),
        Outcome::Forwarded if own => (true, "rules allow it, and its flow is open"),
        Outcome::Forwarded => (true, "rules allow it: it would open a flow"),
        Outcome::Dropped if told.passes_as_answer && opener => (true, "it answers a flow that is open"),
        Outcome::Dropped if told.passes_as_answer => (false, "the flow that it would answer is not open"),
        Outcome::Dropped => (false, "no flow that is open would let it pass"),
        Outcome::ByState if told.reason.is_some() => {
            (false, "it could not go on, even if the flow that it quotes is open")
        }
        Outcome::ByState if own || opener => (true, "the flow that it quotes is open"),
        Outcome::ByState => (false, "the flow that it quotes is not open"),
        // Whatever its first fragment was told.
        Outcome::Follows | Outcome::Answered | Outcome::Neighbour | Outcome::Local => return None,
    };
    Some(Live { passes, why: why.into(), flows })
}
