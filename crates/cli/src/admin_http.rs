//! A `GET` to the admin address of a server, with a deadline and a bound on the answer.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminRequest<'a> {
    /// What the header `Host` says.
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    /// How long all of it may take.
    pub(crate) timeout: Duration,
    /// Of a longer answer the rest is not read.
    pub(crate) answer_bytes_max: usize,
}

/// What the first of these addresses that takes a connection answers, headers and all.
///
/// # Errors
/// None takes one, or no whole answer came in time.
pub(crate) fn ask(addresses: impl Iterator<Item = SocketAddr>, request: &AdminRequest<'_>) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + request.timeout.min(Duration::from_secs(3600));
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut found = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, left()?) {
            Ok(stream) => {
                found = Some(stream);
                break;
            }
            Err(error) => last = error,
        }
    }
    let Some(mut stream) = found else { return Err(last) };
    stream.set_write_timeout(Some(left()?))?;
    let AdminRequest { host, path, answer_bytes_max, .. } = request;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while answer.len() < *answer_bytes_max {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(part.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no whole answer in time"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}
