//! Lines of JSON: those of `dump`, and those of other programs, of which one field is the key.

use std::collections::HashMap;
use std::io::{BufRead, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use stratakv::Expiry;
use stratakv::limits::VALUE_BYTES_MAX;
use xxhash_rust::xxh3::Xxh3;

use super::checkpoint::Position;
use crate::failure::Failure;
use crate::json_line::{self, Parsed};
use crate::load::{Row, Rows, taken};

/// Longest line: a key and a value of the longest kind, every byte of them escaped (`\u0000`).
const LINE_BYTES_MAX: u64 = 6 * (VALUE_BYTES_MAX as u64 + (64 << 10)) + 1024;

/// Which fields of a line are the record.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct JsonArguments {
    /// Of lines of JSON that `dump` did not write: the field with the key, a text or a whole
    /// number. The value is the line, as it is
    #[arg(long, value_name = "NAME")]
    key_field: Option<String>,
    /// Of the same: the field with the value; a text is taken without its quotes, other JSON as it
    /// stands there
    #[arg(long, value_name = "NAME", requires = "key_field")]
    value_field: Option<String>,
}

impl JsonArguments {
    /// The first option that was given.
    pub(super) fn named(&self) -> Option<&'static str> {
        self.key_field.is_some().then_some("--key-field")
    }

    /// For a checkpoint.
    pub(super) fn shown(&self) -> String {
        format!("jsonl, --key-field {:?}, --value-field {:?}", self.key_field, self.value_field)
    }

    fn parse(&self, line: &[u8]) -> Result<Parsed, String> {
        let Some(key_field) = &self.key_field else { return json_line::parse(line) };
        let object: HashMap<String, &RawValue> = serde_json::from_slice(line).map_err(|error| {
            let what = error.to_string();
            format!("it is no object of JSON: {}", what.split(" at line ").next().unwrap_or(&what))
        })?;
        let field = |name: &str| object.get(name).ok_or_else(|| format!("it has no field `{name}`"));
        let key = match serde_json::from_str(field(key_field)?.get()) {
            Ok(Value::String(text)) => text.into_bytes(),
            Ok(Value::Number(number)) if !number.is_f64() => number.to_string().into_bytes(),
            _ => return Err(format!("its field `{key_field}` is no text and no whole number of 64 bits")),
        };
        let value = match &self.value_field {
            None => line.trim_ascii().to_vec(),
            Some(name) => match field(name)?.get() {
                text if text.starts_with('"') => serde_json::from_str::<String>(text)
                    .map_err(|error| format!("its field `{name}` is no text: {error}"))?
                    .into_bytes(),
                // As it is: a number here has as many digits as it has there.
                other => other.as_bytes().to_vec(),
            },
        };
        Ok(Parsed { collection: None, key, value, flags: 0, expiry: Expiry::NEVER })
    }
}

/// The first line of what `export --resume` writes. Without a key it begins at the first record.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Continuation {
    continues_behind_base64: String,
}

/// The last line of that, if the export came to its end: how many records it wrote.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ending {
    ends_after: u64,
}

/// What is known of the end of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// They are those of a file.
    OfFile,
    /// A producer writes them; when it fails, they end all the same.
    Unknown,
    /// The first line promised a last one.
    Promised,
    /// It was that line.
    Reached,
}

/// Lines of a file, or of stdin.
pub(crate) struct JsonLines {
    lines: Box<dyn BufRead>,
    name: String,
    fields: JsonArguments,
    text: Vec<u8>,
    position: Position,
    /// Of stdin, if an import is to resume: of all that was read.
    hash: Option<Xxh3>,
    last_key: Vec<u8>,
    end: End,
    /// Lines that were read of `lines`.
    read: u64,
}

impl JsonLines {
    /// Of `dump`.
    pub(crate) fn new(lines: Box<dyn BufRead>, name: String) -> JsonLines {
        let (fields, position) = (JsonArguments::default(), Position::default());
        let (text, last_key) = Default::default();
        JsonLines { lines, name, fields, text, position, hash: None, last_key, end: End::OfFile, read: 0 }
    }

    /// Of these fields.
    pub(super) fn with_fields(self, fields: &JsonArguments) -> JsonLines {
        JsonLines { fields: fields.clone(), ..self }
    }

    /// The file is read from there on.
    pub(super) fn starting_at(self, position: Option<&Position>) -> JsonLines {
        JsonLines { position: position.cloned().unwrap_or_default(), ..self }
    }

