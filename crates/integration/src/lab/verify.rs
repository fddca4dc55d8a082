//! After a power cut: the file system replays its journal, the store is taken out, checked, opened
//! and compared.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stratakv::{Error, Level, Options, ScanOptions};

use super::machine::tool;
use super::workload::{self, Known};
use crate::loop_device::LoopDevice;
use crate::value;

/// Compares a store on its devices with what must be there: how many keys.
pub(super) type CompareStore<'a> = dyn Fn(&Path, &[PathBuf]) -> Result<u64, String> + 'a;

/// Where the contents of cut devices are looked at.
pub struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    /// A bench in memory if there is room for it: nothing on it must survive anything.
    ///
    /// # Errors
    /// No temporary folder can be made.
    pub fn new() -> Result<Bench, String> {
        let memory = Path::new("/dev/shm");
        let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Ok(Bench { folder: made.map_err(|error| format!("cannot make a temporary folder: {error}"))? })
    }

    /// Compares a device with what is known; returns how many keys were compared.
    ///
    /// # Errors
    /// What is lost, torn, or there although nobody wrote it; or that the store does not open.
    pub fn verify(&self, device: &[u8], known: &BTreeMap<u64, Known>) -> Result<u64, String> {
        self.verify_spread(device, None, known)
    }

    /// As [`Bench::verify`], of a store whose volumes lie on a raw device of their own.
    ///
    /// # Errors
    /// As there; or that there can be no loop device.
    pub fn verify_spread(
        &self,
        device: &[u8],
        volumes: Option<&[u8]>,
        known: &BTreeMap<u64, Known>,
    ) -> Result<u64, String> {
        let is_new = known.values().all(|known| known.acknowledged.is_none());
        self.verify_with(device, volumes, is_new, &|store, devices| compare(store, devices, known))
    }

    /// As [`Bench::verify_spread`], with a comparison of the caller's: of a store and its devices.
    /// `is_new`: nothing was acknowledged, so that it may not be there.
    ///
    /// # Errors
    /// As there.
    pub(super) fn verify_with(
        &self,
        device: &[u8],
        volumes: Option<&[u8]>,
        is_new: bool,
        compare: &CompareStore<'_>,
    ) -> Result<u64, String> {
        let store = self.extract(device)?;
        let volumes = volumes.map(|bytes| self.attach(bytes)).transpose()?;
        let devices: Vec<PathBuf> = volumes.iter().map(|device| device.path().to_owned()).collect();
        let check = || stratakv::check_spread(&store, &[], &devices, &[], None);
        let checked = match check() {
            // Cut off while it was being created.
            Err(Error::NotFound { .. }) if is_new => return Ok(0),
            checked => checked.map_err(|error| format!("check: {error}"))?,
        };
        // Before the superblocks are repaired by opening, one copy may be torn: a cut in the middle
        // of its write.
        let is_torn_copy = |damage: &str| {
            damage.contains("copy of the superblock") || damage.ends_with("opening the store repairs it")
        };
        let damage: Vec<&String> = checked.damage.iter().filter(|damage| !is_torn_copy(damage)).collect();
        if !damage.is_empty() || !checked.mistakes.is_empty() {
            return Err(format!("check: damage {damage:?}, mistakes {:?}", checked.mistakes));
        }
        let compared = compare(&store, &devices)?;
        let report = check().map_err(|error| format!("check after recovery: {error}"))?;
        if report.is_sound() { Ok(compared) } else { Err(format!("check after recovery: {report:?}")) }
    }

    /// A loop device with these bytes.
    fn attach(&self, bytes: &[u8]) -> Result<LoopDevice, String> {
        let image = self.folder.path().join("volumes.img");
        write_sparse(&image, bytes).map_err(|error| format!("cannot write {}: {error}", image.display()))?;
        LoopDevice::attach(&image, bytes.len() as u64, 512).ok_or_else(|| "no loop device can be had".to_owned())
    }

    /// The store's directory as the file system of `device` shows it after the journal was
    /// replayed.
    fn extract(&self, device: &[u8]) -> Result<PathBuf, String> {
        let folder = self.folder.path();
        let (image, store) = (folder.join("device.img"), folder.join("store"));
        let _ = fs::remove_dir_all(&store);
        write_sparse(&image, device).map_err(|error| format!("cannot write {}: {error}", image.display()))?;
        let replayed = tool("e2fsck", &["-y", "-E", "journal_only", "device.img"], folder)?;
        if replayed.status.code().is_none_or(|code| code > 1) {
            return Err(format!("the file system's journal: {}", String::from_utf8_lossy(&replayed.stderr)));
        }
        tool("debugfs", &["-R", "rdump /store .", "device.img"], folder)?;
        fs::create_dir_all(&store).map_err(|error| error.to_string())?;
        Ok(store)
    }
}

/// Writes only what is not zero.
fn write_sparse(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (index, chunk) in bytes.chunks(64 << 10).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            file.write_all_at(chunk, (index * (64 << 10)) as u64)?;
        }
    }
    Ok(())
}

fn compare(store: &Path, devices: &[PathBuf], known: &BTreeMap<u64, Known>) -> Result<u64, String> {
    // The bench may be memory; what recovery does is the same at every level.
    let options = Options::new().create(false).memory_bytes(64 << 20).level(Level::ProcessCrash).cores(1);
    let options = options.devices(devices);
    let store = options.open(store).map_err(|error| format!("open: {error}"))?;
    let mut left: BTreeMap<String, (u64, &Known)> =
        known.iter().map(|(key, known)| (workload::name(*key), (*key, known))).collect();
    for item in store.scan(ScanOptions::all()) {
        let (name, record) = item.map_err(|error| format!("scan: {error}"))?;
        let name = String::from_utf8_lossy(&name).into_owned();
        let (key, known) = left.remove(&name).ok_or_else(|| format!("{name}: nobody wrote it"))?;
        let found = value::decode(key, &record.to_bytes()).map_err(|why| format!("{name}: {why}"))?;
        if !known.may_be(Some(found)) {
            return Err(format!("{name}: found {found}, known {known:?}"));
        }
    }
    for (name, (_, known)) in left {
        if !known.may_be(None) {
            return Err(format!("{name}: lost; known {known:?}"));
        }
    }
    store.close().map_err(|error| error.to_string())?;
    Ok(known.len() as u64)
}
