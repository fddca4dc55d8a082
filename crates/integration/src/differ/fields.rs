//! An answer cut into fields: what must be the same byte for byte, and what each server has its own
//! numbers for.
//!
//! A field is only told apart where the command says that it is there. All else stays bytes.

use std::collections::{BTreeMap, BTreeSet};

use super::command::{Command, Shape};

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// To be the same.
    Bytes(Vec<u8>),
    /// A version of a key; 0 is none.
    Version {
        /// Whose.
        key: Vec<u8>,
        /// As it was told.
        version: u64,
    },
    /// Seconds until a record ends; -1 for never.
    SecondsLeft(i64),
    /// Seconds since a record was used.
    SecondsIdle(i64),
    /// How long what `ms` stored is.
    StoredBytes,
    /// What `me` says that a record takes.
    RecordBytes,
    /// The slab class of a record.
    Class,
    /// Names of statistics, with `#` for numbers in them.
    Names(BTreeSet<String>),
    /// Statistics that count what clients did.
    Counts(BTreeMap<String, String>),
    /// Keys that are listed.
    Keys(BTreeSet<Vec<u8>>),
    /// What the server calls itself.
    ServerVersion,
}

/// Statistics whose numbers must be the same: they count what clients did, since `stats reset`.
const COUNTED: &[&str] = &[
    "cmd_get",
    "cmd_set",
    "cmd_flush",
    "cmd_touch",
    "get_hits",
    "get_misses",
    "delete_hits",
    "delete_misses",
    "incr_hits",
    "incr_misses",
    "decr_hits",
    "decr_misses",
    "cas_hits",
    "cas_misses",
    "cas_badval",
    "touch_hits",
    "touch_misses",
    "auth_cmds",
    "auth_errors",
];

/// The fields of an answer.
pub fn fields(command: &Command, answer: &[u8]) -> Vec<Field> {
    match command.shape {
        Shape::Plain => vec![Field::Bytes(answer.to_vec())],
        Shape::Values => values(answer),
        Shape::Meta => meta(command, answer),
        Shape::Debug => debug(command, answer),
        Shape::Statistics => statistics(answer),
        Shape::Dump => dump(answer),
        Shape::ServerVersion => match answer.strip_prefix(b"VERSION ").and_then(line) {
            Some((_, rest)) => vec![Field::ServerVersion, Field::Bytes(rest.to_vec())],
            None => vec![Field::Bytes(answer.to_vec())],
        },
        Shape::Binary | Shape::BinaryStatistics | Shape::BinaryServerVersion => binary(command, answer),
    }
}

/// A line without its end, and what follows.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..at], &bytes[at + 2..]))
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn values(answer: &[u8]) -> Vec<Field> {
    let (mut fields, mut rest) = (Vec::new(), answer);
    while let Some((head, after)) = rest.strip_prefix(b"VALUE ").and_then(line) {
        let words: Vec<&[u8]> = head.split(|byte| *byte == b' ').collect();
        let [key, flags, length, version @ ..] = &words[..] else { break };
        let Some(data) = number::<usize>(length).and_then(|length| after.get(..length + 2)) else { break };
        fields.push(Field::Bytes([&b"VALUE "[..], *key, b" ", flags, b" ", length].concat()));
        match version {
            [] => {}
            [version] if number::<u64>(version).is_some() => {
                fields.push(Field::Version { key: key.to_vec(), version: number(version).unwrap_or_default() });
            }
            other => fields.push(Field::Bytes(other.join(&b' '))),
        }
        fields.push(Field::Bytes(data.to_vec()));
        rest = &after[data.len()..];
    }
    fields.push(Field::Bytes(rest.to_vec()));
    fields
}

fn meta(command: &Command, answer: &[u8]) -> Vec<Field> {
    let Some((first, rest)) = line(answer) else { return vec![Field::Bytes(answer.to_vec())] };
    let mut words = first.split(|byte| *byte == b' ');
    let status = words.next().unwrap_or_default();
    if ![&b"HD"[..], b"VA", b"EN", b"NF", b"EX", b"NS"].contains(&status) {
        return vec![Field::Bytes(answer.to_vec())];
    }
    let mut fields = vec![Field::Bytes(status.to_vec())];
    let stores = command.shown().starts_with("ms ");
    for word in words {
        let told = word.split_first().and_then(|(letter, rest)| match letter {
            b'c' => number(rest).map(|version| Field::Version { key: command.key.clone(), version }),
            b't' => number(rest).map(Field::SecondsLeft),
            b'l' => number(rest).map(Field::SecondsIdle),
            b's' if stores => number::<u64>(rest).map(|_| Field::StoredBytes),
            _ => None,
        });
        fields.push(told.unwrap_or_else(|| Field::Bytes([&b" "[..], word].concat())));
    }
    fields.push(Field::Bytes(rest.to_vec()));
    fields
}

/// `ME <key> exp=.. la=.. cas=.. fetch=.. cls=.. size=..`
fn debug(command: &Command, answer: &[u8]) -> Vec<Field> {
    let Some((first, rest)) = answer.strip_prefix(b"ME ").and_then(line) else {
        return vec![Field::Bytes(answer.to_vec())];
    };
    let mut fields = Vec::new();
    for word in first.split(|byte| *byte == b' ') {
        let at = word.iter().position(|byte| *byte == b'=').unwrap_or(word.len());
        let (name, value) = (&word[..at], word.get(at + 1..).unwrap_or_default());
        let told = match name {
            // memcached tells how long ago it will be.
            b"exp" => number(value).map(|left: i64| Field::SecondsLeft(if left < -1 { -left } else { left })),
            b"la" => number(value).map(Field::SecondsIdle),
            b"cas" => number(value).map(|version| Field::Version { key: command.key.clone(), version }),
            b"cls" => number::<u64>(value).map(|_| Field::Class),
            b"size" => number::<u64>(value).map(|_| Field::RecordBytes),
            _ => None,
        };
        match told {
            Some(field) => fields.extend([Field::Bytes([&b" "[..], name].concat()), field]),
            None => fields.push(Field::Bytes([&b" "[..], word].concat())),
        }
    }
    fields.push(Field::Bytes(rest.to_vec()));
    fields
}

