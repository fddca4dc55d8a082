//! Rows of a CSV file, whose first line names the columns.

use std::cell::Cell;
use std::collections::HashSet;
use std::io::{self, BufRead, Read};
use std::rc::Rc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use csv::{ByteRecord, Reader, ReaderBuilder};
use serde_json::{Map, Value};
use stratakv::{Expiry, Kind};

use super::checkpoint::Position;
use super::record::SourceValue;
use super::value::encode;
use crate::csv_line::COLUMNS;
use crate::failure::Failure;
use crate::json_line::{Named, Parsed};
use crate::load::{Row, Rows, taken};
use crate::put::{expiry_in, parse_ttl};

/// A column besides those that `dump --format csv` writes: seconds to live, or a time such as `5m`.
const TTL: &str = "ttl";

/// A longer first line names no columns.
const HEAD_BYTES_MAX: u64 = 1 << 20;
/// A longer row is none: a value of 64 MiB in base64, and as much to spare.
const ROW_BYTES_MAX: u64 = 192 << 20;

/// How rows become records.
#[derive(Args)]
pub(crate) struct CsvArguments {
    /// Of a CSV file: the column with the keys [default: key]
    #[arg(long, value_name = "NAME")]
    key_column: Option<String>,
    /// Of a CSV file: the column with the values [default: value]
    #[arg(long, value_name = "NAME")]
    value_column: Option<String>,
    /// Of a CSV file: what becomes of a row [default: value]
    #[arg(long, value_enum)]
    rows: Option<RowForm>,
    /// Of a CSV file: what stands between two fields, one character of ASCII, or `tab` [default: ,]
    #[arg(long, value_name = "CHARACTER", value_parser = parse_separator)]
    separator: Option<u8>,
}

fn parse_separator(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("one character of ASCII, no quote and no end of a line; or `tab`".into()),
    }
}

impl CsvArguments {
    /// The first option that was given.
    pub(super) fn named(&self) -> Option<&'static str> {
        [
            ("--key-column", self.key_column.is_some()),
            ("--value-column", self.value_column.is_some()),
            ("--rows", self.rows.is_some()),
            ("--separator", self.separator.is_some()),
        ]
        .into_iter()
        .find_map(|(name, is_given)| is_given.then_some(name))
    }

    /// For a checkpoint.
    pub(super) fn shown(&self) -> String {
        let separator = self.separator.unwrap_or(b',').escape_ascii();
        let (key, value, rows) = (&self.key_column, &self.value_column, self.rows.unwrap_or_default());
        format!("csv, --key-column {key:?}, --value-column {value:?}, --rows {rows:?}, --separator {separator}")
    }

    fn reader(&self, has_head: bool, bytes: RowBytes) -> Reader<RowBytes> {
        let mut builder = ReaderBuilder::new();
        // The length of a row is compared with the head, which a reader of the rest has not seen.
        builder.delimiter(self.separator.unwrap_or(b',')).has_headers(has_head).flexible(true).from_reader(bytes)
    }
}

/// `--rows`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowForm {
    /// The column of values is the value. Others may be those of `dump --format csv`, or `ttl`
    #[default]
    Value,
    /// All other columns together are the value, as an object of JSON
    Json,
    /// All other columns are the fields of a hash, as Redis clients have it
    Hash,
}

/// Bytes of a file, of which one row takes only so many: behind a quote that is left open the row
/// would be all the rest.
struct RowBytes {
    file: Box<dyn BufRead>,
    left: Rc<Cell<u64>>,
    /// A quote is open, if quotes come in pairs.
    is_quoted: bool,
}

impl Read for RowBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::Error::other(format!(
                "a row has more than {} MiB (the first one: 1 MiB): is a quote left open, in this line or before?",
                ROW_BYTES_MAX >> 20
            )));
        }
        let read = self.file.read(buffer)?;
        // Else the rest of the file would be one field, and nobody would know.
        if read == 0 && self.is_quoted {
            return Err(io::Error::other("the file ends behind a quote that is left open, in this line or before"));
        }
        let quotes = buffer.iter().take(read).filter(|byte| **byte == b'"').count();
        self.is_quoted ^= quotes % 2 == 1;
        self.left.set(left.saturating_sub(read as u64));
        Ok(read)
    }
}

