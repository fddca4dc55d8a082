//! What is known of a connected socket beside the requests on it.
#![expect(unsafe_code, reason = "one ioctl that writes a number")]

use std::os::fd::AsRawFd;

use crate::ring::Socket;

/// Bytes that were sent and that the peer has not taken yet; `None` where the system does not tell.
pub fn untaken_bytes(socket: &Socket) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (SIOCOUTQ of sockets) writes one int, which lives until the call returns.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    (told == 0).then_some(u64::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use super::*;

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
        let socket: Socket = Arc::new(OwnedFd::from(ours));
        assert!(untaken_bytes(&socket).is_some_and(|bytes| bytes > 0));
        peer.read_exact(&mut vec![0; sent]).unwrap();
        while untaken_bytes(&socket) != Some(0) {
            std::thread::yield_now();
        }
    }
}
