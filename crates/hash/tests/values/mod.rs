//! Values that say all over whose they are and which they are: one of another key, an older one, or
//! a mixture shows.

use xxhash_rust::xxh3::xxh3_64;

/// What a value says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Of its key.
    pub number: u64,
    pub writer: u64,
    pub round: u64,
}

impl Stamp {
    /// So many times over, a few bytes to end at odd places, and the checksum of it all.
    pub fn value(self, times: u64) -> Vec<u8> {
        let words = [self.number, self.writer, self.round].into_iter().cycle().take(3 * times as usize);
        let mut value: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        value.extend_from_slice(&[0xA5; 7][..self.round as usize % 8]);
        value.extend_from_slice(&xxh3_64(&value).to_le_bytes());
        value
    }

    pub fn read(value: &[u8]) -> Result<Stamp, String> {
        let (body, sum) = value.split_last_chunk().ok_or("it is short")?;
        let (stamps, _) = body.as_chunks::<24>();
        let words = |stamp: &[u8; 24]| {
            let (words, _) = stamp.as_chunks();
            <[u64; 3]>::try_from(words.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<u64>>())
        };
        let stamps: Vec<[u64; 3]> = stamps.iter().filter_map(|stamp| words(stamp).ok()).collect();
        let [number, writer, round] = *stamps.first().ok_or("it is short")?;
        if stamps.iter().any(|other| *other != [number, writer, round]) {
            return Err(format!("it is a mixture: {:?}", &stamps[..stamps.len().min(6)]));
        }
        if xxh3_64(body) != u64::from_le_bytes(*sum) {
            return Err(format!("{:?} does not check", [number, writer, round]));
        }
        Ok(Stamp { number, writer, round })
    }
}

#[test]
fn a_value_that_was_tampered_with_is_seen() {
    let stamp = Stamp { number: 7, writer: 1, round: 13 };
    let value = stamp.value(5);
    assert_eq!(Stamp::read(&value), Ok(stamp));
    for at in 0..value.len() {
        let mut other = value.clone();
        other[at] ^= 1;
        assert!(Stamp::read(&other).is_err(), "byte {at}");
        assert!(Stamp::read(&value[..at]).is_err(), "cut off at {at}");
    }
    let mut mixed = stamp.value(5);
    mixed[24..48].copy_from_slice(&Stamp { round: 12, ..stamp }.value(5)[24..48]);
    assert!(Stamp::read(&mixed).is_err_and(|why| why.contains("mixture")));
}
