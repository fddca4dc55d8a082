//! The manifest: which tables and value files there are, and where. Written whole with each change.

use stratakv_base::codec::{Reader, Truncated};

use super::extents::Extent;

/// All that a volume holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Grows by one with each manifest.
    pub number: u64,
    /// Every version up to this one, of those that are not in the region, is in tables.
    pub version: u64,
    /// The number that the next file gets: no file has it or had it.
    pub next_file: u64,
    /// Number of the newest directory of the region when this was written.
    pub directory: u64,
    /// How far the columns are down.
    pub rotation: Rotation,
    /// The tables of L1, then those of L2 and so on, each level in the order of keys.
    pub levels: Vec<Vec<Table>>,
    /// Values apart from their keys.
    pub values: Vec<ValueFile>,
}

/// How far a compactor's columns are down: from the start key up to the cursor key, around the end of the key space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Hand-overs before it, and itself.
    pub compactor: u64,
    /// Where it began.
    pub start: Vec<u8>,
    /// Where it is.
    pub cursor: Vec<u8>,
    /// At least one column is down.
    pub begun: bool,
    /// It went around the end of the key space.
    pub wrapped: bool,
}

/// One table of a level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Its number; seeds the checksums of its pages.
    pub file: u64,
    /// Where its pages lie, one after the other.
    pub extents: Vec<Extent>,
    /// Versions in it.
    pub entries: u64,
    /// Pages with data; the index follows, then the filter.
    pub data_pages: u32,
    /// Ordinal of the index's root.
    pub root: u32,
    /// Ordinal of the first filter page.
    pub filter: u32,
    /// How many.
    pub filter_pages: u32,
    /// The lowest version in it.
    pub version_min: u64,
    /// The highest version in it.
    pub version_max: u64,
    /// Its first key.
    pub first: Vec<u8>,
    /// Its last key.
    pub last: Vec<u8>,
}

/// One file of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueFile {
    /// Its number.
    pub file: u64,
    /// Where its pages lie.
    pub extents: Vec<Extent>,
    /// Bytes of all its values.
    pub bytes: u64,
    /// Bytes of those that an entry points to.
    pub live_bytes: u64,
}

/// Bytes that are no manifest: a field that ends too early, or a number that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the manifest makes no sense at byte {at}")]
pub struct Malformed {
    /// Where.
    pub at: usize,
}

impl From<Truncated> for Malformed {
    fn from(truncated: Truncated) -> Malformed {
        Malformed { at: truncated.at }
    }
}

impl Table {
    /// Pages in all.
    pub fn pages(&self) -> u32 {
        self.extents.iter().map(|extent| extent.pages).sum()
    }
}

impl Manifest {
    /// The bytes to write.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + 100 * self.levels.iter().map(Vec::len).sum::<usize>());
        for number in [self.number, self.version, self.next_file, self.directory, self.rotation.compactor] {
            put(&mut out, number);
        }
        put(&mut out, u64::from(self.rotation.begun) | u64::from(self.rotation.wrapped) << 1);
        put_bytes(&mut out, &self.rotation.start);
        put_bytes(&mut out, &self.rotation.cursor);
        put(&mut out, self.levels.len() as u64);
        for level in &self.levels {
            put(&mut out, level.len() as u64);
            level.iter().for_each(|table| put_table(&mut out, table));
        }
        put(&mut out, self.values.len() as u64);
        for values in &self.values {
            put(&mut out, values.file);
            put_extents(&mut out, &values.extents);
            put(&mut out, values.bytes);
            put(&mut out, values.live_bytes);
        }
        out
    }

    /// Reads one back. What follows it is not looked at.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Manifest, Malformed> {
        let mut reader = Reader::new(bytes);
        let reader = &mut reader;
        let mut manifest = Manifest {
            number: get(reader)?,
            version: get(reader)?,
            next_file: get(reader)?,
            directory: get(reader)?,
            ..Manifest::default()
        };
        let (compactor, flags) = (get(reader)?, get(reader)?);
        let (start, cursor) = (get_bytes(reader)?, get_bytes(reader)?);
        manifest.rotation = Rotation { compactor, start, cursor, begun: flags & 1 != 0, wrapped: flags & 2 != 0 };
        for _ in 0..get(reader)? {
            let mut level = Vec::new();
            for _ in 0..get(reader)? {
                level.push(get_table(reader)?);
            }
            manifest.levels.push(level);
        }
        for _ in 0..get(reader)? {
            let (file, extents) = (get(reader)?, get_extents(reader)?);
            manifest.values.push(ValueFile { file, extents, bytes: get(reader)?, live_bytes: get(reader)? });
        }
        Ok(manifest)
    }

    /// Every extent that it names.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        let tables = self.levels.iter().flatten().flat_map(|table| &table.extents);
        tables.chain(self.values.iter().flat_map(|values| &values.extents)).copied()
    }
}

