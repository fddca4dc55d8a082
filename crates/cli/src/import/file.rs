//! Files: which kind one is, and those of Redis.

use std::io::BufRead;
use std::path::Path;

use clap::ValueEnum;

use super::checkpoint::Position;
use super::rdb::{RdbError, RdbItem, RdbReader};
use super::record::SourceRecord;
use super::tally::Reason;
use super::target::Sink;
use crate::failure::{Exit, Failure};
use crate::load;

/// `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FileFormat {
    /// Redis's `dump.rdb`, versions 1 to 11
    Rdb,
    /// A line for each record, the first one names the columns
    Csv,
    /// Lines of JSON, as `dump` writes them
    Jsonl,
}

impl FileFormat {
    /// That of a file: as asked for, or by how it begins, or by its name.
    pub(super) fn of(asked: Option<FileFormat>, file: &Path, content: &mut dyn BufRead) -> Result<FileFormat, Failure> {
        let name = load::name_of(file);
        let begin = content.fill_buf().map_err(|error| Failure::failed(format!("cannot read {name}: {error}")))?;
        let by_name = file.extension().and_then(|extension| match extension.to_str()? {
            "csv" => Some(FileFormat::Csv),
            "jsonl" | "json" | "ndjson" => Some(FileFormat::Jsonl),
            _ => None,
        });
        let by_content = match begin.first() {
            _ if begin.starts_with(b"REDIS") => Some(FileFormat::Rdb),
            Some(b'{') => Some(FileFormat::Jsonl),
            _ => None,
        };
        asked.or(by_name).or(by_content).ok_or_else(|| {
            Failure::usage(format!(
                "{name}: is it rdb, csv or jsonl? Its name and its first bytes do not tell: say --format"
            ))
        })
    }
}

/// Where a file is wrong.
pub(super) fn failure(name: &str, error: &RdbError) -> Failure {
    Failure::new(if error.is_damage { Exit::Corrupt } else { Exit::Failed }, format!("{name}: {error}"))
}

/// Imports a file of Redis, of one database. `asked`: which, if the user named one. Records of
/// others are missing only from an import of the whole file.
pub(super) fn import_rdb(
    mut reader: RdbReader<Box<dyn BufRead>>,
    name: &str,
    asked: Option<u32>,
    target: &mut dyn Sink,
) -> Result<(), Failure> {
    let database = asked.unwrap_or(0);
    let reason = if asked.is_some() { Reason::Harmless } else { Reason::Unsupported };
    // What earlier runs took is read again, as the checksum is that of the whole file.
    let begun_at = target.begun_at().map_or(0, |position| position.offset);
    loop {
        let item = reader.next().map_err(|error| failure(name, &error))?;
        let offset = reader.offset();
        if offset <= begun_at && !matches!(item, RdbItem::End { .. }) {
            continue;
        }
        let of = reader.database();
        match item {
            RdbItem::End { .. } => return Ok(()),
            item => take(item, (of != u64::from(database)).then_some((of, reason)), target)?,
        }
        target.reached(Position { offset, ..Position::default() })?;
    }
}

/// Takes an item, or counts why not. `elsewhere`: it is in this other database, and what that
/// means.
fn take(item: RdbItem, elsewhere: Option<(u64, Reason)>, target: &mut dyn Sink) -> Result<(), Failure> {
    if let (
        Some((of, reason)),
        RdbItem::Record(SourceRecord { key, .. }) | RdbItem::LeftOut { key, .. } | RdbItem::Damaged { key, .. },
    ) = (elsewhere, &item)
    {
        target.tally().add(reason, format!("they are in database {of}: import it by --database {of}"), key);
        return Ok(());
    }
    match item {
        RdbItem::End { .. } => {}
        RdbItem::Foreign(what) => target.tally().add(Reason::Unsupported, what, b""),
        RdbItem::Record(record) => target.take(record)?,
        RdbItem::LeftOut { key, what } => target.tally().add(Reason::Unsupported, what, &key),
        RdbItem::Damaged { key, why } => target.tally().add(Reason::Failed, why, &key),
    }
    Ok(())
}
