//! What goes with a region that is given up, in figures and in words.

use std::fmt;

use stratakv_base::Key;

use super::Known;
use crate::volume::LevelTable;

/// What goes with a region that is given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Why the region was not served.
    pub why: String,
    /// What the volume knew of it.
    pub known: Known,
    /// The volume was closed in order: nothing was written behind what it knows.
    pub clean: bool,
    /// All of the region is there but what follows this version: that much of it is kept.
    pub kept_version: Option<u64>,
    /// Versions in tables that are left, all of which are kept.
    pub entries: u64,
    /// Tables that lay in the PMEM levels and are lost, from the top down.
    pub tables: Vec<LostTable>,
}

/// A table of which a page lay in the PMEM levels of a region that is lost: all of it is, what it
/// had on the volume too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostTable {
    /// 1 is the first level below L0.
    pub level: u32,
    /// Its number.
    pub file: u64,
    /// Versions in it.
    pub entries: u64,
    /// Of these, deletes.
    pub deletes: u64,
    /// Bytes of its pages.
    pub bytes: u64,
    /// Bytes of values that lay apart on the volume, which nothing points to any more.
    pub value_bytes: u64,
    /// Its lowest version, and its highest.
    pub versions: (u64, u64),
    /// Its first key and its last one, encoded.
    pub keys: (Vec<u8>, Vec<u8>),
    /// A table that is left has keys in its range, and older versions: they are seen from now on.
    pub hid_others: bool,
}

impl LostTable {
    /// `level`: 0 is the first one below L0.
    pub(crate) fn new(level: usize, table: &LevelTable, hid_others: bool) -> LostTable {
        let facts = &table.facts;
        LostTable {
            level: u32::try_from(level + 1).unwrap_or(u32::MAX),
            file: facts.file,
            entries: facts.entries,
            deletes: facts.deletes,
            bytes: u64::from(facts.pages) * 4096,
            value_bytes: facts.blob.iter().map(|(_, bytes)| bytes).sum(),
            versions: (facts.lowest_version, facts.highest_version),
            keys: (facts.first_key.to_vec(), facts.last_key.to_vec()),
            hid_others,
        }
    }
}

/// An encoded key for people.
fn printable(key: &[u8]) -> String {
    Key::from_encoded(key).map_or_else(|| key.escape_ascii().to_string(), |key| key.to_string())
}

/// One line: what it was, and where.
impl fmt::Display for LostTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostTable { level, file, entries, deletes, versions: (lowest, highest), keys: (first, last), .. } = self;
        write!(
            f,
            "table {file} of level {level}: {entries} versions of records ({deletes} of them deletes), versions {lowest} to {highest}, keys {} to {}",
            printable(first),
            printable(last)
        )?;
        if self.value_bytes > 0 {
            write!(f, "; {} bytes of its values lay apart", self.value_bytes)?;
        }
        f.write_str(if self.hid_others { "; older versions below it come to light" } else { "; nothing lies below it" })
    }
}

