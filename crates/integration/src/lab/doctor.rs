//! What `stratakv doctor` says of persistent memory, beside what the machine was given: for a file
//! system mounted with DAX, and for a devdax device.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::guest::text;
use super::pmem::Hardware;

/// Where the guest has the program.
const PROGRAM: &str = "/stratakv";
/// Measurements as short as can be: they are not looked at.
const BRIEF: [&str; 6] = ["doctor", "--json", "--seconds", "0.01", "--file-bytes", "1M"];

/// Asks in the guest, and compares. `disk` is under the DAX file system at `directory`.
pub(super) fn check(hardware: Hardware, (disk, directory): (&Path, &Path), device: &Path) -> Result<(), String> {
    let of_device = of_device(hardware, device, len_bytes(device)?);
    let of_directory = of_directory(hardware, disk, &of_device);
    for (path, expected) in [(directory, &of_directory), (device, &of_device)] {
        let report = report(path)?;
        let differences = differences(&report, expected);
        if !differences.is_empty() {
            return Err(format!("doctor {}: {}", path.display(), differences.join("; ")));
        }
    }
    Ok(())
}

fn report(path: &Path) -> Result<Value, String> {
    let output = Command::new(PROGRAM).args(BRIEF).arg(path).output().map_err(text("start doctor"))?;
    if !output.status.success() {
        return Err(format!("doctor {}: {}", path.display(), String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(text("read what doctor says"))
}

/// By the kernel.
fn len_bytes(device: &Path) -> Result<u64, String> {
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let len =
        fs::read_to_string(format!("/sys/bus/dax/devices/{name}/size")).map_err(text("read a device's length"))?;
    len.trim().parse().map_err(text("read a device's length"))
}

fn of_device(hardware: Hardware, device: &Path, len_bytes: u64) -> Value {
    json!({
        "device": device.to_string_lossy(), "len_bytes": len_bytes, "region_domain": hardware.domain_name(),
        "flush_instruction": hardware.flush, "engine": "hash", "durability": "power_loss",
    })
}

fn of_directory(hardware: Hardware, disk: &Path, device: &Value) -> Value {
    json!({
        "device": disk.file_name().unwrap_or_default().to_string_lossy(), "file_system": "ext4",
        "survives_power_loss": true, "map_sync": true, "region_refusal": null,
        "region_domain": hardware.domain_name(), "flush_instruction": hardware.flush,
        "dax_devices": [{
            "path": device["device"], "len_bytes": device["len_bytes"], "domain": hardware.domain_name(),
        }],
        "engine": "hash", "durability": "power_loss",
    })
}

/// What the report says otherwise, or not at all; and advice that is for disks.
fn differences(report: &Value, expected: &Value) -> Vec<String> {
    let expected = expected.as_object().into_iter().flatten();
    let others = expected.filter(|(name, value)| report.get(name) != Some(value));
    let mut differences: Vec<String> =
        others.map(|(name, value)| format!("{name} is {}, and not {value}", report[name])).collect();
    if report["advice"].to_string().contains("ignoring flushes") {
        differences.push("persistent memory is taken for a disk that ignores flushes".into());
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_word_of_a_report_is_seen() {
        let hardware = Hardware::of(0);
        let device = of_device(hardware, Path::new("/dev/dax1.0"), 1 << 20);
        let directory = of_directory(hardware, Path::new("/dev/pmem0"), &device);
        for expected in [device, directory] {
            assert!(differences(&expected, &expected).is_empty());
            for name in expected.as_object().unwrap().keys() {
                let mut report = expected.clone();
                report[name] = "something else".into();
                assert_eq!(differences(&report, &expected).len(), 1, "{name}");
                report.as_object_mut().unwrap().remove(name);
                assert_eq!(differences(&report, &expected).len(), 1, "{name} is not there");
            }
        }
        assert_eq!(differences(&json!({ "advice": ["a hypervisor may be ignoring flushes"] }), &json!({})).len(), 1);
    }
}
