//! What holds for any bytes: run by the fuzzers (docs/fuzzing.md), and over their corpus by a test.

use stratakv_base::random::Random;

use super::{ARGUMENTS_MAX, Limits, Parsed, Parser, glob, number, words};
use crate::memcache::Body;

/// Small, so that requests over the limits are met too.
const LIMITS: Limits = Limits { argument_bytes_max: 3000, request_bytes_max: 8000, arguments_max: ARGUMENTS_MAX };
/// Repeats the byte before it, 16 times the byte behind it: arguments beyond the limits, from short
/// inputs.
const REPEAT: u8 = 0x1B;

/// Parses the stream in `input` whole and cut into pieces, drawn from its first byte: the same
/// comes out. What comes out is read as numbers and as patterns, too.
///
/// # Panics
/// A property does not hold.
pub fn resp(input: &[u8]) {
    let Some((seed, input)) = input.split_first() else { return };
    let stream = repeated(input);
    let whole = run(&stream, |left| left);
    let mut random = Random::new(u64::from(*seed));
    let longest = [3, 40, 2100][usize::from(*seed) % 3];
    assert_eq!(run(&stream, |_| 1 + random.below(longest) as usize), whole);
    if stream.len() < 200 {
        assert_eq!(run(&stream, |_| 1), whole);
    }
}

fn repeated(input: &[u8]) -> Vec<u8> {
    let mut stream: Vec<u8> = Vec::new();
    let mut rest = input.iter();
    while let Some(byte) = rest.next() {
        match (*byte, stream.last().copied()) {
            (REPEAT, Some(last)) => {
                let times = 16 * usize::from(*rest.next().unwrap_or(&0));
                stream.resize(stream.len() + times, last);
            }
            (byte, _) => stream.push(byte),
        }
    }
    stream
}

/// Feeds the stream in pieces of `piece(bytes left)`; each request as its arguments, each error in
/// words.
fn run(stream: &[u8], mut piece: impl FnMut(usize) -> usize) -> Vec<Vec<Vec<u8>>> {
    let mut client = Client::default();
    let mut left = stream;
    while !left.is_empty() && !client.is_over {
        let (fresh, rest) = left.split_at(piece(left.len()).min(left.len()));
        left = rest;
        client.received.extend_from_slice(fresh);
        while client.step() {}
        assert!(client.parser.held_bytes() <= 64 << 10, "spans of what is not there");
    }
    client.said
}

#[derive(Default)]
struct Client {
    parser: Parser,
    received: Vec<u8>,
    body: Option<Body>,
    arguments: Vec<Vec<u8>>,
    said: Vec<Vec<Vec<u8>>>,
    is_over: bool,
}

impl Client {
    /// Takes one thing off the front of what was received; false if it is not whole.
    fn step(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        if let Some(mut body) = self.body.take() {
            let taken = body.push(&self.received);
            self.received.drain(..taken);
            if body.missing() > 0 {
                self.body = Some(body);
                return false;
            }
            match body.finish() {
                Ok(argument) => self.arguments.push(argument.to_vec()),
                Err(_) => self.is_over = true,
            }
            return true;
        }
        let parsed = self.parser.parse(&self.received, LIMITS);
        let spans = self.parser.spans().iter().map(|span| self.received[span.clone()].to_vec());
        let consumed = match parsed {
            Parsed::Incomplete => return false,
            Parsed::Skip { consumed } => consumed,
            Parsed::Part { consumed } => {
                self.arguments.extend(spans);
                consumed
            }
            Parsed::Long { bytes, consumed } => {
                assert!(bytes <= LIMITS.argument_bytes_max);
                self.arguments.extend(spans);
                self.body = Some(Body::new(bytes));
                consumed
            }
            Parsed::Request { consumed } => {
                self.arguments.extend(spans);
                self.arguments.iter().for_each(|argument| read(argument, &self.arguments[0]));
                self.said.push(std::mem::take(&mut self.arguments));
                consumed
            }
            Parsed::Inline { bytes, consumed } => {
                self.said.push(words(&self.received[..bytes]).unwrap_or_default());
                consumed
            }
            Parsed::TooLarge { excess, consumed } => {
                self.arguments.clear();
                self.said.push(vec![format!("{excess:?}").into_bytes()]);
                consumed
            }
            Parsed::Error(error) => {
                self.is_over = true;
                self.said.push(vec![error.to_string().into_bytes()]);
                return false;
            }
        };
        self.received.drain(..consumed);
        true
    }
}

/// An argument as a number, and as a pattern of another one.
fn read(argument: &[u8], text: &[u8]) {
    if let Some(number) = number::integer(argument) {
        assert_eq!(number.to_string().as_bytes(), argument);
        assert!(number::is_float(argument));
    }
    if let Ok(sum) = number::sum(argument, b"0") {
        let again = number::sum(sum.as_bytes(), b"0");
        assert_eq!(again.as_ref(), Ok(&sum), "a sum is its own spelling");
    }
    if argument.len() <= glob::PATTERN_BYTES_MAX {
        let _ = glob::matches(argument, text);
        assert!(glob::matches(b"*", argument));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/resp");
        for file in std::fs::read_dir(folder).unwrap() {
            resp(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    /// A little of what the fuzzer does, in every run of the tests.
    #[test]
    fn drawn_streams_hold() {
        let words: [&[u8]; 12] = [
            b"*2\r\n",
            b"*1\r\n",
            b"$3\r\n",
            b"abc\r\n",
            b"$0\r\n\r\n",
            b"$2000\r\n",
            b"x\x1b\x7d",
            b"\r\n",
            b"GET a\r\n",
            b"*-1\r\n",
            b"$4000\r\n",
            b"1e5",
        ];
        let mut random = Random::new(7);
        for _ in 0..3000 {
            let mut input = vec![random.below(256) as u8];
            for _ in 0..random.below(12) {
                input.extend_from_slice(words[random.below(words.len() as u64) as usize]);
            }
            resp(&input);
        }
    }
}
