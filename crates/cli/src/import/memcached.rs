//! The records of a memcached: one connection lists the keys, another one gets the records.

use stratakv::limits::VALUE_BYTES_MAX;

use super::record::{SourceRecord, SourceValue};
use super::tally::Reason;
use super::target::{Sink, now_ms};
use crate::failure::{Exit, Failure};
use crate::remote::{Client, ListedKey, LoginArguments, ServerAddress, can_be_asked_for};

/// Keys that are listed before their records are asked for.
const BATCH: usize = 512;
const HINT: &str = "does memcached listen there?";

/// A memcached, with its two connections.
pub(super) struct Memcached {
    records: Client,
    keys: Client,
    items: u64,
}

impl Memcached {
    pub(super) fn connect(address: &ServerAddress, login: &LoginArguments) -> Result<Memcached, Failure> {
        let mut records = login.memcache(address, HINT)?;
        let statistics = records.statistics("")?;
        let figure = |name: &str| statistics.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let items = figure("curr_items").and_then(|items| items.parse().ok()).unwrap_or(0);
        if !records.has_meta_commands()? {
            let version = figure("version").unwrap_or("unknown");
            return Err(Failure::new(
                Exit::Unsupported,
                format!(
                    "{address} (version {version}) has no meta commands (mg): memcached has them from version 1.6 on"
                ),
            ));
        }
        Ok(Memcached { records, keys: login.memcache(address, HINT)?, items })
    }

    pub(super) fn import(mut self, target: &mut dyn Sink) -> Result<(), Failure> {
        target.expect(self.items);
        self.keys.begin_list()?;
        let mut is_over = false;
        while !is_over {
            let mut keys = Vec::with_capacity(BATCH);
            while keys.len() < BATCH {
                let Some(ListedKey { key, bytes }) = self.keys.next_listed()? else {
                    is_over = true;
                    break;
                };
                let why = match bytes > VALUE_BYTES_MAX as u64 {
                    true => Some("values have at most 64 MiB"),
                    false if can_be_asked_for(&key) => None,
                    false => Some("the memcache protocol cannot ask for so long a key: import it from another port"),
                };
                match why {
                    Some(why) => target.tally().add(Reason::Unsupported, why, &key),
                    None => keys.push(key),
                }
            }
            let (mut found, mut structures) = (0, 0);
            self.records.fetch(&keys, &mut |record| {
                found += 1;
                let Some(value) = record.value else {
                    structures += 1;
                    return Ok(());
                };
                target.take(SourceRecord {
                    key: record.key,
                    value: SourceValue::String(value),
                    flags: record.flags,
                    expiry_ms: record.seconds_left.map(|left| now_ms().saturating_add(left.saturating_mul(1000))),
                })
            })?;
            let gone = (keys.len() as u64).saturating_sub(found);
            target.tally().add_many(Reason::Harmless, "they were deleted or had expired before they were read", gone);
            let what = "structures of Redis clients: import them from the port of --resp";
            target.tally().add_many(Reason::Unsupported, what, structures);
        }
        Ok(())
    }
}
