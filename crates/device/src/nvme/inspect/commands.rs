//! The commands that bind a controller to vfio-pci and give it back, and when not to.

use super::{NvmeFunction, Prerequisites, VFIO_DRIVER};

/// Why a controller should not be bound, or cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindObstacle {
    /// Taking the device away would lose data.
    #[error("{device} is mounted at {point}: unmount it first (`umount {point}`), if nothing needs it")]
    Mounted {
        /// `/dev/nvme0n1`.
        device: String,
        /// Where.
        point: String,
    },
    /// The mounts cannot be known.
    #[error("whether {device} is mounted cannot be told, as /proc/self/mountinfo cannot be read: mount /proc")]
    MountsUnknown {
        /// `/dev/nvme0n1`.
        device: String,
    },
    /// A volume of something else.
    #[error("{device} is part of {holder}: take that apart first, if nothing needs it")]
    Held {
        /// `/dev/nvme0n1`.
        device: String,
        /// `dm-0`.
        holder: String,
    },
    /// Swap space.
    #[error("{device} is swap space: run `swapoff {device}` first")]
    Swap {
        /// `/dev/nvme0n1`.
        device: String,
    },
    /// Somebody's data.
    #[error("{device} has partitions ({partitions}): whose are they? If nobody needs them: `wipefs --all {device}`")]
    Partitioned {
        /// `/dev/nvme0n1`.
        device: String,
        /// Their names.
        partitions: String,
    },
    /// Somebody's data.
    #[error(
        "{device} holds {what}: whose is it? If nobody needs it: `wipefs --all {device}`, `blkdiscard -z {device}`"
    )]
    Foreign {
        /// `/dev/nvme0n1`.
        device: String,
        /// What was found.
        what: String,
    },
    /// Memory could not be protected from the device.
    #[error("there is no IOMMU for it: enable VT-d or AMD-Vi in the firmware and boot with intel_iommu=on (Intel)")]
    NoIommu,
    /// A neighbour that other drivers have.
    #[error("{neighbour}, which driver {driver} has, is in the same IOMMU group: unbind it too, or use another slot")]
    Neighbour {
        /// Its address.
        neighbour: String,
        /// Its driver.
        driver: String,
    },
}

/// The commands that bind `function` to vfio-pci, for a shell of root; none if it is bound.
///
/// # Errors
/// All that speaks against it.
pub fn bind_commands(function: &NvmeFunction, there: &Prerequisites) -> Result<Vec<String>, Vec<BindObstacle>> {
    let obstacles = obstacles(function);
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    if function.driver.as_deref() == Some(VFIO_DRIVER) {
        return Ok(Vec::new());
    }
    let address = function.address;
    let folder = format!("/sys/bus/pci/devices/{address}");
    let mut commands = Vec::new();
    if !there.has_vfio_pci || !there.has_container {
        commands.push("modprobe vfio-pci".to_owned());
    }
    commands.push(format!("echo {VFIO_DRIVER} > {folder}/driver_override"));
    if function.driver.is_some() {
        commands.push(format!("echo {address} > {folder}/driver/unbind"));
    }
    commands.push(format!("echo {address} > /sys/bus/pci/drivers_probe"));
    Ok(commands)
}

/// The commands that give `function` back to the kernel's driver.
pub fn give_back_commands(function: &NvmeFunction) -> Vec<String> {
    let address = function.address;
    let folder = format!("/sys/bus/pci/devices/{address}");
    vec![
        format!("echo > {folder}/driver_override"),
        format!("echo {address} > {folder}/driver/unbind"),
        format!("echo {address} > /sys/bus/pci/drivers_probe"),
    ]
}

/// What speaks against binding it; uses of its namespaces first.
fn obstacles(function: &NvmeFunction) -> Vec<BindObstacle> {
    let mut obstacles = Vec::new();
    for namespace in &function.namespaces {
        let device = || format!("/dev/{}", namespace.name);
        let mounted =
            namespace.mounted_at.iter().map(|point| BindObstacle::Mounted { device: device(), point: point.clone() });
        obstacles.extend(mounted);
        let held =
            namespace.holders.iter().map(|holder| BindObstacle::Held { device: device(), holder: holder.clone() });
        obstacles.extend(held);
        if !namespace.is_mount_known {
            obstacles.push(BindObstacle::MountsUnknown { device: device() });
        }
        if namespace.is_swap {
            obstacles.push(BindObstacle::Swap { device: device() });
        }
        if !namespace.partitions.is_empty() {
            obstacles.push(BindObstacle::Partitioned { device: device(), partitions: namespace.partitions.join(", ") });
        }
    }
    if function.iommu_group.is_none() {
        obstacles.push(BindObstacle::NoIommu);
    }
    let rivals = function.neighbours.iter().filter(|neighbour| !neighbour.is_harmless());
    obstacles.extend(rivals.map(|neighbour| BindObstacle::Neighbour {
        neighbour: neighbour.address.to_string(),
        driver: neighbour.driver.clone().unwrap_or_default(),
    }));
    obstacles
}
