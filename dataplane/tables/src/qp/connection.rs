//! What the connection manager's messages do to pairs.

use super::Service;
use super::pair::State;
use super::table::{BY_ID, BY_QP, Heard, Hosts, NODES, NONE, QpTable};
use packet::Nanos;
use std::hash::BuildHasher;
use wire::roce::cm::{Kind, Message, Offer};

impl QpTable {
    /// True when the message is about a pair that its receiver has opened, and opens none: it may pass as an answer.
    pub fn is_answer(&self, hosts: &Hosts, message: &Message) -> bool {
        self.named(hosts, message).is_some_and(|end| end % 2 == 1)
    }

    /// Takes in a message that has passed.
    pub fn hear(&mut self, hosts: &Hosts, message: &Message, now: Nanos) -> Heard {
        match message.kind {
            Kind::Request { offer, service } => {
                let Some(service) = Service::of(service) else { return Heard::Unrelated };
                return self.hear_request(hosts, message.local_id, Some(offer), service, now);
            }
            Kind::Resolve => return self.hear_request(hosts, message.local_id, None, Service::Ud, now),
            _ => {}
        }
        let Some(sender) = self.named(hosts, message) else { return Heard::Unrelated };
        let pair = sender / 2;
        let state = self.pairs[pair as usize].state;
        let heard = match (message.kind, state) {
            (Kind::Reply(offer), State::Requested | State::Replied) if sender % 2 == 1 => {
                self.hear_reply(sender, message.local_id, offer)
            }
            (Kind::Ready, State::Replied) if sender.is_multiple_of(2) => {
                self.pairs[pair as usize].state = State::Open;
                Heard::Known
            }
            (Kind::Reject, State::Requested | State::Replied) | (Kind::Disconnected, State::Closing) => {
                self.remove(pair);
                return Heard::Released;
            }
            (Kind::Resolved, _) => {
                self.remove(pair);
                return Heard::Released;
            }
            (Kind::Disconnect { remote_qp }, State::Replied | State::Open)
                if remote_qp == self.ends[sender as usize ^ 1].qp =>
            {
                self.close(pair);
                Heard::Released
            }
            _ => Heard::Known,
        };
        let pair = &mut self.pairs[pair as usize];
        pair.heard = pair.heard.max(now);
        heard
    }

    fn hear_request(
        &mut self,
        hosts: &Hosts,
        id: u32,
        offer: Option<Offer>,
        service: Service,
        now: Nanos,
    ) -> Heard {
        let qp = offer.map_or(NONE, |offer| offer.qp);
        let known = self.named_by(*hosts, id).find(|end| end.is_multiple_of(2));
        if let Some(end) = known {
            let pair = &mut self.pairs[end as usize / 2];
            if self.ends[end as usize].qp == qp && pair.service == service {
                pair.heard = pair.heard.max(now);
                return Heard::Known;
            }
            self.remove(end / 2);
        }
        if offer.is_some() {
            self.end_pairs_of(hosts.reversed(), qp, None);
        }
        let pair = match self.insert(hosts, State::Requested, service, now) {
            Ok(pair) => pair,
            Err(full) => return Heard::Full(full),
        };
        self.set_id(2 * pair, id);
        if let Some(offer) = offer {
            self.set_qp(2 * pair, offer.qp);
            self.ends[2 * pair as usize + 1].starts_at(offer.psn, service);
        }
        Heard::Requested
    }

    fn hear_reply(&mut self, sender: u32, id: u32, offer: Offer) -> Heard {
        let pair = sender / 2;
        let same = self.pairs[pair as usize].ids[1] == Some(id) && self.ends[sender as usize].qp == offer.qp;
        if same || self.pairs[pair as usize].service == Service::Ud {
            return Heard::Known;
        }
        self.end_pairs_of(self.hosts_from(sender ^ 1), offer.qp, Some(pair));
        self.end_pairs_of(self.hosts_from(sender), self.ends[sender as usize ^ 1].qp, Some(pair));
        self.pairs[pair as usize].state = State::Replied;
        self.set_id(sender, id);
        self.set_qp(sender, offer.qp);
        let service = self.pairs[pair as usize].service;
        self.ends[sender as usize ^ 1].starts_at(offer.psn, service);
        Heard::Connected { opener: self.ends[sender as usize ^ 1].qp, responder: offer.qp }
    }

    /// A queue pair is connected once: whoever offers it anew has ended all that it was used for.
    fn end_pairs_of(&mut self, to_owner: Hosts, qp: u32, but: Option<u32>) {
        loop {
            let other = self.owners(to_owner, qp).map(|end| end / 2).find(|pair| Some(*pair) != but);
            match other {
                Some(pair) => self.remove(pair),
                None => return,
            }
        }
    }

    /// From here on the pair carries nothing, but its names are known until the answer has come.
    fn close(&mut self, pair: u32) {
        self.pairs[pair as usize].state = State::Closing;
        for side in 0..2 {
            self.chains.unlink(pair * NODES + BY_QP + side);
            let end = &mut self.ends[(2 * pair + side) as usize];
            end.serial = end.serial.wrapping_add(1);
        }
    }

    /// The side that sends the message, by both names.
    fn named(&self, hosts: &Hosts, message: &Message) -> Option<u32> {
        let agrees = |end: u32, id: u32| {
            self.pairs[end as usize / 2].ids[end as usize % 2].is_none_or(|own| own == id)
        };
        match message.kind {
            Kind::Request { .. } | Kind::Resolve => None,
            Kind::Resolved => {
                let asked = self.named_by(hosts.reversed(), message.remote_id);
                let mut asked = asked.filter(|end| self.pairs[*end as usize / 2].service == Service::Ud);
                asked.next().map(|end| end ^ 1)
            }
            // Refused before the receiver could be named.
            Kind::Reject if message.remote_id == 0 => self.named_by(*hosts, message.local_id).next(),
            // Refused before the sender had a name.
            Kind::Reject if message.local_id == 0 => {
                self.named_by(hosts.reversed(), message.remote_id).next().map(|end| end ^ 1)
            }
            _ => {
                let mut receivers = self.named_by(hosts.reversed(), message.remote_id).map(|end| end ^ 1);
                receivers.find(|&end| {
                    let is_connection = self.pairs[end as usize / 2].service != Service::Ud;
                    is_connection && agrees(end, message.local_id)
                })
            }
        }
    }

    /// Sides of the sender that have that name, towards the receiver.
    fn named_by(&self, hosts: Hosts, id: u32) -> impl Iterator<Item = u32> {
        let nodes = self.chains.of(self.hasher.hash_one((hosts, id, BY_ID)));
        nodes.filter_map(|node| self.side(node, BY_ID)).filter(move |&end| {
            self.is_between(end, &hosts) && self.pairs[end as usize / 2].ids[end as usize % 2] == Some(id)
        })
    }
}
