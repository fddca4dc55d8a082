//! `--xdp`: serving an address without the kernel's TCP.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use stratakv_base::quantity::parse_bytes;
use stratakv_server::XdpOptions;

/// Where, and with how much memory.
#[derive(Args)]
pub(crate) struct XdpArguments {
    /// Serve --address through AF_XDP on this interface, at the ports of --memcache: frames bypass
    /// the kernel's TCP. Needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF
    #[arg(long, value_name = "INTERFACE", requires = "address")]
    xdp: Option<String>,
    /// The server's own address on --xdp, with its prefix, such as 10.0.0.2/24; may be given
    /// several times. The kernel needs no such address
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = prefixed, requires = "xdp")]
    address: Vec<(IpAddr, u8)>,
    /// Bytes of frames for each receive queue of --xdp
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = parse_bytes)]
    xdp_memory: u64,
}

fn prefixed(text: &str) -> Result<(IpAddr, u8), String> {
    let why = || format!("`{text}` is no address with a prefix: write for example 10.0.0.2/24");
    let (address, prefix) = text.split_once('/').ok_or_else(why)?;
    let (address, prefix) = (address.parse().map_err(|_| why())?, prefix.parse().map_err(|_| why())?);
    Ok((address, prefix))
}

impl XdpArguments {
    /// For a server of up to so many connections.
    pub(super) fn options(&self, connections_max: usize) -> Option<XdpOptions> {
        let interface = self.xdp.clone()?;
        Some(XdpOptions {
            interface,
            addresses: self.address.clone(),
            umem_bytes: self.xdp_memory,
            // Closed ones stay for a while.
            connections_max: connections_max.saturating_add(connections_max / 4).saturating_add(64),
        })
    }

    /// Addresses that other machines reach.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.address.iter().map(|(address, _)| SocketAddr::new(*address, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_a_prefix() {
        assert_eq!(prefixed("10.0.0.2/24"), Ok(([10, 0, 0, 2].into(), 24)));
        assert_eq!(prefixed("fd00::2/64").map(|(_, prefix)| prefix), Ok(64));
        for text in ["10.0.0.2", "10.0.0.2/", "10.0.0/24", "eth0/24", "10.0.0.2/999", ""] {
            assert!(prefixed(text).is_err_and(|why| why.contains("10.0.0.2/24")), "{text}");
        }
    }
}
