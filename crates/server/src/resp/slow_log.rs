//! Commands that took long, as `SLOWLOG` tells of them: the last ones, in bounded room.
//!
//! A command's time begins when it is parsed, or when the one before it has ended, and ends when
//! its reply is ready. It is that of ticks: no clock is read for it. While nothing is slow, nothing
//! is kept of commands.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use stratakv_base::{Mono, Wall};
use stratakv_protocol::resp::encode;

use super::arguments::Arguments;
use crate::server::lock;

/// How many arguments of a command are kept, and how many bytes of each: as Redis has it.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;
/// Bytes of all that is kept; the oldest go beyond.
const LOG_BYTES_MAX: usize = 256 << 10;
/// What an entry takes beside its texts, and each argument beside its own.
const ENTRY_BYTES: usize = 128;
const WORD_BYTES: usize = 32;
/// Entries that are kept until a client says how many.
const ENTRIES: i64 = 128;

/// The arguments of a command, cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandWords(Vec<Vec<u8>>);

impl CommandWords {
    pub(crate) fn of(a: &Arguments<'_>) -> CommandWords {
        let kept = if a.len() > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { a.len() };
        let mut words: Vec<Vec<u8>> = a.from(0).take(kept).map(cut).collect();
        if a.len() > kept {
            words.push(format!("... ({} more arguments)", a.len() - kept).into_bytes());
        }
        CommandWords(words)
    }

    fn held_bytes(&self) -> usize {
        self.0.iter().map(|word| word.capacity() + WORD_BYTES).sum()
    }
}

fn cut(word: &[u8]) -> Vec<u8> {
    match word.split_at_checked(ARGUMENT_BYTES_MAX) {
        Some((front, rest)) if !rest.is_empty() => {
            [front, format!("... ({} more bytes)", rest.len()).as_bytes()].concat()
        }
        _ => word.to_vec(),
    }
}

/// Commands of a connection that have not ended.
#[derive(Debug, Default)]
pub(crate) struct TimedCommands {
    begun: VecDeque<TimedCommand>,
    /// When the last one ended.
    ended_at: Mono,
    bytes: usize,
}

#[derive(Debug)]
struct TimedCommand {
    /// Its first place in the order of answers.
    sequence: u32,
    at: Mono,
    words: CommandWords,
}

impl TimedCommands {
    pub(crate) fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// A command begins, whose answer has this place.
    pub(crate) fn begin(&mut self, sequence: u32, at: Mono, words: CommandWords) {
        self.bytes += words.held_bytes() + size_of::<TimedCommand>();
        self.begun.push_back(TimedCommand { sequence, at, words });
    }

    /// Takes the first command, if it has ended, and how long it took. `first` is the place of the
    /// answer that is next; `is_over`: there is none.
    pub(crate) fn take_ended(&mut self, first: u32, is_over: bool, now: Mono) -> Option<(Duration, CommandWords)> {
        let has_ended = match self.begun.get(1) {
            Some(next) => first.wrapping_sub(next.sequence) as i32 >= 0,
            None => is_over,
        };
        let TimedCommand { at, words, .. } = self.begun.pop_front_if(|_| has_ended)?;
        self.bytes -= words.held_bytes() + size_of::<TimedCommand>();
        let began = at.0.max(self.ended_at.0);
        self.ended_at = now;
        Some((Duration::from_nanos(now.0.saturating_sub(began)), words))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SlowCommands {
    /// In microseconds; below zero: no command is slow.
    slow_from_us: AtomicI64,
    entries_max: AtomicI64,
    log: Mutex<SlowEntries>,
}

#[derive(Debug, Default)]
struct SlowEntries {
    /// Of the next one.
    id: i64,
    /// The newest one first.
    entries: VecDeque<SlowEntry>,
    bytes: usize,
}

/// A command that was slow, and who gave it.
#[derive(Debug)]
pub(crate) struct SlowEntry {
    pub(crate) at: Wall,
    pub(crate) took: Duration,
    pub(crate) words: CommandWords,
    pub(crate) address: String,
    pub(crate) name: String,
}

impl SlowEntry {
    fn held_bytes(&self) -> usize {
        ENTRY_BYTES + self.words.held_bytes() + self.address.len() + self.name.len()
    }

    fn write(&self, id: i64, out: &mut Vec<u8>) {
        encode::array(out, 6);
        encode::integer(out, id);
        encode::integer(out, i64::try_from(self.at.0 / 1000).unwrap_or(i64::MAX));
        encode::integer(out, i64::try_from(self.took.as_micros()).unwrap_or(i64::MAX));
        encode::array(out, self.words.0.len());
        self.words.0.iter().for_each(|word| encode::bulk(out, word));
        encode::bulk(out, self.address.as_bytes());
        encode::bulk(out, self.name.as_bytes());
    }
}

impl Default for SlowCommands {
    fn default() -> SlowCommands {
        SlowCommands { slow_from_us: (-1).into(), entries_max: ENTRIES.into(), log: Mutex::default() }
    }
}

impl SlowCommands {
    /// Commands are slow from this time on; `None`: none are.
    pub(crate) fn from(slow_from: Option<Duration>) -> SlowCommands {
        let slow = SlowCommands::default();
        let micros = slow_from.map_or(-1, |from| i64::try_from(from.as_micros()).unwrap_or(i64::MAX));
        slow.set_slow_from_us(micros);
        slow
    }

    /// Whether commands are looked at.
    pub(crate) fn is_on(&self) -> bool {
        self.slow_from_us() >= 0
    }

    pub(crate) fn slow_from_us(&self) -> i64 {
        self.slow_from_us.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slow_from_us(&self, micros: i64) {
        self.slow_from_us.store(micros, Ordering::Relaxed);
    }

    pub(crate) fn entries_max(&self) -> i64 {
        self.entries_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_entries_max(&self, entries: i64) {
        self.entries_max.store(entries, Ordering::Relaxed);
        self.trim(&mut lock(&self.log));
    }

    /// Whether a command that took so long is slow.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        u64::try_from(self.slow_from_us()).is_ok_and(|from| took >= Duration::from_micros(from))
    }

    pub(crate) fn add(&self, entry: SlowEntry) {
        let mut log = lock(&self.log);
        log.id += 1;
        log.bytes += entry.held_bytes();
        log.entries.push_front(entry);
        self.trim(&mut log);
    }

    fn trim(&self, log: &mut SlowEntries) {
        let most = usize::try_from(self.entries_max()).unwrap_or(0);
        while log.entries.len() > most || log.bytes > LOG_BYTES_MAX {
            let Some(oldest) = log.entries.pop_back() else { return };
            log.bytes -= oldest.held_bytes();
        }
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.log).entries.len()
    }

    /// Bytes that the whole log has as a reply.
    pub(crate) fn reply_bytes(&self) -> u64 {
        2 * lock(&self.log).bytes as u64
    }

    pub(crate) fn clear(&self) {
        let mut log = lock(&self.log);
        (log.entries, log.bytes) = (VecDeque::new(), 0);
    }

    /// Tells the newest ones, so many.
    pub(crate) fn write(&self, entries: usize, out: &mut Vec<u8>) {
        let log = lock(&self.log);
        let told = entries.min(log.entries.len());
        encode::array(out, told);
        for (before, entry) in log.entries.iter().take(told).enumerate() {
            entry.write(log.id - 1 - before as i64, out);
        }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/resp/slow_log.rs"]
mod tests;
