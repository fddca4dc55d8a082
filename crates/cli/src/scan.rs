//! `stratakv scan`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::Bound;

use clap::Args;
use regex::bytes::Regex;
use stratakv::{Collection, Record, ScanOptions};
use stratakv_base::quantity::format_count;

use crate::count::parse_usize;
use crate::failure::{Exit, Failure};
use crate::json_line::Line;
use crate::opening::{CollectionArguments, OpenArguments, has_points};
use crate::remote::{Client, PageEnd, RangeRequest, RemoteRecord, ServerArguments};
use crate::say::say;
use crate::{Output, key, text};

/// Records that match a pattern are read so many at a time.
const READ_AT_ONCE: usize = 64;

/// List keys and values in order: of their bytes, or the collection's own
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stratakv scan --prefix user: --limit 10\n  stratakv scan --from a --to b --reverse --keys-only
  stratakv scan --json --prefix user: | jq -r .value\n  stratakv scan --match '^user:[0-9]+$' --keys-only
  stratakv scan --server 127.0.0.1:11211 --prefix user:

Without --json: key, tab, value; a line for each record, with control characters, backslashes \
and bytes that are not UTF-8 escaped as in Rust. No snapshot: each record as it is when it is \
reached. Of structures of Redis clients, kind and length are shown, and the value with --json. A \
server shows its default collection, and of structures the key."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    open: OpenArguments,
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    collection: CollectionArguments,
    /// Keys that begin with this
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// From this key on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Up to this key, without it
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// --prefix, --from and --to are base64
    #[arg(long)]
    base64: bool,
    /// In descending order
    #[arg(long)]
    reverse: bool,
    /// At most this many
    #[arg(long, value_name = "N", value_parser = parse_usize)]
    limit: Option<usize>,
    /// Only keys in which this regular expression is found; reads no other record
    #[arg(long = "match", value_name = "REGEX")]
    pattern: Option<Regex>,
    /// Keys only: reads no record
    #[arg(long)]
    keys_only: bool,
    /// Lines of JSON, as `dump` writes them, with the version
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn scan(&self) -> Result<ScanOptions, Failure> {
        let bytes = |argument: &Option<OsString>| {
            argument.as_ref().map(|argument| key::bytes(argument, self.base64)).transpose()
        };
        let (prefix, from, to) = (bytes(&self.prefix)?, bytes(&self.from)?, bytes(&self.to)?);
        let mut scan = match &prefix {
            Some(prefix) => ScanOptions::prefix(prefix),
            None => ScanOptions::range::<&[u8]>((
                from.as_deref().map_or(Bound::Unbounded, Bound::Included),
                to.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            )),
        };
        if self.reverse {
            scan = scan.reverse();
        }
        if self.keys_only {
            scan = scan.keys_only();
        }
        Ok(scan)
    }

    /// The same of a server.
    fn request(&self) -> Result<RangeRequest, Failure> {
        let bytes = |argument: &Option<OsString>| {
            argument.as_ref().map(|argument| key::bytes(argument, self.base64).map(|key| key.to_vec())).transpose()
        };
        let mut request = match bytes(&self.prefix)? {
            Some(prefix) => RangeRequest::of_prefix(&prefix),
            None => RangeRequest {
                from: bytes(&self.from)?.map_or(Bound::Unbounded, Bound::Included),
                to: bytes(&self.to)?.map_or(Bound::Unbounded, Bound::Excluded),
                ..RangeRequest::of_prefix(b"")
            },
        };
        (request.reverse, request.keys_only) = (self.reverse, self.keys_only);
        Ok(request)
    }

    fn write_remote(&self, output: &mut Output, record: &RemoteRecord) -> io::Result<()> {
        if self.json {
            let line = match self.keys_only {
                true => Line::key_only(&record.key),
                false => Line { version: Some(record.version), ..record.line() },
            };
            serde_json::to_writer(&mut *output, &line)?;
        } else {
            text::write_escaped(output, &record.key)?;
            if let Some(value) = &record.value {
                output.write_all(b"\t")?;
                text::write_escaped(output, value)?;
            }
        }
        writeln!(output)
    }

    fn write(&self, output: &mut Output, key: &[u8], record: &Record) -> io::Result<()> {
        if self.json {
            let line = match self.keys_only {
                true => Line::key_only(key),
                false => Line { version: Some(record.version), ..Line::new(key, record) },
            };
            serde_json::to_writer(&mut *output, &line)?;
        } else {
            text::write_escaped(output, key)?;
            if !self.keys_only {
                output.write_all(b"\t")?;
                let value = record.to_bytes();
                match text::structure(record.flags, &value) {
                    Some(what) => output.write_all(what.as_bytes())?,
                    None => text::write_escaped(output, &value)?,
                }
            }
        }
        writeln!(output)
    }
}

pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if let Some(server) = arguments.server.connect()? {
        return ask(server, arguments, output);
    }
    let scan = arguments.scan()?;
    let store = arguments.open.read()?;
    let collection = arguments.collection.read(&store)?;
    let limit = arguments.limit.unwrap_or(usize::MAX);
    match arguments.pattern.as_ref().filter(|_| !arguments.keys_only && has_points(&collection)) {
        Some(pattern) => read_matching(arguments, &collection, scan, pattern, output)?,
        None => {
            let pattern = arguments.pattern.as_ref();
            let wanted = |key: &[u8]| pattern.is_none_or(|pattern| pattern.is_match(key));
            let items = collection.scan(scan).filter(|item| item.as_ref().map_or(true, |(key, _)| wanted(key)));
            for item in items.take(limit) {
                let (key, record) = item?;
                arguments.write(output, &key, &record).map_err(Failure::output)?;
            }
        }
    }
    drop(collection);
    store.close()?;
    Failure::incomplete(&store, "what can be read is shown").map_or(Ok(()), Err)
}

/// Records of a server, page after page. With --match the keys first, and then the records of those
/// that match.
fn ask(mut server: Client, arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let mut request = arguments.request()?;
    let pattern = arguments.pattern.as_ref();
    request.keys_only |= pattern.is_some();
    let (mut left, mut structures) = (arguments.limit.unwrap_or(usize::MAX), 0u64);
    while left > 0 {
        let mut taken = 0;
        let mut write = |record: RemoteRecord| {
            taken += 1;
            structures += u64::from(!arguments.keys_only && record.value.is_none());
            arguments.write_remote(output, &record).map_err(Failure::output)
        };
        let end = match pattern {
            None => server.page(&request, left, &mut write)?,
            Some(pattern) => {
                let mut keys = Vec::new();
                let end = server.page(&request, usize::MAX, &mut |record| {
                    keys.extend(pattern.is_match(&record.key).then_some(record.key));
                    Ok(())
                })?;
                keys.truncate(left);
                match arguments.keys_only {
                    true => {
                        keys.into_iter().try_for_each(|key| write(RemoteRecord { key, ..RemoteRecord::default() }))?
                    }
                    false => server.fetch(&keys, &mut write)?,
                }
                end
            }
        };
        left = left.saturating_sub(taken);
        match end {
            PageEnd::Over => break,
            PageEnd::Behind(key) => request.go_on(key),
            PageEnd::Unordered => return Err(unordered()),
        }
    }
    if structures > 0 {
        let structures = format_count(structures, "structure");
        say!("{structures} of Redis clients shown without elements: redis-cli reads them");
    }
    Ok(())
}

fn unordered() -> Failure {
    Failure::new(
        Exit::Unsupported,
        "the server's engine keeps keys in no order: `stratakv dump --server` writes all records, and the engines \
         `slab` and `matrix` have ranges",
    )
}

/// Keys from the index first, then the records of those that match.
fn read_matching(
    arguments: &Arguments,
    collection: &Collection,
    scan: ScanOptions,
    pattern: &Regex,
    output: &mut Output,
) -> Result<(), Failure> {
    let keys = collection.scan(scan.keys_only()).map(|item| item.map(|(key, _)| key));
    let mut matching = keys.filter(|key| key.as_ref().map_or(true, |key| pattern.is_match(key)));
    let mut left = arguments.limit.unwrap_or(usize::MAX);
    while left > 0 {
        let some = matching.by_ref().take(left.min(READ_AT_ONCE)).collect::<Result<Vec<_>, _>>()?;
        if some.is_empty() {
            break;
        }
        for (key, record) in some.iter().zip(collection.multi_get(&some)?) {
            // None: deleted since its key was seen.
            if let Some(record) = record {
                arguments.write(output, key, &record).map_err(Failure::output)?;
                left -= 1;
            }
        }
    }
    Ok(())
}
