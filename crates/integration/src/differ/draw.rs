//! What the generators choose from: few keys, so that commands meet; values, times and numbers
//! around what parsers change at.

use stratakv_base::random::Random;
use stratakv_protocol::memcache::encode_key;

use super::command::Which;

/// Choices from a seed.
#[derive(Clone, Debug)]
pub struct Draw(Random);

impl Draw {
    /// From a seed.
    pub fn new(seed: u64) -> Draw {
        Draw(Random::new(seed))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    ///
    /// # Panics
    /// There is none.
    pub fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A key of a text command.
    pub fn key(&mut self) -> Vec<u8> {
        match self.below(40) {
            0 => vec![b'k'; 250],
            1 => b"\x01\t".to_vec(),
            2 => b"k\xc3\xa9y:1".to_vec(),
            _ => self.one(&["a", "a", "b", "c", "n", "n", "m"]).into(),
        }
    }

    /// A key that is none, or looks like something else.
    pub fn bad_key(&mut self) -> Vec<u8> {
        match self.below(3) {
            0 => vec![b'k'; 251],
            1 => b"noreply".to_vec(),
            _ => vec![b'k'; 300],
        }
    }

    /// A key of any bytes.
    pub fn binary_key(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 => b"x y\r\n\0".to_vec(),
            1 => vec![0xFF; 3],
            2 => vec![b'K'; 180],
            _ => self.one(&["ab1", "n64", "bin"]).into(),
        }
    }

    /// What the client keeps with a value.
    pub fn flags(&mut self) -> &'static str {
        match self.below(24) {
            0 => self.one(&["x", "-1", "4294967295", "4294967296", "+7", "\t7", "7x", "7\tx", "-0", "1.5"]),
            1..=4 => self.one(&["1", "7", "65535", "4294967295"]),
            _ => "0",
        }
    }

    /// A time: never, past, or far away. Nothing that a slow machine could live to see.
    pub fn time(&mut self) -> &'static str {
        match self.below(24) {
            0 => self.one(&[
                "x",
                "",
                "2592001",
                "2147483647",
                "-2147483648",
                "99999999999999999999",
                "+100",
                "1e3",
                "\t0",
            ]),
            1 | 2 => self.one(&["-1", "2592001", "-2592001"]),
            3..=8 => self.one(&["100", "3600", "2592000", "2000000000"]),
            _ => "0",
        }
    }

    /// By how much a counter changes.
    pub fn delta(&mut self) -> &'static str {
        match self.below(16) {
            0 | 1 => self.one(&[
                "x",
                "-1",
                "+5",
                "\t5",
                "5\tx",
                "5x",
                "-0",
                "18446744073709551616",
                "-18446744073709551615",
                "0x10",
                "1.5",
                "",
            ]),
            2 => self.one(&["18446744073709551615", "9223372036854775808", "10000000000"]),
            3 => "0",
            _ => self.one(&["1", "2", "7", "100"]),
        }
    }

    /// A value: a number half of the time.
    pub fn value(&mut self) -> Vec<u8> {
        match self.below(48) {
            0 => vec![b'v'; 300 << 10],
            1 | 2 => vec![b'w'; 2000 + self.below(3000) as usize],
            3 => b"a\r\nEND\r\nb".to_vec(),
            4..=25 => self.one(&["0", "1", "5", "9", "+99", "10 ", "18446744073709551615", " 00012"]).into(),
            26 | 27 => Vec::new(),
            _ => self.one(&["abc", "x", "hello world", "5 apples", "v"]).into(),
        }
    }

    /// Which version a command names.
    pub fn which(&mut self) -> Which {
        match self.below(6) {
            0 => Which::Wrong,
            1 => Which::Old,
            _ => Which::Last,
        }
    }
}

/// A key in base64.
pub fn base64(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(&mut out, key, true);
    out
}
