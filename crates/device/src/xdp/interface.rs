//! What the system says of a network interface.
#![expect(unsafe_code, reason = "ioctls that fill in a structure")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) hardware: [u8; 6],
    /// Longest IP packet.
    pub(super) mtu: usize,
}

impl Interface {
    /// Asks for the interface of this name, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// There is none, or it is not Ethernet.
    pub(super) fn of(name: &str) -> io::Result<Interface> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let index = ask(&socket, name, libc::SIOCGIFINDEX)?;
        // SAFETY: the call filled in this member of the union.
        let index = unsafe { index.ifr_ifru.ifru_ifindex };
        let mtu = ask(&socket, name, libc::SIOCGIFMTU)?;
        // SAFETY: the call filled in this member of the union.
        let mtu = unsafe { mtu.ifr_ifru.ifru_mtu };
        let hardware = ask(&socket, name, libc::SIOCGIFHWADDR)?;
        // SAFETY: the call filled in this member of the union.
        let hardware = unsafe { hardware.ifr_ifru.ifru_hwaddr };
        if hardware.sa_family != libc::ARPHRD_ETHER {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it is not an Ethernet interface"));
        }
        let mut bytes = [0; 6];
        bytes.iter_mut().zip(hardware.sa_data).for_each(|(to, from)| *to = from.cast_unsigned());
        Ok(Interface {
            index: u32::try_from(index).map_err(io::Error::other)?,
            hardware: bytes,
            mtu: usize::try_from(mtu).map_err(io::Error::other)?,
        })
    }
}

fn ask(socket: &OwnedFd, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: plain numbers, for which all zeros is valid.
    let mut question: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = question.ifr_name.len();
    if name.is_empty() || name.len() >= room || name.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "interfaces have names of 1 to 15 bytes"));
    }
    question.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    // SAFETY: these requests read the name and write one member of the union.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut question) };
    if result == 0 { Ok(question) } else { Err(io::Error::last_os_error()) }
}
