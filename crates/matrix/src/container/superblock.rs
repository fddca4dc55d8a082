//! The superblock: written once, when the region becomes a container.

use stratakv_base::Corruption;
use stratakv_base::checksum::crc32c;
use stratakv_base::key::Key;
use stratakv_engine::Error;
use stratakv_pmem::Pmem;

use super::directory::Directory;
use super::medium::{Layout, Medium, u32_at, u64_at};
use super::record;

const MAGIC: &[u8; 16] = b"StrataKV matrix\0";
/// Version of the format. In 1 the compactor takes rows only when it is empty; before 3 no record
/// deletes a range.
const FORMAT: u32 = 3;
/// Bytes of the superblock that count.
const USED_BYTES: usize = 64;
/// Where the first directory slot is.
pub(super) const BYTES: u64 = 4096;
/// Units that the smallest container has: a log, and a row being made of another.
const UNITS_MIN: u32 = 6;
/// A place has 44 bits.
const REGION_BYTES_MAX: u64 = 1 << 44;

/// What a container is made with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The store's.
    pub uuid: [u8; 16],
    /// The shard's number.
    pub shard: u32,
    /// A power of two from 4 KiB to 1 MiB.
    pub unit_bytes: u32,
    /// How long the log of a memtable becomes before it is made a row.
    pub row_bytes: u64,
}

/// Longest key that a record in a unit can have.
pub(super) fn key_bytes_max(unit_bytes: u32) -> usize {
    let room = unit_bytes as usize - 64 - record::HEADER_BYTES - record::POINTER_BYTES;
    room.min(Key::ENCODED_BYTES_MAX)
}

/// Lays the container out in a region.
pub(super) fn plan(region_bytes: u64, config: &Config) -> Result<Layout, Error> {
    let refuse = |why: String| Err(Error::WrongVolume(format!("no matrix container fits: {why}")));
    let Config { uuid, shard, unit_bytes, row_bytes } = *config;
    if !unit_bytes.is_power_of_two() || !(4096..=1 << 20).contains(&unit_bytes) {
        return refuse(format!("a unit of {unit_bytes} bytes; give a power of two from 4096 to 1048576"));
    }
    let region_bytes = region_bytes.min(REGION_BYTES_MAX);
    let rows = 64 + 4 * (region_bytes / row_bytes.max(u64::from(unit_bytes)));
    let rows = rows.min(region_bytes / u64::from(unit_bytes) / 2);
    let directory = super::directory::bytes(rows as usize, 2 * (key_bytes_max(unit_bytes) + 1)) as u64;
    let directory_bytes = u32::try_from(directory.next_multiple_of(4096)).unwrap_or(u32::MAX);
    let layout = Layout { uuid, shard, unit_bytes, region_bytes, directory_bytes, format: FORMAT };
    if layout.units() < UNITS_MIN {
        let needed = layout.first() + u64::from(UNITS_MIN) * u64::from(unit_bytes);
        return refuse(format!("the region has {region_bytes} bytes, with units of {unit_bytes} it takes {needed}"));
    }
    Ok(layout)
}

