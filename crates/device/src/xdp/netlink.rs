//! Questions to the kernel by netlink: which XDP program an interface has, and what its driver can
//! do.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

/// Of `linux/netlink.h`.
const HEADER_BYTES: usize = 16;
const REQUEST: u16 = 1;
const ERROR: u16 = 2;
const TYPE_OF_ATTRIBUTE: u16 = 0x3FFF;
/// Of `linux/rtnetlink.h` and `linux/if_link.h`.
const GET_LINK: u16 = 18;
const LINK_BYTES: usize = 16;
const LINK_XDP: u16 = 43;
const XDP_ATTACHED: u16 = 2;
const XDP_PROGRAM: u16 = 4;
/// Of `linux/genetlink.h` and `linux/netdev.h`.
const CONTROL: u16 = 16;
const GENERIC_BYTES: usize = 4;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;

/// The attributes of a message, one after the other: type and bytes.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?) & TYPE_OF_ATTRIBUTE;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn number(bytes: &[u8]) -> Option<u64> {
    match *bytes {
        [one] => Some(one.into()),
        [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        _ => bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)),
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn socket(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

/// Asks one question; the answer's bytes behind its header.
fn ask(socket: &OwnedFd, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut message = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend([kind.to_ne_bytes(), REQUEST.to_ne_bytes()].concat());
    message.extend([0; 8]);
    message.extend(body);
    send(socket, &message, SendFlags::empty())?;
    let mut answer = vec![0; 64 << 10];
    let (bytes, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    answer.truncate(bytes);
    parse(&answer)
}

fn parse(answer: &[u8]) -> io::Result<Vec<u8>> {
    let short = || io::Error::other("a short answer by netlink");
    let kind = answer.get(4..).and_then(|bytes| bytes.first_chunk()).map(|bytes| u16::from_ne_bytes(*bytes));
    let body = answer.get(HEADER_BYTES..).ok_or_else(short)?;
    match kind {
        Some(ERROR) => {
            let errno = body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)).ok_or_else(short)?;
            Err(io::Error::from_raw_os_error(errno.saturating_neg()))
        }
        Some(_) => Ok(body.to_vec()),
        None => Err(short()),
    }
}

/// The number of the XDP program on an interface, if there is one.
///
/// # Errors
/// The kernel does not tell.
pub(super) fn program_on(interface: u32) -> io::Result<Option<u32>> {
    let mut body = vec![0; LINK_BYTES];
    body.splice(4..8, interface.to_ne_bytes());
    let answer = ask(&socket(None)?, GET_LINK, &body)?;
    Ok(program_of(answer.get(LINK_BYTES..).unwrap_or_default()))
}

fn program_of(link: &[u8]) -> Option<u32> {
    let (_, xdp) = attributes(link).find(|(kind, _)| *kind == LINK_XDP)?;
    let of = |wanted: u16| attributes(xdp).find(|(kind, _)| *kind == wanted).and_then(|(_, value)| number(value));
    of(XDP_ATTACHED).filter(|mode| *mode != 0)?;
    u32::try_from(of(XDP_PROGRAM).unwrap_or(0)).ok()
}

/// What an interface's driver can do, in bits of `enum netdev_xdp_act`.
///
/// # Errors
/// The kernel does not tell: it is older than 6.3.
pub(super) fn features_of(interface: u32) -> io::Result<u64> {
    let missing = || io::Error::other("the kernel does not tell what the driver can do");
    let socket = socket(Some(netlink::GENERIC))?;
    let question = |command: u8, attribute: Vec<u8>| [vec![command, 1, 0, 0], attribute].concat();
    let found = |answer: &[u8], wanted: u16| {
        let mut all = attributes(answer.get(GENERIC_BYTES..).unwrap_or_default());
        all.find(|(kind, _)| *kind == wanted).and_then(|(_, value)| number(value)).ok_or_else(missing)
    };
    let answer = ask(&socket, CONTROL, &question(GET_FAMILY, attribute(FAMILY_NAME, b"netdev\0")))?;
    let family = found(&answer, FAMILY_ID)? as u16;
    let answer = ask(&socket, family, &question(GET_DEVICE, attribute(DEVICE_INDEX, &interface.to_ne_bytes())))?;
    found(&answer, DEVICE_XDP_FEATURES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_among_attributes() {
        let xdp = [attribute(XDP_ATTACHED, &[1]), attribute(XDP_PROGRAM, &77u32.to_ne_bytes())].concat();
        let link = [attribute(3, b"eth0\0"), attribute(LINK_XDP | 0x8000, &xdp), attribute(4, &[0; 4])].concat();
        assert_eq!(program_of(&link), Some(77));
        assert_eq!(program_of(&attribute(LINK_XDP, &attribute(XDP_ATTACHED, &[0]))), None);
        // Whatever is cut off, nothing is read beyond it.
        (0..link.len()).for_each(|len| _ = program_of(&link[..len]));
        assert_eq!(attributes(&[0, 0, 0, 0, 0, 0]).count(), 0);
    }

    #[test]
    fn refusals_are_told() {
        let mut answer = vec![0; HEADER_BYTES + 4];
        answer.splice(4..6, ERROR.to_ne_bytes());
        answer.splice(HEADER_BYTES.., (-libc::ENODEV).to_ne_bytes());
        assert_eq!(parse(&answer).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(parse(&answer[..10]).is_err());
        assert_eq!(program_on(u32::MAX >> 1).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(program_on(1).unwrap(), None);
    }
}
