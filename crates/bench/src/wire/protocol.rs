//! Gets and sets as bytes, and the answers to them.

use crate::target::BenchError;

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// memcached's text.
    Memcache,
    /// Redis'.
    Resp,
}

impl Protocol {
    /// Appends a get.
    pub fn get(self, key: &[u8], out: &mut Vec<u8>) {
        match self {
            Protocol::Memcache => [b"get ", key, b"\r\n"].iter().for_each(|part| out.extend_from_slice(part)),
            Protocol::Resp => {
                out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
                bulk(key, out);
            }
        }
    }

    /// Appends a set.
    pub fn set(self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match self {
            Protocol::Memcache => {
                out.extend_from_slice(b"set ");
                out.extend_from_slice(key);
                out.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
            Protocol::Resp => {
                out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
                bulk(key, out);
                bulk(value, out);
            }
        }
    }
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// An answer, whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A value: its length, and its first bytes.
    Hit {
        /// In bytes.
        len: usize,
        /// As many as there are.
        front: [u8; 8],
    },
    /// There is no such key.
    Miss,
    /// Written.
    Stored,
    /// Not written: the server had no room, or did not want it.
    Refused,
}

/// Takes answers apart as they come in, whatever pieces that is in. Values are looked at, not kept.
#[derive(Debug)]
pub struct Reader {
    protocol: Protocol,
    line: Vec<u8>,
    /// Of a value and its line end, so many bytes are to come.
    body_left: usize,
    hit: Option<(usize, [u8; 8])>,
}

impl Reader {
    /// Nothing came yet.
    pub fn new(protocol: Protocol) -> Reader {
        Reader { protocol, line: Vec::new(), body_left: 0, hit: None }
    }

    /// Takes from the front of `bytes`: up to the end of the next answer, or all of them. `is_get`
    /// says to what the answer is.
    ///
    /// # Errors
    /// That is no answer to it.
    pub fn take(&mut self, bytes: &mut &[u8], is_get: bool) -> Result<Option<Answer>, BenchError> {
        loop {
            if self.body_left > 0 {
                if !self.take_body(bytes) {
                    return Ok(None);
                }
                if self.protocol == Protocol::Resp {
                    return Ok(self.hit.take().map(|(len, front)| Answer::Hit { len, front }));
                }
            }
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.line.extend_from_slice(bytes);
                *bytes = &[];
                return Ok(None);
            };
            self.line.extend_from_slice(&bytes[..end]);
            *bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            let answer = match self.protocol {
                Protocol::Memcache => self.memcache_line(line, is_get),
                Protocol::Resp => self.resp_line(line, is_get),
            };
            match answer {
                Err(()) => {
                    let text = String::from_utf8_lossy(line).into_owned();
                    return Err(BenchError::Wrong(format!("the server answered: {text}")));
                }
                Ok(Some(answer)) => return Ok(Some(answer)),
                Ok(None) => {}
            }
        }
    }

    /// Whether the value and its line end are over.
    fn take_body(&mut self, bytes: &mut &[u8]) -> bool {
        let taken = self.body_left.min(bytes.len());
        if let Some((len, front)) = &mut self.hit {
            let at = *len + 2 - self.body_left;
            for (place, byte) in front.iter_mut().take(*len).skip(at).zip(bytes.iter()) {
                *place = *byte;
            }
        }
        self.body_left -= taken;
        *bytes = &bytes[taken..];
        self.body_left == 0
    }

    fn begin_body(&mut self, len: usize) {
        self.hit = Some((len, [0; 8]));
        self.body_left = len + 2;
    }

