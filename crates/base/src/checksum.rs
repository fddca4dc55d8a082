//! CRC-32C, seeded so that a record proves its place.

/// CRC-32C (Castagnoli) of `bytes`, starting from `seed`.
///
/// Chaining `crc32c(crc32c(0, a), b)` equals the checksum of `a` followed by `b`.
/// Detects every burst of up to 32 bits and every 1- to 3-bit error in a 4 KiB page.
#[inline]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(seed, bytes)
}

/// Which single bit, turned in a message of `len_bytes` bytes, changes its CRC-32C by `difference`
/// (computed xor stored): byte and mask. A CRC is linear, so the change depends on the bit's
/// distance from the end alone. `None`: it was not one bit. O(bits), about 1 ns each. Of random
/// damage, one in `2^32 / bits` looks like one bit.
pub fn turned_bit(difference: u32, len_bytes: usize) -> Option<(usize, u8)> {
    let step = |change: &u32| Some((change >> 1) ^ (if change & 1 == 1 { POLYNOMIAL } else { 0 }));
    let mut changes = std::iter::successors(Some(POLYNOMIAL), step).take(len_bytes * 8);
    let from_end = changes.position(|change| change == difference)?;
    let bit = len_bytes * 8 - 1 - from_end;
    Some((bit / 8, 1 << (bit % 8)))
}

const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Seed that ties a checksum to a store (`uuid`) and to a place and moment (`a`, `b`):
/// equal bytes at another place, or of another time, do not check.
#[inline]
pub fn seed(uuid: &[u8; 16], a: u64, b: u64) -> u32 {
    let mut bytes = [0u8; 32];
    bytes[..16].copy_from_slice(uuid);
    bytes[16..24].copy_from_slice(&a.to_le_bytes());
    bytes[24..].copy_from_slice(&b.to_le_bytes());
    ::crc32c::crc32c(&bytes)
}

/// The shard that owns an encoded key: `xxh3(key) mod shards`. Part of the store's format.
#[inline]
pub fn shard_of(encoded_key: &[u8], shards: usize) -> usize {
    (xxhash_rust::xxh3::xxh3_64(encoded_key) % shards.max(1) as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_castagnoli_and_chains() {
        // Check value of CRC-32C from the catalogue of parametrised CRC algorithms.
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xE306_9283);
    }

    #[test]
    fn a_turned_bit_is_found() {
        let message: Vec<u8> = (0..100).collect();
        for bit in 0..800 {
            let mut turned = message.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            let difference = crc32c(7, &turned) ^ crc32c(7, &message);
            assert_eq!(turned_bit(difference, 100), Some((bit / 8, 1 << (bit % 8))));
            let twice = crc32c(7, &turned[..99]) ^ crc32c(7, &message[..99]) ^ 1;
            assert_eq!(turned_bit(twice, 99), None);
        }
    }

    #[test]
    fn seed_depends_on_each_part() {
        let base = seed(&[1; 16], 2, 3);
        assert_ne!(base, seed(&[2; 16], 2, 3));
        assert_ne!(base, seed(&[1; 16], 3, 3));
        assert_ne!(base, seed(&[1; 16], 2, 4));
        assert_ne!(base, seed(&[1; 16], 3, 2));
    }

    #[test]
    fn routing_is_part_of_the_format() {
        // A change of these numbers makes every existing store unreadable.
        let shards: Vec<usize> = (0..8u8).map(|i| shard_of(&[0, i], 1000)).collect();
        assert_eq!(shards, [213, 335, 568, 509, 102, 611, 721, 14]);
        assert!((0..1000u32).map(|i| shard_of(&i.to_be_bytes(), 3)).all(|s| s < 3));
    }
}
