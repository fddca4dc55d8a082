//! `stratakv put`.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use stratakv::limits::VALUE_BYTES_MAX;
use stratakv::{Expect, Expiry, PutOptions, PutOutcome, Unmet, Wall};
use stratakv_base::quantity::parse_duration;

use crate::failure::Failure;
use crate::opening::{DurabilityArguments, EngineArguments, MadeCollectionArguments, OpenArguments};
use crate::remote::{Client, Condition, ServerArguments, Stored};
use crate::{Output, key};

/// Write a record; the store is created if there is none
#[derive(Args)]
#[command(after_help = "Examples:\n  stratakv put user:1 Ada\n  stratakv put photo --file me.jpg --flags 2
  echo hello | stratakv put greeting -\n  stratakv put lock me --if-absent --ttl 60
  stratakv put 9.5 Ada --collection scores --order stratakv.numeric
  stratakv put user:1 Ada --server 127.0.0.1:11211

Exit code 3 if --if-present or --if-version finds no key, 1 if another condition does not hold.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    durability: DurabilityArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    collection: MadeCollectionArguments,
    /// The key
    key: OsString,
    /// The value; `-` for stdin
    #[arg(required_unless_present = "file")]
    value: Option<OsString>,
    /// Take the value from a file; `-` for stdin
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// KEY is base64
    #[arg(long)]
    base64: bool,
    /// A number kept with the value; memcache clients keep types in it
    #[arg(long, default_value_t)]
    flags: u32,
    /// Expire after this many seconds, or after a time such as 250ms or 90s
    #[arg(long, value_name = "SECONDS", value_parser = parse_life)]
    ttl: Option<Duration>,
    /// Only if the key does not exist
    #[arg(long, group = "condition")]
    if_absent: bool,
    /// Only if the key exists
    #[arg(long, group = "condition")]
    if_present: bool,
    /// Only if the key has this version
    #[arg(long, value_name = "VERSION", group = "condition")]
    if_version: Option<u64>,
    /// Print the new version as JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn expect(&self) -> Expect {
        match self.if_version {
            Some(version) => Expect::Version(version),
            None if self.if_absent => Expect::Absent,
            None if self.if_present => Expect::Present,
            None => Expect::Any,
        }
    }

    fn value(&self) -> Result<Vec<u8>, Failure> {
        match (&self.value, &self.file) {
            (Some(value), _) if value != "-" => Ok(value.clone().into_vec()),
            (None, Some(file)) if file != Path::new("-") => {
                let opened = std::fs::File::open(file).and_then(read);
                opened.map_err(|error| Failure::failed(format!("cannot read {}: {error}", file.display())))
            }
            _ => read(io::stdin().lock()).map_err(|error| Failure::failed(format!("cannot read stdin: {error}"))),
        }
    }

    fn expiry(&self) -> Expiry {
        self.ttl.map_or(Expiry::NEVER, expiry_in)
    }
}

/// So long from now.
pub(crate) fn expiry_in(ttl: Duration) -> Expiry {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Expiry::after(Wall(millis(now)), millis(ttl))
}

/// A number of seconds, or a time with its unit.
pub(crate) fn parse_ttl(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).or_else(|_| parse_duration(text))
}

/// As [`parse_ttl`], but not 0.
fn parse_life(text: &str) -> Result<Duration, String> {
    let ttl = parse_ttl(text)?;
    if ttl.as_millis() > 0 {
        Ok(ttl)
    } else {
        Err("a record lives at least 1ms: leave --ttl out for one that stays".into())
    }
}

/// One byte more than the limit, so that the store can say that it is too much.
fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    from.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value)?;
    Ok(value)
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let key = key::checked(&arguments.key, arguments.base64)?;
    let value = arguments.value()?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Failure::usage(format!("the value has over {VALUE_BYTES_MAX} bytes, the most a value may have")));
    }
    if let Some(server) = arguments.server.connect()? {
        return ask(server, arguments, &key, &value);
    }
    let store = arguments.open.write(&arguments.durability, Some(&arguments.engine))?;
    let options = PutOptions {
        flags: arguments.flags,
        expiry: arguments.expiry(),
        expect: arguments.expect(),
        ..PutOptions::default()
    };
    match arguments.collection.write(&store)?.put_with(&key, &value, &options)? {
        PutOutcome::Unmet(unmet) => Err(Failure::unmet(unmet)),
        PutOutcome::Written { version } => {
            if arguments.json {
                writeln!(output, "{{\"version\":{version}}}").map_err(Failure::output)?;
            }
            Ok(store.close()?)
        }
    }
}

fn ask(mut server: Client, arguments: &Arguments, key: &[u8], value: &[u8]) -> Result<(), Failure> {
    if arguments.json {
        return Err(Failure::usage("--json: a server does not tell the version of what it has written: leave it out"));
    }
    let condition = Condition::Expect(arguments.expect());
    let nothing = |why| format!("nothing was written: {why}");
    match server.store(condition, key, value, arguments.flags, arguments.ttl.unwrap_or_default())? {
        Stored::Yes => Ok(()),
        Stored::No if arguments.if_absent => Err(Failure::failed(nothing("the key exists"))),
        Stored::No | Stored::Absent => Err(Failure::unmet(Unmet::Absent)),
        Stored::AnotherVersion => Err(Failure::failed(nothing("the key has another version by now; read it again"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_seconds_or_have_a_unit() {
        assert_eq!(parse_ttl("60"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_ttl("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!((parse_ttl("0"), parse_life("1ms")), (Ok(Duration::ZERO), Ok(Duration::from_millis(1))));
        for bad in ["", "-1", "1.5", "ten", "0ms"] {
            assert!(parse_ttl(bad).is_err(), "{bad}");
        }
        assert!(parse_life("0").is_err() && parse_life("10us").is_err());
    }
}
