//! What a foreign rule asks of a packet, as sets that can be cut with each other.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Of addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub const fn of(net: IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// All addresses.
    pub fn all(self) -> IpNet {
        match self {
            Self::V4 => Ipv4Net::default().into(),
            Self::V6 => Ipv6Net::default().into(),
        }
    }
}

/// Numbers from `first` to `last`, both among them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Range {
    pub first: u16,
    pub last: u16,
}

impl Range {
    pub const ALL: Self = Self { first: 0, last: u16::MAX };
    /// Of a field of one byte.
    pub const BYTES: Self = Self { first: 0, last: 0xff };

    /// The numbers of `self` that are in none of `ranges`.
    pub fn without(self, ranges: &[Self]) -> Vec<Self> {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable();
        let mut rest = Vec::new();
        let mut next = Some(self.first);
        for range in sorted {
            let Some(first) = next.filter(|first| *first <= self.last) else { break };
            if range.first > first {
                rest.push(Self { first, last: self.last.min(range.first - 1) });
            }
            next = range.last.checked_add(1).map(|after| after.max(first));
        }
        rest.extend(next.filter(|first| *first <= self.last).map(|first| Self { first, last: self.last }));
        rest
    }
}

/// The addresses of `within` that are in none of `nets`, as prefixes; at most one for each bit of each of them.
pub(super) fn outside(within: IpNet, nets: &[IpNet]) -> Vec<IpNet> {
    let inside: Vec<IpNet> = nets.iter().copied().filter(|net| net.cut(within).is_some()).collect();
    if inside.is_empty() {
        return vec![within];
    }
    if inside.iter().any(|net| net.contains(&within)) {
        return vec![];
    }
    // A prefix that lies within another one is longer, so this one can be halved.
    let halves = within.subnets(within.prefix_len() + 1);
    halves.into_iter().flatten().flat_map(|half| outside(half, &inside)).collect()
}

/// A set of which two can be cut; `None` is everything.
pub(super) trait Cut: Copy + PartialEq {
    /// What is in both, if there is anything.
    fn cut(self, other: Self) -> Option<Self>;
}

impl Cut for IpNet {
    fn cut(self, other: Self) -> Option<Self> {
        match () {
            () if self.contains(&other) => Some(other),
            () if other.contains(&self) => Some(self),
            () => None,
        }
    }
}

impl Cut for Range {
    fn cut(self, other: Self) -> Option<Self> {
        let both = Self { first: self.first.max(other.first), last: self.last.min(other.last) };
        (both.first <= both.last).then_some(both)
    }
}

impl Cut for u8 {
    fn cut(self, other: Self) -> Option<Self> {
        (self == other).then_some(self)
    }
}

/// A union of parts; `None` is everything.
pub(super) type Parts<T> = Option<Vec<T>>;

/// What is in both. Costs the product of their lengths, which is taken from `budget`; `None` when it does not suffice.
pub(super) fn cut<T: Cut>(a: &Parts<T>, b: &Parts<T>, budget: &mut usize) -> Option<Parts<T>> {
    let (a, b) = match (a, b) {
        (None, None) => return Some(None),
        (Some(only), None) | (None, Some(only)) => {
            *budget = budget.checked_sub(only.len())?;
            return Some(Some(only.clone()));
        }
        (Some(a), Some(b)) => (a, b),
    };
    *budget = budget.checked_sub(a.len().checked_mul(b.len())?)?;
    let mut parts: Vec<T> = Vec::new();
    for part in a.iter().flat_map(|a| b.iter().filter_map(|b| a.cut(*b))) {
        if parts.last() != Some(&part) {
            parts.push(part);
        }
    }
    Some(Some(parts))
}

/// All of this is to hold.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Conditions {
    /// Addresses of the far side.
    pub far: Parts<IpNet>,
    /// Addresses of the port's own host.
    pub own: Parts<IpNet>,
    pub protocols: Parts<u8>,
    pub src_ports: Parts<Range>,
    pub dst_ports: Parts<Range>,
    /// Of ICMP or ICMPv6, which `protocols` then names.
    pub icmp_types: Parts<Range>,
    pub icmp_codes: Parts<Range>,
    /// Names of conditions that are not understood.
    pub others: Vec<String>,
}

impl Conditions {
    /// What says nothing becomes nothing: a list with everything in it.
    pub fn simplified(mut self, family: Family) -> Self {
        let is_all = |nets: &Vec<IpNet>| nets.contains(&family.all());
        self.far.take_if(|nets| is_all(nets));
        self.own.take_if(|nets| is_all(nets));
        self.src_ports.take_if(|ranges| ranges.contains(&Range::ALL));
        self.dst_ports.take_if(|ranges| ranges.contains(&Range::ALL));
        self.icmp_types.take_if(|ranges| ranges.contains(&Range::BYTES));
        self.icmp_codes.take_if(|ranges| ranges.contains(&Range::BYTES));
        self
    }

    /// True when every packet fulfils them.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// True when no packet fulfils them.
    pub fn is_nothing(&self) -> bool {
        fn is_empty<T>(parts: &Parts<T>) -> bool {
            parts.as_ref().is_some_and(Vec::is_empty)
        }
        is_empty(&self.far)
            || is_empty(&self.own)
            || is_empty(&self.protocols)
            || is_empty(&self.src_ports)
            || is_empty(&self.dst_ports)
            || is_empty(&self.icmp_types)
            || is_empty(&self.icmp_codes)
    }

    /// Both. `None` when `budget` does not suffice.
    pub fn and(&self, other: &Self, budget: &mut usize) -> Option<Self> {
        let mut others = self.others.clone();
        others.extend(other.others.iter().filter(|name| !self.others.contains(name)).cloned());
        Some(Self {
            far: cut(&self.far, &other.far, budget)?,
            own: cut(&self.own, &other.own, budget)?,
            protocols: cut(&self.protocols, &other.protocols, budget)?,
            src_ports: cut(&self.src_ports, &other.src_ports, budget)?,
            dst_ports: cut(&self.dst_ports, &other.dst_ports, budget)?,
            icmp_types: cut(&self.icmp_types, &other.icmp_types, budget)?,
            icmp_codes: cut(&self.icmp_codes, &other.icmp_codes, budget)?,
            others,
        })
    }
}
