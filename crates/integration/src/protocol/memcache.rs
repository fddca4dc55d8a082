//! Commands as memcache text.

use std::io;

use super::{Answer, Client, Command, Condition, Kind, ReadRecord, invalid};
use crate::memcache;

/// How the server begins when there is no room.
const FULL: &str = "SERVER_ERROR out of memory storing object";

impl Client for memcache::Client {
    fn submit(&mut self, commands: &[Command]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for Command { key, kind } in commands {
            let (verb, value, expiry, version) = match kind {
                Kind::Get => {
                    bytes.extend_from_slice(&[b"gets ", &key[..], b"\r\n"].concat());
                    continue;
                }
                Kind::Delete => {
                    bytes.extend_from_slice(&[b"delete ", &key[..], b"\r\n"].concat());
                    continue;
                }
                Kind::Put { value, expiry, condition: Condition::None } => ("set", value, expiry, None),
                Kind::Put { value, expiry, condition: Condition::Absent } => ("add", value, expiry, None),
                Kind::Put { value, expiry, condition: Condition::Version(version) } => {
                    ("cas", value, expiry, Some(version))
                }
            };
            let version = version.map(|version| format!(" {version}")).unwrap_or_default();
            bytes.extend_from_slice(format!("{verb} ").as_bytes());
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(format!(" 0 {expiry} {}{version}\r\n", value.len()).as_bytes());
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        self.send(&bytes)
    }

    fn answer(&mut self, command: &Command) -> io::Result<Answer> {
        if command.kind == Kind::Get {
            return match self.hits_or_error()? {
                Err(error) => Ok(Answer::Failed(error)),
                Ok(mut hits) if hits.len() <= 1 => {
                    Ok(Answer::Record(hits.pop().map(|hit| found(hit, command)).transpose()?))
                }
                Ok(hits) => Err(invalid(format!("{} records for one key", hits.len()))),
            };
        }
        let line = self.line()?;
        match (line.as_str(), &command.kind) {
            ("STORED", Kind::Put { .. }) => Ok(Answer::Written(None)),
            ("NOT_STORED", Kind::Put { condition: Condition::Absent, .. })
            | ("EXISTS" | "NOT_FOUND", Kind::Put { condition: Condition::Version(_), .. }) => Ok(Answer::Unmet),
            ("DELETED", Kind::Delete) => Ok(Answer::Deleted(true)),
            ("NOT_FOUND", Kind::Delete) => Ok(Answer::Deleted(false)),
            (full, Kind::Put { .. }) if full.starts_with(FULL) => Ok(Answer::Full(line)),
            (failed, _) if failed.starts_with("SERVER_ERROR") => Ok(Answer::Failed(line)),
            _ => Err(invalid(format!("`{line}` is no answer to it"))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.ask("flush_all")?.as_str() {
            "OK" => Ok(()),
            line => Err(invalid(format!("`{line}` is no answer to flush_all"))),
        }
    }
}

fn found(hit: memcache::Hit, command: &Command) -> io::Result<ReadRecord> {
    match hit.cas {
        Some(version) if hit.key == command.key => Ok(ReadRecord { value: hit.value, version }),
        Some(_) => Err(invalid(format!("the record of {}", hit.key.escape_ascii()))),
        None => Err(invalid("a record without a version".into())),
    }
}
