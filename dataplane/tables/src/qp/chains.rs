//! Hash chains through a fixed set of nodes: no allocation, no rehash, and a node leaves its chain at once.

/// The end of a chain, and a node that is in none.
const NONE: u32 = u32::MAX;
/// Says in `previous` that the node is its chain's first; the rest of the word is the chain.
const FIRST: u32 = 1 << 31;

#[derive(Clone, Copy)]
struct Node {
    next: u32,
    previous: u32,
}

/// Nodes numbered from zero, each in one chain at most.
pub(super) struct Chains {
    heads: Box<[u32]>,
    nodes: Box<[Node]>,
}

impl Chains {
    /// Chains for so many nodes, at most 2^30.
    pub(super) fn new(nodes: usize) -> Self {
        let heads = nodes.next_power_of_two();
        Self {
            heads: vec![NONE; heads].into_boxed_slice(),
            nodes: vec![Node { next: NONE, previous: NONE }; nodes].into_boxed_slice(),
        }
    }

    /// Puts a node at the head of the chain of `hash`; it leaves the one that it is in.
    pub(super) fn link(&mut self, node: u32, hash: u64) {
        self.unlink(node);
        let chain = hash as usize & (self.heads.len() - 1);
        let next = core::mem::replace(&mut self.heads[chain], node);
        if let Some(after) = self.nodes.get_mut(next as usize) {
            after.previous = node;
        }
        self.nodes[node as usize] = Node { next, previous: FIRST | chain as u32 };
    }

    /// Takes a node out of its chain, if it is in one.
    pub(super) fn unlink(&mut self, node: u32) {
        let Node { next, previous } = self.nodes[node as usize];
        if previous == NONE {
            return;
        }
        match previous & FIRST {
            0 => self.nodes[previous as usize].next = next,
            _ => self.heads[(previous & !FIRST) as usize] = next,
        }
        if let Some(after) = self.nodes.get_mut(next as usize) {
            after.previous = previous;
        }
        self.nodes[node as usize] = Node { next: NONE, previous: NONE };
    }

    /// The nodes whose hash may be this one, the latest first.
    pub(super) fn of(&self, hash: u64) -> impl Iterator<Item = u32> {
        let mut node = self.heads[hash as usize & (self.heads.len() - 1)];
        core::iter::from_fn(move || {
            let found = self.nodes.get(node as usize)?;
            Some(core::mem::replace(&mut node, found.next))
        })
    }
}
