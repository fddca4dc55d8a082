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

/// Raises the limit of open files towards what `connections` need; tells how many it allows.
pub(crate) fn allow_open_files(connections: usize) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Volumes, rings, listeners and what the program around us has open.
    let wanted = connections as u64 + 256;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let raised = wanted.min(limit.maximum.unwrap_or(u64::MAX));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum }) {
        Ok(()) => raised,
        Err(_) => current,
    }
}
