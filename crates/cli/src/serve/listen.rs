//! `--memcache`: where clients may connect.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// `ADDRESS:PORT`.
    Tcp(SocketAddr),
    /// `tls:ADDRESS:PORT`.
    Tls(SocketAddr),
    /// `unix:PATH`.
    Unix(PathBuf),
}

impl Listen {
    /// The path of a UNIX socket.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Listen::Unix(path) => Some(path),
            _ => None,
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        match (text.strip_prefix("unix:"), text.strip_prefix("tls:")) {
            (Some(""), _) => Err("unix: needs a path; write for example unix:/run/stratakv/socket".into()),
            (Some(path), _) => Ok(Listen::Unix(path.into())),
            (_, Some(address_of)) => address(address_of).map(Listen::Tls),
            _ => address(text).map(Listen::Tcp),
        }
    }
}

/// Addresses of a server as its clients name them: plain ones, those of TLS, which come last, and
/// sockets.
pub(crate) fn as_named(addresses: &[SocketAddr], listens: &[Listen]) -> Vec<String> {
    let tls = listens.iter().filter(|listen| matches!(listen, Listen::Tls(_))).count();
    let (plain, tls) = addresses.split_at(addresses.len().saturating_sub(tls));
    let plain = plain.iter().map(ToString::to_string);
    let tls = tls.iter().map(|address| format!("tls:{address}"));
    let unix = listens.iter().filter_map(Listen::path).map(|path| format!("unix:{}", path.display()));
    plain.chain(tls).chain(unix).collect()
}

/// `ADDRESS:PORT`, the address by name or number.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found =
        text.to_socket_addrs().map_err(|error| format!("{error}; write ADDRESS:PORT, for example 127.0.0.1:11211"))?;
    found.next().ok_or_else(|| format!("`{text}` has no address"))
}

/// The mode of a file, in octal as chmod takes it.
pub(crate) fn mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| format!("`{text}` is no mode: write for example 0770"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_every_sort_are_understood_and_others_told() {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!("127.0.0.1:1".parse(), Ok(Listen::Tcp(local(1))));
        assert_eq!("tls:127.0.0.1:2".parse(), Ok(Listen::Tls(local(2))));
        assert_eq!("unix:/a b:c".parse(), Ok(Listen::Unix("/a b:c".into())));
        for bad in ["", "unix:", "tls:", "tls:unix:/a", "127.0.0.1", "127.0.0.1:99999"] {
            assert!(bad.parse::<Listen>().unwrap_err().contains("for example"), "{bad}");
        }
        let listens = ["tls:127.0.0.1:0", "unix:/a", "127.0.0.1:0"].map(|text| text.parse().unwrap());
        let named = as_named(&[local(5), local(6)], &listens);
        assert_eq!(named, ["127.0.0.1:5", "tls:127.0.0.1:6", "unix:/a"]);
        assert_eq!(as_named(&[], &listens[1..2]), ["unix:/a"]);
        assert_eq!((mode("0750"), mode("7")), (Ok(0o750), Ok(7)));
        for bad in ["", "8", "1777", "rwx"] {
            assert!(mode(bad).unwrap_err().contains("0770"), "{bad}");
        }
    }
}
