//! One record as a line of JSON: the format of `dump`, `load` and `scan --json`.
//!
//! `{"key": "..", "value": "..", "flags": 1, "expiry": 1790000000}`; bytes that are not UTF-8 stand
//! in `key_base64`, `value_base64`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use stratakv::{Expiry, Kind, Record};

/// The fields of a line, as written.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    /// Its name; none for the default collection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) collection: Option<String>,
    /// The list's name instead, if it is an element of one; its key is its position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) list: Option<String>,
    /// The order of the collection; none for that of bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value_base64: Option<String>,
    /// Opaque to the store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) flags: u32,
    /// Seconds since 1970; 0 for never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) expiry: u32,
    /// The same in milliseconds, where it is not a whole second; what counts if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expiry_ms: Option<u64>,
    /// For readers; ignored by `load`, which makes versions of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// Where it goes, if not into the default collection.
    pub(crate) collection: Option<Named>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
}

/// A collection, as a line names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// `None`: the order it is in, or that of bytes if it is to be made.
    pub(crate) order: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Bytes as text if they are UTF-8, else in base64.
pub(crate) fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

/// As the two fields have it.
fn written(expiry: Expiry) -> (u32, Option<u64>) {
    let millis = (!expiry.0.is_multiple_of(1000)).then_some(expiry.0);
    (u32::try_from(expiry.seconds()).unwrap_or(u32::MAX), millis)
}

impl Line {
    /// A record without its version.
    pub(crate) fn new(key: &[u8], record: &Record) -> Line {
        Line::with_value(key, &record.to_bytes()).living(record.flags, record.expiry)
    }

    /// The same, with flags and an expiry.
    pub(crate) fn living(self, flags: u32, expiry: Expiry) -> Line {
        let (expiry, expiry_ms) = written(expiry);
        Line { flags, expiry, expiry_ms, ..self }
    }

    /// A key and a value.
    pub(crate) fn with_value(key: &[u8], value: &[u8]) -> Line {
        let (value, value_base64) = text_or_base64(value);
        Line { value, value_base64, ..Line::key_only(key) }
    }

    /// A key.
    pub(crate) fn key_only(key: &[u8]) -> Line {
        let (key, key_base64) = text_or_base64(key);
        Line { key, key_base64, ..Line::default() }
    }
}

/// Reads a line. The message of an error says what is wrong with it.
pub(crate) fn parse(line: &[u8]) -> Result<Parsed, String> {
    let line: Line = serde_json::from_slice(line).map_err(|error| message(&error))?;
    let collection = match (line.collection, line.list, line.order) {
        (Some(_), Some(_), _) => return Err("both `collection` and `list`: give one of them".into()),
        (None, _, Some(_)) => return Err("`order` without `collection`: leave it out, or say which collection".into()),
        (None, list, None) => list.map(|name| Named { name, kind: Kind::List, order: None }),
        (Some(name), None, order) => Some(Named { name, kind: Kind::KeyValue, order }),
    };
    Ok(Parsed {
        collection,
        key: bytes("key", line.key, line.key_base64)?,
        value: bytes("value", line.value, line.value_base64)?,
        flags: line.flags,
        expiry: line
            .expiry_ms
            .map_or(Expiry::at_second(line.expiry.into()), |millis| Expiry(millis.min(Expiry::MAX.0))),
    })
}

/// serde_json counts lines within what it was given, which is always one: the column is what helps.
fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    let column = error.column();
    match error.classify() {
        // An unknown field, a number where text should be: serde's words fit.
        serde_json::error::Category::Data => format!("{what}, at column {column}"),
        serde_json::error::Category::Eof => "the line ends in the middle of its JSON".to_owned(),
        _ => format!("it is not JSON from column {column} on"),
    }
}

fn bytes(name: &str, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(encoded)) => {
            STANDARD.decode(encoded).map_err(|error| format!("`{name}_base64` is not base64: {error}"))
        }
        (None, None) => Err(format!("no `{name}` and no `{name}_base64`")),
        (Some(_), Some(_)) => Err(format!("both `{name}` and `{name}_base64`: give one of them")),
    }
}

