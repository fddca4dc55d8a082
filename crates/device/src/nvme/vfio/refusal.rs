//! [`VfioRefusal`]: why a controller cannot be driven from user space.

use std::io;

use super::super::pci::{BadPciAddress, PciAddress};

/// Why a PCI function cannot be opened; each says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum VfioRefusal {
    /// No address.
    #[error(transparent)]
    Address(#[from] BadPciAddress),
    /// Nothing there.
    #[error("there is no PCI function {0}: `stratakv doctor --nvme` lists NVMe controllers")]
    Missing(PciAddress),
    /// Another kind of device.
    #[error("{0} is no NVMe controller (its class is {1:06x}, not 010802): `stratakv doctor --nvme` lists them")]
    NoNvme(PciAddress, u32),
    /// Memory could not be protected from the device.
    #[error(
        "{0} has no IOMMU group, so the kernel would let a program drive it only by trusting it with all memory: \
         enable VT-d or AMD-Vi in the firmware, boot with intel_iommu=on (Intel), then run \
         `stratakv doctor --nvme {0}`"
    )]
    NoIommu(PciAddress),
    /// The kernel or somebody else drives it.
    #[error("{address} is bound to {}, not to vfio-pci: `stratakv doctor --nvme {address}` prints the commands that bind it", driver_name(.driver.as_deref()))]
    Driver {
        /// The function.
        address: PciAddress,
        /// Its driver now.
        driver: Option<String>,
    },
    /// The IOMMU cannot tell them apart.
    #[error(
        "{address} is in IOMMU group {group} together with {others}, which other drivers have: bind them to vfio-pci \
         too, or to none, or put the card into a slot of its own; `stratakv doctor --nvme {address}` lists them"
    )]
    SharedGroup {
        /// The function.
        address: PciAddress,
        /// Its group.
        group: u32,
        /// The other functions and their drivers.
        others: String,
    },
    /// No `/dev/vfio/vfio`.
    #[error("this kernel offers no VFIO (there is no {0}): run `modprobe vfio-pci`, or use a kernel that has it")]
    NoVfio(String),
    /// The file may not be opened.
    #[error("this user may not open {path}: run as root, or once `chown {user} {path}`")]
    Permission {
        /// A file below `/dev/vfio`.
        path: String,
        /// Who we are.
        user: u32,
    },
    /// One process at a time.
    #[error("{address} is in use: another process has IOMMU group {group} open; `fuser -v /dev/vfio/{group}` names it")]
    Busy {
        /// The function.
        address: PciAddress,
        /// Its group.
        group: u32,
    },
    /// Something of the kernel's that is needed is not there.
    #[error("{address}: {what}: update the kernel, or leave the device to its driver and name /dev/nvme0n1")]
    Unsupported {
        /// The function.
        address: PciAddress,
        /// What is missing.
        what: &'static str,
    },
    /// The system refused.
    #[error("{address}: cannot {what}: {error}; `dmesg` may say why, `stratakv doctor --nvme {address}` what it sees")]
    Io {
        /// The function.
        address: PciAddress,
        /// What was tried.
        what: &'static str,
        /// The answer.
        error: io::Error,
    },
}

fn driver_name(driver: Option<&str>) -> String {
    driver.map_or_else(|| "no driver".to_owned(), |name| format!("driver {name}"))
}
