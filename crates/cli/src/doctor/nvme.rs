//! `stratakv doctor --nvme`: NVMe controllers, what has them, and the commands that hand one to a
//! user-space driver and give it back. Reads only.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use stratakv_base::quantity::format_bytes;
use stratakv_device::nvme::PciAddress;
use stratakv_device::nvme::inspect::{
    BindObstacle, Inspector, NVME_CLASS, NamespaceUse, NvmeFunction, Prerequisites, VFIO_DRIVER, bind_commands,
    give_back_commands,
};
use stratakv_device::{RawDevice, RawRefusal};

use crate::Output;
use crate::failure::{Exit, Failure};

/// What the label of a store's device begins with (docs/format-device.md).
pub(super) const LABEL_MAGIC: &[u8] = b"STRDEVL\0";

/// What there is of controllers.
pub(super) struct NvmeReport {
    there: Prerequisites,
    controllers: Vec<ControllerReport>,
}

/// A controller, and what binding it takes.
struct ControllerReport {
    function: NvmeFunction,
    bind: Result<Vec<String>, Vec<BindObstacle>>,
}

impl NvmeReport {
    /// Of one controller, or (an empty address) of all.
    pub(super) fn look(inspector: &Inspector, address: &str) -> Result<NvmeReport, Failure> {
        let there = inspector.prerequisites();
        let functions = if address.is_empty() {
            inspector.functions()
        } else {
            let address: PciAddress = address.parse().map_err(|error| Failure::usage(format!("--nvme: {error}")))?;
            let missing = || {
                let text =
                    format!("there is no PCI function {address}: `stratakv doctor --nvme` lists NVMe controllers");
                Failure::new(Exit::NotFound, text)
            };
            vec![inspector.function(address).ok_or_else(missing)?]
        };
        if let Some(other) = functions.iter().find(|function| function.class != NVME_CLASS) {
            let (address, class) = (other.address, other.class);
            return Err(Failure::usage(format!(
                "{address} is no NVMe controller (its class is {class:06x}, not 010802): `stratakv doctor --nvme` lists them"
            )));
        }
        let report = |function: NvmeFunction| {
            let bind = with_contents(bind_commands(&function, &there), &function.namespaces);
            ControllerReport { function, bind }
        };
        Ok(NvmeReport { controllers: functions.into_iter().map(report).collect(), there })
    }

    pub(super) fn write(&self, is_json: bool, output: &mut Output) -> io::Result<()> {
        if is_json {
            return writeln!(output, "{}", self.json());
        }
        write!(output, "{}", self.text())
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.system_rows() {
            text += &format!("{name:<24} {value}\n");
        }
        if self.controllers.is_empty() {
            text += "\nThere is no NVMe controller.\n";
        }
        for controller in &self.controllers {
            text += "\n";
            for (name, value) in controller.rows() {
                text += &format!("{name:<24} {value}\n");
            }
            text += &controller.advice();
        }
        text
    }

    fn system_rows(&self) -> Vec<(&'static str, String)> {
        let there = &self.there;
        let iommu = match there.iommus.as_slice() {
            [] => "none: enable VT-d or AMD-Vi in the firmware, boot with intel_iommu=on (Intel)".to_owned(),
            names => names.join(", "),
        };
        let vfio = match (there.has_vfio_pci, there.has_container) {
            (true, true) => "loaded".to_owned(),
            _ => "not loaded: modprobe vfio-pci".to_owned(),
        };
        let pages = there.huge_pages.iter().map(|pages| {
            let size = format_bytes(pages.page_bytes);
            format!("{} of {size} ({} free)", pages.total, pages.free)
        });
        let pages: Vec<String> = pages.collect();
        let pages = if pages.is_empty() { "the kernel has none".to_owned() } else { pages.join(", ") };
        vec![("IOMMU", iommu), ("vfio-pci", vfio), ("huge pages", pages)]
    }

    fn json(&self) -> Value {
        let pages = self
            .there
            .huge_pages
            .iter()
            .map(|pages| json!({ "page_bytes": pages.page_bytes, "total": pages.total, "free": pages.free }));
        json!({
            "iommus": self.there.iommus,
            "vfio_pci": self.there.has_vfio_pci && self.there.has_container,
            "huge_pages": pages.collect::<Vec<_>>(),
            "controllers": self.controllers.iter().map(ControllerReport::json).collect::<Vec<_>>(),
        })
    }
}

