//! Records as lines of JSON, as `stratakv dump` writes them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use stratakv::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Bytes that are not UTF-8 stand in base64.
#[derive(Default, Serialize)]
struct Line<'b> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'b str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'b str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// What is written, and what is not.
pub struct Lines<W> {
    out: W,
    records: u64,
    bytes: u64,
    /// How many of each kind were left out, and one of them.
    left_out: BTreeMap<&'static str, (u64, String)>,
    /// Told, and nothing that was asked for.
    notes: Vec<String>,
    /// An earlier run of `import --resume` has all up to this key, in the order of the source.
    behind: Option<Vec<u8>>,
    /// Whether `import --resume` reads this: it wants a last line.
    is_for_resume: bool,
}

/// The first line for `import --resume`: which key this goes on behind, or an empty text.
#[derive(Serialize)]
struct Continuation {
    continues_behind_base64: String,
}

/// The last line for `import --resume`: all is there, and so many records of this run.
#[derive(Serialize)]
struct Ending {
    ends_after: u64,
}

/// The last key that a checkpoint of `import --resume` names; `None`: there is no such file, or it
/// names none yet.
///
/// # Errors
/// The file cannot be read, or is no checkpoint.
pub fn last_key(checkpoint: &Path) -> Result<Option<Vec<u8>>, String> {
    let shown = checkpoint.display();
    let text = match std::fs::read(checkpoint) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {shown}: {error}")),
    };
    let other = || format!("{shown} is no checkpoint of `stratakv import --resume`: name the one that it writes");
    let saved: serde_json::Value = serde_json::from_slice(&text).map_err(|_| other())?;
    let position = saved.get("position").ok_or_else(other)?;
    let Some(key) = position.get("last_key_base64") else { return Ok(None) };
    let key = key.as_str().and_then(|key| STANDARD.decode(key).ok());
    key.map(Some).ok_or_else(other)
}

impl<W: Write> Lines<W> {
    /// None yet.
    pub fn new(out: W) -> Lines<W> {
        let (left_out, notes) = Default::default();
        Lines { out, records: 0, bytes: 0, left_out, notes, behind: None, is_for_resume: false }
    }

    /// Goes on behind this key, if there is one, and says so in the first line.
    ///
    /// # Errors
    /// Nobody reads the lines.
    pub fn begin_behind(&mut self, key: Option<Vec<u8>>) -> Result<(), String> {
        let line = Continuation { continues_behind_base64: STANDARD.encode(key.as_deref().unwrap_or_default()) };
        (self.behind, self.is_for_resume) = (key, true);
        self.write_line(&line)
    }

    /// Where the source is to be read from; the record of this key itself is passed over.
    pub fn begun_behind(&self) -> Option<&[u8]> {
        self.behind.as_deref()
    }

    fn write_line(&mut self, line: &impl Serialize) -> Result<(), String> {
        serde_json::to_writer(&mut self.out, line).map_err(|error| format!("cannot write: {error}"))?;
        self.out.write_all(b"\n").map_err(|error| format!("cannot write: {error}"))
    }

    /// Writes a record, or counts why not.
    ///
    /// # Errors
    /// Nobody reads the lines.
    pub fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        match (key.len(), value.len()) {
            _ if self.behind.as_deref() == Some(key) => {}
            (0, _) => self.leave_out("a store has no empty key", key),
            (bytes, _) if bytes > KEY_BYTES_MAX => self.leave_out("keys have at most 65,535 bytes", key),
            (_, bytes) if bytes > VALUE_BYTES_MAX => self.leave_out("values have at most 64 MiB", key),
            _ => {
                let base64 = |bytes: &[u8]| std::str::from_utf8(bytes).is_err().then(|| STANDARD.encode(bytes));
                let (key_text, value_text) = (std::str::from_utf8(key).ok(), std::str::from_utf8(value).ok());
                let line =
                    Line { key: key_text, key_base64: base64(key), value: value_text, value_base64: base64(value) };
                self.write_line(&line)?;
                self.records += 1;
                self.bytes += (key.len() + value.len()) as u64;
            }
        }
        Ok(())
    }

    /// Counts what is not written.
    pub fn leave_out(&mut self, why: &'static str, key: &[u8]) {
        let shown = || key.get(..80).unwrap_or(key).escape_ascii().to_string();
        self.left_out.entry(why).or_insert_with(|| (0, shown())).0 += 1;
    }

    /// Says something at the end.
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// All is written.
    ///
    /// # Errors
    /// Nobody reads the lines.
    pub fn end(&mut self) -> Result<(), String> {
        if self.is_for_resume {
            self.write_line(&Ending { ends_after: self.records })?;
        }
        self.out.flush().map_err(|error| format!("cannot write: {error}"))
    }

    /// Whether nothing was left out.
    pub fn is_complete(&self) -> bool {
        self.left_out.is_empty()
    }

    /// Lines for people.
    pub fn report(&self) -> String {
        let mut text = format!("export: {} records ({} bytes)\n", self.records, self.bytes);
        for (why, (count, example)) in &self.left_out {
            // It cannot fail: it is a string.
            let _written = writeln!(text, "export: left out: {count}: {why}, such as `{example}`");
        }
        for note in &self.notes {
            let _written = writeln!(text, "export: {note}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_line_or_is_counted() {
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        lines.write(b"k", b"v\n").unwrap();
        lines.write(b"\xFF", b"\x80").unwrap();
        lines.write(b"", b"v").unwrap();
        lines.write(&[b'k'; KEY_BYTES_MAX + 1], b"v").unwrap();
        lines.end().unwrap();
        assert!(!lines.is_complete());
        let report = lines.report();
        assert!(report.contains("2 records (5 bytes)") && report.contains("1: keys have at most"), "{report}");
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "{\"key\":\"k\",\"value\":\"v\\n\"}\n{\"key_base64\":\"/w==\",\"value_base64\":\"gA==\"}\n");
    }

    #[test]
    fn lines_go_on_behind_the_key_of_a_checkpoint() {
        let file = std::env::temp_dir().join(format!("stratakv-export-checkpoint-{}", std::process::id()));
        assert_eq!(last_key(&file), Ok(None));
        std::fs::write(&file, "{\"version\":1,\"position\":{\"offset\":9,\"last_key_base64\":\"aw==\"}}").unwrap();
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        lines.begin_behind(last_key(&file).unwrap()).unwrap();
        assert_eq!(lines.begun_behind(), Some(&b"k"[..]));
        lines.write(b"k", b"is there").unwrap();
        lines.write(b"l", b"v").unwrap();
        lines.end().unwrap();
        assert!(lines.report().contains("1 records"));
        let text = String::from_utf8(out).unwrap();
        let first = "{\"continues_behind_base64\":\"aw==\"}\n{\"key\":\"l\",\"value\":\"v\"}\n";
        assert_eq!(text, format!("{first}{{\"ends_after\":1}}\n"));
        // What fails has no last line.
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        lines.begin_behind(None).unwrap();
        lines.write(b"k", b"v").unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "{\"continues_behind_base64\":\"\"}\n{\"key\":\"k\",\"value\":\"v\"}\n");
        for none in ["", "{}", "{\"position\":{\"last_key_base64\":\"?\"}}"] {
            std::fs::write(&file, none).unwrap();
            assert!(last_key(&file).unwrap_err().contains("no checkpoint"), "{none}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
