//! A store whose volumes lie on raw block devices. docs/format-device.md draws them.
//!
//! A device begins with a label, which says whose it is and which, so that one that is missing,
//! exchanged or somebody else's is noticed before a volume is opened. The rest is split evenly into
//! ranges, one for each of its shards.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use stratakv_base::checksum::crc32c;
use stratakv_base::codec::{Reader, Truncated, Writer};
use stratakv_base::quantity::format_bytes;
use stratakv_device::nvme::{DriveRefusal, NvmeError, NvmeName, VfioRefusal};
use stratakv_device::passthrough::PassthroughRefusal;
use stratakv_device::{IoFault, RawDevice, RawRefusal, Volume};

use crate::directory::Manifest;
use crate::error::{Error, ErrorKind};
use crate::parts::is_same;

const MAGIC: &[u8; 8] = b"STRDEVL\0";
const FORMAT: u32 = 1;
const CRC_AT: usize = 56;
/// Bytes of a label: within the first sector, so that it is never torn.
const LABEL_BYTES: usize = CRC_AT + 4;
const MIB: u64 = 1 << 20;
/// Where its two copies lie.
const LABELS_AT: [u64; 2] = [0, MIB / 2];
/// Where the first range begins. All begin and end at multiples of a MiB.
const RANGES_AT: u64 = MIB;
const RANGE_BYTES_MIN: u64 = 4 * MIB;

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label {
    /// The store's.
    uuid: [u8; 16],
    /// Its number among the store's devices.
    device: u32,
    devices: u32,
    /// Shards of the whole store.
    shards: u32,
    /// Bytes of each shard's range.
    range_bytes: u64,
}

/// What stands where a label should.
#[derive(Debug, PartialEq, Eq)]
enum LabelRead {
    Label(Label),
    /// A label's leftovers, or nothing: may be written again.
    Damaged,
    /// A newer program's.
    Newer(u32),
    /// What we have not written, or what cannot be read.
    Foreign,
}

