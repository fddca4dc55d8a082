//! `stratakv doctor /dev/daxN.M`: a devdax device. It is mapped as it is and no file system is on
//! it, so nothing is measured and nothing is written.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use stratakv::Engine;
use stratakv_base::quantity::format_bytes;
use stratakv_pmem::{DaxDevice, dax_devices, flush_instruction};

use super::persistence::{name, region_on};
use super::system::System;
use crate::Output;

/// What a region that takes the device would be.
pub(super) struct Prospect {
    device: DaxDevice,
    flush_instruction: Option<&'static str>,
}

impl Prospect {
    /// `None`: there is no such devdax device.
    pub(super) fn look(path: &Path) -> Option<Prospect> {
        let path = path.canonicalize().ok()?;
        let device = dax_devices().into_iter().find(|device| device.path == path)?;
        Some(Prospect { device, flush_instruction: flush_instruction() })
    }

    pub(super) fn write(&self, system: &System, is_json: bool, output: &mut Output) -> io::Result<()> {
        if is_json {
            return writeln!(output, "{}", self.json(system));
        }
        for (name, value) in self.rows(system) {
            writeln!(output, "{name:<24} {value}")?;
        }
        writeln!(output, "\n- {}", region_on(&self.device).why)
    }

    fn rows(&self, system: &System) -> [(&'static str, String); 6] {
        [
            ("kernel", system.kernel.clone()),
            ("cores", system.cores.to_string()),
            ("devdax device", self.device.path.display().to_string()),
            ("length", format_bytes(self.device.len_bytes)),
            ("a region here", self.device.domain.to_string()),
            ("flush instruction", self.flush_instruction.unwrap_or("none").to_owned()),
        ]
    }

    /// The names are those of the report on a directory.
    fn json(&self, system: &System) -> Value {
        let choice = region_on(&self.device);
        json!({
            "kernel": system.kernel, "cores": system.cores,
            "device": self.device.path.to_string_lossy(), "len_bytes": self.device.len_bytes,
            "region_domain": name(self.device.domain), "flush_instruction": self.flush_instruction,
            "engine": Engine::Hash.name(), "durability": choice.level.name(), "advice": [choice.why],
        })
    }
}

#[cfg(test)]
mod tests {
    use stratakv_pmem::Domain;

    use super::*;

    #[test]
    fn a_device_is_told_in_both_forms() {
        let of = |domain| {
            let device = DaxDevice { path: "/dev/dax1.0".into(), len_bytes: 1 << 30, domain };
            let prospect = Prospect { device, flush_instruction: Some("clwb") };
            let system = System::read();
            (prospect.json(&system), prospect.rows(&system).map(|(_, value)| value).join("|"))
        };
        let (json, rows) = of(Domain::Eadr);
        assert_eq!((json["region_domain"].as_str(), json["durability"].as_str()), (Some("eadr"), Some("power_loss")));
        assert!(rows.contains("/dev/dax1.0|1.00 GiB|eADR") && rows.ends_with("|clwb"), "{rows}");
        let (json, rows) = of(Domain::Volatile);
        let advice = json["advice"][0].as_str().unwrap();
        assert!(advice.contains("--region-path /dev/dax1.0 --durability process_crash"), "{advice}");
        assert!(rows.contains("volatile") && json["durability"] == "process_crash", "{rows}");
        assert!(Prospect::look(Path::new("/dev/null")).is_none());
    }
}
