//! Serving through AF_XDP beside the kernel's sockets: which thread has which receive queue.

use std::net::SocketAddr;
use std::sync::Arc;

use stratakv::Store;
use stratakv_device::xdp::{PreparedXdp, XdpHealth, XdpOptions, XdpQueue, XdpRing};

use crate::server::{Error, Listening, Speaks};

/// What one thread serves through AF_XDP.
pub(crate) struct XdpShare {
    queue: XdpQueue,
    /// Where, and whether clients speak TLS there.
    listen: Vec<(SocketAddr, bool)>,
}

/// All of it.
pub(crate) struct XdpServing {
    /// For the first threads, in order.
    pub(crate) shares: Vec<XdpShare>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) health: Arc<XdpHealth>,
}

impl XdpServing {
    /// Opens the interface and takes frames to the ports of these listeners.
    pub(crate) fn open(
        (options, prepared): (&XdpOptions, PreparedXdp),
        ports: impl Iterator<Item = (u16, bool)>,
        threads: usize,
    ) -> Result<XdpServing, Error> {
        let mut ports: Vec<(u16, bool)> = ports.collect();
        ports.sort_unstable();
        ports.dedup_by_key(|(port, _)| *port);
        if ports.is_empty() {
            return Err(Error::Option(
                "AF_XDP serves the ports of TCP addresses, and there are none (--memcache)".into(),
            ));
        }
        let numbers: Vec<u16> = ports.iter().map(|(port, _)| *port).collect();
        let port = prepared.serve(&numbers)?;
        let health = port.health();
        let queues = port.into_queues();
        let at = |(port, tls): &(u16, bool)| {
            let (port, tls) = (*port, *tls);
            let places = options.addresses.iter().map(move |(address, _)| (SocketAddr::new(*address, port), tls));
            places.collect::<Vec<_>>()
        };
        let listen: Vec<(SocketAddr, bool)> = ports.iter().flat_map(at).collect();
        let addresses = listen.iter().map(|(address, _)| *address).collect();
        if queues.len() < threads {
            tracing::info!(
                queues = queues.len(),
                threads,
                "the interface has fewer receive queues than there are threads: the other threads serve kernel sockets only"
            );
        }
        let shares = queues.into_iter().map(|queue| XdpShare { queue, listen: listen.clone() }).collect();
        Ok(XdpServing { shares, addresses, health })
    }
}

impl XdpShare {
    /// A driver whose ring has these sockets too, and what to accept from.
    pub(crate) fn driver(self, store: &Store) -> Result<(stratakv::raw::Driver, Vec<Listening>), Error> {
        let addresses: Vec<SocketAddr> = self.listen.iter().map(|(address, _)| *address).collect();
        let mut listeners = Vec::new();
        let driver = store.driver_with(|rest| {
            let (ring, sockets) = XdpRing::new(rest, self.queue, &addresses)?;
            listeners = sockets;
            Ok(Box::new(ring))
        })?;
        let tls = self.listen.iter().map(|(_, tls)| *tls);
        let listening = |(socket, tls)| Listening { socket, speaks: Speaks { tls, resp: false }, inherited: false };
        Ok((driver, listeners.into_iter().zip(tls).map(listening).collect()))
    }
}