impl Loss {
    /// What is lost with the PMEM levels.
    fn write_tables(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&LostTable) -> u64| self.tables.iter().map(of).sum::<u64>();
        write!(
            f,
            "Lost with the PMEM levels: {} tables with {} versions of records, {} of them deletes",
            self.tables.len(),
            sum(|table| table.entries),
            sum(|table| table.deletes)
        )?;
        let mut levels: Vec<u32> = self.tables.iter().map(|table| table.level).collect();
        levels.dedup();
        for level in levels {
            let of_it = || self.tables.iter().filter(|table| table.level == level);
            let (first, last) = (of_it().map(|table| &table.keys.0).min(), of_it().map(|table| &table.keys.1).max());
            let (first, last) = (first.map(|key| printable(key)), last.map(|key| printable(key)));
            let (tables, entries) = (of_it().count(), of_it().map(|table| table.entries).sum::<u64>());
            write!(f, "; in level {level} {tables} with {entries} versions")?;
            write!(f, ", of keys {} to {}", first.unwrap_or_default(), last.unwrap_or_default())?;
        }
        let hid = self.tables.iter().filter(|table| table.hid_others).count();
        f.write_str(". A key in the range of one of them may be gone with all its versions, even old ones")?;
        if hid > 0 {
            write!(
                f,
                "; or, since tables that are kept lie below {hid} of them, come back with an older value, and come back after it was deleted"
            )?;
        }
        f.write_str("; of a batch a part may be left. Of keys in no such range: ")
    }

    fn write_container(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Known { epoch, version, oldest, records, .. } = self.known;
        match (epoch.number, oldest) {
            (0, _) => write!(
                f,
                "Lost: all that only the region had; this volume does not say how much (an older program wrote it)"
            ),
            (_, 0) => {
                write!(f, "Lost: of the changes up to version {version} none, all of them are on the volume")?;
                self.write_behind(f)
            }
            _ => {
                if oldest > 1 {
                    write!(f, "Every change up to version {} is there. ", oldest - 1)?;
                }
                write!(
                    f,
                    "Lost: what only the region had of versions {oldest} to {version}, {records} changes or less"
                )?;
                self.write_behind(f)
            }
        }
    }

    /// What the volume cannot know.
    fn write_behind(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.known.version;
        match self.clean {
            true => write!(f, "; nothing was written after version {version}: the store was closed in order"),
            false => write!(f, "; and whatever was written after version {version}, of which the volume knows nothing"),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.known.version;
        write!(f, "on the volume are {} versions of records, which are kept. ", self.entries)?;
        if !self.tables.is_empty() {
            self.write_tables(f)?;
        }
        let Some(kept) = self.kept_version else { return self.write_container(f) };
        write!(f, "Of the region all changes up to version {kept} are kept. ")?;
        if kept < version {
            write!(f, "Lost: versions {} to {version}", kept + 1)?;
        } else {
            write!(f, "Lost: none up to version {version}")?;
        }
        self.write_behind(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairing::Epoch;

    fn known() -> Known {
        let epoch = Epoch { number: 5, session: 105 };
        Known { epoch, directory: 40, version: 900, oldest: 800, records: 90 }
    }

    #[test]
    fn a_loss_says_from_where_to_where() {
        let loss = Loss { known: known(), entries: 12, ..Loss::default() };
        let said = loss.to_string();
        assert!(
            said.contains("up to version 799 is there") && said.contains("800 to 900, 90 changes or less"),
            "{said}"
        );
        assert!(said.contains("after version 900, of which the volume knows nothing"), "{said}");
        let kept = Loss { kept_version: Some(890), clean: true, ..loss }.to_string();
        assert!(kept.contains("up to version 890 are kept") && kept.contains("versions 891 to 900"), "{kept}");
    }

    #[test]
    fn a_loss_says_which_keys_of_which_levels_went_with_the_pmem_levels() {
        let table = |level, file, (first, last): (&str, &str)| LostTable {
            level,
            file,
            entries: 100,
            deletes: 5,
            bytes: 8192,
            value_bytes: 0,
            versions: (10 * file, 10 * file + 9),
            keys: (format!("\0{first}").into(), format!("\0{last}").into()),
            hid_others: false,
        };
        let tables = vec![table(1, 3, ("a", "f")), table(1, 4, ("g", "k")), table(2, 2, ("c", "z"))];
        let mut loss = Loss { known: known(), entries: 12, tables, ..Loss::default() };
        let said = loss.to_string();
        for part in [
            "3 tables with 300 versions of records, 15 of them deletes",
            "in level 1 2 with 200 versions, of keys `a` to `k`",
            "in level 2 1 with 100 versions, of keys `c` to `z`",
            "Of keys in no such range: Every change up to version 799 is there",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("older value"), "nothing lies below: {said}");
        loss.tables[1].hid_others = true;
        let said = loss.to_string();
        assert!(said.contains("below 1 of them, come back with an older value"), "{said}");
        assert!(loss.tables[1].to_string().contains("older versions below it"), "{}", loss.tables[1]);
    }
}
