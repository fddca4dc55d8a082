//! Keys and values: as long as asked, not compressible, and able to show which record they belong
//! to.

use stratakv_base::random::Random;

use crate::distribution::fnv1a;

/// The key of record `number`: "user" and 20 digits, as YCSB with hashed order.
pub fn key(number: u64) -> [u8; 24] {
    let mut key = *b"user00000000000000000000";
    let mut rest = fnv1a(number);
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Makes values out of one pool of random bytes, so that making one costs a copy.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Vec<u8>,
}

/// Bytes at a value's front that name its record.
const STAMP_BYTES: usize = 8;

impl Values {
    /// Values of up to `bytes_max`.
    pub fn new(bytes_max: usize) -> Values {
        let mut pool = vec![0; (1 << 20) + bytes_max];
        Random::new(0x5EED).fill(&mut pool);
        Values { pool }
    }

    /// A value of `bytes` for record `number`, at random otherwise.
    pub fn make(&self, number: u64, bytes: usize, random: &mut Random, into: &mut Vec<u8>) {
        let start = random.below((self.pool.len() - bytes) as u64 + 1) as usize;
        into.clear();
        into.extend_from_slice(&self.pool[start..start + bytes]);
        let stamp = bytes.min(STAMP_BYTES);
        into[..stamp].copy_from_slice(&number.to_le_bytes()[..stamp]);
    }

    /// Whether a value read for record `number` is one of its own.
    pub fn belongs(number: u64, front: &[u8]) -> bool {
        let stamp = front.len().min(STAMP_BYTES);
        front[..stamp] == number.to_le_bytes()[..stamp]
    }
}

/// How long values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSize {
    /// All the same.
    Fixed(usize),
    /// KVell's production mix: 250 B to 1 KiB, median 400 B.
    Production,
}

impl ValueSize {
    /// A length in bytes. The same record need not have the same length twice.
    pub fn next(self, random: &mut Random) -> usize {
        match self {
            ValueSize::Fixed(bytes) => bytes,
            // Half of them below the median of 400 B, half above.
            ValueSize::Production if random.below(2) == 0 => 250 + random.below(151) as usize,
            ValueSize::Production => 400 + random.below(625) as usize,
        }
    }

    /// The longest, in bytes.
    pub fn max(self) -> usize {
        match self {
            ValueSize::Fixed(bytes) => bytes,
            ValueSize::Production => 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_values_know_their_record() {
        let keys: std::collections::HashSet<_> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
        let (values, mut random, mut value) = (Values::new(100), Random::new(1), Vec::new());
        values.make(42, 100, &mut random, &mut value);
        assert_eq!(value.len(), 100);
        assert!(Values::belongs(42, &value) && !Values::belongs(43, &value));
        values.make(42, 3, &mut random, &mut value);
        assert!(Values::belongs(42, &value));
    }

    #[test]
    fn the_production_mix_has_its_median() {
        let mut random = Random::new(5);
        let mut sizes: Vec<usize> = (0..10_001).map(|_| ValueSize::Production.next(&mut random)).collect();
        sizes.sort_unstable();
        assert!((390..=410).contains(&sizes[5_000]), "{}", sizes[5_000]);
        assert!(sizes[0] >= 250 && sizes[10_000] <= 1024);
    }
}
