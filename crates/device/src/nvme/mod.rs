//! NVMe from user space.

mod bus;
pub mod inspect;
mod pci;
mod vfio;

pub use bus::Bus;
pub use pci::{BadPciAddress, PciAddress};
pub use vfio::{Vfio, VfioRefusal};
