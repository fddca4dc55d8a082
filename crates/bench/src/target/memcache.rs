//! A server that speaks the memcache text protocol, over one pipelined connection.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::{BenchError, Front, OperationOutcome, Request, Target};

pub(super) struct MemcacheTarget {
    stream: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Start of what is not yet parsed in `input`.
    at: usize,
    /// Tags in the order sent, and whether each is a get.
    sent: VecDeque<(u64, bool)>,
}

impl MemcacheTarget {
    pub(super) fn connect(address: SocketAddr) -> Result<MemcacheTarget, BenchError> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(MemcacheTarget { stream, out: Vec::new(), input: Vec::new(), at: 0, sent: VecDeque::new() })
    }

    fn receive(&mut self) -> Result<(), BenchError> {
        if self.at > 0 {
            self.input.drain(..self.at);
            self.at = 0;
        }
        let len = self.input.len();
        self.input.resize(len + (256 << 10), 0);
        let received = self.stream.read(&mut self.input[len..])?;
        self.input.truncate(len + received);
        if received == 0 {
            return Err(BenchError::Wrong("the server closed the connection".into()));
        }
        Ok(())
    }

    /// The next answer, if it is whole.
    fn parse(&mut self, get: bool) -> Result<Option<OperationOutcome>, BenchError> {
        let rest = &self.input[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        let after_line = end + 1;
        if get && line == b"END" {
            self.at += after_line;
            return Ok(Some(OperationOutcome::default()));
        }
        if get && line.starts_with(b"VALUE ") {
            let text = String::from_utf8_lossy(line);
            let bytes = text.split(' ').nth(3).and_then(|len| len.parse::<usize>().ok());
            let bytes = bytes.ok_or_else(|| BenchError::Wrong(format!("an odd answer: {text}")))?;
            // The value, then CR LF, then END CR LF.
            let whole = after_line + bytes + 2 + 5;
            if rest.len() < whole {
                return Ok(None);
            }
            let front = Front::of(&rest[after_line..after_line + bytes]);
            self.at += whole;
            return Ok(Some(OperationOutcome { records: 1, front }));
        }
        if !get && line == b"STORED" {
            self.at += after_line;
            return Ok(Some(OperationOutcome::default()));
        }
        Err(BenchError::Wrong(format!("the server answered: {}", String::from_utf8_lossy(line))))
    }
}

impl Target for MemcacheTarget {
    fn submit(&mut self, tag: u64, request: Request<'_>) -> Result<(), BenchError> {
        match request {
            Request::Read(key) => {
                self.out.extend_from_slice(b"get ");
                self.out.extend_from_slice(key);
                self.out.extend_from_slice(b"\r\n");
                self.sent.push_back((tag, true));
            }
            Request::Write(key, value) => {
                self.out.extend_from_slice(b"set ");
                self.out.extend_from_slice(key);
                write!(self.out, " 0 0 {}\r\n", value.len())?;
                self.out.extend_from_slice(value);
                self.out.extend_from_slice(b"\r\n");
                self.sent.push_back((tag, false));
            }
            Request::Scan(..) => return Err(BenchError::NoScans("the memcache protocol")),
        }
        Ok(())
    }

    fn poll(&mut self, min: usize, done: &mut Vec<(u64, OperationOutcome)>) -> Result<(), BenchError> {
        let wanted = done.len() + min.min(self.sent.len());
        self.stream.write_all(&self.out)?;
        self.out.clear();
        loop {
            while let Some((tag, get)) = self.sent.front().copied() {
                let Some(outcome) = self.parse(get)? else { break };
                self.sent.pop_front();
                done.push((tag, outcome));
            }
            if done.len() >= wanted {
                return Ok(());
            }
            self.receive()?;
        }
    }
}
