//! How records and index entries write when they expire: whole seconds in 4 bytes, other instants
//! as milliseconds in 8, never in none. A bit says which.

use stratakv_base::Expiry;
use stratakv_base::codec::{Reader, Truncated, Writer};

/// Seconds since 1970 follow, 4 bytes.
const SECONDS: u8 = 2;
/// Milliseconds since 1970 follow, 8 bytes.
const MILLIS: u8 = 4;

/// The bit of an expiry, in milliseconds; 0 for never.
pub(crate) fn bit(expiry: u64) -> u8 {
    match Expiry(expiry).whole_seconds() {
        Some(0) => 0,
        Some(_) => SECONDS,
        None => MILLIS,
    }
}

/// Bytes that it takes.
pub(crate) fn bytes(expiry: u64) -> usize {
    match bit(expiry) {
        SECONDS => 4,
        MILLIS => 8,
        _ => 0,
    }
}

/// Writes it, where its bit says that it follows.
pub(crate) fn write(writer: &mut Writer<'_>, expiry: u64) {
    match Expiry(expiry).whole_seconds() {
        Some(0) => {}
        Some(seconds) => _ = writer.u32(seconds),
        None => _ = writer.u64(expiry),
    }
}

/// Reads what these bits say.
pub(crate) fn read(reader: &mut Reader<'_>, bits: u8) -> Result<u64, Truncated> {
    match bits & (SECONDS | MILLIS) {
        0 => Ok(0),
        SECONDS => Ok(u64::from(reader.u32()?) * 1000),
        _ => reader.u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_in_as_few_bytes_as_it_takes() {
        for (expiry, len) in
            [(0, 0), (1, 8), (999, 8), (1000, 4), (1_790_000_000_000, 4), (1_790_000_000_001, 8), (u64::MAX, 8)]
        {
            let mut room = [0; 8];
            let mut writer = Writer::new(&mut room);
            write(&mut writer, expiry);
            assert_eq!((writer.at(), bytes(expiry)), (len, len), "{expiry}");
            assert_eq!(read(&mut Reader::new(&room[..len]), bit(expiry)), Ok(expiry));
        }
        assert!(read(&mut Reader::new(&[0; 7]), MILLIS).is_err() && read(&mut Reader::new(&[0; 3]), SECONDS).is_err());
    }
}
