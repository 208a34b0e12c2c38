//! The longest prefix of an address: for routes, and for the two address dimensions of the classifier.
//!
//! Nested prefixes are flattened once into ranges that do not overlap, each with the number of the longest prefix that
//! holds it. A look-up is a search for the last range that does not begin after the address: the same number of steps
//! whatever the address, without a branch that could be guessed wrong. Both families go the same way, and ten routes
//! take ten routes' memory: what a tenant has is often that small, and there are a thousand tenants.

use core::hint::select_unpredictable;

use crate::prefix::{Address, Prefix};

/// No prefix holds the address.
pub(crate) const NONE: u32 = u32::MAX;

/// Prefixes by number, to be searched by address. Never changes: another set is another table.
///
/// At most two ranges a prefix and one more: 16 bytes a prefix for IPv4, 40 for IPv6.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lpm<A> {
    /// Where the ranges begin, ascending, zero first.
    starts: Box<[A]>,
    /// The longest prefix of each range, or [`NONE`].
    longest: Box<[u32]>,
}

impl<A: Address> Lpm<A> {
    /// A table of these prefixes, at most 2^32 - 1; each is known by its index. Of equal ones the first counts.
    pub fn build(prefixes: &[Prefix<A>]) -> Self {
        Self::build_nested(prefixes, |_, _| ())
    }

    /// The same. `enter` is told each prefix that counts and the next wider one around it, wider ones before narrower.
    pub(crate) fn build_nested(prefixes: &[Prefix<A>], mut enter: impl FnMut(u32, Option<u32>)) -> Self {
        let mut order: Vec<u32> = (0..prefixes.len() as u32).collect();
        order.sort_by_key(|number| (prefixes[*number as usize], *number));
        let prefix = |number: u32| prefixes[number as usize];
        let mut ranges = Ranges { starts: vec![A::default()], longest: vec![NONE] };
        let mut open: Vec<u32> = Vec::new();
        for number in order {
            let next = prefix(number);
            while let Some(inner) = open.pop_if(|inner| prefix(*inner).last() < next.first()) {
                ranges.end(prefix(inner), open.last());
            }
            let outer = open.last().copied();
            if outer.is_some_and(|outer| prefix(outer) == next) {
                continue;
            }
            enter(number, outer);
            ranges.begin(next.first(), number);
            open.push(number);
        }
        while let Some(inner) = open.pop() {
            ranges.end(prefix(inner), open.last());
        }
        Self { starts: ranges.starts.into(), longest: ranges.longest.into() }
    }

    /// The longest prefix that holds the address.
    #[inline]
    pub fn longest(&self, address: A) -> Option<u32> {
        let [number] = self.longest_of(&[address]);
        (number != NONE).then_some(number)
    }

    /// The same for several, whose cache misses overlap; [`NONE`] for none.
    #[inline]
    pub(crate) fn longest_of<const N: usize>(&self, addresses: &[A; N]) -> [u32; N] {
        let mut range = [0; N];
        let mut len = self.starts.len();
        while len > 1 {
            let half = len / 2;
            for (range, address) in range.iter_mut().zip(addresses) {
                let middle = *range + half;
                *range = select_unpredictable(self.starts[middle] <= *address, middle, *range);
            }
            len -= half;
        }
        range.map(|range| self.longest[range])
    }

    /// Bytes that it takes beside itself.
    pub fn memory_bytes(&self) -> usize {
        self.starts.len() * (size_of::<A>() + size_of::<u32>())
    }
}

/// The ranges in the making. What begins where another begins takes its place.
struct Ranges<A> {
    starts: Vec<A>,
    longest: Vec<u32>,
}

impl<A: Address> Ranges<A> {
    fn begin(&mut self, start: A, number: u32) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.longest.pop();
        }
        // Not a range of its own when it goes on as the one before.
        if self.longest.last() != Some(&number) {
            self.starts.push(start);
            self.longest.push(number);
        }
    }

    /// After a prefix the one around it goes on.
    fn end(&mut self, prefix: Prefix<A>, outer: Option<&u32>) {
        if let Some(start) = prefix.last().next() {
            self.begin(start, outer.copied().unwrap_or(NONE));
        }
    }
}

#[cfg(test)]
mod tests;