impl ControllerReport {
    fn is_bound(&self) -> bool {
        self.function.driver.as_deref() == Some(VFIO_DRIVER)
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let function = &self.function;
        let none = || "none".to_owned();
        let group = function.iommu_group.map_or_else(none, |group| {
            let neighbours: Vec<String> = function.neighbours.iter().map(|other| other.address.to_string()).collect();
            if neighbours.is_empty() { format!("{group}") } else { format!("{group}, with {}", neighbours.join(", ")) }
        });
        let mut rows = vec![
            ("NVMe controller", format!("{} ({})", function.address, function.id)),
            ("driver", function.driver.clone().unwrap_or_else(none)),
            ("IOMMU group", group),
            ("NUMA node", function.numa_node.map_or_else(|| "unknown".to_owned(), |node| node.to_string())),
        ];
        rows.extend(function.namespaces.iter().map(|namespace| ("block device", usage(namespace))));
        rows
    }

    fn advice(&self) -> String {
        let address = self.function.address;
        let indent =
            |commands: &[String]| commands.iter().map(|command| format!("    {command}\n")).collect::<String>();
        match &self.bind {
            Err(obstacles) => {
                let lines = obstacles.iter().map(|obstacle| format!("- {obstacle}\n")).collect::<String>();
                format!("\nDo not take it from the kernel:\n{lines}")
            }
            Ok(_) if self.is_bound() => format!(
                "\nIt is ready: `stratakv serve --nvme {address}`. To give it back to the kernel (as root):\n{}",
                indent(&give_back_commands(&self.function))
            ),
            Ok(commands) => format!(
                "\nTo take it from the kernel (as root), for `stratakv serve --nvme {address}`:\n{}To give it back:\n{}",
                indent(commands),
                indent(&give_back_commands(&self.function))
            ),
        }
    }

    fn json(&self) -> Value {
        let function = &self.function;
        let neighbours = function.neighbours.iter().map(|other| {
            json!({ "address": other.address.to_string(), "driver": other.driver, "harmless": other.is_harmless() })
        });
        let namespaces = function.namespaces.iter().map(|namespace| {
            json!({
                "name": namespace.name, "len_bytes": namespace.len_bytes, "partitions": namespace.partitions,
                "holders": namespace.holders, "mounted_at": namespace.mounted_at, "swap": namespace.is_swap,
            })
        });
        let obstacles = self.bind.as_ref().err().into_iter().flatten().map(ToString::to_string);
        json!({
            "address": function.address.to_string(), "id": function.id, "driver": function.driver,
            "iommu_group": function.iommu_group, "numa_node": function.numa_node,
            "neighbours": neighbours.collect::<Vec<_>>(), "namespaces": namespaces.collect::<Vec<_>>(),
            "bound": self.is_bound(), "obstacles": obstacles.collect::<Vec<_>>(),
            "bind": self.bind.as_ref().ok(), "give_back": self.bind.is_ok().then(|| give_back_commands(function)),
        })
    }
}

fn usage(namespace: &NamespaceUse) -> String {
    let mut words = vec![format!("/dev/{}, {}", namespace.name, format_bytes(namespace.len_bytes))];
    if !namespace.partitions.is_empty() {
        words.push(format!("partitions {}", namespace.partitions.join(" ")));
    }
    if !namespace.holders.is_empty() {
        words.push(format!("used by {}", namespace.holders.join(" ")));
    }
    if !namespace.mounted_at.is_empty() {
        words.push(format!("mounted at {}", namespace.mounted_at.join(" ")));
    }
    if namespace.is_swap {
        words.push("swap space".to_owned());
    }
    words.join(", ")
}

/// Data of somebody else's on a device that nobody has speaks against binding it, too.
fn with_contents(
    bind: Result<Vec<String>, Vec<BindObstacle>>,
    namespaces: &[NamespaceUse],
) -> Result<Vec<String>, Vec<BindObstacle>> {
    let found = namespaces.iter().filter(|namespace| namespace.partitions.is_empty() && !namespace.is_in_use());
    let foreign: Vec<BindObstacle> = found.filter_map(foreign).collect();
    match bind {
        Ok(commands) if foreign.is_empty() => Ok(commands),
        Ok(_) => Err(foreign),
        Err(obstacles) => Err(obstacles.into_iter().chain(foreign).collect()),
    }
}