/// Rows of a file.
pub(super) struct CsvRows {
    reader: Reader<RowBytes>,
    /// Bytes that are left for a row, of so many.
    row_left: Rc<Cell<u64>>,
    row_bytes_max: u64,
    name: String,
    columns: Vec<String>,
    key: Option<usize>,
    value: Option<usize>,
    form: RowForm,
    read_bytes: u64,
    /// Where the reader began: at the file's begin, or where an earlier run stood.
    begun_at: Position,
}

impl CsvRows {
    /// Reads the first line.
    ///
    /// # Errors
    /// It cannot be read, lacks a column, or has one that would be passed over.
    pub(super) fn new(file: Box<dyn BufRead>, name: &str, arguments: &CsvArguments) -> Result<CsvRows, Failure> {
        let row_left = Rc::new(Cell::new(HEAD_BYTES_MAX));
        let mut reader = arguments.reader(true, RowBytes { file, left: Rc::clone(&row_left), is_quoted: false });
        let head = reader.byte_headers().map_err(|error| Failure::failed(format!("cannot read {name}: {error}")))?;
        let columns: Vec<String> = head.iter().map(|column| String::from_utf8_lossy(column).into_owned()).collect();
        let place = |wanted: &str| columns.iter().position(|column| column == wanted);
        let form = arguments.rows.unwrap_or_default();
        let key_column = arguments.key_column.as_deref().unwrap_or("key");
        let value_column = arguments.value_column.as_deref().unwrap_or("value");
        let (key, value) = (place(key_column), place(value_column));
        let wrong =
            |why: String| Err(Failure::usage(format!("{name}: {why}; its columns are: {}", columns.join(", "))));
        let mut known = HashSet::with_capacity(columns.len());
        if let Some(column) = columns.iter().find(|column| !known.insert(column.as_str())) {
            return wrong(format!("there are two columns `{column}`, and one would be left out: rename one of them"));
        }
        let is_dump = form == RowForm::Value && place("key_base64").is_some() && place("value_base64").is_some();
        if key.is_none() && !is_dump {
            return wrong(format!("there is no column `{key_column}`: name the one with the keys with --key-column"));
        }
        if form == RowForm::Value {
            if value.is_none() && !is_dump {
                return wrong(format!(
                    "there is no column `{value_column}`: name the one with the values with --value-column, or take whole rows with --rows json or --rows hash"
                ));
            }
            let is_known = |place: &usize, column: &str| {
                Some(*place) == key || Some(*place) == value || column == TTL || COLUMNS.contains(&column)
            };
            if let Some((_, column)) = columns.iter().enumerate().find(|(place, column)| !is_known(place, column)) {
                return wrong(format!(
                    "the column `{column}` would be left out: --rows json or --rows hash takes whole rows"
                ));
            }
        }
        Ok(CsvRows {
            reader,
            row_left,
            row_bytes_max: ROW_BYTES_MAX,
            name: name.to_owned(),
            columns,
            key,
            value,
            form,
            read_bytes: 0,
            begun_at: Position::default(),
        })
    }

    /// Goes on where an earlier run stood: `rest` is the file from there.
    pub(super) fn resumed(self, position: &Position, arguments: &CsvArguments, rest: Box<dyn BufRead>) -> CsvRows {
        let bytes = RowBytes { file: rest, left: Rc::clone(&self.row_left), is_quoted: false };
        CsvRows { reader: arguments.reader(false, bytes), read_bytes: 0, begun_at: position.clone(), ..self }
    }

    /// Of the file, by the reader's own count of lines from 1 on.
    fn line(&self, line: u64) -> u64 {
        line + self.begun_at.line.saturating_sub(1)
    }

