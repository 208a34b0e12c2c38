//! Next hops on the underlay: which MAC answers for which address, and when to ask again.
//!
//! A fixed number of registered addresses; nothing that a packet says adds one. An unresolved address is asked for at
//! once and then every [`RETRY`], however many packets wait for it. A resolved one is asked again when nothing was
//! heard from it for [`REFRESH`], and forgotten when [`PROBES`] requests in a row went unanswered.

use core::net::IpAddr;
use packet::Nanos;
use wire::Mac;

/// Least time between two requests for one address.
pub const RETRY: Nanos = Nanos::from_secs(1);

/// A resolved address is asked again after this long a silence.
pub const REFRESH: Nanos = Nanos::from_secs(30);

/// Requests in a row that may go unanswered before a resolved address is forgotten.
pub const PROBES: u8 = 3;

/// A request to send now: ARP for IPv4 (RFC 826), a neighbour solicitation for IPv6 (RFC 4861, section 7.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Solicit {
    /// Who is asked for.
    pub ip: IpAddr,
    /// Unicast to the MAC it had (RFC 1122, section 2.3.2.1); broadcast, or multicast for IPv6, when `None`.
    pub to: Option<Mac>,
}

/// What [`Neighbours::learn`] made of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learned {
    /// It was unresolved and no longer is.
    Resolved,
    /// It has another MAC than before.
    Changed,
    /// Nothing new, but it lives.
    Confirmed,
    /// Not a registered address: ignored.
    Unregistered,
    /// No host can have this MAC (zero, or a group address): ignored.
    BadMac,
}

/// There are as many addresses as the map has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany;

impl core::fmt::Display for TooMany {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no room for another neighbour")
    }
}

impl core::error::Error for TooMany {}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    ip: IpAddr,
    mac: Option<Mac>,
    last_heard: Nanos,
    /// `None` when nothing has been asked since it was registered or last heard.
    last_asked: Option<Nanos>,
    /// Requests since it was last heard; stops counting at [`PROBES`].
    unanswered: u8,
}

impl Neighbour {
    /// When something is to be done about it.
    fn deadline(&self) -> Nanos {
        match self.last_asked {
            Some(asked) => asked + RETRY,
            None if self.mac.is_some() => self.last_heard + REFRESH,
            None => Nanos(0),
        }
    }

    /// What to ask at its deadline. The last probe of a known MAC is broadcast: it may have moved.
    fn ask(&mut self, now: Nanos) -> Solicit {
        if self.unanswered >= PROBES {
            self.mac = None;
        }
        self.unanswered = self.unanswered.saturating_add(1).min(PROBES);
        self.last_asked = Some(now);
        Solicit { ip: self.ip, to: self.mac.filter(|_| self.unanswered < PROBES) }
    }
}

/// The registered next hops of one worker.
///
/// Open addressing with linear probing over twice as many slots as addresses. Addresses come from the operator's
/// policy, so their hash needs no seed.
pub struct Neighbours {
    slots: Box<[Option<Neighbour>]>,
    capacity: usize,
    len: usize,
    /// Not later than the earliest deadline.
    deadline: Nanos,
}

impl Neighbours {
    /// Room for `capacity` addresses, at most 2^16; all memory is taken now.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(1 << 16);
        let slots = vec![None; (2 * capacity).next_power_of_two().max(2)].into_boxed_slice();
        Self { slots, capacity, len: 0, deadline: Nanos::NEVER }
    }

    /// Registered addresses.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an address, unresolved and due at once. One that is there already stays as it is.
    pub fn register(&mut self, ip: IpAddr) -> Result<(), TooMany> {
        let at = self.position(ip);
        if self.slots[at].is_some() {
            return Ok(());
        }
        if self.len == self.capacity {
            return Err(TooMany);
        }
        self.slots[at] =
            Some(Neighbour { ip, mac: None, last_heard: Nanos(0), last_asked: None, unanswered: 0 });
        self.len += 1;
        self.deadline = Nanos(0);
        Ok(())
    }

    /// Forgets an address; false when it was not registered.
    pub fn unregister(&mut self, ip: IpAddr) -> bool {
        let mut hole = self.position(ip);
        if self.slots[hole].take().is_none() {
            return false;
        }
        self.len -= 1;
        // Close the gap: whoever probed past it moves back, so that a free slot always ends a search.
        let mut at = self.after(hole);
        while let Some(neighbour) = self.slots[at] {
            let home = self.home(neighbour.ip);
            if self.distance(home, hole) < self.distance(home, at) {
                self.slots[hole] = self.slots[at].take();
                hole = at;
            }
            at = self.after(at);
        }
        true
    }

    /// The MAC of an address; `None` when it is unresolved or not registered.
    #[inline]
    pub fn lookup(&self, ip: IpAddr) -> Option<Mac> {
        self.slots[self.position(ip)].as_ref()?.mac
    }

    /// Takes an answer, or any other proof of life, from a registered address.
    pub fn learn(&mut self, ip: IpAddr, mac: Mac, now: Nanos) -> Learned {
        if mac.is_zero() || mac.is_multicast() {
            return Learned::BadMac;
        }
        let at = self.position(ip);
        let Some(neighbour) = &mut self.slots[at] else { return Learned::Unregistered };
        let before = neighbour.mac.replace(mac);
        neighbour.last_heard = neighbour.last_heard.max(now);
        neighbour.last_asked = None;
        neighbour.unanswered = 0;
        self.deadline = self.deadline.min(neighbour.deadline());
        match before {
            None => Learned::Resolved,
            Some(same) if same == mac => Learned::Confirmed,
            Some(_) => Learned::Changed,
        }
    }

    /// The next request that is due, which is then taken as sent; call until `None`. Forgets who did not answer.
    pub fn due(&mut self, now: Nanos) -> Option<Solicit> {
        if now < self.deadline {
            return None;
        }
        let mut earliest = Nanos::NEVER;
        for neighbour in self.slots.iter_mut().flatten() {
            if neighbour.deadline() <= now {
                return Some(neighbour.ask(now));
            }
            earliest = earliest.min(neighbour.deadline());
        }
        self.deadline = earliest;
        None
    }

    /// Before this [`Neighbours::due`] has nothing to say; it may have nothing even then, when an answer came meanwhile.
    /// [`Nanos::NEVER`] when nobody is registered.
    pub fn next_deadline(&self) -> Nanos {
        self.deadline
    }

    /// Every registered address and its MAC.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, Option<Mac>)> {
        self.slots.iter().flatten().map(|neighbour| (neighbour.ip, neighbour.mac))
    }

    /// The slot of `ip`, or the free one where it belongs. Half of the slots are free, so there is an end.
    #[inline]
    fn position(&self, ip: IpAddr) -> usize {
        let mut at = self.home(ip);
        while self.slots[at].is_some_and(|neighbour| neighbour.ip != ip) {
            at = self.after(at);
        }
        at
    }

    #[inline]
    fn home(&self, ip: IpAddr) -> usize {
        let bits = match ip {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 ^ (ip.to_bits() as u64).rotate_left(32),
        };
        (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.slots.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// Steps of probing from one slot to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests;
