//! What `smoltcp` takes for its device: one received packet, and the frames that answer it.

use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::EthernetAddress;

use super::frame_io::FrameIo;

const ETHERNET_BYTES: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xDD];

/// A device of IP packets. What is sent goes to one neighbour: whoever the received packet came
/// from, so that no table of neighbours is asked.
pub(super) struct IpPort<'a, F> {
    pub(super) packet: Option<&'a [u8]>,
    pub(super) io: &'a mut F,
    pub(super) from: EthernetAddress,
    pub(super) to: EthernetAddress,
    pub(super) mtu: usize,
}

/// A device of whole frames, for what is about neighbours.
pub(super) struct EthernetPort<'a, F> {
    pub(super) frame: Option<&'a [u8]>,
    pub(super) io: &'a mut F,
    pub(super) mtu: usize,
}

pub(super) struct Received<'a>(&'a [u8]);

pub(super) struct IpFrame<'a, F> {
    io: &'a mut F,
    from: EthernetAddress,
    to: EthernetAddress,
}

pub(super) struct WholeFrame<'a, F>(&'a mut F);

impl<F: FrameIo> Device for IpPort<'_, F> {
    type RxToken<'a>
        = Received<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = IpFrame<'a, F>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, IpFrame<'_, F>)> {
        let packet = self.packet.take()?;
        Some((Received(packet), IpFrame { io: self.io, from: self.from, to: self.to }))
    }

    fn transmit(&mut self, _: Instant) -> Option<IpFrame<'_, F>> {
        self.io.can_transmit().then_some(IpFrame { io: self.io, from: self.from, to: self.to })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        // Those of received segments are checked before they come here.
        capabilities.checksum.ipv4 = Checksum::Tx;
        capabilities.checksum.tcp = Checksum::Tx;
        capabilities
    }
}

impl<F: FrameIo> Device for EthernetPort<'_, F> {
    type RxToken<'a>
        = Received<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = WholeFrame<'a, F>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, WholeFrame<'_, F>)> {
        Some((Received(self.frame.take()?), WholeFrame(self.io)))
    }

    fn transmit(&mut self, _: Instant) -> Option<WholeFrame<'_, F>> {
        self.io.can_transmit().then_some(WholeFrame(self.io))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + ETHERNET_BYTES;
        capabilities
    }
}

impl RxToken for Received<'_> {
    fn consume<R, C: FnOnce(&[u8]) -> R>(self, consume: C) -> R {
        consume(self.0)
    }
}

impl<F: FrameIo> TxToken for IpFrame<'_, F> {
    fn consume<R, C: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: C) -> R {
        self.io.transmit(ETHERNET_BYTES + len, |frame| {
            let (header, packet) = frame.split_at_mut(ETHERNET_BYTES);
            let filled = fill(packet);
            let is_ipv6 = packet.first().is_some_and(|first| first >> 4 == 6);
            let fields = self.to.0.iter().chain(&self.from.0).chain(if is_ipv6 { &IPV6 } else { &IPV4 });
            header.iter_mut().zip(fields).for_each(|(byte, field)| *byte = *field);
            filled
        })
    }
}

impl<F: FrameIo> TxToken for WholeFrame<'_, F> {
    fn consume<R, C: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: C) -> R {
        self.0.transmit(len, fill)
    }
}
