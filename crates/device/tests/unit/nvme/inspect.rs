//! Over trees of files that look like a machine's.

use std::os::unix::fs::symlink;

use super::*;

/// A machine without anything; functions are added to it.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { folder: tempfile::tempdir().unwrap() };
        machine.write("proc/self/mountinfo", "21 1 0:20 / /proc rw - proc proc rw\n");
        machine.write("proc/swaps", "Filename Type Size Used Priority\n");
        machine
    }

    fn inspector(&self) -> Inspector {
        Inspector::at(self.folder.path())
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.folder.path().join(target), path).unwrap();
    }

    /// A function with its class, driver, and group.
    fn function(&self, address: &str, class: &str, driver: Option<&str>, group: Option<u32>) {
        let folder = format!("sys/bus/pci/devices/{address}");
        for (name, text) in [
            ("class", class),
            ("vendor", "0x1b36\n"),
            ("device", "0x0010\n"),
            ("numa_node", "-1\n"),
            ("driver_override", "(null)\n"),
        ] {
            self.write(&format!("{folder}/{name}"), text);
        }
        if let Some(driver) = driver {
            self.write(&format!("sys/bus/pci/drivers/{driver}/module/version"), "");
            self.link(&format!("{folder}/driver"), &format!("sys/bus/pci/drivers/{driver}"));
        }
        if let Some(group) = group {
            self.write(&format!("sys/kernel/iommu_groups/{group}/devices/{address}"), "");
            self.link(&format!("{folder}/iommu_group"), &format!("sys/kernel/iommu_groups/{group}"));
        }
    }

    /// A namespace of 1 GiB of the function, with the folder `name` there.
    fn namespace(&self, address: &str, name: &str, device: &str) {
        self.write(&format!("sys/bus/pci/devices/{address}/nvme/nvme0/{name}/nsid"), "1\n");
        self.write(&format!("sys/class/block/{device}/size"), "2097152\n");
        self.write(&format!("sys/class/block/{device}/dev"), "259:0\n");
    }

    fn partition(&self, device: &str, name: &str, number: &str) {
        self.write(&format!("sys/class/block/{device}/{name}/partition"), "1\n");
        self.write(&format!("sys/class/block/{device}/{name}/dev"), number);
    }
}

const FIRST: &str = "0000:05:00.0";
const NVME: &str = "0x010802\n";

/// A machine with one idle controller of the kernel's.
fn idle() -> Machine {
    let machine = Machine::new();
    machine.function(FIRST, NVME, Some("nvme"), Some(7));
    machine.namespace(FIRST, "nvme0n1", "nvme0n1");
    machine
}

fn obstacles(machine: &Machine) -> String {
    let inspector = machine.inspector();
    let function = inspector.function(FIRST.parse().unwrap()).unwrap();
    let found = bind_commands(&function, &inspector.prerequisites()).err().unwrap_or_default();
    found.iter().map(|obstacle| format!("{obstacle}\n")).collect()
}

#[test]
fn controllers_are_found_with_what_drives_them() {
    let machine = idle();
    machine.function("0000:02:00.0", "0x020000\n", Some("e1000e"), Some(3));
    machine.function("0000:01:00.0", NVME, None, None);
    machine.write("sys/bus/pci/devices/0000:01:00.0/numa_node", "1\n");
    machine.write("sys/bus/pci/devices/0000:01:00.0/driver_override", "vfio-pci\n");
    let functions = machine.inspector().functions();
    let addresses: Vec<String> = functions.iter().map(|function| function.address.to_string()).collect();
    assert_eq!(addresses, ["0000:01:00.0", FIRST]);
    assert_eq!((functions[0].numa_node, functions[0].driver_override.as_deref()), (Some(1), Some("vfio-pci")));
    assert_eq!((functions[0].driver.as_deref(), functions[0].iommu_group), (None, None));
    let second = &functions[1];
    assert_eq!((second.driver.as_deref(), second.iommu_group, second.numa_node), (Some("nvme"), Some(7), None));
    assert_eq!((second.id.as_str(), second.driver_override.as_deref()), ("1b36:0010", None));
    assert_eq!((second.namespaces[0].name.as_str(), second.namespaces[0].len_bytes), ("nvme0n1", 1 << 30));
    assert!(!second.namespaces[0].is_in_use());
    assert!(machine.inspector().function("0000:09:00.0".parse().unwrap()).is_none());
}

#[test]
fn an_idle_controller_is_bound_and_given_back() {
    let machine = idle();
    let inspector = machine.inspector();
    let function = inspector.function(FIRST.parse().unwrap()).unwrap();
    let commands = bind_commands(&function, &inspector.prerequisites()).unwrap();
    assert_eq!(
        commands,
        [
            "modprobe vfio-pci",
            "echo vfio-pci > /sys/bus/pci/devices/0000:05:00.0/driver_override",
            "echo 0000:05:00.0 > /sys/bus/pci/devices/0000:05:00.0/driver/unbind",
            "echo 0000:05:00.0 > /sys/bus/pci/drivers_probe",
        ]
    );
    // Loaded, and the device has no driver.
    let machine = Machine::new();
    machine.function(FIRST, NVME, None, Some(7));
    machine.function("0000:06:00.0", NVME, Some("vfio-pci"), Some(8));
    machine.write("dev/vfio/vfio", "");
    let inspector = machine.inspector();
    let there = inspector.prerequisites();
    let [unbound, bound] = &inspector.functions()[..] else { panic!("two controllers") };
    let commands = bind_commands(unbound, &there).unwrap();
    assert_eq!((commands.len(), commands[0].starts_with("echo vfio-pci")), (2, true), "{commands:?}");
    assert_eq!(bind_commands(bound, &there), Ok(vec![]));
    assert_eq!(
        give_back_commands(bound),
        [
            "echo > /sys/bus/pci/devices/0000:06:00.0/driver_override",
            "echo 0000:06:00.0 > /sys/bus/pci/devices/0000:06:00.0/driver/unbind",
            "echo 0000:06:00.0 > /sys/bus/pci/drivers_probe",
        ]
    );
}

