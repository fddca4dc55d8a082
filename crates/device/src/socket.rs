//! [`SocketHandle`]: a socket of the kernel or of this process's own network stack, and what both
//! answer beside the requests of a ring.
#![expect(unsafe_code, reason = "one ioctl that writes a number")]

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, sockopt};

use crate::ring::Socket;
use crate::xdp::StackSocket;

/// A listening or connected socket.
#[derive(Debug)]
pub enum SocketHandle {
    /// Of the kernel.
    Kernel(OwnedFd),
    /// Of a network stack in user space; only its own ring carries out requests on it.
    Stack(StackSocket),
}

/// Where one end of a connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// A UNIX socket, with its path if it has one.
    Unix(Option<String>),
}

impl SocketHandle {
    /// Its descriptor.
    ///
    /// # Errors
    /// `EBADF`: it is no socket of the kernel.
    pub fn descriptor(&self) -> rustix::io::Result<BorrowedFd<'_>> {
        match self {
            SocketHandle::Kernel(descriptor) => Ok(descriptor.as_fd()),
            SocketHandle::Stack(_) => Err(Errno::BADF),
        }
    }

    /// Its descriptor as a number; one that no descriptor has (-1) for a stack's socket.
    pub(crate) fn raw(&self) -> i32 {
        self.descriptor().map_or(-1, |descriptor| descriptor.as_raw_fd())
    }

    /// A number that tells it from others in listings: its descriptor, or one beyond all of these.
    pub fn number(&self) -> i32 {
        match self {
            SocketHandle::Kernel(descriptor) => descriptor.as_raw_fd(),
            SocketHandle::Stack(socket) => socket.number(),
        }
    }

    /// The end that is ours.
    pub fn local_address(&self) -> Option<SocketAddress> {
        match self {
            SocketHandle::Kernel(descriptor) => address(rustix::net::getsockname(descriptor).ok()?),
            SocketHandle::Stack(socket) => Some(SocketAddress::Tcp(socket.local())),
        }
    }

    /// The other end.
    pub fn peer_address(&self) -> Option<SocketAddress> {
        match self {
            SocketHandle::Kernel(descriptor) => address(rustix::net::getpeername(descriptor).ok()??),
            SocketHandle::Stack(socket) => socket.peer().map(SocketAddress::Tcp),
        }
    }

    /// Sends what was accepted, then the end of the stream; receiving goes on.
    ///
    /// # Errors
    /// The socket is not connected any more.
    pub fn end_sending(&self) -> io::Result<()> {
        match self {
            SocketHandle::Kernel(descriptor) => Ok(rustix::net::shutdown(descriptor, Shutdown::Write)?),
            SocketHandle::Stack(socket) => {
                socket.end_sending();
                Ok(())
            }
        }
    }

    /// Ends the stream of received bytes after those that have arrived.
    ///
    /// # Errors
    /// The socket is not connected any more.
    pub fn end_receiving(&self) -> io::Result<()> {
        match self {
            SocketHandle::Kernel(descriptor) => Ok(rustix::net::shutdown(descriptor, Shutdown::Read)?),
            SocketHandle::Stack(socket) => {
                socket.end_receiving();
                Ok(())
            }
        }
    }

    /// For a listener: the connections that it accepts end with an error (`ETIMEDOUT`, or what
    /// routers said) once their peers could not be reached for `time`, at most. An idle connection
    /// is asked `every` so often. Both count in whole seconds. Nothing happens to UNIX sockets.
    ///
    /// # Errors
    /// The system refuses, or it is no socket of the kernel.
    pub fn watch_peers(&self, every: Duration, time: Duration) -> io::Result<()> {
        let descriptor = self.descriptor()?;
        if matches!(self.local_address(), Some(SocketAddress::Unix(_))) {
            return Ok(());
        }
        let every = Duration::from_secs(every.as_secs().max(1));
        sockopt::set_socket_keepalive(descriptor, true)?;
        sockopt::set_tcp_keepidle(descriptor, every)?;
        sockopt::set_tcp_keepintvl(descriptor, every)?;
        // It ends idle connections too. The kernel looks when it asks: so at `time` at the latest.
        let most_ms = time.saturating_sub(every).as_millis();
        Ok(sockopt::set_tcp_user_timeout(descriptor, u32::try_from(most_ms).unwrap_or(u32::MAX))?)
    }

    /// For a listener that nobody accepts from: closes the connections that wait, unread; how many.
    pub fn refuse_pending(&self) -> usize {
        let Ok(descriptor) = self.descriptor() else { return 0 };
        if rustix::io::ioctl_fionbio(descriptor, true).is_err() {
            return 0;
        }
        let mut refused = 0;
        loop {
            match rustix::net::accept_with(descriptor, SocketFlags::CLOEXEC) {
                Ok(pending) => {
                    drop(pending);
                    refused += 1;
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => break,
            }
        }
        // Rings make it what they need.
        let _ = rustix::io::ioctl_fionbio(descriptor, false);
        refused
    }

    /// One attempt to send a few bytes, beside the ring: last words before a close. They may be
    /// lost.
    pub fn send_last_words(&self, bytes: &[u8]) {
        match self {
            // Who does not take them is closed all the same.
            SocketHandle::Kernel(descriptor) => {
                let _ = rustix::net::send(descriptor, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
            SocketHandle::Stack(socket) => socket.send_last_words(bytes),
        }
    }
}

fn address(address: rustix::net::SocketAddrAny) -> Option<SocketAddress> {
    if address.address_family() == AddressFamily::UNIX {
        let address = SocketAddrUnix::try_from(address).ok()?;
        return Some(SocketAddress::Unix(address.path().map(|path| path.to_string_lossy().into_owned())));
    }
    SocketAddr::try_from(address).ok().map(SocketAddress::Tcp)
}

impl From<OwnedFd> for SocketHandle {
    fn from(descriptor: OwnedFd) -> SocketHandle {
        SocketHandle::Kernel(descriptor)
    }
}

impl From<TcpListener> for SocketHandle {
    fn from(listener: TcpListener) -> SocketHandle {
        SocketHandle::Kernel(listener.into())
    }
}

impl From<TcpStream> for SocketHandle {
    fn from(stream: TcpStream) -> SocketHandle {
        SocketHandle::Kernel(stream.into())
    }
}

impl From<UnixStream> for SocketHandle {
    fn from(stream: UnixStream) -> SocketHandle {
        SocketHandle::Kernel(stream.into())
    }
}

/// Bytes that were sent and that the peer has not taken yet; `None` where the system does not tell.
pub fn untaken_bytes(socket: &Socket) -> Option<u64> {
    let descriptor = match &**socket {
        SocketHandle::Kernel(descriptor) => descriptor,
        SocketHandle::Stack(socket) => return Some(socket.untaken_bytes()),
    };
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (SIOCOUTQ of sockets) writes one int, which lives until the call returns.
    let told = unsafe { libc::ioctl(descriptor.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    (told == 0).then_some(u64::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::Arc;

    use super::*;

    #[test]
    fn connections_that_wait_are_closed_unread() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let socket = SocketHandle::from(listener.try_clone().unwrap());
        let mut peers: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        peers.iter_mut().for_each(|peer| peer.write_all(b"late").unwrap());
        assert_eq!(socket.refuse_pending(), 3);
        assert_eq!(socket.refuse_pending(), 0, "and it does not wait for more");
        for peer in &mut peers {
            assert!(!matches!(peer.read(&mut [0; 8]), Ok(1..)), "nobody answers");
        }
        let _later = TcpStream::connect(address).unwrap();
        listener.accept().unwrap();
    }

    #[test]
    fn connections_are_watched_as_their_listener_says() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = SocketHandle::from(listener.try_clone().unwrap());
        socket.watch_peers(Duration::from_secs(2), Duration::from_secs(10)).unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        assert!(sockopt::socket_keepalive(&ours).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&ours).unwrap(), Duration::from_secs(2));
        assert_eq!(sockopt::tcp_keepintvl(&ours).unwrap(), Duration::from_secs(2));
        assert_eq!(sockopt::tcp_user_timeout(&ours).unwrap(), 8000);
    }

    #[test]
    fn what_a_peer_does_not_take_is_told_and_what_it_takes_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut ours, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(bytes) = ours.write(&[7; 1 << 16]) {
            sent += bytes;
        }
        let socket: Socket = Arc::new(ours.into());
        assert!(untaken_bytes(&socket).is_some_and(|bytes| bytes > 0));
        peer.read_exact(&mut vec![0; sent]).unwrap();
        while untaken_bytes(&socket) != Some(0) {
            std::thread::yield_now();
        }
    }
}
