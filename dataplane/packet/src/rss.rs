//! Receive side scaling by a symmetric key, as cards do it and as software must do it to agree with them.
//!
//! The Toeplitz hash (Microsoft, "RSS hashing functions") of source and destination address under a key that repeats
//! the 16 bits [`KEY`] is the same in both directions (Woo and Park, "Scalable TCP session monitoring with symmetric
//! receive-side scaling", 2012). Under such a key it depends only on the exclusive or of all 16-bit words of both
//! addresses, which is how it is computed here.
//!
//! Only addresses are hashed, so that all flows of two hosts, their fragments among them, have one hash.

/// The key's repeated 16 bits, in wire order.
pub const KEY: [u8; 2] = [0x6d, 0x5a];

/// Entries of the table from hash to queue. A card's longer table, a multiple of it, holds it several times.
pub const TABLE_LEN: usize = 128;

/// Queue by the low bits of the hash: what a card's redirection table holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table([u16; TABLE_LEN]);

impl Table {
    /// Spreads over `queues` queues in turn; all to queue 0 when there is none.
    pub fn new(queues: u16) -> Self {
        Self(core::array::from_fn(|entry| entry as u16 % queues.max(1)))
    }

    /// The queue of each entry.
    pub fn entries(&self) -> &[u16; TABLE_LEN] {
        &self.0
    }

    /// The queue of a packet with that hash.
    #[inline(always)]
    pub fn queue(&self, hash: u32) -> u16 {
        self.0[hash as usize % TABLE_LEN]
    }
}

/// The hash of an IPv4 packet, of its source and destination address as they follow each other in the header.
#[inline(always)]
pub fn hash_v4(addresses: [u8; 8]) -> u32 {
    hash_word(u64::from_ne_bytes(addresses))
}

/// The hash of an IPv6 packet, likewise.
#[inline(always)]
pub fn hash_v6(addresses: &[u8; 32]) -> u32 {
    let (words, _) = addresses.as_chunks::<8>();
    hash_word(words.iter().fold(0, |all, word| all ^ u64::from_ne_bytes(*word)))
}

/// Folds to 16 bits. The lanes keep their places, so it does not matter that a little-endian load swaps each of them.
#[inline(always)]
fn hash_word(word: u64) -> u32 {
    let half = word ^ word >> 32;
    let [high, low] = ((half ^ half >> 16) as u16).to_ne_bytes();
    HIGH[usize::from(high)] ^ LOW[usize::from(low)]
}

/// What the first byte of a word adds to the hash.
static HIGH: [u32; 256] = contributions(0);
/// What its second byte adds.
static LOW: [u32; 256] = contributions(8);

/// A set bit at `offset + n`, counted from the left, adds the key's 32 bits from there on; the key repeats, so they are a
/// rotation.
const fn contributions(offset: u32) -> [u32; 256] {
    let key = u32::from_be_bytes([KEY[0], KEY[1], KEY[0], KEY[1]]);
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            if byte & (0x80 >> bit) != 0 {
                table[byte] ^= key.rotate_left(offset + bit);
            }
            bit += 1;
        }
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, bit by bit.
    fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
        let key_bit = |at: usize| u32::from(key[at / 8] >> (7 - at % 8) & 1);
        let window = |from: usize| (0..32).fold(0, |word, at| word << 1 | key_bit(from + at));
        let set = (0..input.len() * 8).filter(|at| input[at / 8] >> (7 - at % 8) & 1 == 1);
        set.fold(0, |hash, at| hash ^ window(at))
    }

    /// The key and two rows of the verification suite in "Verifying the RSS hash calculation" (Microsoft).
    #[test]
    fn the_definition_gives_the_published_values() {
        let key = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
            0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
            0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ];
        assert_eq!(toeplitz(&key, &[66, 9, 149, 187, 161, 142, 100, 80]), 0x323e_8fc2);
        assert_eq!(toeplitz(&key, &[199, 92, 111, 2, 65, 69, 140, 83]), 0xd718_262a);
    }

    #[test]
    fn the_short_way_is_the_definition_and_symmetric() {
        let key = KEY.repeat(20);
        let mut state = 1_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        for _ in 0..1_000 {
            let v6: [u8; 32] = core::array::from_fn(|_| byte());
            let v4: [u8; 8] = core::array::from_fn(|_| byte());
            assert_eq!(hash_v6(&v6), toeplitz(&key, &v6));
            assert_eq!(hash_v4(v4), toeplitz(&key, &v4));
            let (mut back6, mut back4) = (v6, v4);
            back6.rotate_left(16);
            back4.rotate_left(4);
            assert_eq!((hash_v6(&back6), hash_v4(back4)), (hash_v6(&v6), hash_v4(v4)));
        }
    }

    #[test]
    fn pairs_of_one_subnet_spread_over_any_number_of_queues() {
        for queues in [2, 3, 4, 7, 8, 16] {
            let table = Table::new(queues);
            let mut hits = vec![0_u32; usize::from(queues)];
            for peer in 1..=254 {
                hits[usize::from(table.queue(hash_v4([10, 1, 0, 10, 10, 1, 0, peer])))] += 1;
            }
            let share = 254 / u32::from(queues);
            assert!(hits.iter().all(|hits| (share / 2..=share * 2).contains(hits)), "{queues}: {hits:?}");
        }
        assert_eq!(Table::new(0), Table::new(1));
    }
}
