//! Datagrams of one kind and tenant by age, as a list through the table.

/// No datagram.
pub(super) const NONE: u32 = u32::MAX;

/// Ends of one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub oldest: u32,
    newest: u32,
}

/// A datagram's neighbours in its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    older: u32,
    newer: u32,
}

impl Links {
    pub const NONE: Self = Self { older: NONE, newer: NONE };
}

impl Order {
    pub const EMPTY: Self = Self { oldest: NONE, newest: NONE };

    /// Adds a datagram as the newest.
    pub fn push(&mut self, number: u32, links: &mut [Links]) {
        links[number as usize] = Links { older: self.newest, newer: NONE };
        match links.get_mut(self.newest as usize) {
            Some(before) => before.newer = number,
            None => self.oldest = number,
        }
        self.newest = number;
    }

    /// Takes a datagram out, wherever it is.
    pub fn remove(&mut self, number: u32, links: &mut [Links]) {
        let Links { older, newer } = links[number as usize];
        match links.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => self.oldest = newer,
        }
        match links.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => self.newest = older,
        }
    }
}