/// `items:7:number` is `items:#:number`; of `stats conns` and `stats slabs` alike.
fn nameless(name: &str) -> String {
    let parts = name.split(':').map(|part| if part.parse::<u64>().is_ok() { "#" } else { part });
    parts.collect::<Vec<_>>().join(":")
}

fn counted(stats: impl Iterator<Item = (String, String)>) -> [Field; 2] {
    let (mut names, mut counts) = (BTreeSet::new(), BTreeMap::new());
    for (name, value) in stats {
        names.insert(nameless(&name));
        if COUNTED.contains(&name.as_str()) {
            counts.insert(name, value);
        }
    }
    [Field::Names(names), Field::Counts(counts)]
}

fn statistics(answer: &[u8]) -> Vec<Field> {
    let (mut stats, mut rest) = (Vec::new(), answer);
    while let Some((stat, after)) = rest.strip_prefix(b"STAT ").and_then(line) {
        let text = String::from_utf8_lossy(stat);
        let (name, value) = text.split_once(' ').unwrap_or((&text, ""));
        stats.push((name.to_owned(), value.to_owned()));
        rest = after;
    }
    if stats.is_empty() {
        return vec![Field::Bytes(answer.to_vec())];
    }
    let mut fields = Vec::from(counted(stats.into_iter()));
    fields.push(Field::Bytes(rest.to_vec()));
    fields
}

/// Lines `key=.. ..` of `lru_crawler metadump`.
fn dump(answer: &[u8]) -> Vec<Field> {
    let (mut keys, mut rest) = (BTreeSet::new(), answer);
    while let Some(after) = rest.strip_prefix(b"key=") {
        let Some(end) = after.iter().position(|byte| *byte == b'\n') else { break };
        let key = after[..end].split(|byte| *byte == b' ').next().unwrap_or_default();
        keys.insert(key.to_vec());
        rest = &after[end + 1..];
    }
    vec![Field::Keys(keys), Field::Bytes(rest.to_vec())]
}

fn binary(command: &Command, answer: &[u8]) -> Vec<Field> {
    let (mut fields, mut stats, mut rest) = (Vec::new(), Vec::new(), answer);
    while let Some((header, after)) = rest.split_first_chunk::<24>() {
        let body_bytes = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some(body) = after.get(..body_bytes).filter(|_| header[0] == 0x81) else { break };
        rest = &after[body_bytes..];
        let key_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if command.shape == Shape::BinaryStatistics && key_bytes > 0 && key_bytes <= body.len() {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            stats.push((text(&body[..key_bytes]), text(&body[key_bytes..])));
            continue;
        }
        if command.shape == Shape::BinaryServerVersion {
            fields.extend([Field::Bytes(header[..8].to_vec()), Field::ServerVersion]);
            continue;
        }
        let version = u64::from_be_bytes(std::array::from_fn(|at| header[16 + at]));
        fields.push(Field::Bytes(header[..16].to_vec()));
        fields.push(Field::Version { key: command.key.clone(), version });
        fields.push(Field::Bytes(body.to_vec()));
    }
    if !stats.is_empty() {
        fields.extend(counted(stats.into_iter()));
    }
    fields.push(Field::Bytes(rest.to_vec()));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(bytes: &[u8]) -> Field {
        Field::Bytes(bytes.to_vec())
    }

    #[test]
    fn versions_and_times_are_told_apart_and_nothing_else() {
        let version = |version| Field::Version { key: b"a".to_vec(), version };
        let gets = Command::line("gets a").shape(Shape::Values);
        let found = fields(&gets, b"VALUE a 5 7 91\r\nEND\r\n 9\r\nEND\r\n");
        assert_eq!(found, [bytes(b"VALUE a 5 7"), version(91), bytes(b"END\r\n 9\r\n"), bytes(b"END\r\n")]);
        let mg = Command::line("mg a c t s O5 v").shape(Shape::Meta).key(b"a");
        let found = fields(&mg, b"VA 2 c12 t-1 s2 O5\r\nc3\r\n");
        let rest = [bytes(b" s2"), bytes(b" O5"), bytes(b"c3\r\n")];
        assert_eq!(found, [&[bytes(b"VA"), bytes(b" 2"), version(12), Field::SecondsLeft(-1)][..], &rest].concat());
        assert_eq!(fields(&mg, b"CLIENT_ERROR c3\r\n"), [bytes(b"CLIENT_ERROR c3\r\n")]);
        let plain = Command::line("set a 0 0 1");
        assert_eq!(fields(&plain, b"VALUE a 0 1 5\r\n"), [bytes(b"VALUE a 0 1 5\r\n")]);
    }

    #[test]
    fn statistics_are_names_and_what_was_counted() {
        let found =
            fields(&Command::line("stats").shape(Shape::Statistics), b"STAT pid 5\r\nSTAT cmd_get 7\r\nEND\r\n");
        let names = ["cmd_get", "pid"].map(str::to_owned).into();
        let counts = [("cmd_get".to_owned(), "7".to_owned())].into();
        assert_eq!(found, [Field::Names(names), Field::Counts(counts), bytes(b"END\r\n")]);
        assert_eq!(nameless("items:12:number"), "items:#:number");
    }
}
