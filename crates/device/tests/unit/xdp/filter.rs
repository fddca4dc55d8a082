//! The program as the kernel runs it: frame by frame.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::bpf::{Program, SocketMap};
use super::*;

/// `XDP_ABORTED`: what the program returns for a frame that it would take, as no socket is there.
const TAKEN: i32 = 0;

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OURS_TOO: Ipv6Addr = Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 2);

/// The program, or why it cannot be had here.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn program(addresses: Vec<IpAddr>) -> Option<(Program, SocketMap)> {
    let refused = |error: std::io::Error| {
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");
        eprintln!("skipped: bpf(2) is refused here ({error})");
    };
    let sockets = SocketMap::new(1).map_err(refused).ok()?;
    let filter = Filter { addresses, ports: vec![11211, 11212], sockets: sockets.raw(), without_socket: TAKEN };
    Some((Program::load(&filter.program()).map_err(refused).ok()?, sockets))
}

fn ethernet(kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend(kind.to_be_bytes());
    frame.extend(packet);
    // Shorter frames do not exist on a wire, nor for the kernel's test run.
    frame.resize(frame.len().max(60), 0);
    frame
}

fn ipv4(to: Ipv4Addr, protocol: u8, fragment: u16, options: usize, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 20 + options];
    packet[0] = 0x40 | (5 + options as u8 / 4);
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[9] = protocol;
    packet[16..20].copy_from_slice(&to.octets());
    packet.extend(payload);
    ethernet(0x0800, &packet)
}

fn ipv6(to: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next_header, 64];
    packet.extend([0xFD; 16]);
    packet.extend(to.octets());
    packet.extend(payload);
    ethernet(0x86DD, &packet)
}

fn tcp(port: u16) -> Vec<u8> {
    let mut segment = vec![0x30, 0x39];
    segment.extend(port.to_be_bytes());
    segment.resize(20, 0);
    segment
}

fn arp(operation: u16, target: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4];
    packet.extend(operation.to_be_bytes());
    packet.resize(24, 7);
    packet.extend(target.octets());
    ethernet(0x0806, &packet)
}

fn solicitation(target: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    ipv6("ff02::1:ff00:2".parse().unwrap(), 58, &message)
}

#[test]
fn only_frames_for_our_addresses_and_ports_are_taken() {
    let Some((program, _sockets)) = program(vec![OURS.into(), OURS_TOO.into()]) else { return };
    let (stranger, strange) = (Ipv4Addr::new(10, 0, 0, 3), Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 1, 2));
    let mut vlan = ipv4(OURS, 6, 0, 0, &tcp(11211));
    vlan.splice(12..12, [0x81, 0x00, 0, 7]);
    let cases = [
        ("a segment", ipv4(OURS, 6, 0, 0, &tcp(11211)), true),
        ("a segment to the other port", ipv4(OURS, 6, 0, 0, &tcp(11212)), true),
        ("one that may not be fragmented", ipv4(OURS, 6, 0x4000, 0, &tcp(11211)), true),
        ("one with IP options", ipv4(OURS, 6, 0, 40, &tcp(11211)), true),
        ("another port", ipv4(OURS, 6, 0, 0, &tcp(22)), false),
        ("another address", ipv4(stranger, 6, 0, 0, &tcp(11211)), false),
        ("UDP", ipv4(OURS, 17, 0, 0, &tcp(11211)), false),
        ("the first fragment", ipv4(OURS, 6, 0x2000, 0, &tcp(11211)), false),
        ("a later fragment", ipv4(OURS, 6, 0x0007, 0, &tcp(11211)), false),
        ("an echo request", ipv4(OURS, 1, 0, 0, &[8, 0, 0, 0]), true),
        ("an echo reply, which we did not ask for", ipv4(OURS, 1, 0, 0, &[0, 0, 0, 0]), false),
        ("a VLAN", vlan, false),
        ("who has our address", arp(1, OURS), true),
        ("an answer to the kernel", arp(2, OURS), false),
        ("who has another address", arp(1, stranger), false),
        ("a segment of IPv6", ipv6(OURS_TOO, 6, &tcp(11211)), true),
        ("another port of IPv6", ipv6(OURS_TOO, 6, &tcp(80)), false),
        ("another address of IPv6", ipv6(strange, 6, &tcp(11211)), false),
        ("an echo request of IPv6", ipv6(OURS_TOO, 58, &[128, 0, 0, 0]), true),
        ("an echo reply of IPv6", ipv6(OURS_TOO, 58, &[129, 0, 0, 0]), false),
        ("who has our address of IPv6", solicitation(OURS_TOO), true),
        ("who has another address of IPv6", solicitation(strange), false),
        ("another protocol", ethernet(0x88CC, &[0; 46]), false),
    ];
    for (what, frame, is_ours) in cases {
        let verdict = program.run(&frame).unwrap();
        assert_eq!(verdict, if is_ours { TAKEN } else { PASS }.cast_unsigned(), "{what}");
    }
}

#[test]
fn the_verifier_accepts_every_mix_of_addresses() {
    let many: Vec<IpAddr> =
        (0..4).flat_map(|n| [IpAddr::from([10, 0, 0, n]), IpAddr::from([n.into(), 0, 0, 0, 0, 0, 0, 1u16])]).collect();
    for addresses in [vec![OURS.into()], vec![OURS_TOO.into()], many] {
        let Some((program, _sockets)) = program(addresses.clone()) else { return };
        let is_known = addresses.contains(&OURS.into());
        let verdict = program.run(&ipv4(OURS, 6, 0, 0, &tcp(11211))).unwrap();
        assert_eq!(verdict == TAKEN.cast_unsigned(), is_known || addresses.len() > 2);
    }
}