fn put_table(out: &mut Vec<u8>, table: &Table) {
    put(out, table.file);
    put_extents(out, &table.extents);
    put(out, table.entries);
    for number in [table.data_pages, table.root, table.filter, table.filter_pages] {
        put(out, u64::from(number));
    }
    put(out, table.version_min);
    put(out, table.version_max);
    put_bytes(out, &table.first);
    put_bytes(out, &table.last);
}

fn get_table(reader: &mut Reader<'_>) -> Result<Table, Malformed> {
    Ok(Table {
        file: get(reader)?,
        extents: get_extents(reader)?,
        entries: get(reader)?,
        data_pages: get_u32(reader)?,
        root: get_u32(reader)?,
        filter: get_u32(reader)?,
        filter_pages: get_u32(reader)?,
        version_min: get(reader)?,
        version_max: get(reader)?,
        first: get_bytes(reader)?,
        last: get_bytes(reader)?,
    })
}

fn put_extents(out: &mut Vec<u8>, extents: &[Extent]) {
    put(out, extents.len() as u64);
    for extent in extents {
        put(out, extent.page);
        put(out, u64::from(extent.pages));
    }
}

fn get_extents(reader: &mut Reader<'_>) -> Result<Vec<Extent>, Malformed> {
    let mut extents = Vec::new();
    for _ in 0..get(reader)? {
        let at = reader.at();
        let extent = Extent { page: get(reader)?, pages: get_u32(reader)? };
        if extent.pages == 0 || extent.page >= 1 << 52 {
            return Err(Malformed { at });
        }
        extents.push(extent);
    }
    Ok(extents)
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn get_bytes(reader: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let at = reader.at();
    let len = usize::try_from(get(reader)?).map_err(|_| Malformed { at })?;
    Ok(reader.bytes(len)?.to_vec())
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn get_u32(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let at = reader.at();
    u32::try_from(get(reader)?).map_err(|_| Malformed { at })
}

fn get(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let (at, mut number) = (reader.at(), 0);
    for shift in (0..64).step_by(7) {
        let byte = reader.u8()?;
        let part = u64::from(byte & 0x7F);
        number |= part << shift;
        if byte < 0x80 {
            return if part << shift >> shift == part { Ok(number) } else { Err(Malformed { at }) };
        }
    }
    Err(Malformed { at })
}

#[cfg(test)]
mod tests {
    use stratakv_base::checksum::crc32c;
    use stratakv_base::random::Random;

    use super::*;

    fn sample() -> Manifest {
        let table = |file: u64| Table {
            file,
            extents: vec![Extent { page: 100 * file, pages: 7 }, Extent { page: 1 << 40, pages: 1 }],
            entries: 1000,
            data_pages: 6,
            root: 6,
            filter: 7,
            filter_pages: 1,
            version_min: 5,
            version_max: u64::MAX,
            first: vec![0; 3],
            last: vec![0xFF; 300],
        };
        let rotation =
            Rotation { compactor: 3, start: b"start".into(), cursor: b"cursor".into(), begun: true, wrapped: false };
        Manifest {
            number: 9,
            version: 1 << 33,
            next_file: 12,
            directory: 44,
            rotation,
            levels: vec![vec![table(1), table(2)], vec![], vec![table(3)]],
            values: vec![ValueFile { file: 4, extents: vec![Extent { page: 5, pages: 6 }], bytes: 7, live_bytes: 6 }],
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let manifest = sample();
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes), Ok(manifest));
        for len in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn the_format_of_the_manifest_is_this() {
        assert_eq!(crc32c(0, &sample().encode()), 787_067_443, "a change of the format needs a new version");
    }

    #[test]
    fn bytes_at_random_are_no_panic_and_no_memory() {
        let mut random = Random::new(1);
        let whole = sample().encode();
        for round in 0..50_000 {
            let mut bytes = whole.clone();
            for _ in 0..=round % 4 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            let _ = Manifest::decode(&bytes);
        }
    }
}
