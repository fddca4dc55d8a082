//! The records of a server for Redis clients as lines: what `dump --server redis://` writes.

use stratakv::Expiry;
use stratakv::limits::VALUE_BYTES_MAX;

use super::record::SourceRecord;
use super::redis::Redis;
use super::source::Source;
use super::tally::{Reason, Tally};
use super::target::Sink;
use super::value::encode;
use crate::failure::Failure;
use crate::json_line::Line;
use crate::remote::LoginArguments;

/// What takes lines.
type Write<'w> = &'w mut dyn FnMut(&Line) -> Result<(), Failure>;

/// Gives a line for each record.
struct Lines<'w> {
    write: Write<'w>,
    tally: Tally,
}

impl Sink for Lines<'_> {
    fn expect(&mut self, _: u64) {}

    fn take(&mut self, record: SourceRecord) -> Result<(), Failure> {
        let SourceRecord { key, value, flags, expiry_ms } = record;
        match encode(value, flags) {
            Ok((value, flags)) if value.len() <= VALUE_BYTES_MAX => {
                let expiry = Expiry(expiry_ms.unwrap_or(0).min(Expiry::MAX.0));
                (self.write)(&Line::with_value(&key, &value).living(flags, expiry))
            }
            Ok(_) => {
                self.tally.add(Reason::Unsupported, "values have at most 64 MiB", &key);
                Ok(())
            }
            Err(what) => {
                self.tally.add(Reason::Unsupported, what, &key);
                Ok(())
            }
        }
    }

    fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }
}

/// Whether a text of `--server` names a server for Redis clients.
pub(crate) fn is_redis(server: &str) -> bool {
    matches!(Source::parse(server), Ok(Source::Redis { .. }))
}

/// Writes its records whose keys begin with `prefix`, structures with them.
///
/// # Errors
/// It cannot be read, or records are left out.
pub(crate) fn dump_redis(server: &str, login: &LoginArguments, prefix: &[u8], write: Write<'_>) -> Result<(), Failure> {
    let Source::Redis { address, database } = Source::parse(server)? else {
        return Err(Failure::usage(format!("--server {server}: it is no server for Redis clients")));
    };
    let mut lines = Lines { write, tally: Tally::default() };
    let mut source = Redis::connect(&address, login, database)?;
    source.tell_of_others(database)?;
    source.with_prefix(prefix).import(&mut lines)?;
    lines.tally.tell();
    lines.tally.failure().map_or(Ok(()), Err)
}
