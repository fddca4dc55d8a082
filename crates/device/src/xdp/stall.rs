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

/// What a segment tells of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// The number of its first byte.
    pub(super) sequence: TcpSeqNumber,
    /// What the sender waits for; `None`: it did not say.
    pub(super) acknowledges: Option<TcpSeqNumber>,
}

/// Where a peer stands, by its newest segments, and when it is asked.
#[derive(Default)]
pub(super) struct Stall {
    sequence: TcpSeqNumber,
    acknowledges: Option<TcpSeqNumber>,
    /// While something is not acknowledged.
    ask_at: Option<Instant>,
}

impl Stall {
    /// Learns from a segment. An old one, or a keep-alive, tells of less. Who acknowledges more is
    /// not asked for a while.
    pub(super) fn learn(&mut self, heard: Heard) {
        let Some(awaited) = heard.acknowledges else {
            return *self = Stall { sequence: heard.sequence, ..Stall::default() };
        };
        if self.acknowledges.is_none_or(|known| known < awaited) {
            (self.acknowledges, self.ask_at) = (Some(awaited), None);
        }
        self.sequence = self.sequence.max(heard.sequence);
    }

    /// Whether the peer is to be asked now: something `is_unacknowledged`, and has been for long.
    /// Then it is not asked again for a while.
    pub(super) fn is_due(&mut self, is_unacknowledged: bool, now: Instant) -> bool {
        if !is_unacknowledged {
            self.ask_at = None;
            return false;
        }
        let is_due = *self.ask_at.get_or_insert(now + ASKED_EVERY) <= now;
        if is_due {
            self.ask_at = Some(now + ASKED_EVERY);
        }
        is_due
    }

    /// When it is next asked.
    pub(super) fn ask_at(&self) -> Option<Instant> {
        self.ask_at
    }

    /// Asks what it has and what it has room for.
    pub(super) fn ask(&self, port: &mut impl Device, ends: Ends, now: Instant) {
        let Some(awaited) = self.acknowledges else { return };
        let (from, to) = (IpAddress::from(ends.local.ip()), IpAddress::from(ends.peer.ip()));
        let segment = TcpRepr {
            src_port: ends.local.port(),
            dst_port: ends.peer.port(),
            control: TcpControl::None,
            // From before the window: the byte in front is acknowledged.
            seq_number: awaited - 1,
            ack_number: Some(self.sequence),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(sequence: i32, awaited: Option<i32>) -> Heard {
        Heard { sequence: TcpSeqNumber(sequence), acknowledges: awaited.map(TcpSeqNumber) }
    }

    /// A keep-alive begins with the byte before what is to come, and an answer that acknowledged
    /// that byte was taken for an old segment.
    #[test]
    fn a_keep_alive_does_not_tell_where_a_peer_stands() {
        let mut stall = Stall::default();
        stall.learn(segment(i32::MAX, None));
        stall.learn(segment(i32::MIN, Some(7)));
        stall.learn(segment(i32::MAX, Some(6)));
        assert_eq!((stall.sequence, stall.acknowledges), (TcpSeqNumber(i32::MIN), Some(TcpSeqNumber(7))));
    }

    /// Whatever is put behind what it takes.
    #[test]
    fn a_peer_that_takes_some_is_not_asked() {
        let mut stall = Stall::default();
        let at = |seconds| Instant::from_secs(seconds);
        stall.learn(segment(0, Some(100)));
        assert!(!stall.is_due(true, at(0)) && !stall.is_due(true, at(1)));
        stall.learn(segment(0, Some(110)));
        assert!(!stall.is_due(true, at(1)) && !stall.is_due(true, at(2)));
        stall.learn(segment(0, Some(110)));
        assert!(stall.is_due(true, at(3)) && !stall.is_due(true, at(4)) && stall.is_due(true, at(5)));
        assert!(!stall.is_due(false, at(99)) && stall.ask_at().is_none());
    }
}