    /// Passes over what an earlier run took of stdin. Its bytes must be the same; or the stream
    /// says that it begins behind the last key.
    ///
    /// # Errors
    /// It is another stream.
    pub(super) fn pass(mut self, begun_at: Option<&Position>) -> Result<JsonLines, Failure> {
        (self.hash, self.end) = (Some(Xxh3::new()), End::Unknown);
        let Some(begun_at) = begun_at else { return Ok(self) };
        let other = |why: &str| {
            Failure::usage(format!(
                "this is not what stdin had before: {why}. Give the same lines again, or remove the checkpoint to begin again"
            ))
        };
        while self.position.offset < begun_at.offset {
            if !self.read_line()? {
                return Err(other("it ends sooner"));
            }
            if let Some(key) = self.promise()
                && !key.is_empty()
            {
                if begun_at.last_key_base64.as_ref() != Some(&key) {
                    return Err(other("it goes on behind another key"));
                }
                // Bytes before are not known from now on.
                return Ok(JsonLines { position: begun_at.clone(), hash: None, ..self });
            }
        }
        let is_same = self.position.offset == begun_at.offset && self.hash_shown() == begun_at.xxh3;
        match &begun_at.xxh3 {
            None => Err(other("the last run went on by `export --resume`, so this one has to")),
            Some(_) if !is_same => Err(other("its bytes are others")),
            Some(_) => {
                self.position.last_key_base64.clone_from(&begun_at.last_key_base64);
                Ok(self)
            }
        }
    }

    /// The key in the first line of `export --resume`, if it is that line. It promises a last one.
    fn promise(&mut self) -> Option<String> {
        let is_first = self.read == 1 && self.end == End::Unknown;
        let line = is_first.then(|| serde_json::from_slice::<Continuation>(&self.text).ok()).flatten()?;
        self.end = End::Promised;
        Some(line.continues_behind_base64)
    }

    /// Whether the line is about the stream, and no record.
    ///
    /// # Errors
    /// It contradicts the lines before.
    fn is_of_stream(&mut self) -> Result<bool, Failure> {
        match self.end {
            End::OfFile => Ok(false),
            End::Unknown => match self.promise() {
                Some(key) if !key.is_empty() => Err(Failure::usage(
                    "stdin goes on behind a key, and there is no checkpoint: give `export --resume` and this command the same file"
                        .to_owned(),
                )),
                begins => Ok(begins.is_some()),
            },
            End::Promised => {
                // Cheap: it is asked of every line.
                let may_be = self.text.starts_with(b"{\"ends_after\"");
                let ending = may_be.then(|| serde_json::from_slice::<Ending>(&self.text).ok()).flatten();
                let Some(Ending { ends_after }) = ending else { return Ok(false) };
                // Beside the first line and this one.
                let records = self.read.saturating_sub(2);
                if ends_after != records {
                    let why = format!("stdin has {records} records, and its last line says {ends_after}");
                    return Err(Failure::failed(why));
                }
                self.end = End::Reached;
                Ok(true)
            }
            End::Reached => Err(Failure::failed("stdin goes on behind its last line".to_owned())),
        }
    }

    fn hash_shown(&self) -> Option<String> {
        self.hash.as_ref().map(|hash| format!("{:032x}", hash.digest128()))
    }

    /// Reads a line; whether there was one.
    fn read_line(&mut self) -> Result<bool, Failure> {
        self.text.clear();
        let read = self.lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.text);
        let (name, line) = (&self.name, self.position.line + 1);
        let read = read.map_err(|error| Failure::failed(format!("cannot read {name}: {error}")))?;
        if read == 0 {
            return Ok(false);
        }
        if read as u64 == LINE_BYTES_MAX && self.text.last() != Some(&b'\n') {
            return Err(Failure::failed(format!("{name}: line {line} is longer than any record can be")));
        }
        self.read += 1;
        self.position.line = line;
        self.position.offset += read as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(&self.text);
        }
        Ok(true)
    }
}

impl Rows for JsonLines {
    fn next(&mut self) -> Result<Option<Row>, Failure> {
        let begin = self.position.offset;
        while self.read_line()? {
            if !self.text.trim_ascii().is_empty() && !self.is_of_stream()? {
                let parsed = self.fields.parse(&self.text).and_then(taken);
                if let Ok(parsed) = &parsed {
                    self.last_key.clone_from(&parsed.key);
                }
                return Ok(Some(Row { line: self.position.line, parsed, read_bytes: self.position.offset - begin }));
            }
        }
        if self.end == End::Promised {
            return Err(Failure::failed(
                "stdin ended without the last line of `export --resume`, so that has not come to its end: see what it said"
                    .to_owned(),
            ));
        }
        Ok(None)
    }

    fn is_end_certain(&self) -> bool {
        self.end != End::Unknown
    }

    fn position(&self) -> Position {
        let mut position = Position { xxh3: self.hash_shown(), ..self.position.clone() };
        // Else it is that of the run before.
        if !self.last_key.is_empty() {
            position.last_key_base64 = Some(STANDARD.encode(&self.last_key));
        }
        position
    }
}

#[cfg(test)]
#[path = "../../tests/unit/import/json_lines.rs"]
mod tests;
