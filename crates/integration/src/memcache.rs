//! A plain memcache text client: blocking, one connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::protocol;

/// One connection.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<TcpStream>,
}

/// A value as the server gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its key.
    pub key: Vec<u8>,
    /// Its flags.
    pub flags: u32,
    /// From `gets`.
    pub cas: Option<u64>,
    /// Its bytes.
    pub value: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        protocol::stream(address).map(|reader| Client { reader })
    }

    /// Connects, and waits for no answer longer than this.
    ///
    /// # Errors
    /// As connect(2); `TimedOut` if it takes longer.
    pub fn connect_within(address: SocketAddr, limit: Duration) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Client { reader: BufReader::new(stream) })
    }

    /// The socket, to misuse.
    pub fn stream(&mut self) -> &mut TcpStream {
        self.reader.get_mut()
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// As write(2).
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// One line of a reply, without its end.
    ///
    /// # Errors
    /// As read(2); `UnexpectedEof` when the server has closed.
    pub fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("the reply ends after {} bytes", line.len())))
            }
        }
    }

    /// Sends a line and reads one.
    ///
    /// # Errors
    /// As [`Client::send`] and [`Client::line`].
    pub fn ask(&mut self, line: &str) -> io::Result<String> {
        self.send(format!("{line}\r\n").as_bytes())?;
        self.line()
    }

    /// `set` with its reply.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<String> {
        self.send(&set_command(key, 0, value))?;
        self.line()
    }

    /// The value, if the key exists.
    ///
    /// # Errors
    /// As [`Client::ask`]; `InvalidData` if the reply is no reply to a get.
    pub fn get(&mut self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.send(&[b"get ", key, b"\r\n"].concat())?;
        Ok(self.hits()?.pop().map(|hit| hit.value))
    }

    /// One of those that `stats` tells; `None`: it is not among them.
    ///
    /// # Errors
    /// As [`Client::ask`]; `InvalidData` if it is no number.
    pub fn statistic(&mut self, name: &str) -> io::Result<Option<u64>> {
        self.send(b"stats\r\n")?;
        let (prefix, mut value) = (format!("STAT {name} "), None);
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(value);
            }
            if let Some(told) = line.strip_prefix(&prefix) {
                let wrong = |_| io::Error::new(io::ErrorKind::InvalidData, format!("{name} is `{told}`"));
                value = value.or(Some(told.parse().map_err(wrong)?));
            }
        }
    }

    /// Reads `VALUE` blocks up to `END`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn hits(&mut self) -> io::Result<Vec<Hit>> {
        self.hits_or_error()?.map_err(|line| io::Error::new(io::ErrorKind::InvalidData, line))
    }

    /// Reads `VALUE` blocks up to `END`, or to the server's error, which ends them too.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn hits_or_error(&mut self) -> io::Result<Result<Vec<Hit>, String>> {
        let mut hits = Vec::new();
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(Ok(hits));
            }
            if line.starts_with("SERVER_ERROR") {
                return Ok(Err(line));
            }
            hits.push(self.hit(&line)?);
        }
    }

    fn hit(&mut self, line: &str) -> io::Result<Hit> {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("no reply to a get: `{line}`"));
        let mut words = line.split(' ');
        let (Some("VALUE"), Some(key), Some(flags), Some(len)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(bad());
        };
        let flags = flags.parse().map_err(|_| bad())?;
        let cas = words.next().map(str::parse).transpose().map_err(|_| bad())?;
        let len: usize = len.parse().map_err(|_| bad())?;
        let mut value = vec![0; len + 2];
        self.reader.read_exact(&mut value)?;
        if !value.ends_with(b"\r\n") {
            return Err(bad());
        }
        value.truncate(len);
        Ok(Hit { key: key.as_bytes().to_vec(), flags, cas, value })
    }
}

/// The bytes of a `set`.
pub fn set_command(key: &[u8], flags: u32, value: &[u8]) -> Vec<u8> {
    let mut command = Vec::with_capacity(key.len() + value.len() + 40);
    command.extend_from_slice(b"set ");
    command.extend_from_slice(key);
    command.extend_from_slice(format!(" {flags} 0 {}\r\n", value.len()).as_bytes());
    command.extend_from_slice(value);
    command.extend_from_slice(b"\r\n");
    command
}
