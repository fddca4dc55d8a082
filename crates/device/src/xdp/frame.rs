//! What a received frame is, before the stack's own library looks at it: whose it is, and whether
//! it arrived whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket,
};
use stratakv_base::fault_point;

use super::stall::Heard;

/// Both ends of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// A received TCP segment with right checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) ends: Ends,
    /// Where its answer goes.
    pub(super) from: EthernetAddress,
    /// The IP packet in the frame.
    pub(super) packet: Range<usize>,
    /// It begins a connection: SYN, and neither ACK nor RST.
    pub(super) opens: bool,
    pub(super) heard: Heard,
}

/// What is to be done with a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FrameClass {
    Tcp(Segment),
    /// ARP, or a question for the owner of an IPv6 address.
    Neighbor,
    /// Another ICMP or ICMPv6 packet: where it lies, and where its answer goes.
    Icmp {
        from: EthernetAddress,
        packet: Range<usize>,
    },
    /// Truncated, malformed, or damaged on its way.
    Damaged,
    /// Fragments, VLANs, and what else is not for this stack.
    Foreign,
}

const ETHERNET_BYTES: usize = 14;
/// The type of ICMPv6 that asks for an address's owner (RFC 4861, section 4.3).
const NEIGHBOR_SOLICITATION: u8 = 135;

/// Looks at a frame's headers and its checksums of TCP.
pub(super) fn classify(frame: &[u8]) -> FrameClass {
    let Ok(ethernet) = EthernetFrame::new_checked(frame) else { return FrameClass::Damaged };
    let from = ethernet.src_addr();
    match ethernet.ethertype() {
        EthernetProtocol::Arp => FrameClass::Neighbor,
        EthernetProtocol::Ipv4 => ipv4(ethernet.payload(), from),
        EthernetProtocol::Ipv6 => ipv6(ethernet.payload(), from),
        EthernetProtocol::Unknown(_) => FrameClass::Foreign,
    }
}

fn ipv4(bytes: &[u8], from: EthernetAddress) -> FrameClass {
    let Ok(packet) = Ipv4Packet::new_checked(bytes) else { return FrameClass::Damaged };
    if packet.version() != 4 {
        return FrameClass::Damaged;
    }
    if packet.more_frags() || packet.frag_offset() != 0 {
        return FrameClass::Foreign;
    }
    match packet.next_header() {
        IpProtocol::Icmp => icmp(from, usize::from(packet.total_len())),
        IpProtocol::Tcp if !packet.verify_checksum() => FrameClass::Damaged,
        IpProtocol::Tcp => {
            let (source, destination) = (packet.src_addr(), packet.dst_addr());
            let ends = (IpAddr::V4(destination), IpAddr::V4(source));
            tcp(packet.payload(), ends, from, usize::from(packet.total_len()))
        }
        _ => FrameClass::Foreign,
    }
}

fn ipv6(bytes: &[u8], from: EthernetAddress) -> FrameClass {
    let Ok(packet) = Ipv6Packet::new_checked(bytes) else { return FrameClass::Damaged };
    if packet.version() != 6 {
        return FrameClass::Damaged;
    }
    match packet.next_header() {
        IpProtocol::Icmpv6 if packet.payload().first() == Some(&NEIGHBOR_SOLICITATION) => FrameClass::Neighbor,
        IpProtocol::Icmpv6 => icmp(from, packet.total_len()),
        IpProtocol::Tcp => {
            let ends = (IpAddr::V6(packet.dst_addr()), IpAddr::V6(packet.src_addr()));
            tcp(packet.payload(), ends, from, packet.total_len())
        }
        _ => FrameClass::Foreign,
    }
}

fn icmp(from: EthernetAddress, packet_bytes: usize) -> FrameClass {
    FrameClass::Icmp { from, packet: ETHERNET_BYTES..ETHERNET_BYTES + packet_bytes }
}

fn tcp(bytes: &[u8], (local, peer): (IpAddr, IpAddr), from: EthernetAddress, packet_bytes: usize) -> FrameClass {
    let Ok(segment) = TcpPacket::new_checked(bytes) else { return FrameClass::Damaged };
    let mut is_whole = segment.verify_checksum(&IpAddress::from(peer), &IpAddress::from(local));
    fault_point!("xdp_checksum_skipped", is_whole = true);
    let is_possible = is_whole && is_host(peer) && from.is_unicast() && segment.src_port() != 0;
    if !is_possible {
        return FrameClass::Damaged;
    }
    let ends =
        Ends { local: SocketAddr::new(local, segment.dst_port()), peer: SocketAddr::new(peer, segment.src_port()) };
    let opens = segment.syn() && !segment.ack() && !segment.rst() && !segment.fin();
    let packet = ETHERNET_BYTES..ETHERNET_BYTES + packet_bytes;
    let heard = Heard { sequence: segment.seq_number(), acknowledges: segment.ack().then(|| segment.ack_number()) };
    FrameClass::Tcp(Segment { ends, from, packet, opens, heard })
}

/// Whether a host can have this address.
fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !(address.is_unspecified() || address.is_multicast() || address == Ipv4Addr::BROADCAST),
        IpAddr::V6(address) => !(address.is_unspecified() || address.is_multicast() || address == Ipv6Addr::LOCALHOST),
    }
}
