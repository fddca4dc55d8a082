//! Reading a row of the directory.

use std::collections::HashMap;

use stratakv_base::Corruption;
use stratakv_base::checksum::crc32c;
use stratakv_base::codec::{Reader, Truncated};
use stratakv_pmem::Pmem;

use super::super::directory::RowEntry;
use super::super::medium::{Medium, ROW, UNIT_HEADER_BYTES, u32_at};
use super::{DELETE_BIT, Down, HEADER_BYTES, PLACE_MASK, Row};

/// Metadata that is read at once.
const PIECE_BYTES: u64 = 4096;

impl Row {
    /// Reads a row: header and metadata are compared with their checksums, the units that are not
    /// down with what they should be.
    pub(in super::super) fn open<P: Pmem>(medium: &Medium<P>, entry: &RowEntry) -> Result<Row, Corruption> {
        let mut header = [0; HEADER_BYTES as usize];
        let at = medium.layout.unit_start(entry.first_unit.min(medium.layout.units()));
        medium.load(at + UNIT_HEADER_BYTES, &mut header)?;
        let seed = medium.layout.seed(entry.number, 0);
        let crc = u32_at(&header, 44);
        if crc != entry.header_crc || crc != crc32c(seed, &header[..44]) {
            return Err(medium.damage(
                at,
                "header of a row",
                format!("{:08x}", entry.header_crc),
                format!("{crc:08x}"),
            ));
        }
        let mut row = Row { header_crc: crc, units: vec![entry.first_unit], ..Row::default() };
        let parsed = row.parse(&header);
        let (units, common, metadata_crc) = parsed.map_err(|error| row.damage_of(medium, error.to_string()))?;
        if row.number != entry.number || units > medium.layout.units() {
            return Err(row.damage_of(medium, format!("{units} units, of memtable {}", row.number)));
        }
        row.read_units(medium, units)?;
        if row.metadata_crc(medium, seed)? != metadata_crc {
            return Err(row.damage_of(medium, "metadata with another checksum".to_owned()));
        }
        row.find_firsts(medium)?;
        let (from, to, wrapped) = (entry.down_from, entry.down_to, entry.wrapped);
        row.set_down(medium, Down { from, to, wrapped })?;
        row.prefix = row.first_key.get(..common as usize).unwrap_or_default().to_vec();
        row.check_unit_headers(medium)?;
        Ok(row)
    }

    fn parse(&mut self, header: &[u8]) -> Result<(u32, u32, u32), Truncated> {
        let mut reader = Reader::new(header);
        self.number = reader.u64()?;
        self.elements = reader.u32()?;
        let units = reader.u32()?;
        self.metadata_units = units.saturating_sub(reader.u32()?);
        let common = reader.u32()?;
        (self.lowest, self.highest) = (reader.u64()?, reader.u64()?);
        Ok((units, common, reader.u32()?))
    }

    /// The list may lie in several units, each of which it names before itself.
    fn read_units<P: Pmem>(&mut self, medium: &Medium<P>, units: u32) -> Result<(), Corruption> {
        for ordinal in 0..u64::from(units) {
            let unit = medium.load_u32(self.metadata_at(medium, 4 * ordinal))?;
            match self.units.get(ordinal as usize) {
                None => self.units.push(unit),
                Some(first) if *first == unit => {}
                Some(first) => return Err(self.damage_of(medium, format!("unit {unit} in the place of {first}"))),
            }
        }
        Ok(())
    }

    pub(in super::super) fn metadata_crc<P: Pmem>(&self, medium: &Medium<P>, seed: u32) -> Result<u32, Corruption> {
        let (mut crc, mut at, end) = (seed, 0, self.metadata_bytes());
        let mut piece = [0; PIECE_BYTES as usize];
        while at < end {
            let offset = self.metadata_at(medium, at);
            let room = medium.layout.unit_end(medium.layout.unit_of(offset)).saturating_sub(offset);
            let len = PIECE_BYTES.min(end - at).min(room.max(1)) as usize;
            medium.load(offset, &mut piece[..len])?;
            crc = crc32c(crc, &piece[..len]);
            at += len as u64;
        }
        Ok(crc)
    }

    fn find_firsts<P: Pmem>(&mut self, medium: &Medium<P>) -> Result<(), Corruption> {
        let ordinals: HashMap<u32, usize> =
            self.data_units().iter().enumerate().map(|(at, unit)| (*unit, at)).collect();
        for element in 0..self.elements {
            let word = self.word(medium, element)?;
            self.deletes += u32::from(word & DELETE_BIT != 0);
            let unit = medium.layout.unit_of(word & PLACE_MASK);
            let known = self.firsts.len();
            match ordinals.get(&unit) {
                Some(ordinal) if *ordinal == known => self.firsts.push(element),
                Some(ordinal) if *ordinal + 1 == known => {}
                _ => return Err(self.damage_of(medium, format!("element {element} in unit {unit}"))),
            }
        }
        Ok(())
    }

    fn check_unit_headers<P: Pmem>(&self, medium: &Medium<P>) -> Result<(), Corruption> {
        for (ordinal, unit) in self.units.iter().enumerate() {
            let is_down = ordinal.checked_sub(self.metadata_units as usize).is_some_and(|data| self.is_unit_down(data));
            let header = medium.unit_header(*unit)?;
            let is_right = header.is_some_and(|header| {
                (header.kind, header.number, header.ordinal as usize) == (ROW, self.number, ordinal)
            });
            if !is_down && !is_right {
                return Err(self.damage_of(medium, format!("{header:?} in its unit {unit}")));
            }
        }
        Ok(())
    }
}
