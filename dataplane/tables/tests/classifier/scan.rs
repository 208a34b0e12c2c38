//! The obviously right way: rules as they are written, asked one after the other.

use tables::classifier::{Classifier, Key, Rule, Service, Span};
use tables::prefix::{Address, Prefix};

/// One rule as a 5-tuple.
#[derive(Clone, Debug)]
pub struct Wanted<A> {
    pub src: (A, u8),
    pub dst: (A, u8),
    pub src_ports: (u16, u16),
    pub values: (u32, u32),
    pub protocol: (u8, u8),
}

#[derive(Clone, Copy, Debug)]
pub struct Header<A> {
    pub src: A,
    pub dst: A,
    pub src_port: u16,
    pub value: u32,
    pub protocol: u8,
}

impl<A: Address> Header<A> {
    pub fn key(&self) -> Key<A> {
        let Self { src, dst, src_port, value, protocol } = *self;
        Key { src, dst, value, src_port, protocol }
    }
}

/// Bits of addresses, compared without any code of the classifier's.
pub trait Bits: Address {
    fn same(self, other: Self, len: u8) -> bool;
    fn moved(self, by: i8) -> Self;
}

impl Bits for u32 {
    fn same(self, other: Self, len: u8) -> bool {
        len == 0 || self >> (32 - len) == other >> (32 - len)
    }

    fn moved(self, by: i8) -> Self {
        self.wrapping_add_signed(by.into())
    }
}

impl Bits for u128 {
    fn same(self, other: Self, len: u8) -> bool {
        len == 0 || self >> (128 - len) == other >> (128 - len)
    }

    fn moved(self, by: i8) -> Self {
        self.wrapping_add_signed(by.into())
    }
}

impl<A: Bits> Wanted<A> {
    pub fn matches(&self, header: &Header<A>) -> bool {
        let within = |(first, last): (u32, u32), value: u32| first <= value && value <= last;
        let src_ports = (self.src_ports.0.into(), self.src_ports.1.into());
        self.src.0.same(header.src, self.src.1)
            && self.dst.0.same(header.dst, self.dst.1)
            && within(src_ports, header.src_port.into())
            && within(self.values, header.value)
            && (header.protocol ^ self.protocol.0) & self.protocol.1 == 0
    }

    pub fn is_catch_all(&self) -> bool {
        let all = (self.src.1, self.dst.1, self.protocol.1) == (0, 0, 0);
        all && self.src_ports == (0, u16::MAX) && self.values.0 == 0 && self.values.1 >= u16::MAX.into()
    }

    pub fn rule(&self) -> Rule<A> {
        let service = Service {
            protocol: self.protocol.0,
            mask: self.protocol.1,
            src_ports: Span { first: self.src_ports.0, last: self.src_ports.1 },
            values: Span { first: self.values.0, last: self.values.1 },
        };
        let pair = (Prefix::new(self.src.0, self.src.1), Prefix::new(self.dst.0, self.dst.1));
        Rule { pairs: vec![pair], services: vec![service] }
    }
}

pub fn first<A: Bits>(rules: &[Wanted<A>], header: &Header<A>, from: u32) -> Option<u32> {
    let mut later = (0..).zip(rules).skip(from as usize);
    later.find(|(_, rule)| rule.matches(header)).map(|(number, _)| number)
}

pub fn classifier<A: Bits>(rules: &[Wanted<A>]) -> Classifier<A> {
    let rules: Vec<Rule<A>> = rules.iter().map(Wanted::rule).collect();
    Classifier::build(&rules).unwrap()
}

/// For each of about `count` rules headers at and beyond the edges of each field, the others within.
pub fn headers_at_edges<A: Bits>(rules: &[Wanted<A>], count: usize) -> Vec<Header<A>> {
    let step = rules.len().div_ceil(count).max(1);
    rules.iter().step_by(step).flat_map(|rule| edges(rule)).collect()
}

fn edges<A: Bits>(rule: &Wanted<A>) -> Vec<Header<A>> {
    let (src, dst) = (Prefix::new(rule.src.0, rule.src.1), Prefix::new(rule.dst.0, rule.dst.1));
    let inside = Header {
        src: src.last(),
        dst: dst.first(),
        src_port: rule.src_ports.0,
        value: rule.values.1,
        protocol: rule.protocol.0,
    };
    let mut headers = vec![inside];
    let around =
        |prefix: Prefix<A>| [prefix.first().moved(-1), prefix.first(), prefix.last(), prefix.last().moved(1)];
    headers.extend(around(src).map(|src| Header { src, ..inside }));
    headers.extend(around(dst).map(|dst| Header { dst, ..inside }));
    let (first, last) = rule.src_ports;
    let ports = [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
    headers.extend(ports.map(|src_port| Header { src_port, ..inside }));
    let (first, last) = rule.values;
    let values = [first.wrapping_sub(1), first, last, last.wrapping_add(1)];
    headers.extend(values.map(|value| Header { value, ..inside }));
    headers.push(Header { protocol: rule.protocol.0 ^ 1, ..inside });
    headers.push(Header { protocol: rule.protocol.0 ^ 0x80, ..inside });
    headers
}
