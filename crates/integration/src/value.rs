//! Values that prove themselves: whose key, which write, and every byte at its position.

use stratakv_base::random::Random;

/// Bytes before the fill: key, sequence, length.
const HEADER_BYTES: usize = 24;

/// The shortest value.
pub const LEN_MIN: usize = HEADER_BYTES + 8;

/// Value number `sequence` of key `key`, of `len` bytes (at least [`LEN_MIN`]).
pub fn encode(key: u64, sequence: u64, len: usize) -> Vec<u8> {
    let mut value = vec![0; len.max(LEN_MIN)];
    let (header, fill) = value.split_at_mut(HEADER_BYTES);
    header[..8].copy_from_slice(&key.to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    header[16..].copy_from_slice(&((HEADER_BYTES + fill.len()) as u64).to_le_bytes());
    Random::new(key << 40 ^ sequence).fill(fill);
    value
}

/// The sequence of a value of `key`.
///
/// # Errors
/// The value is torn, mixed, or another key's; the message says where.
pub fn decode(key: u64, value: &[u8]) -> Result<u64, String> {
    let field = |at: usize| value.get(at..at + 8).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
    let (Some(owner), Some(sequence), Some(len)) = (field(0), field(8), field(16)) else {
        return Err(format!("{} bytes are no value", value.len()));
    };
    if owner != key {
        return Err(format!("the value of key {owner} (sequence {sequence})"));
    }
    if len != value.len() as u64 {
        return Err(format!("sequence {sequence} was written with {len} bytes, found {}", value.len()));
    }
    let expected = encode(key, sequence, value.len());
    match value.iter().zip(&expected).position(|(found, expected)| found != expected) {
        Some(at) => Err(format!("sequence {sequence}, {len} bytes: byte {at} is not what was written")),
        None => Ok(sequence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_proves_its_key_write_and_every_byte() {
        for len in [32, 33, 100, 5000] {
            let value = encode(7, 9, len);
            assert_eq!(decode(7, &value), Ok(9));
            assert!(decode(8, &value).is_err(), "another key");
            assert!(decode(7, &value[..len - 1]).is_err(), "cut");
            for at in [0, 8, 16, len - 1] {
                let mut damaged = value.clone();
                damaged[at] ^= 1;
                assert!(decode(7, &damaged).is_err(), "byte {at} of {len}");
            }
        }
        let mixed = [&encode(7, 9, 5000)[..2500], &encode(7, 10, 5000)[2500..]].concat();
        assert!(decode(7, &mixed).is_err(), "two writes mixed");
    }
}
