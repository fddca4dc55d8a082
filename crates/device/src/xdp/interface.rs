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
    /// Set up by its administrator.
    pub(super) is_up: bool,
}

/// What its driver says of itself and does to frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offload {
    pub(super) driver: Option<String>,
    /// Large receive offload is on.
    pub(super) merges_segments: bool,
}

/// `struct ethtool_value`.
#[repr(C)]
struct FlagsQuestion {
    command: u32,
    flags: u32,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverQuestion {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

impl Offload {
    /// Asks for them; what a driver does not tell is not so.
    pub(super) fn of(name: &str) -> Offload {
        const GET_DRIVER: u32 = 0x3;
        const GET_FLAGS: u32 = 0x25;
        const LRO: u32 = 1 << 15;
        let mut driver = DriverQuestion { command: GET_DRIVER, driver: [0; 32], rest: [0; 160] };
        let mut flags = FlagsQuestion { command: GET_FLAGS, flags: 0 };
        let is_told = ask_driver(name, &mut driver).is_ok();
        let known = ask_driver(name, &mut flags).is_ok();
        let text: Vec<u8> = driver.driver.into_iter().take_while(|byte| *byte != 0).collect();
        let driver = String::from_utf8_lossy(&text).into_owned();
        Offload {
            driver: (is_told && !driver.is_empty()).then_some(driver),
            merges_segments: known && flags.flags & LRO != 0,
        }
    }
}

/// One question of ethtool; the answer is in `question`.
fn ask_driver<T>(name: &str, question: &mut T) -> io::Result<()> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    let socket = any_socket()?;
    let mut request = named(name)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
    // SAFETY: the request's pointer leads to a plain structure of this command, which lives until
    // the call returns and is as long as the kernel takes it to be.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn any_socket() -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

impl Interface {
    /// Asks for the interface of this name, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// There is none, or it is not Ethernet.
    pub(super) fn of(name: &str) -> io::Result<Interface> {
        let socket = any_socket()?;
        let index = ask(&socket, name, libc::SIOCGIFINDEX)?;
        // SAFETY: the call filled in this member of the union.
        let index = unsafe { index.ifr_ifru.ifru_ifindex };
        let mtu = ask(&socket, name, libc::SIOCGIFMTU)?;
        // SAFETY: the call filled in this member of the union.
        let mtu = unsafe { mtu.ifr_ifru.ifru_mtu };
        let hardware = ask(&socket, name, libc::SIOCGIFHWADDR)?;
        // SAFETY: the call filled in this member of the union.
        let hardware = unsafe { hardware.ifr_ifru.ifru_hwaddr };
        let flags = ask(&socket, name, libc::SIOCGIFFLAGS)?;
        // SAFETY: the call filled in this member of the union.
        let is_up = i32::from(unsafe { flags.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0;
        if hardware.sa_family != libc::ARPHRD_ETHER {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it is not an Ethernet interface"));
        }
        let mut bytes = [0; 6];
        bytes.iter_mut().zip(hardware.sa_data).for_each(|(to, from)| *to = from.cast_unsigned());
        Ok(Interface {
            index: u32::try_from(index).map_err(io::Error::other)?,
            hardware: bytes,
            mtu: usize::try_from(mtu).map_err(io::Error::other)?,
            is_up,
        })
    }
}

/// A request that names an interface.
fn named(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: plain numbers, for which all zeros is valid.
    let mut question: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = question.ifr_name.len();
    if name.is_empty() || name.len() >= room || name.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "interfaces have names of 1 to 15 bytes"));
    }
    question.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    Ok(question)
}

fn ask(socket: &OwnedFd, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
    let mut question = named(name)?;
    // SAFETY: these requests read the name and write one member of the union.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut question) };
    if result == 0 { Ok(question) } else { Err(io::Error::last_os_error()) }
}