/// What holds for any bytes: run by the fuzzer (docs/fuzzing.md), and over its corpus by a test. A
/// line is refused with a reason, or is the same again after it was written as `dump` writes it.
#[cfg(any(test, fuzzing))]
pub(crate) fn holds_for_any_line(line: &[u8]) {
    let parsed = match parse(line) {
        Ok(parsed) => parsed,
        Err(why) => return assert!(!why.is_empty()),
    };
    let (value, value_base64) = text_or_base64(&parsed.value);
    let named = parsed.collection.as_ref();
    let name = |of: Kind| named.filter(|named| named.kind == of).map(|named| named.name.clone());
    let (collection, list, order) =
        (name(Kind::KeyValue), name(Kind::List), named.and_then(|named| named.order.clone()));
    let (flags, (expiry, expiry_ms)) = (parsed.flags, written(parsed.expiry));
    let again = Line { value, value_base64, flags, expiry, expiry_ms, ..Line::key_only(&parsed.key) };
    let again = Line { collection, list, order, ..again };
    let again = serde_json::to_vec(&again).expect("what was read can be written");
    assert_eq!(parse(&again), Ok(parsed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/cli_lines");
        for file in std::fs::read_dir(folder).unwrap() {
            holds_for_any_line(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn lines_come_back_as_they_were() {
        let parsed = parse(br#"{"key":"k\u0000","value_base64":"/w==","flags":7,"expiry":9}"#).unwrap();
        assert_eq!(
            parsed,
            Parsed { collection: None, key: b"k\0".to_vec(), value: vec![0xFF], flags: 7, expiry: Expiry(9000) }
        );
        let line = Line { expiry: 2, expiry_ms: Some(1001), ..Line::with_value(b"k", b"") };
        let line = serde_json::to_string(&line).unwrap();
        assert_eq!(line, r#"{"key":"k","value":"","expiry":2,"expiry_ms":1001}"#);
        assert_eq!(parse(line.as_bytes()).unwrap().expiry, Expiry(1001));
        assert_eq!(serde_json::to_string(&Line::key_only(b"\xff\x00")).unwrap(), r#"{"key_base64":"/wA="}"#);
        let named = parse(br#"{"collection":"c","key":"k","value":""}"#).unwrap();
        let is = |kind, name: &str, order: Option<&str>| {
            Some(Named { name: name.to_owned(), kind, order: order.map(str::to_owned) })
        };
        assert_eq!(named.collection, is(Kind::KeyValue, "c", None));
        let ordered = parse(br#"{"collection":"c","order":"o","key":"k","value":""}"#).unwrap();
        assert_eq!(ordered.collection, is(Kind::KeyValue, "c", Some("o")));
        for nowhere in
            [&br#"{"order":"o","key":"k","value":""}"#[..], br#"{"list":"l","order":"o","key":"k","value":""}"#]
        {
            assert!(parse(nowhere).unwrap_err().contains("`order` without `collection`"));
        }
        let element = parse(br#"{"list":"l","key":"k","value":""}"#).unwrap();
        assert_eq!(element.collection, is(Kind::List, "l", None));
        assert!(parse(br#"{"list":"l","collection":"c","key":"k","value":""}"#).unwrap_err().contains("both"));
        assert_eq!(serde_json::to_string(&Line::key_only("ü".as_bytes())).unwrap(), r#"{"key":"ü"}"#);
    }

    #[test]
    fn bad_lines_are_told_apart() {
        let why = |line: &str| parse(line.as_bytes()).unwrap_err();
        assert_eq!(why("{\"key\":\"a\""), "the line ends in the middle of its JSON");
        assert_eq!(why("nonsense"), "it is not JSON from column 2 on");
        assert_eq!(why(r#"{"key":"a",}"#), "it is not JSON from column 12 on");
        assert!(why(r#"{"key":"a"}"#).contains("no `value`"));
        assert!(why(r#"{"key":"a","key_base64":"YQ==","value":""}"#).contains("both `key`"));
        assert!(why(r#"{"key_base64":"?","value":""}"#).contains("not base64"));
        assert!(why(r#"{"key":"a","value":"","colour":1}"#).contains("unknown field `colour`"));
        assert!(why(r#"{"key":"a","value":"","flags":-1}"#).contains("column"));
    }
}
