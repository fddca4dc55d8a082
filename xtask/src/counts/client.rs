//! A memcache client that asks one thing at a time: the server does the same work in each run.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

/// How long a client waits before it asks: a server that is asleep by then takes the same turns for
/// each command, and one that is asked again meanwhile takes fewer, as time has it.
const PAUSE: Duration = Duration::from_micros(500);

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Get,
    MetaGet,
    Set,
}

pub struct Client {
    stream: BufReader<TcpStream>,
    records: u64,
    value: Vec<u8>,
    state: u64,
    line: String,
}

impl Client {
    /// Connects to a server that is to hold so many records.
    pub fn connect(address: &str, records: u64, value_bytes: usize) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let value = (0..value_bytes).map(|place| (place * 31 % 251) as u8).collect();
        Ok(Client { stream: BufReader::new(stream), records, value, state: 1, line: String::new() })
    }

    /// Writes each record once.
    pub fn load(&mut self) -> io::Result<()> {
        (0..self.records).try_for_each(|record| self.set(record))
    }

    /// Asks for, or writes, a record that is drawn.
    pub fn ask(&mut self, wish: Wish) -> io::Result<()> {
        // Knuth's numbers for a linear congruential generator; the upper bits are the good ones.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let record = (self.state >> 33) % self.records;
        match wish {
            Wish::Set => self.set(record),
            Wish::Get => {
                self.send(format!("get user{record:020}\r\n").into_bytes())?;
                self.expect("VALUE")?;
                self.expect_value()?;
                self.expect("END")
            }
            Wish::MetaGet => {
                self.send(format!("mg user{record:020} v\r\n").into_bytes())?;
                self.expect("VA")?;
                self.expect_value()
            }
        }
    }

    fn set(&mut self, record: u64) -> io::Result<()> {
        let mut request = format!("set user{record:020} 0 0 {}\r\n", self.value.len()).into_bytes();
        request.extend_from_slice(&self.value);
        request.extend_from_slice(b"\r\n");
        self.send(request)?;
        self.expect("STORED")
    }

    fn send(&mut self, request: Vec<u8>) -> io::Result<()> {
        thread::park_timeout(PAUSE);
        self.stream.get_mut().write_all(&request)
    }

    fn expect(&mut self, word: &str) -> io::Result<()> {
        self.line.clear();
        self.stream.read_line(&mut self.line)?;
        match self.line.split_ascii_whitespace().next() == Some(word) {
            true => Ok(()),
            false => Err(io::Error::other(format!("the server said {:?}, not {word}", self.line))),
        }
    }

    fn expect_value(&mut self) -> io::Result<()> {
        let mut value = vec![0; self.value.len() + 2];
        self.stream.read_exact(&mut value)?;
        match value.strip_suffix(b"\r\n") == Some(&self.value) {
            true => Ok(()),
            false => Err(io::Error::other("the server gave another value")),
        }
    }
}
