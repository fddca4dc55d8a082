//! [`Stall`]: whether a peer has stopped taking what was sent to it, and how it is asked.
//!
//! `smoltcp` may stand still then. What it sends again does not heed the peer's window: the part
//! beyond it is dropped, the peer's window is closed, and its word that it is open again may be
//! lost. The library's own probes have no byte left to carry, and nobody answers them. So the stack
//! asks: whoever gets a segment from before the window answers with its acknowledgement and its
//! window (RFC 9293, section 3.10.7.4).

use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, TxToken};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber, TcpTimestampRepr};

use super::frame::Ends;

/// Between two questions, and before the first. Linux answers twice a second at most.
const ASKED_EVERY: Duration = Duration::from_secs(2);
const HOP_LIMIT: u8 = 64;

/// Where a peer stands, by its segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// The number of its first byte.
    pub(super) sequence: TcpSeqNumber,
    /// What it waits for; `None`: it did not say.
    pub(super) acknowledges: Option<TcpSeqNumber>,
}

impl Heard {
    /// Learns from another segment. An old one, or a keep-alive, tells of less.
    pub(super) fn learn(&mut self, other: Heard) {
        let Some(awaited) = other.acknowledges else { return *self = other };
        if self.acknowledges.is_none_or(|known| known < awaited) {
            self.acknowledges = Some(awaited);
        }
        self.sequence = self.sequence.max(other.sequence);
    }
}

/// What a connection has sent and is not acknowledged, and since when it has not become less.
#[derive(Default)]
pub(super) struct Stall {
    unacknowledged: usize,
    ask_at: Option<Instant>,
}

impl Stall {
    /// Sees how many bytes are not acknowledged.
    pub(super) fn see(&mut self, unacknowledged: usize, now: Instant) {
        if unacknowledged == 0 {
            self.ask_at = None;
        } else if unacknowledged < self.unacknowledged || self.ask_at.is_none() {
            self.ask_at = Some(now + ASKED_EVERY);
        }
        self.unacknowledged = unacknowledged;
    }

    /// Whether the peer is to be asked now. Then it is not again for a while.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.ask_at.is_some_and(|at| at <= now);
        if is_due {
            self.ask_at = Some(now + ASKED_EVERY);
        }
        is_due
    }

    /// When it is next asked.
    pub(super) fn ask_at(&self) -> Option<Instant> {
        self.ask_at
    }
}

/// Asks a peer what it has and what it has room for.
pub(super) fn ask(port: &mut impl Device, ends: Ends, heard: Heard, now: Instant) {
    let Some(awaited) = heard.acknowledges else { return };
    let (from, to) = (IpAddress::from(ends.local.ip()), IpAddress::from(ends.peer.ip()));
    let segment = TcpRepr {
        src_port: ends.local.port(),
        dst_port: ends.peer.port(),
        control: TcpControl::None,
        // From before the window: the byte in front is acknowledged.
        seq_number: awaited - 1,
        ack_number: Some(heard.sequence),
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None::<TcpTimestampRepr>,
        payload: &[],
    };
    let header = IpRepr::new(from, to, IpProtocol::Tcp, segment.buffer_len(), HOP_LIMIT);
    let mut checksums = ChecksumCapabilities::ignored();
    (checksums.ipv4, checksums.tcp) = (Checksum::Both, Checksum::Both);
    // Without a free frame it is asked later.
    let Some(token) = port.transmit(now) else { return };
    token.consume(header.buffer_len(), |packet| {
        header.emit(&mut *packet, &checksums);
        let segment_bytes = packet.get_mut(header.header_len()..).unwrap_or_default();
        segment.emit(&mut TcpPacket::new_unchecked(segment_bytes), &from, &to, &checksums);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A keep-alive begins with the byte before what is to come, and an answer that acknowledged
    /// that byte was taken for an old segment.
    #[test]
    fn a_keep_alive_does_not_tell_where_a_peer_stands() {
        let segment = |sequence, awaited: Option<i32>| Heard {
            sequence: TcpSeqNumber(sequence),
            acknowledges: awaited.map(TcpSeqNumber),
        };
        let mut heard = Heard::default();
        heard.learn(segment(i32::MAX, None));
        heard.learn(segment(i32::MIN, Some(7)));
        heard.learn(segment(i32::MAX, Some(6)));
        assert_eq!(heard, segment(i32::MIN, Some(7)));
    }

    #[test]
    fn a_peer_that_takes_some_is_not_asked() {
        let mut stall = Stall::default();
        let at = |seconds| Instant::from_secs(seconds);
        stall.see(100, at(0));
        assert!(!stall.is_due(at(1)));
        stall.see(90, at(1));
        stall.see(190, at(2));
        assert!(!stall.is_due(at(2)) && stall.is_due(at(3)) && !stall.is_due(at(4)) && stall.is_due(at(5)));
        stall.see(0, at(6));
        assert_eq!((stall.is_due(at(99)), stall.ask_at()), (false, None));
    }
}
