//! Binding addresses, and telling clearly why one cannot be had.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stratakv_device::Socket;

use crate::server::Error;
use crate::worker::lingering::LINGERING_MAX;

/// How long a port in use is asked for again. The sockets of a killed process live on until the
/// kernel has ended its ring, which takes longer the more memory it had mapped: a listener could
/// still not be had 10 ms after the end of one with 9 GiB.
const IN_USE_PATIENCE: Duration = Duration::from_secs(2);

/// A bound listener and the address it got (port 0 asks for any free port), as a socket of the
/// rings.
pub(crate) fn bind(address: SocketAddr) -> Result<(Socket, SocketAddr), Error> {
    let (listener, bound) = bind_tcp(address)?;
    Ok((Arc::new(listener.into()), bound))
}

/// A bound listener and the address it got.
pub(crate) fn bind_tcp(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let refused = |error| Error::Listen { address: address.to_string(), hint: hint(&error), error };
    let started = Instant::now();
    let listener = loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && started.elapsed() < IN_USE_PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            bound => break bound.map_err(refused)?,
        }
    };
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

/// Whether an address can be listened on now.
///
/// # Errors
/// It cannot: why, and what to do.
pub fn check_free(address: SocketAddr) -> Result<(), Error> {
    bind(address).map(drop)
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there (`ss -ltnp` shows which): stop it, or choose another port"
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose a higher port",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address: use one of its own, or 127.0.0.1",
        _ => "choose another address",
    }
}

/// Descriptors kept back: to refuse a connection takes one, and so may the store when it grows.
const RESERVED: u64 = 32;
/// And for each thread: its ring takes one or two, its wakeup two, and connections linger.
const RESERVED_EACH: usize = 4 + LINGERING_MAX;

/// Descriptors that are kept back beside those of connections.
pub(crate) fn reserved(threads: usize) -> usize {
    RESERVED as usize + RESERVED_EACH * threads
}

/// Raises the limit of open files towards what `connections` of so many threads need; tells how
/// many connections it leaves room for.
pub(crate) fn allow_connections(connections: usize, threads: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Volumes, rings, and what the program around us has open.
    let open =
        std::fs::read_dir("/proc/self/fd").map_or(64, |entries| entries.count() as u64) + reserved(threads) as u64;
    let wanted = (connections as u64).saturating_add(open);
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let raised = wanted.min(limit.maximum.unwrap_or(u64::MAX));
    let allowed = match raised > current {
        true if setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum }).is_ok() => raised,
        _ => current,
    };
    connections.min(usize::try_from(allowed.saturating_sub(open)).unwrap_or(usize::MAX)).max(1)
}
