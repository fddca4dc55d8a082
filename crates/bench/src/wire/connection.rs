//! One connection of the load generator: a batch goes out, all its answers come in.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use super::protocol::{Answer, Protocol, Reader};
use crate::target::BenchError;
use crate::value::{Values, key};

/// A request that has no answer yet.
#[derive(Clone, Copy, Debug)]
pub struct UnansweredRequest {
    /// Which record.
    pub record: u64,
    /// Else a set.
    pub is_get: bool,
    /// When it was handed over.
    pub begun: Instant,
}

/// See the module.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    protocol: Protocol,
    reader: Reader,
    out: Vec<u8>,
    out_at: usize,
    pending: VecDeque<UnansweredRequest>,
    value_bytes: usize,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect(address: SocketAddr, protocol: Protocol, value_bytes: usize) -> Result<Connection, BenchError> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let reader = Reader::new(protocol);
        Ok(Connection { stream, protocol, reader, out: Vec::new(), out_at: 0, pending: VecDeque::new(), value_bytes })
    }

    /// Whether every request has its answer.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether bytes wait for the socket to take them.
    pub fn has_output(&self) -> bool {
        self.out_at < self.out.len()
    }

    /// Adds a request to what goes out; `value` is that of a set.
    pub fn add(&mut self, record: u64, value: Option<&[u8]>, begun: Instant) {
        match value {
            None => self.protocol.get(&key(record), &mut self.out),
            Some(value) => self.protocol.set(&key(record), value, &mut self.out),
        }
        self.pending.push_back(UnansweredRequest { record, is_get: value.is_none(), begun });
    }

    /// Sends what the socket takes.
    ///
    /// # Errors
    /// The connection ended.
    pub fn send(&mut self) -> Result<(), BenchError> {
        while self.out_at < self.out.len() {
            match self.stream.write(&self.out[self.out_at..]) {
                Ok(0) => return Err(BenchError::Wrong("the server closed the connection".into())),
                Ok(sent) => self.out_at += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.out_at = 0;
        Ok(())
    }

    /// Receives once, and hands over each answer that is whole by now.
    ///
    /// # Errors
    /// The connection ended, an answer is none, or a value is not its record's.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut done: impl FnMut(UnansweredRequest, Answer),
    ) -> Result<(), BenchError> {
        let received = match self.stream.read(buffer) {
            Ok(0) => return Err(BenchError::Wrong("the server closed the connection".into())),
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut bytes = &buffer[..received];
        while !bytes.is_empty() {
            let Some(pending) = self.pending.front().copied() else {
                return Err(BenchError::Wrong("the server answered what nobody asked".into()));
            };
            let Some(answer) = self.reader.take(&mut bytes, pending.is_get)? else { break };
            if let Answer::Hit { len, front } = answer {
                let front = &front[..len.min(front.len())];
                if len != self.value_bytes || !Values::belongs(pending.record, front) {
                    let record = pending.record;
                    return Err(BenchError::Wrong(format!("record {record}: a value of {len} bytes that is not its")));
                }
            }
            self.pending.pop_front();
            done(pending, answer);
        }
        Ok(())
    }
}
