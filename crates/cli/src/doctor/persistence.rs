//! Persistent memory: what there is of it, and what a region in the directory would be.

use std::path::Path;

use serde_json::{Value, json};
use stratakv::{Engine, Level};
use stratakv_base::quantity::format_bytes;
use stratakv_pmem::{DaxDevice, Domain, Prospect, dax_devices, flush_instruction, prospect_of};

/// What was found.
pub(super) struct Persistence {
    /// What a region in the directory would be, or why there cannot be one.
    prospect: Result<Prospect, String>,
    flush_instruction: Option<&'static str>,
    devices: Vec<DaxDevice>,
}

/// Which engine and which durability suit, and why.
#[derive(Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) engine: Engine,
    pub(super) level: Level,
    pub(super) why: String,
}

impl Persistence {
    /// Looks; makes a file of a page in the directory, which is gone afterwards.
    pub(super) fn look(directory: &Path) -> Persistence {
        Persistence {
            prospect: prospect_of(directory).map_err(|error| error.to_string()),
            flush_instruction: flush_instruction(),
            devices: dax_devices(),
        }
    }

    pub(super) fn rows(&self) -> [(&'static str, String); 4] {
        let yes = |yes| if yes { "yes" } else { "no" };
        let (domain, synchronous) = match &self.prospect {
            Ok(prospect) => (prospect.domain.to_string(), yes(prospect.is_synchronous).to_owned()),
            Err(why) => (format!("impossible: {why}"), "unknown".to_owned()),
        };
        let devices: Vec<String> = self.devices.iter().map(shown).collect();
        [
            ("a region here", domain),
            ("DAX (MAP_SYNC)", synchronous),
            ("flush instruction", self.flush_instruction.unwrap_or("none").to_owned()),
            ("devdax devices", if devices.is_empty() { "none".to_owned() } else { devices.join(", ") }),
        ]
    }

    /// Keys and values for the report as JSON.
    pub(super) fn json(&self) -> [(&'static str, Value); 5] {
        let prospect = self.prospect.as_ref().ok();
        let device = |device: &DaxDevice| {
            let domain = name(device.domain);
            json!({ "path": device.path.to_string_lossy(), "len_bytes": device.len_bytes, "domain": domain })
        };
        [
            ("region_domain", prospect.map(|found| name(found.domain)).into()),
            ("region_refusal", self.prospect.as_ref().err().cloned().into()),
            ("map_sync", prospect.map(|found| found.is_synchronous).into()),
            ("flush_instruction", self.flush_instruction.into()),
            ("dax_devices", self.devices.iter().map(device).collect()),
        ]
    }

    /// `survives`: what is written to a file there, and flushed, survives a power cut.
    pub(super) fn choose(&self, survives: bool) -> Choice {
        let domain = self.prospect.as_ref().map_or(None, |prospect| Some(prospect.domain));
        let device = self.devices.iter().find(|device| device.domain > Domain::File);
        let choice = |engine, level, why: String| Choice { engine, level, why };
        match (domain, device) {
            (Some(Domain::Adr | Domain::Eadr), _) => choice(
                Engine::Hash,
                Level::PowerLoss,
                "--engine hash: this directory is persistent memory, so a write is durable without any request to a disk; --durability power_loss costs \
                 it next to nothing. (If scans in order matter more, --engine slab)"
                    .into(),
            ),
            (_, Some(device)) => region_on(device),
            (Some(Domain::Volatile), _) => choice(
                Engine::Hash,
                Level::ProcessCrash,
                "--engine hash --durability process_crash: this directory is memory, which a region uses in place; it survives the process and no power cut"
                    .into(),
            ),
            (_, _) if survives => choice(
                Engine::Slab,
                Level::PowerLoss,
                "--engine slab --durability power_loss: this is a disk, and slab waits for it with many writes at once; every write into a region of engine \
                 hash would wait for msync"
                    .into(),
            ),
            (_, _) => choice(
                Engine::Slab,
                Level::ProcessCrash,
                "--engine slab --durability process_crash: nothing here survives a power cut".into(),
            ),
        }
    }
}

/// What a region on a device is good for.
pub(super) fn region_on(device: &DaxDevice) -> Choice {
    let path = device.path.display();
    let (level, why) = if device.domain.survives_power_loss() {
        let why = "that is persistent memory, so a write is durable without any request to a disk";
        (Level::PowerLoss, format!("--engine hash --region-path {path}: {why}"))
    } else {
        let why =
            "that is ordinary memory set aside, which a region uses in place; it survives the process and no power cut";
        (Level::ProcessCrash, format!("--engine hash --region-path {path} --durability process_crash: {why}"))
    };
    Choice { engine: Engine::Hash, level, why }
}

fn shown(device: &DaxDevice) -> String {
    let kept = if device.domain.survives_power_loss() { name(device.domain) } else { "volatile" };
    format!("{} ({}, {kept})", device.path.display(), format_bytes(device.len_bytes))
}

/// As the report as JSON has it.
pub(super) fn name(domain: Domain) -> &'static str {
    match domain {
        Domain::Volatile => "volatile",
        Domain::File => "file",
        Domain::Adr => "adr",
        Domain::Eadr => "eadr",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(domain: Option<Domain>, devices: Vec<DaxDevice>) -> Persistence {
        let prospect = domain.map(|domain| Prospect { domain, is_synchronous: domain > Domain::File });
        Persistence { prospect: prospect.ok_or_else(|| "no".to_owned()), flush_instruction: Some("clwb"), devices }
    }

    #[test]
    fn the_engine_follows_the_medium() {
        let device = |domain| DaxDevice { path: "/dev/dax0.0".into(), len_bytes: 1 << 30, domain };
        let of = |domain, devices, survives| {
            let Choice { engine, level, why } = found(domain, devices).choose(survives);
            assert!(why.contains(&format!("--engine {}", engine.name())), "{why}");
            (engine, level)
        };
        assert_eq!(of(Some(Domain::Adr), vec![], true), (Engine::Hash, Level::PowerLoss));
        assert_eq!(of(Some(Domain::Eadr), vec![], true), (Engine::Hash, Level::PowerLoss));
        assert_eq!(of(Some(Domain::File), vec![device(Domain::Adr)], true), (Engine::Hash, Level::PowerLoss));
        // Ordinary memory set aside is no reason.
        assert_eq!(of(Some(Domain::File), vec![device(Domain::Volatile)], true), (Engine::Slab, Level::PowerLoss));
        assert_eq!(of(Some(Domain::Volatile), vec![], false), (Engine::Hash, Level::ProcessCrash));
        assert_eq!(of(Some(Domain::File), vec![], true), (Engine::Slab, Level::PowerLoss));
        assert_eq!(of(None, vec![], false), (Engine::Slab, Level::ProcessCrash));
    }

    #[test]
    fn what_was_found_is_shown_in_both_forms() {
        let device = DaxDevice { path: "/dev/dax1.0".into(), len_bytes: 1 << 30, domain: Domain::Eadr };
        let persistence = found(Some(Domain::Adr), vec![device]);
        let rows = persistence.rows().map(|(_, row)| row).join("|");
        assert!(
            rows.contains("ADR") && rows.contains("clwb") && rows.contains("/dev/dax1.0 (1.00 GiB, eadr)"),
            "{rows}"
        );
        let json: serde_json::Map<String, Value> =
            persistence.json().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(json["region_domain"], "adr");
        assert_eq!(json["dax_devices"][0]["domain"], "eadr");
        assert_eq!(found(None, vec![]).json()[0].1, Value::Null);
    }
}