pub(super) fn encode(layout: &Layout) -> [u8; USED_BYTES] {
    let mut bytes = [0; USED_BYTES];
    bytes[..16].copy_from_slice(MAGIC);
    bytes[16..20].copy_from_slice(&layout.format.to_le_bytes());
    bytes[20..24].copy_from_slice(&layout.unit_bytes.to_le_bytes());
    bytes[24..32].copy_from_slice(&layout.region_bytes.to_le_bytes());
    bytes[32..36].copy_from_slice(&layout.directory_bytes.to_le_bytes());
    bytes[36..40].copy_from_slice(&layout.shard.to_le_bytes());
    bytes[40..56].copy_from_slice(&layout.uuid);
    let crc = crc32c(0, &bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads the layout of a region and sees that it is this shard's.
pub(super) fn open<P: Pmem>(pmem: &P, uuid: &[u8; 16], shard: u32) -> Result<Layout, Error> {
    let refuse = |why: String| Err(Error::WrongVolume(why));
    let len_bytes = pmem.len_bytes();
    if len_bytes < BYTES {
        return refuse(format!("the region has {len_bytes} bytes, too short for a matrix container: create one anew"));
    }
    let mut bytes = [0; USED_BYTES];
    pmem.load(0, &mut bytes)?;
    if bytes.iter().all(|byte| *byte == 0) {
        return refuse("the region is blank: there is no matrix container in it".to_owned());
    }
    if bytes[..16] != *MAGIC {
        return refuse("the region holds something else than a matrix container: check the path".to_owned());
    }
    let layout = decode(&bytes).map_err(|(expected, found)| {
        let place = stratakv_base::Place { shard, offset_bytes: 0 };
        Error::Corrupt(Corruption { place, what: "superblock of the region", expected, found })
    })?;
    let format = u32_at(&bytes, 16);
    if !(1..=FORMAT).contains(&format) {
        return Err(Error::NewerFormat { found: format, known: FORMAT });
    }
    if layout.uuid != *uuid || layout.shard != shard {
        return refuse(format!(
            "the region belongs to another store or shard (it says shard {}, this is shard {shard}): check the path",
            layout.shard
        ));
    }
    if layout.region_bytes > len_bytes {
        let said = layout.region_bytes;
        return refuse(format!(
            "the region has {len_bytes} bytes and had {said} when it was made: restore its length, or the file"
        ));
    }
    let sane = layout.unit_bytes.is_power_of_two() && (4096..=1 << 20).contains(&layout.unit_bytes);
    if !sane || layout.directory_bytes == 0 || layout.units() == 0 || layout.region_bytes > REGION_BYTES_MAX {
        return refuse("the superblock of the region makes no sense: restore it from a backup".to_owned());
    }
    Ok(layout)
}

/// Whether a container may be made where one was lost: of a store, or of what else lies there,
/// nothing is written over.
pub(super) fn may_replace<P: Pmem>(pmem: &P, uuid: &[u8; 16]) -> Result<(), Error> {
    let mut bytes = [0; USED_BYTES];
    pmem.load(0, &mut bytes)?;
    // A cut leaves any of its words blank.
    let is_ours = |(at, ours): (usize, &[u8])| matches!(&bytes[at..at + 8], word if word == ours || word == [0; 8]);
    let words = MAGIC.chunks(8).chain(uuid.chunks(8));
    if [0, 8, 40, 48].into_iter().zip(words).all(is_ours) {
        return Ok(());
    }
    Err(Error::WrongVolume(
        "the region holds something else, which is not written over: name another path for a new region (--region-path), or move it away".to_owned(),
    ))
}

/// Whose container lies at the beginning of a region, if one does.
pub fn uuid_of<P: Pmem>(pmem: &P) -> Option<[u8; 16]> {
    let mut bytes = [0; USED_BYTES];
    pmem.load(0, &mut bytes).ok()?;
    (bytes[..16] == *MAGIC).then(|| decode(&bytes).ok()).flatten().map(|layout| layout.uuid)
}

/// How many bytes the container at the beginning of a region has of it, if there is one.
pub fn region_bytes_of<P: Pmem>(pmem: &P) -> Option<u64> {
    let mut bytes = [0; USED_BYTES];
    pmem.load(0, &mut bytes).ok()?;
    (bytes[..16] == *MAGIC).then(|| decode(&bytes).ok()).flatten().map(|layout| layout.region_bytes)
}

fn decode(bytes: &[u8; USED_BYTES]) -> Result<Layout, (String, String)> {
    let (stored, computed) = (u32_at(bytes, 60), crc32c(0, &bytes[..60]));
    if stored != computed {
        return Err((format!("checksum {computed:08x}"), format!("{stored:08x}")));
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&bytes[40..56]);
    Ok(Layout {
        uuid,
        shard: u32_at(bytes, 36),
        unit_bytes: u32_at(bytes, 20),
        region_bytes: u64_at(bytes, 24),
        directory_bytes: u32_at(bytes, 32),
        format: u32_at(bytes, 16),
    })
}

/// Writes a container without contents.
pub(super) fn create<P: Pmem>(medium: &Medium<P>, directory: &Directory) -> Result<(), Error> {
    let Medium { pmem, layout } = medium;
    // What was there before is none from here on.
    pmem.store(0, &[0; USED_BYTES])?;
    pmem.persist(0, USED_BYTES as u64)?;
    let slots = vec![0; 2 * layout.directory_bytes as usize];
    pmem.store(BYTES, &slots)?;
    pmem.flush(BYTES, slots.len() as u64)?;
    directory.store(medium)?;
    pmem.fence()?;
    pmem.store(0, &encode(layout))?;
    pmem.persist(0, USED_BYTES as u64)?;
    Ok(())
}
