//! Binding addresses, and telling clearly why one cannot be had.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use stratakv_device::Socket;

use crate::server::Error;

/// A bound listener and the address it got (port 0 asks for any free port).
pub(crate) fn bind(address: SocketAddr) -> Result<(Socket, SocketAddr), Error> {
    let refused = |error| Error::Listen { address, hint: hint(&error), error };
    let listener = TcpListener::bind(address).map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((Arc::new(OwnedFd::from(listener)), bound))
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

/// Raises the limit of open files towards what `connections` need; tells how many connections it leaves room for.
pub(crate) fn allow_connections(connections: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Volumes, rings, and what the program around us has open.
    let open = std::fs::read_dir("/proc/self/fd").map_or(64, |entries| entries.count() as u64) + RESERVED;
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
