//! What can be seen without a device: `cargo xtask lab --bypass` has one.

use super::super::inspect::Neighbour;
use super::*;

const ADDRESS: &str = "0000:05:00.0";

fn function(driver: Option<&str>, group: Option<u32>) -> NvmeFunction {
    NvmeFunction {
        address: ADDRESS.parse().unwrap(),
        class: NVME_CLASS,
        id: "1b36:0010".into(),
        driver: driver.map(str::to_owned),
        driver_override: None,
        iommu_group: group,
        neighbours: vec![],
        numa_node: None,
        namespaces: vec![],
    }
}

fn neighbour(address: &str, driver: Option<&str>) -> Neighbour {
    Neighbour { address: address.parse().unwrap(), class: 0x02_00_00, driver: driver.map(str::to_owned) }
}

#[test]
fn a_function_is_refused_with_its_reason_and_the_next_command() {
    let said = |function: &NvmeFunction| usable_group(function).unwrap_err().to_string();
    assert_eq!(usable_group(&function(Some("vfio-pci"), Some(7))).unwrap(), 7);
    let bound = said(&function(Some("nvme"), Some(7)));
    assert!(bound.contains("driver nvme") && bound.contains("stratakv doctor --nvme 0000:05:00.0"), "{bound}");
    assert!(said(&function(None, Some(7))).contains("no driver"));
    assert!(said(&function(Some("vfio-pci"), None)).contains("intel_iommu=on"));
    let card = NvmeFunction { class: 0x02_00_00, ..function(Some("vfio-pci"), Some(7)) };
    assert!(said(&card).contains("its class is 020000"));
    let mut shared = function(Some("vfio-pci"), Some(7));
    shared.neighbours = vec![neighbour("0000:00:1c.0", Some("pcieport")), neighbour("0000:06:00.0", None)];
    assert!(usable_group(&shared).is_ok());
    shared.neighbours.push(neighbour("0000:07:00.0", Some("e1000e")));
    let shared = said(&shared);
    assert!(shared.contains("IOMMU group 7") && shared.contains("0000:07:00.0 (e1000e)"), "{shared}");
}

#[test]
fn bad_and_missing_addresses_are_refused() {
    assert!(matches!(Vfio::open("eth0"), Err(VfioRefusal::Address(_))));
    assert!(matches!(Vfio::open("ffff:ff:1f.7"), Err(VfioRefusal::Missing(_))));
}

#[test]
fn errors_of_files_are_told_apart() {
    let address: PciAddress = ADDRESS.parse().unwrap();
    let said = |code| refuse_file(address, 7, "/dev/vfio/7", io::Error::from_raw_os_error(code)).to_string();
    assert!(said(libc::EACCES).contains("chown"));
    assert!(said(libc::EBUSY).contains("fuser -v /dev/vfio/7"));
    assert!(said(libc::ENOENT).contains("modprobe vfio-pci"));
    assert!(said(libc::EIO).contains("dmesg"));
    assert!(map_error(&io::Error::from_raw_os_error(libc::ENOMEM), 4096).to_string().contains("ulimit -l"));
    assert!(map_error(&io::Error::from_raw_os_error(libc::ENOSPC), 4096).to_string().contains("dma_entry_limit"));
}

#[test]
fn the_command_register_keeps_what_is_not_asked_for() {
    let config = tempfile::tempfile().unwrap();
    config.write_all_at(&[0; 72], 0).unwrap();
    config.write_all_at(&0x0141_u16.to_le_bytes(), 68).unwrap();
    set_command(&config, 64, MEMORY_SPACE | BUS_MASTER, 0).unwrap();
    let command = || {
        let mut bytes = [0; 2];
        config.read_exact_at(&mut bytes, 68).unwrap();
        u16::from_le_bytes(bytes)
    };
    assert_eq!(command(), 0x0147);
    set_command(&config, 64, 0, BUS_MASTER).unwrap();
    assert_eq!(command(), 0x0143);
    assert!(set_command(&config, 4096, 0, BUS_MASTER).is_err());
}
