//! [`NvmeName`]: how a store names a namespace that this process is to drive.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::nvme::pci::{BadPciAddress, PciAddress};
use crate::nvme::vfio::{Vfio, VfioRefusal};
use crate::nvme::{Controller, Namespace, NvmeError, NvmeOptions};

const PREFIX: &str = "nvme:";

/// A controller's PCI address and a namespace of it, as `nvme:0000:05:00.0` (the first one) or
/// `nvme:0000:05:00.0/2`. It stands where a device's path would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmeName {
    address: PciAddress,
    nsid: u32,
}

/// Why a namespace cannot be driven.
#[derive(Debug, thiserror::Error)]
pub enum DriveRefusal {
    /// Its function cannot be had.
    #[error(transparent)]
    Vfio(#[from] VfioRefusal),
    /// Its controller or format.
    #[error("{0}: {1}")]
    Nvme(PciAddress, NvmeError),
}

impl NvmeName {
    /// From what a user typed: an address with or without a namespace, `nvme:` before it or not.
    ///
    /// # Errors
    /// It is no PCI address, or no number follows.
    pub fn parse(text: &str) -> Result<NvmeName, BadPciAddress> {
        let bare = text.strip_prefix(PREFIX).unwrap_or(text);
        let bad = || BadPciAddress(text.to_owned());
        let (address, nsid) = match bare.split_once('/') {
            None => (bare, 1),
            Some((address, nsid)) => (address, nsid.parse().ok().filter(|nsid| *nsid > 0).ok_or_else(bad)?),
        };
        Ok(NvmeName { address: address.parse().map_err(|_| bad())?, nsid })
    }

    /// From a device's path; `None` if that names no such device.
    pub fn of(path: &Path) -> Option<Result<NvmeName, BadPciAddress>> {
        let text = path.to_str().filter(|text| text.starts_with(PREFIX))?;
        Some(NvmeName::parse(text))
    }

    /// Takes the controller, which is bound to vfio-pci, and opens the namespace. One process has a
    /// controller at a time.
    ///
    /// # Errors
    /// See [`DriveRefusal`].
    pub fn open(&self) -> Result<Arc<Namespace>, DriveRefusal> {
        let bus = Vfio::open(&self.address.to_string())?;
        let refused = |error| DriveRefusal::Nvme(self.address, error);
        let controller = Controller::start(Arc::new(bus), NvmeOptions::default()).map_err(refused)?;
        Namespace::open(&controller, self.nsid).map_err(refused)
    }
}

impl fmt::Display for NvmeName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{}", self.address)?;
        if self.nsid == 1 { Ok(()) } else { write!(formatter, "/{}", self.nsid) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for (text, shown) in [
            ("nvme:0000:05:00.0", "nvme:0000:05:00.0"),
            ("05:00.0", "nvme:0000:05:00.0"),
            ("0000:05:00.0/1", "nvme:0000:05:00.0"),
            ("nvme:05:00.0/12", "nvme:0000:05:00.0/12"),
        ] {
            assert_eq!(NvmeName::parse(text).unwrap().to_string(), shown);
        }
        for text in ["", "nvme:", "nvme:/dev/nvme0n1", "05:00.0/", "05:00.0/0", "05:00.0/x", "05:00.0/99999999999"] {
            let error = NvmeName::parse(text).unwrap_err();
            assert!(error.to_string().contains("0000:05:00.0"), "{error}");
        }
        assert!(NvmeName::of(Path::new("/dev/nvme0n1")).is_none());
        assert!(NvmeName::of(Path::new("nvme:05:00.0")).is_some_and(|name| name.is_ok()));
    }
}
