//! Checksums of what lies in a region: CRC-32C of a few words and then of bytes, by the processor's
//! own instruction where it has one.
//!
//! A get compares three, two of them of less than 60 bytes. What a call costs besides the
//! instructions of the checksum (finding words among bytes, a seed that is a checksum of its own)
//! is several times those, so all of one checksum is done in one go.

#![expect(unsafe_code, reason = "instructions that a processor may not have")]

use stratakv_base::checksum::crc32c;

/// Bytes from which on three streams of the library are faster than one here.
const LONG_BYTES: usize = 1 << 10;

/// CRC-32C of the store's UUID, of `words` in little endian, and of `bytes`.
#[inline]
pub(crate) fn crc<const N: usize>(uuid: &[u8; 16], words: [u64; N], bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has them.
        return unsafe { by_instruction(uuid, words, bytes) };
    }
    by_bytes(uuid, words, bytes)
}

fn by_bytes<const N: usize>(uuid: &[u8; 16], words: [u64; N], bytes: &[u8]) -> u32 {
    let crc = words.iter().fold(crc32c(0, uuid), |crc, word| crc32c(crc, &word.to_le_bytes()));
    crc32c(crc, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
#[inline]
fn by_instruction<const N: usize>(uuid: &[u8; 16], words: [u64; N], bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};
    let (halves, _) = uuid.as_chunks::<8>();
    let mut crc = halves.iter().fold(u64::from(!0_u32), |crc, half| _mm_crc32_u64(crc, u64::from_le_bytes(*half)));
    for word in words {
        crc = _mm_crc32_u64(crc, word);
    }
    if bytes.len() >= LONG_BYTES {
        return crc32c(!(crc as u32), bytes);
    }
    let (whole, rest) = bytes.as_chunks::<8>();
    for word in whole {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    let mut crc = crc as u32;
    let mut rest = rest;
    if let Some((four, after)) = rest.split_first_chunk::<4>() {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*four));
        rest = after;
    }
    if let Some((two, after)) = rest.split_first_chunk::<2>() {
        crc = _mm_crc32_u16(crc, u16::from_le_bytes(*two));
        rest = after;
    }
    if let [one] = rest {
        crc = _mm_crc32_u8(crc, *one);
    }
    !crc
}

#[cfg(test)]
mod tests {
    use stratakv_base::checksum::seed;

    use super::*;

    #[test]
    fn both_ways_give_the_checksum_of_all_bytes_in_a_row() {
        let uuid = *b"0123456789abcdef";
        let bytes: Vec<u8> = (0..LONG_BYTES + 16).map(|byte| (byte * 7) as u8).collect();
        for len in (0..100).chain(LONG_BYTES - 9..LONG_BYTES + 9) {
            let expected = crc32c(seed(&uuid, 4096, 77), &bytes[3..3 + len]);
            assert_eq!(crc(&uuid, [4096, 77], &bytes[3..3 + len]), expected, "{len}");
            assert_eq!(by_bytes(&uuid, [4096, 77], &bytes[3..3 + len]), expected, "{len}");
        }
    }
}
