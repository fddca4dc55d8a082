//! What the system says of NVMe controllers, from `/sys`, `/proc` and `/dev`: their drivers, IOMMU
//! groups and uses, and the commands that bind one to vfio-pci and give it back. Reads only.

use std::fs;
use std::path::{Path, PathBuf};

use super::pci::PciAddress;

mod commands;
mod usage;

pub use commands::{BindObstacle, bind_commands, give_back_commands};
pub use usage::NamespaceUse;

/// Class code of NVM Express controllers: mass storage, non-volatile memory, NVMe.
pub const NVME_CLASS: u32 = 0x01_08_02;
/// The driver that hands a function to user space.
pub const VFIO_DRIVER: &str = "vfio-pci";
/// Drivers that a neighbour in an IOMMU group may have: they do no DMA of their own.
const HARMLESS_DRIVERS: &[&str] = &[VFIO_DRIVER, "pcieport", "pci-stub"];

/// A system to look at: this one, or one made of files.
#[derive(Clone, Debug)]
pub struct Inspector {
    root: PathBuf,
}

/// A controller's function, as sysfs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeFunction {
    /// Where it is.
    pub address: PciAddress,
    /// Class code, 24 bits; [`NVME_CLASS`].
    pub class: u32,
    /// Vendor and device, as `lspci -n` writes it: `1b36:0010`.
    pub id: String,
    /// What the kernel drives it by.
    pub driver: Option<String>,
    /// The driver it is reserved for (`driver_override`).
    pub driver_override: Option<String>,
    /// Devices that the IOMMU cannot tell apart have one number.
    pub iommu_group: Option<u32>,
    /// The others of its group.
    pub neighbours: Vec<Neighbour>,
    /// Memory and processors near it.
    pub numa_node: Option<u32>,
    /// Block devices of the kernel's driver on it.
    pub namespaces: Vec<NamespaceUse>,
}

/// Another function in an IOMMU group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Where it is.
    pub address: PciAddress,
    /// Class code, 24 bits.
    pub class: u32,
    /// Its driver.
    pub driver: Option<String>,
}

impl Neighbour {
    /// Whether the group can be used in spite of it.
    pub fn is_harmless(&self) -> bool {
        let driver = self.driver.as_deref();
        driver.is_none_or(|name| HARMLESS_DRIVERS.contains(&name) || name.starts_with("vfio"))
    }
}

/// What user-space drivers need of the system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prerequisites {
    /// IOMMUs that the kernel uses: `dmar0`, `ivhd0`.
    pub iommus: Vec<String>,
    /// Driver vfio-pci is loaded.
    pub has_vfio_pci: bool,
    /// `/dev/vfio/vfio` is there.
    pub has_container: bool,
    /// By page size.
    pub huge_pages: Vec<HugePages>,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Of a page, in bytes.
    pub page_bytes: u64,
    /// How many are set aside.
    pub total: u64,
    /// How many of these are not in use.
    pub free: u64,
}

impl Inspector {
    /// This machine.
    pub fn here() -> Inspector {
        Inspector { root: "/".into() }
    }

    /// A machine whose `sys`, `proc` and `dev` are folders of `root`.
    pub fn at(root: &Path) -> Inspector {
        Inspector { root: root.to_owned() }
    }

    /// The NVMe controllers, by address.
    pub fn functions(&self) -> Vec<NvmeFunction> {
        let names = names_in(&self.root.join("sys/bus/pci/devices"));
        let addresses = names.iter().filter_map(|name| name.parse().ok());
        let functions = addresses.filter_map(|address| self.function(address));
        let mut functions: Vec<_> = functions.filter(|function| function.class == NVME_CLASS).collect();
        functions.sort_by_key(|function| function.address);
        functions
    }

    /// The function at `address`, whatever it is; `None`: there is none.
    pub fn function(&self, address: PciAddress) -> Option<NvmeFunction> {
        let folder = self.folder(address);
        let class = class_of(&folder)?;
        let [vendor, device] = ["vendor", "device"].map(|name| {
            let word = read_word(&folder.join(name)).unwrap_or_default();
            word.trim_start_matches("0x").to_owned()
        });
        let group = link_name(&folder.join("iommu_group")).and_then(|name| name.parse().ok());
        let reserved = read_word(&folder.join("driver_override")).filter(|name| name != "(null)" && !name.is_empty());
        let node = read_word(&folder.join("numa_node")).and_then(|word| word.parse::<i64>().ok());
        Some(NvmeFunction {
            address,
            class,
            id: format!("{vendor}:{device}"),
            driver: link_name(&folder.join("driver")),
            driver_override: reserved,
            iommu_group: group,
            neighbours: self.neighbours(address),
            numa_node: node.and_then(|node| u32::try_from(node).ok()),
            namespaces: usage::namespaces(&self.root, &folder),
        })
    }

    /// What there is for user-space drivers.
    pub fn prerequisites(&self) -> Prerequisites {
        let sys = self.root.join("sys");
        let pages = sys.join("kernel/mm/hugepages");
        let sizes = names_in(&pages).into_iter().filter_map(|name| {
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count = |file| read_word(&pages.join(&name).join(file))?.parse().ok();
            let page_bytes = kib.checked_mul(1024)?;
            Some(HugePages { page_bytes, total: count("nr_hugepages")?, free: count("free_hugepages")? })
        });
        let mut huge_pages: Vec<HugePages> = sizes.collect();
        huge_pages.sort_by_key(|pages| pages.page_bytes);
        Prerequisites {
            iommus: names_in(&sys.join("class/iommu")),
            has_vfio_pci: sys.join("bus/pci/drivers").join(VFIO_DRIVER).is_dir(),
            has_container: self.root.join("dev/vfio/vfio").exists(),
            huge_pages,
        }
    }

    fn neighbours(&self, address: PciAddress) -> Vec<Neighbour> {
        let names = names_in(&self.folder(address).join("iommu_group/devices"));
        let others = names.iter().filter_map(|name| name.parse().ok()).filter(|other| *other != address);
        let neighbours = others.map(|other| {
            let folder = self.folder(other);
            let (class, driver) = (class_of(&folder).unwrap_or_default(), link_name(&folder.join("driver")));
            Neighbour { address: other, class, driver }
        });
        neighbours.collect()
    }

    fn folder(&self, address: PciAddress) -> PathBuf {
        self.root.join("sys/bus/pci/devices").join(address.to_string())
    }
}

fn class_of(folder: &Path) -> Option<u32> {
    let word = read_word(&folder.join("class"))?;
    u32::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// The names in a folder, in order; none if it cannot be read.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn read_word(path: &Path) -> Option<String> {
    // A file that is not there says nothing; nothing is written here.
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The last name of the path that a link leads to.
fn link_name(path: &Path) -> Option<String> {
    // No link: no driver, no group.
    fs::read_link(path).ok()?.file_name()?.to_str().map(str::to_owned)
}

#[cfg(test)]
#[path = "../../tests/unit/nvme/inspect.rs"]
mod tests;