    fn memcache_line(&mut self, line: &[u8], is_get: bool) -> Result<Option<Answer>, ()> {
        match line {
            b"END" if is_get => {
                let hit = self.hit.take();
                Ok(Some(hit.map_or(Answer::Miss, |(len, front)| Answer::Hit { len, front })))
            }
            _ if is_get && self.hit.is_none() && line.starts_with(b"VALUE ") => {
                let len = line.split(|byte| *byte == b' ').nth(3);
                self.begin_body(len.and_then(number).ok_or(())?);
                Ok(None)
            }
            b"STORED" if !is_get => Ok(Some(Answer::Stored)),
            _ if !is_get && line.starts_with(b"SERVER_ERROR") => Ok(Some(Answer::Refused)),
            _ => Err(()),
        }
    }

    fn resp_line(&mut self, line: &[u8], is_get: bool) -> Result<Option<Answer>, ()> {
        match line {
            b"$-1" if is_get => Ok(Some(Answer::Miss)),
            [b'$', len @ ..] if is_get => {
                self.begin_body(number(len).ok_or(())?);
                Ok(None)
            }
            b"+OK" if !is_get => Ok(Some(Answer::Stored)),
            _ if !is_get && line.starts_with(b"-OOM") => Ok(Some(Answer::Refused)),
            _ => Err(()),
        }
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers in `bytes`, handed over in pieces of this length, to requests of which these are
    /// gets.
    fn answers(protocol: Protocol, bytes: &[u8], piece: usize, gets: &[bool]) -> Result<Vec<Answer>, BenchError> {
        let (mut reader, mut found) = (Reader::new(protocol), Vec::new());
        for mut rest in bytes.chunks(piece) {
            while let Some(is_get) = gets.get(found.len()).filter(|_| !rest.is_empty()) {
                match reader.take(&mut rest, *is_get)? {
                    Some(answer) => found.push(answer),
                    None => break,
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn answers_are_the_same_in_pieces_of_any_length() {
        let hit = |len, front: &[u8; 8]| Answer::Hit { len, front: *front };
        let memcache = b"VALUE k 0 12\r\nab\r\nEND\r\n901\r\nEND\r\nEND\r\nVALUE k 0 2\r\nxy\r\nEND\r\nSTORED\r\nSERVER_ERROR out of memory\r\nVALUE k 0 0\r\n\r\nEND\r\n";
        let resp = b"$12\r\nab\r\nEND\r\n901\r\n$-1\r\n$2\r\nxy\r\n+OK\r\n-OOM command not allowed\r\n$0\r\n\r\n";
        let expected = [
            hit(12, b"ab\r\nEND\r"),
            Answer::Miss,
            hit(2, b"xy\0\0\0\0\0\0"),
            Answer::Stored,
            Answer::Refused,
            hit(0, &[0; 8]),
        ];
        let gets = [true, true, true, false, false, true];
        for piece in 1..=memcache.len() {
            assert_eq!(answers(Protocol::Memcache, memcache, piece, &gets).expect("memcache"), expected, "{piece}");
            assert_eq!(answers(Protocol::Resp, resp, piece, &gets).expect("resp"), expected, "{piece}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for (protocol, bytes, is_get) in [
            (Protocol::Memcache, &b"STORED\r\n"[..], true),
            (Protocol::Memcache, b"END\r\n", false),
            (Protocol::Memcache, b"SERVER_ERROR busy\r\n", true),
            (Protocol::Memcache, b"VALUE k 0 x\r\n", true),
            (Protocol::Memcache, b"NOT_STORED\r\n", false),
            (Protocol::Resp, b"-ERR what\r\n", false),
            (Protocol::Resp, b"+OK\r\n", true),
        ] {
            assert!(answers(protocol, bytes, 100, &[is_get]).is_err(), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn requests_are_those_of_the_protocol() {
        let mut out = Vec::new();
        Protocol::Memcache.get(b"k", &mut out);
        Protocol::Memcache.set(b"k", b"vw", &mut out);
        assert_eq!(out, b"get k\r\nset k 0 0 2\r\nvw\r\n");
        out.clear();
        Protocol::Resp.get(b"k", &mut out);
        Protocol::Resp.set(b"k", b"vw", &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvw\r\n");
    }
}
