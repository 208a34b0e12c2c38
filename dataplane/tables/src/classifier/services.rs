//! What rules ask of a packet's transport, in runs, compared eight at a time.

use core::ops::Range;

use super::{Key, Service};

const WIDTH: usize = 8;

/// Eight services side by side, each field in a row of its own so that one comparison does them all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    first: [u32; WIDTH],
    /// Last less first.
    span: [u32; WIDTH],
    src_first: [u16; WIDTH],
    src_span: [u16; WIDTH],
    protocol: [u8; WIDTH],
    mask: [u8; WIDTH],
    rule: [u32; WIDTH],
}

impl Block {
    /// Matches nothing that a run could hold: no run reaches what has not been written.
    const EMPTY: Self = Self {
        first: [0; WIDTH],
        span: [0; WIDTH],
        src_first: [0; WIDTH],
        src_span: [0; WIDTH],
        protocol: [0; WIDTH],
        mask: [0; WIDTH],
        rule: [0; WIDTH],
    };

    /// One bit for each service that matches.
    #[inline(always)]
    fn matches<A>(&self, key: &Key<A>) -> u32 {
        let mut bits = 0;
        for lane in 0..WIDTH {
            let value = key.value.wrapping_sub(self.first[lane]) <= self.span[lane];
            let src_port = key.src_port.wrapping_sub(self.src_first[lane]) <= self.src_span[lane];
            let protocol = (key.protocol ^ self.protocol[lane]) & self.mask[lane] == 0;
            bits |= u32::from(value & src_port & protocol) << lane;
        }
        bits
    }
}

/// Runs of services one behind the other, without gaps: a run may begin and end inside a block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Services {
    blocks: Vec<Block>,
    len: usize,
}

impl Services {
    pub(super) fn push(&mut self, service: &Service, rule: u32) {
        let lane = self.len % WIDTH;
        if lane == 0 {
            self.blocks.push(Block::EMPTY);
        }
        let Some(block) = self.blocks.last_mut() else { return };
        (block.first[lane], block.span[lane]) =
            (service.values.first, service.values.last - service.values.first);
        (block.src_first[lane], block.src_span[lane]) =
            (service.src_ports.first, service.src_ports.last - service.src_ports.first);
        (block.protocol[lane], block.mask[lane], block.rule[lane]) = (service.protocol, service.mask, rule);
        self.len += 1;
    }

    pub(super) fn shrink(&mut self) {
        self.blocks.shrink_to_fit();
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.blocks)
    }

    /// The first rule of a run that matches and is in `rules`; the end of `rules` when there is none. A run is in the
    /// order of its rules.
    #[inline(always)]
    pub(super) fn first<A>(&self, start: u32, len: u32, key: &Key<A>, rules: Range<u32>) -> u32 {
        let (start, end) = (start as usize, start as usize + len as usize);
        let mut before = !0 << (start % WIDTH);
        for (number, block) in (start / WIDTH..end.div_ceil(WIDTH)).zip(&self.blocks[start / WIDTH..]) {
            let mut bits = block.matches(key) & before;
            if let Some(beyond) = end.checked_sub(number * WIDTH).filter(|beyond| *beyond < WIDTH) {
                bits &= !(!0 << beyond);
            }
            while bits != 0 {
                let rule = block.rule[bits.trailing_zeros() as usize];
                if rule >= rules.start {
                    return rule.min(rules.end);
                }
                bits &= bits - 1;
            }
            before = !0;
        }
        rules.end
    }
}