impl Label {
    fn encode(&self) -> [u8; LABEL_BYTES] {
        let mut bytes = [0; LABEL_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.bytes(MAGIC).u32(FORMAT).u32(self.device).bytes(&self.uuid);
        writer.u32(self.devices).u32(self.shards).u64(self.range_bytes);
        debug_assert_eq!(writer.at(), CRC_AT - 8, "8 bytes are left for later");
        let crc = crc32c(0, &bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(page: &[u8]) -> LabelRead {
        Label::parse(page).unwrap_or(LabelRead::Damaged)
    }

    fn parse(page: &[u8]) -> Result<LabelRead, Truncated> {
        let mut reader = Reader::new(page);
        if reader.bytes(MAGIC.len())? != MAGIC {
            let is_empty = page.iter().all(|byte| *byte == 0);
            return Ok(if is_empty { LabelRead::Damaged } else { LabelRead::Foreign });
        }
        let format = reader.u32()?;
        let label = Label {
            device: reader.u32()?,
            uuid: reader.array()?,
            devices: reader.u32()?,
            shards: reader.u32()?,
            range_bytes: reader.u64()?,
        };
        let mut sum = Reader::new(page.get(CRC_AT..).unwrap_or_default());
        if sum.u32()? != crc32c(0, page.get(..CRC_AT).unwrap_or_default()) {
            return Ok(LabelRead::Damaged);
        }
        Ok(if format > FORMAT { LabelRead::Newer(format) } else { LabelRead::Label(label) })
    }

    /// Shards on this device.
    fn ranges(&self) -> u32 {
        ranges(self.shards, self.device, self.devices)
    }

    /// Where the label and the ranges end; none if nothing that long exists.
    fn end(&self) -> Option<u64> {
        u64::from(self.ranges()).checked_mul(self.range_bytes)?.checked_add(RANGES_AT)
    }

    fn range(&self, number: u32) -> Option<Range<u64>> {
        let start = u64::from(number).checked_mul(self.range_bytes)?.checked_add(RANGES_AT)?;
        (number < self.ranges()).then_some(start..start.checked_add(self.range_bytes)?)
    }
}

/// How many of `shards` lie on device `device` of `devices`.
fn ranges(shards: u32, device: u32, devices: u32) -> u32 {
    shards.saturating_sub(device).div_ceil(devices.max(1))
}

/// A device of the store, open.
#[derive(Debug)]
pub(crate) struct Device {
    raw: RawDevice,
    label: Label,
    /// One copy of the label does not check.
    is_damaged: bool,
}

impl Device {
    /// What is wrong with it though it can be used.
    pub(crate) fn damage(&self) -> Option<String> {
        let path = self.raw.path().display();
        self.is_damaged.then(|| format!("{path}: one copy of the device's label is damaged"))
    }
}

/// The volume of a shard; none if the store has no devices.
pub(crate) fn volume(devices: &[Device], shard: u32) -> Option<Result<Volume, Error>> {
    let count = u32::try_from(devices.len()).ok().filter(|count| *count > 0)?;
    let Device { raw, label, .. } = devices.get((shard % count) as usize)?;
    let volume = match label.range(shard / count) {
        Some(range) => raw.range(range.start, range.end - range.start),
        None => Err(io::Error::new(io::ErrorKind::InvalidInput, "the device has no range for this shard")),
    };
    Some(volume.map_err(|error| io(raw.path(), "open", error)))
}

/// Claims the devices of a new store: nobody uses them, nothing is on them but what an interrupted
/// creation of this very store left. Writes nothing.
pub(crate) fn claim(manifest: &Manifest) -> Result<Vec<Device>, Error> {
    refuse_twice(&manifest.devices)?;
    let devices = manifest.devices.len() as u32;
    let uuid = manifest.uuid_bytes().unwrap_or_default();
    let claim = |(device, path): (u32, &PathBuf)| {
        let raw = RawDevice::open(path, false).map_err(|why| refused(path, why, ""))?;
        refuse_contents(&raw, &uuid)?;
        let shards = ranges(manifest.shards, device, devices);
        let room = raw.len_bytes().saturating_sub(RANGES_AT) / u64::from(shards.max(1));
        let range_bytes = room / MIB * MIB;
        if range_bytes < RANGE_BYTES_MIN {
            let (has, least) = (format_bytes(raw.len_bytes()), RANGES_AT + u64::from(shards) * RANGE_BYTES_MIN);
            let why = format!(
                "it has {has}, and {shards} shards want {} at least: use a larger one, or fewer shards",
                format_bytes(least)
            );
            return Err(unusable(path, ErrorKind::Usage, why));
        }
        let label = Label { uuid, device, devices, shards: manifest.shards, range_bytes };
        Ok(Device { raw, label, is_damaged: false })
    };
    (0..).zip(&manifest.devices).map(claim).collect()
}

/// Says on each device whose it is, durably.
pub(crate) fn label(devices: &[Device]) -> Result<(), Error> {
    for Device { raw, label, .. } in devices {
        for at in LABELS_AT {
            raw.write_page(at, &label.encode()).map_err(|fault| io(raw.path(), "label", system(fault)))?;
        }
    }
    Ok(())
}

/// The store's devices, in order: where `named` says, else where they were.
pub(crate) fn find(home: &Path, manifest: &Manifest, named: &[PathBuf], read_only: bool) -> Result<Vec<Device>, Error> {
    let (wanted, shown) = (&manifest.devices, home.display());
    if named.len() > wanted.len() {
        let has = match wanted.len() {
            0 => "has its volumes in directories".to_owned(),
            count => format!("has {count}"),
        };
        let count = named.len();
        let why = format!("{count} devices are named, and the store in {shown} {has}: that is fixed at its creation");
        return Err(Error::Option(why));
    }
    refuse_twice(named)?;
    let (given, advice) = match named {
        [] => (
            wanted.as_slice(),
            ". If the store's devices have other names now, name all of them (--device, once for each)",
        ),
        named => (named, ""),
    };
    let mut found: Vec<Option<Device>> = wanted.iter().map(|_| None).collect();
    for path in given {
        let raw = RawDevice::open(path, read_only).map_err(|why| refused(path, why, advice))?;
        let device = identify(raw, home, manifest, advice)?;
        let Some(place) = found.get_mut(device.label.device as usize) else { continue };
        let number = device.label.device;
        if let Some(other) = place.replace(device) {
            let why =
                format!("it is device {number} of the store, and so is {}: one is a copy", other.raw.path().display());
            return Err(unusable(path, ErrorKind::Corrupt, why));
        }
    }
    let all = (0..).zip(found).zip(wanted).map(|((number, device), was): ((u32, _), _)| {
        let why = format!(
            "device {number} of the store in {shown}, which was this one when it was made, is missing: attach it, and name all the store's \
             devices where they are now (--device, once for each)"
        );
        device.ok_or_else(|| unusable(was, ErrorKind::NotFound, why))
    });
    let mut all = all.collect::<Result<Vec<_>, _>>()?;
    if !read_only {
        all.iter_mut().try_for_each(repair)?;
    }
    Ok(all)
}

/// Whose a device is: the store's own, or an error.
fn identify(raw: RawDevice, home: &Path, manifest: &Manifest, advice: &str) -> Result<Device, Error> {
    let (path, shown) = (raw.path().to_path_buf(), home.display());
    let wrong = |why: String| Err(unusable(&path, ErrorKind::Corrupt, format!("{why}{advice}")));
    let Some((label, is_damaged)) = read_label(&raw)? else {
        return wrong(format!(
            "it has no label of a StrataKV store, and should be a device of the one in {shown}: it is another device, or was written over"
        ));
    };
    if Some(label.uuid) != manifest.uuid_bytes() {
        return wrong(format!(
            "it is a device of another store ({}) than the one in {shown}",
            hexadecimal(&label.uuid)
        ));
    }
    if (label.devices as usize, label.shards) != (manifest.devices.len(), manifest.shards)
        || label.device >= label.devices
    {
        return wrong(format!(
            "it says that it is device {} of {} of a store with {} shards, and the one in {shown} has {} devices and {} shards",
            label.device,
            label.devices,
            label.shards,
            manifest.devices.len(),
            manifest.shards
        ));
    }
    let end = label.end().unwrap_or(u64::MAX);
    if end > raw.len_bytes() || label.range_bytes < RANGE_BYTES_MIN {
        return wrong(format!(
            "it has {} bytes, and its volumes reach to {end}: it was made smaller, or is a copy on a smaller one; restore the store from a backup",
            raw.len_bytes()
        ));
    }
    Ok(Device { raw, label, is_damaged })
}

/// The label, and whether one of its copies does not check.
fn read_label(raw: &RawDevice) -> Result<Option<(Label, bool)>, Error> {
    let mut label = None;
    let mut damaged = false;
    for at in LABELS_AT {
        match raw.read_page(at).map_or(LabelRead::Foreign, |page| Label::decode(&page)) {
            LabelRead::Label(found) => label = label.or(Some(found)),
            LabelRead::Newer(found) => {
                return Err(Error::NewerFormat { path: raw.path().to_path_buf(), found, known: FORMAT });
            }
            LabelRead::Damaged | LabelRead::Foreign => damaged = true,
        }
    }
    Ok(label.map(|label| (label, damaged)))
}

/// Writes a damaged copy of the label anew, from the good one; but not over what somebody else
/// wrote.
fn repair(device: &mut Device) -> Result<(), Error> {
    for at in LABELS_AT.into_iter().filter(|_| device.is_damaged) {
        let path = device.raw.path();
        match device.raw.read_page(at).map_or(LabelRead::Foreign, |page| Label::decode(&page)) {
            LabelRead::Damaged => {
                let written = device.raw.write_page(at, &device.label.encode());
                written.map_err(|fault| io(path, "label", system(fault)))?;
                tracing::warn!(device = %path.display(), "one copy of the label was damaged; repaired from the other");
            }
            LabelRead::Foreign => {
                tracing::warn!(device = %path.display(), "another program has written over one copy of the label; it is left as it is");
            }
            LabelRead::Label(_) | LabelRead::Newer(_) => {}
        }
    }
    Ok(())
}

/// A new store takes a device that is empty, or its own.
fn refuse_contents(raw: &RawDevice, uuid: &[u8; 16]) -> Result<(), Error> {
    let holds = match read_label(raw)? {
        Some((label, _)) if label.uuid == *uuid => None,
        Some((label, _)) => Some(format!("volumes of the StrataKV store {}", hexadecimal(&label.uuid))),
        None => raw.contents().map_err(|fault| io(raw.path(), "read", system(fault)))?,
    };
    let Some(holds) = holds else { return Ok(()) };
    let path = raw.path().display();
    let emptied = match (NvmeName::of(raw.path()), raw.passthrough()) {
        (None, None) => format!("`blkdiscard --zeroout {path}`"),
        (None, Some(namespace)) => format!("`blkdiscard --zeroout {}`", namespace.block_path().display()),
        (Some(_), _) => {
            "`blkdiscard --zeroout` after you gave it back to the kernel (`stratakv doctor --nvme` tells how)".into()
        }
    };
    let why = format!(
        "it holds {holds}, and a new store takes an empty one (first and last MiB zero). Name another; or, if nothing on it is needed any more, \
         empty it for good with {emptied}"
    );
    Err(unusable(raw.path(), ErrorKind::Usage, why))
}

/// A device's name as it is kept: a path from the root, or the one name of a namespace.
pub(crate) fn full_name(path: &Path) -> io::Result<PathBuf> {
    match NvmeName::of(path) {
        None => std::path::absolute(path),
        Some(Ok(name)) => Ok(name.to_string().into()),
        Some(Err(error)) => Err(io::Error::other(error)),
    }
}

fn refuse_twice(paths: &[PathBuf]) -> Result<(), Error> {
    for (at, path) in paths.iter().enumerate() {
        if paths.iter().take(at).any(|other| other == path || is_same(other, path)) {
            return Err(Error::Option(format!("{} is named twice as a device of the store", path.display())));
        }
    }
    Ok(())
}

fn unusable(path: &Path, kind: ErrorKind, why: String) -> Error {
    Error::Device { path: path.into(), why, kind }
}

fn refused(path: &Path, refusal: RawRefusal, advice: &str) -> Error {
    let kind = match &refusal {
        RawRefusal::Missing => ErrorKind::NotFound,
        RawRefusal::Busy => ErrorKind::Locked,
        RawRefusal::NoDevice => ErrorKind::Usage,
        RawRefusal::Sectors(_) => ErrorKind::Unsupported,
        RawRefusal::Driven(refusal) => kind_of_drive(refusal),
        RawRefusal::Passthrough(PassthroughRefusal::NoBlockDevice(_)) => ErrorKind::NotFound,
        RawRefusal::Passthrough(PassthroughRefusal::OldKernel(_)) => ErrorKind::Unsupported,
        RawRefusal::Passthrough(PassthroughRefusal::Nvme(error)) => kind_of_nvme(error),
        RawRefusal::Permission | RawRefusal::Io(_) => ErrorKind::Io,
    };
    unusable(path, kind, format!("{refusal}{advice}"))
}

fn kind_of_drive(refusal: &DriveRefusal) -> ErrorKind {
    match refusal {
        DriveRefusal::Vfio(VfioRefusal::Missing(_)) => ErrorKind::NotFound,
        DriveRefusal::Vfio(VfioRefusal::Busy { .. }) => ErrorKind::Locked,
        DriveRefusal::Vfio(VfioRefusal::Address(_) | VfioRefusal::NoNvme(..) | VfioRefusal::Driver { .. }) => {
            ErrorKind::Usage
        }
        DriveRefusal::Vfio(VfioRefusal::NoIommu(_) | VfioRefusal::NoVfio(_) | VfioRefusal::Unsupported { .. }) => {
            ErrorKind::Unsupported
        }
        DriveRefusal::Nvme(_, error) => kind_of_nvme(error),
        DriveRefusal::Vfio(_) => ErrorKind::Io,
    }
}

fn kind_of_nvme(error: &NvmeError) -> ErrorKind {
    match error {
        NvmeError::NoNamespace { .. } => ErrorKind::Usage,
        NvmeError::Format { .. } | NvmeError::NoNvm | NvmeError::PageSize(_) => ErrorKind::Unsupported,
        _ => ErrorKind::Io,
    }
}

fn io(path: &Path, what: &'static str, error: io::Error) -> Error {
    Error::Io { what, path: path.into(), error }
}

fn system(fault: IoFault) -> io::Error {
    match fault {
        IoFault::Os(errno) => io::Error::from_raw_os_error(errno),
        other => io::Error::other(other),
    }
}

fn hexadecimal(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Label {
        Label { uuid: *b"0123456789abcdef", device: 1, devices: 3, shards: 8, range_bytes: 5 * MIB }
    }

    #[test]
    fn a_label_reads_back_and_its_format_is_fixed() {
        let mut page = vec![0; 4096];
        page[..LABEL_BYTES].copy_from_slice(&sample().encode());
        assert_eq!(Label::decode(&page), LabelRead::Label(sample()));
        assert_eq!(crc32c(0, &page), 0xD56F_2CDE, "raise FORMAT when this changes");
    }

    #[test]
    fn every_turned_bit_of_a_label_is_noticed() {
        for bit in 0..LABEL_BYTES * 8 {
            let mut bytes = sample().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Label::decode(&bytes), LabelRead::Label(_)), "bit {bit}");
        }
        assert_eq!(Label::decode(&[0; 4096]), LabelRead::Damaged);
        assert_eq!(Label::decode(b"STRDEVL\0"), LabelRead::Damaged);
        assert_eq!(Label::decode(b"anything else"), LabelRead::Foreign);
    }

    #[test]
    fn each_shard_has_a_range_of_its_own() {
        for (shards, devices) in [(1, 1), (4, 1), (8, 3), (1024, 7)] {
            let mut count = 0;
            for device in 0..devices {
                let label = Label { device, devices, shards, ..sample() };
                let ranges: Vec<_> = (0..label.ranges()).map(|number| label.range(number).unwrap()).collect();
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (RANGES_AT, label.end().unwrap()));
                assert_eq!(label.range(label.ranges()), None);
                count += label.ranges();
            }
            assert_eq!(count, shards);
        }
    }

    #[test]
    fn impossible_numbers_of_a_label_do_no_harm() {
        let label = Label { shards: u32::MAX, devices: 0, device: u32::MAX, range_bytes: u64::MAX, ..sample() };
        assert_eq!((label.range(0), label.range(u32::MAX)), (None, None));
        let label = Label { shards: u32::MAX, devices: 1, device: 0, range_bytes: u64::MAX, ..sample() };
        assert_eq!((label.end(), label.range(0)), (None, None));
    }
}