fn foreign(namespace: &NamespaceUse) -> Option<BindObstacle> {
    let device = format!("/dev/{}", namespace.name);
    let contents = match RawDevice::open(Path::new(&device), true) {
        // A store's own device, given back: it may be taken again.
        Ok(raw) if raw.read_page(0).is_ok_and(|page| page.starts_with(LABEL_MAGIC)) => Ok(None),
        Ok(raw) => raw.contents().map_err(|fault| fault.to_string()),
        // Claimed by what sysfs does not show, such as a store.
        Err(RawRefusal::Busy) => Ok(Some("what another program has open".to_owned())),
        // Of another machine's tree, in a test.
        Err(RawRefusal::Missing) => Ok(None),
        Err(error) => Err(error.to_string()),
    };
    match contents {
        Ok(contents) => contents.map(|what| BindObstacle::Foreign { device, what }),
        Err(why) => Some(BindObstacle::Foreign { device, what: format!("what cannot be read ({why})") }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const ADDRESS: &str = "0000:05:00.0";

    /// A machine made of files, with a controller that `driver` has.
    fn machine(driver: &str, mountinfo: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let folder = format!("sys/bus/pci/devices/{ADDRESS}");
        for (name, text) in
            [("class", "0x010802\n"), ("vendor", "0x1b36\n"), ("device", "0x0010\n"), ("numa_node", "0\n")]
        {
            write(&format!("{folder}/{name}"), text);
        }
        write("sys/bus/pci/devices/0000:02:00.0/class", "0x020000\n");
        write(&format!("sys/bus/pci/drivers/{driver}/bind"), "");
        write("sys/kernel/iommu_groups/7/type", "DMA\n");
        write("sys/class/iommu/dmar0/x", "");
        write("proc/self/mountinfo", mountinfo);
        if driver == "nvme" {
            write(&format!("{folder}/nvme/nvme77/nvme77n1/nsid"), "1\n");
            write("sys/class/block/nvme77n1/size", "2097152\n");
            write("sys/class/block/nvme77n1/dev", "259:0\n");
        }
        symlink(root.path().join("sys/bus/pci/drivers").join(driver), root.path().join(&folder).join("driver"))
            .unwrap();
        symlink(root.path().join("sys/kernel/iommu_groups/7"), root.path().join(folder).join("iommu_group")).unwrap();
        root
    }

    fn report(root: &tempfile::TempDir) -> NvmeReport {
        NvmeReport::look(&Inspector::at(root.path()), ADDRESS).expect("a report")
    }

    #[test]
    fn an_idle_controller_comes_with_its_commands() {
        let root = machine("nvme", "21 1 0:20 / /proc rw - proc proc rw\n");
        let text = report(&root).text();
        for part in [
            "vfio-pci                 not loaded: modprobe vfio-pci\n",
            "NVMe controller          0000:05:00.0 (1b36:0010)\n",
            "block device             /dev/nvme77n1, 1.00 GiB\n",
            "    modprobe vfio-pci\n",
            "    echo 0000:05:00.0 > /sys/bus/pci/drivers_probe\n",
            "stratakv serve --nvme 0000:05:00.0",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = report(&root).json();
        let controller = &json["controllers"][0];
        assert_eq!((controller["bind"].as_array().unwrap().len(), controller["bound"].as_bool()), (4, Some(false)));
        assert_eq!(controller["obstacles"].as_array().unwrap().len(), 0);
    }

    #[test]
    fn a_mounted_one_has_no_commands() {
        let root = machine("nvme", "30 1 259:0 / /srv rw - ext4 /dev/nvme77n1 rw\n");
        let text = report(&root).text();
        assert!(text.contains("Do not take it") && text.contains("mounted at /srv"), "{text}");
        assert!(!text.contains("driver_override"), "{text}");
        let controller = &report(&root).json()["controllers"][0];
        assert!(controller["bind"].is_null() && controller["give_back"].is_null(), "{controller}");
    }

    #[test]
    fn a_bound_one_is_ready_and_can_be_given_back() {
        let root = machine("vfio-pci", "");
        let text = report(&root).text();
        assert!(text.contains("It is ready: `stratakv serve --nvme 0000:05:00.0`"), "{text}");
        assert!(text.contains("echo > /sys/bus/pci/devices/0000:05:00.0/driver_override"), "{text}");
    }

    #[test]
    fn what_is_no_controller_is_refused() {
        let root = machine("nvme", "");
        let look = |address| NvmeReport::look(&Inspector::at(root.path()), address);
        for address in ["eth0", "0000:02:00.0", "0000:09:00.0"] {
            assert!(look(address).is_err(), "{address}");
        }
        assert_eq!(look("").expect("all").controllers.len(), 1);
        let empty = tempfile::tempdir().unwrap();
        let none = NvmeReport::look(&Inspector::at(empty.path()), "").expect("a report of nothing");
        assert!(none.text().contains("There is no NVMe controller."));
    }
}