    fn parse(&self, record: &ByteRecord) -> Result<Parsed, String> {
        let field = |place: Option<usize>| place.and_then(|place| record.get(place));
        let named = |name: &str| field(self.columns.iter().position(|column| column == name));
        if self.form != RowForm::Value {
            let key = field(self.key).unwrap_or_default().to_vec();
            let (value, flags) = self.whole(record)?;
            return taken(Parsed { collection: None, key, value, flags, expiry: Expiry::NEVER });
        }
        let text = |name: &str| -> Result<Option<String>, String> {
            let filled = named(name).filter(|field| !field.is_empty());
            let text = filled.map(|field| String::from_utf8(field.to_vec()));
            text.transpose().map_err(|_| format!("`{name}` is not UTF-8"))
        };
        let number = |name: &str| -> Result<Option<u64>, String> {
            text(name)?.map(|text| text.parse().map_err(|_| format!("`{name}` is no number: {text}"))).transpose()
        };
        let bytes = |place: Option<usize>, name: &str| -> Result<Vec<u8>, String> {
            match text(name)? {
                Some(encoded) => STANDARD.decode(encoded).map_err(|error| format!("`{name}` is not base64: {error}")),
                None => Ok(field(place).unwrap_or_default().to_vec()),
            }
        };
        let collection = match (text("collection")?, text("list")?) {
            (Some(_), Some(_)) => return Err("both `collection` and `list`: give one of them".into()),
            (Some(name), None) => Some(Named { name, kind: Kind::KeyValue, order: text("order")? }),
            (None, list) => list.map(|name| Named { name, kind: Kind::List, order: None }),
        };
        let expiry = match (number("expiry_ms")?, number("expiry")?, text(TTL)?) {
            (Some(millis), _, None) => Expiry(millis.min(Expiry::MAX.0)),
            (None, Some(0), None) | (None, None, None) => Expiry::NEVER,
            (None, Some(seconds), None) => Expiry::at_second(seconds),
            (None, None, Some(ttl)) => match parse_ttl(&ttl).map_err(|why| format!("`ttl`: {why}"))? {
                Duration::ZERO => Expiry::NEVER,
                ttl => expiry_in(ttl),
            },
            _ => return Err("both `ttl` and `expiry`: give one of them".into()),
        };
        let flags = number("flags")?.unwrap_or(0);
        taken(Parsed {
            collection,
            key: bytes(self.key, "key_base64")?,
            value: bytes(self.value, "value_base64")?,
            flags: u32::try_from(flags).map_err(|_| format!("`flags` has more than 32 bits: {flags}"))?,
            expiry,
        })
    }

    /// All columns but that of the key.
    fn whole(&self, record: &ByteRecord) -> Result<(Vec<u8>, u32), String> {
        let fields = self.columns.iter().zip(record.iter()).enumerate();
        let fields = fields.filter(|(place, _)| Some(*place) != self.key).map(|(_, field)| field);
        if self.form == RowForm::Hash {
            let fields = fields.map(|(column, field)| (column.clone().into_bytes(), field.to_vec()));
            return encode(SourceValue::Hash(fields.collect()), 0).map_err(str::to_owned);
        }
        let mut object = Map::new();
        for (column, field) in fields {
            let text = std::str::from_utf8(field).map_err(|_| format!("`{column}` is not UTF-8, which JSON wants"))?;
            object.insert(column.clone(), text.into());
        }
        Ok((Value::Object(object).to_string().into_bytes(), 0))
    }
}

impl Rows for CsvRows {
    fn next(&mut self) -> Result<Option<Row>, Failure> {
        let mut record = ByteRecord::new();
        let line = self.line(self.reader.position().line());
        self.row_left.set(self.row_bytes_max);
        let read = self.reader.read_byte_record(&mut record);
        let line = record.position().map_or(line, |position| self.line(position.line()));
        let (has, expected) = (record.len(), self.columns.len());
        let parsed = match read {
            Ok(false) => return Ok(None),
            Ok(true) if has != expected => Err(format!("it has {has} fields, and the first line names {expected}")),
            Ok(true) => self.parse(&record),
            Err(error) => return Err(Failure::failed(format!("cannot read {}, line {line}: {error}", self.name))),
        };
        let behind = self.reader.position().byte();
        let read_bytes = behind.saturating_sub(self.read_bytes);
        self.read_bytes = behind;
        Ok(Some(Row { line, parsed, read_bytes }))
    }

    fn position(&self) -> Position {
        let position = self.reader.position();
        Position {
            offset: self.begun_at.offset + position.byte(),
            line: self.line(position.line()),
            ..Position::default()
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/import/rows.rs"]
mod tests;