#[test]
fn a_device_in_use_is_not_to_be_bound() {
    let machine = idle();
    assert_eq!(obstacles(&machine), "");
    machine.write("proc/self/mountinfo", "30 1 259:0 / /srv/a\\040b rw shared:1 - ext4 /dev/nvme0n1 rw\n");
    assert!(obstacles(&machine).contains("/dev/nvme0n1 is mounted at /srv/a\\040b"));
    // The mount's number is its own, the source is ours.
    machine.write("proc/self/mountinfo", "30 1 0:44 / /srv rw shared:1 - btrfs /dev/nvme0n1 rw\n");
    assert!(obstacles(&machine).contains("mounted at /srv"));

    let machine = idle();
    machine.partition("nvme0n1", "nvme0n1p1", "259:1\n");
    assert!(obstacles(&machine).contains("has partitions (nvme0n1p1)"));
    machine.write("proc/self/mountinfo", "30 1 259:1 / /boot rw - ext4 /dev/disk/by-id/x rw\n");
    let said = obstacles(&machine);
    assert!(said.contains("mounted at /boot") && said.contains("has partitions"), "{said}");

    let machine = idle();
    machine.write("sys/class/block/nvme0n1/holders/dm-3", "");
    assert!(obstacles(&machine).contains("/dev/nvme0n1 is part of dm-3"));

    let machine = idle();
    fs::remove_file(machine.folder.path().join("proc/self/mountinfo")).unwrap();
    assert!(obstacles(&machine).contains("mounted cannot be told"));

    let machine = idle();
    machine.write("proc/swaps", "Filename Type\n/dev/nvme0n1 partition 8388604 0 -2\n");
    assert!(obstacles(&machine).contains("swapoff /dev/nvme0n1"));
}

#[test]
fn a_namespace_with_several_paths_is_found_under_its_name() {
    let machine = Machine::new();
    machine.function(FIRST, NVME, Some("nvme"), Some(7));
    machine.namespace(FIRST, "nvme0c1n1", "nvme0n1");
    machine.write("sys/bus/pci/devices/0000:05:00.0/nvme/nvme0/ng0n1/dev", "");
    machine.write("sys/bus/pci/devices/0000:05:00.0/nvme/nvme0/hwmon1/name", "");
    machine.write("proc/self/mountinfo", "30 1 259:0 / /srv rw - xfs /dev/nvme0n1 rw\n");
    assert!(obstacles(&machine).contains("/dev/nvme0n1 is mounted at /srv"));
}

#[test]
fn the_iommu_and_its_groups_are_looked_at() {
    let machine = Machine::new();
    machine.function(FIRST, NVME, Some("nvme"), None);
    assert!(obstacles(&machine).contains("there is no IOMMU"));

    let machine = idle();
    for (address, driver) in
        [("0000:00:1c.0", Some("pcieport")), ("0000:06:00.0", None), ("0000:07:00.0", Some("vfio-pci"))]
    {
        machine.function(address, "0x060400\n", driver, Some(7));
    }
    assert_eq!(obstacles(&machine), "");
    machine.function("0000:08:00.0", "0x020000\n", Some("e1000e"), Some(7));
    assert!(obstacles(&machine).contains("0000:08:00.0, which driver e1000e has"));
}

#[test]
fn prerequisites_are_told() {
    let machine = Machine::new();
    assert_eq!(machine.inspector().prerequisites(), Prerequisites::default());
    machine.write("sys/class/iommu/dmar0/x", "");
    machine.write("dev/vfio/vfio", "");
    machine.write("sys/bus/pci/drivers/vfio-pci/bind", "");
    for (size, total, free) in [("1048576", "2\n", "1\n"), ("2048", "64\n", "60\n"), ("garbage", "1\n", "1\n")] {
        machine.write(&format!("sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages"), total);
        machine.write(&format!("sys/kernel/mm/hugepages/hugepages-{size}kB/free_hugepages"), free);
    }
    let there = machine.inspector().prerequisites();
    assert_eq!(
        (there.iommus.as_slice(), there.has_vfio_pci, there.has_container),
        (&["dmar0".to_owned()][..], true, true)
    );
    let [small, large] = there.huge_pages[..] else { panic!("{there:?}") };
    assert_eq!(small, HugePages { page_bytes: 2 << 20, total: 64, free: 60 });
    assert_eq!(large, HugePages { page_bytes: 1 << 30, total: 2, free: 1 });
}

#[test]
fn files_with_nonsense_are_no_controllers() {
    let machine = Machine::new();
    for (address, class) in [("0000:01:00.0", ""), ("0000:02:00.0", "010802"), ("0000:03:00.0", "0xzz"), ("x", NVME)] {
        machine.function(address, class, None, None);
    }
    machine.function(FIRST, NVME, None, None);
    machine.write(&format!("sys/bus/pci/devices/{FIRST}/nvme/nvme0/nvme0n1/nsid"), "");
    machine.write("sys/class/block/nvme0n1/size", "-3");
    machine.write("proc/self/mountinfo", "\n1 2\n - \nx - y");
    let functions = machine.inspector().functions();
    assert_eq!((functions.len(), functions[0].namespaces.len()), (1, 0));
}
