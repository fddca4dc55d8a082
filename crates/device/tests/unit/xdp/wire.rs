//! A stack over frames in memory: what a card and a cable would do, done by hand.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpAddress, IpProtocol, Ipv4Packet, Ipv4Repr,
    TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};

use super::stack::{Seeds, Stack, StackOptions};
use super::umem::{FrameDescriptor, FrameRings, Umem, UmemFrame, UmemIo};
use crate::ring::Socket;

pub(super) const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(super) const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const HARDWARE: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);
pub(super) const THEIR_HARDWARE: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
pub(super) const PORT: u16 = 11211;

pub(super) fn listen_address() -> SocketAddr {
    SocketAddr::from((OURS, PORT))
}

/// The four rings as queues, and a card that moves frames when told to.
#[derive(Debug)]
pub(super) struct MemoryRings {
    umem: Arc<Umem>,
    fill: VecDeque<u64>,
    received: VecDeque<FrameDescriptor>,
    transmit: VecDeque<FrameDescriptor>,
    sent: VecDeque<u64>,
    /// Entries of each ring.
    entries: usize,
    /// Frames for which there was no room.
    pub(super) dropped: u64,
}

impl MemoryRings {
    fn frame_of(&self, offset: u64) -> u32 {
        (offset / self.umem.frame_bytes() as u64) as u32
    }

    /// A frame arrives.
    pub(super) fn deliver(&mut self, bytes: &[u8]) {
        let room = bytes.len() <= self.umem.frame_bytes() && self.received.len() < self.entries;
        let Some(offset) = room.then(|| self.fill.pop_front()).flatten() else {
            self.dropped += 1;
            return;
        };
        let written = self.umem.write(self.frame_of(offset), bytes.len(), |to| to.copy_from_slice(bytes));
        assert!(written.is_ok(), "the frame was long enough");
        self.received.push_back(FrameDescriptor { offset, len: bytes.len() as u32 });
    }

    /// Up to `most` frames leave, as they are in memory now.
    pub(super) fn collect(&mut self, most: usize) -> Vec<Vec<u8>> {
        let leaving = self.transmit.len().min(most);
        let taken: Vec<FrameDescriptor> = self.transmit.drain(..leaving).collect();
        let bytes_of = |descriptor: &FrameDescriptor| {
            let frame = UmemFrame::new(&self.umem, self.frame_of(descriptor.offset), 0, descriptor.len as usize);
            frame.expect("within the memory").as_ref().to_vec()
        };
        let frames = taken.iter().map(bytes_of).collect();
        self.sent.extend(taken.iter().map(|descriptor| descriptor.offset));
        frames
    }
}

impl FrameRings for MemoryRings {
    fn fill(&mut self, offset: u64) -> bool {
        // A card may write at once to what it was given.
        let len = self.umem.frame_bytes();
        assert!(self.umem.write(self.frame_of(offset), len, |bytes| bytes.fill(0xEE)).is_ok());
        let has_room = self.fill.len() < self.entries;
        if has_room {
            self.fill.push_back(offset);
        }
        has_room
    }

    fn received(&mut self) -> Option<FrameDescriptor> {
        self.received.pop_front()
    }

    fn transmit(&mut self, descriptor: FrameDescriptor) -> bool {
        let has_room = self.can_transmit();
        if has_room {
            self.transmit.push_back(descriptor);
        }
        has_room
    }

    fn can_transmit(&mut self) -> bool {
        self.transmit.len() < self.entries
    }

    fn sent(&mut self) -> Option<u64> {
        self.sent.pop_front()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) type MemoryStack = Stack<UmemIo<MemoryRings>>;

pub(super) fn options() -> StackOptions {
    StackOptions::new(HARDWARE.0, vec![(OURS.into(), 24)], 1500)
}

/// A stack with so many frames, and its listener.
pub(super) fn stack(options: StackOptions, frames: u32, seed: u64) -> (MemoryStack, Socket) {
    let umem = Arc::new(Umem::new(2048, frames).expect("memory"));
    let rings = MemoryRings {
        umem: Arc::clone(&umem),
        fill: VecDeque::new(),
        received: VecDeque::new(),
        transmit: VecDeque::new(),
        sent: VecDeque::new(),
        entries: frames as usize,
        dropped: 0,
    };
    let mut stack = Stack::with_seeds(UmemIo::new(umem, rings), options, Seeds::Counted(seed));
    let listener = stack.listen(listen_address());
    (stack, listener)
}

/// A segment of a peer that follows no rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crafted<'a> {
    pub(super) from: (Ipv4Addr, u16),
    pub(super) to_port: u16,
    pub(super) control: TcpControl,
    pub(super) sequence: i32,
    pub(super) acknowledges: Option<i32>,
    pub(super) window: u16,
    pub(super) payload: &'a [u8],
}

impl<'a> Crafted<'a> {
    #[cfg(test)]
    pub(super) fn syn(from: (Ipv4Addr, u16)) -> Crafted<'a> {
        let control = TcpControl::Syn;
        Crafted { from, to_port: PORT, control, sequence: 1000, acknowledges: None, window: 8192, payload: b"" }
    }

    pub(super) fn frame(&self) -> Vec<u8> {
        let segment = TcpRepr {
            src_port: self.from.1,
            dst_port: self.to_port,
            control: self.control,
            seq_number: TcpSeqNumber(self.sequence),
            ack_number: self.acknowledges.map(TcpSeqNumber),
            window_len: self.window,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: self.payload,
        };
        let packet = Ipv4Repr {
            src_addr: self.from.0,
            dst_addr: OURS,
            next_header: IpProtocol::Tcp,
            payload_len: segment.buffer_len(),
            hop_limit: 64,
        };
        let checksums = ChecksumCapabilities::default();
        let mut frame = vec![0; 14 + packet.buffer_len() + segment.buffer_len()];
        let header = EthernetRepr { src_addr: THEIR_HARDWARE, dst_addr: HARDWARE, ethertype: EthernetProtocol::Ipv4 };
        header.emit(&mut EthernetFrame::new_unchecked(&mut frame));
        packet.emit(&mut Ipv4Packet::new_unchecked(&mut frame[14..]), &checksums);
        segment.emit(
            &mut TcpPacket::new_unchecked(&mut frame[34..]),
            &IpAddress::from(self.from.0),
            &IpAddress::from(OURS),
            &checksums,
        );
        frame
    }
}

/// The TCP header of a frame that the stack sent, if it is one.
pub(super) fn segment_of(frame: &[u8]) -> Option<TcpPacket<&[u8]>> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    (ethernet.ethertype() == EthernetProtocol::Ipv4).then_some(())?;
    let packet = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
    TcpPacket::new_checked(packet.payload()).ok()
}

/// What the stack has sent since.
pub(super) fn sent(stack: &mut MemoryStack) -> Vec<Vec<u8>> {
    stack.io_mut().rings.collect(usize::MAX)
}

/// One frame in, a tick, and what came out.
#[cfg(test)]
pub(super) fn exchange(stack: &mut MemoryStack, frame: &[u8], now_us: i64) -> Vec<Vec<u8>> {
    stack.io_mut().rings.deliver(frame);
    stack.tick(smoltcp::time::Instant::from_micros(now_us)).expect("memory does not fail");
    sent(stack)
}
