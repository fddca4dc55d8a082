//! Whether a cache that was away comes back with what it had ([`Rejoin`]), and how long it was
//! away.
//!
//! Clients of several caches write elsewhere while one of them is away: what that one had may be
//! stale when it comes back. `presence` in the store's directory says when the cache last served.
//! Its time is that of the kernel since it booted, beside the kernel's identity. Nobody sets that
//! clock, and it goes on while the machine is suspended. After a reboot nobody knows how long the
//! cache was away, as the wall clock may have been set meanwhile.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use stratakv_base::checksum::crc32c;
use stratakv_engine::Statistic;

/// The file's name.
const NAME: &str = "presence";
/// It is longer than any that was written.
const LEN_BYTES_MAX: u64 = 256;

/// What a cache (engine `tier`) that was away begins with, if it still has what it held.
///
/// Only [`Rejoin::Cold`] is right whatever clients did meanwhile. The others are right for a cache
/// whose clients wait for it, or do without, while it is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rejoin {
    /// All that it had.
    #[default]
    Warm,
    /// Nothing.
    Cold,
    /// All that it had if it was away no longer than this, and nothing otherwise: also after a
    /// reboot, and if nobody knows how long it was away.
    WarmWithin(Duration),
}

/// How a cache came back, see [`Store::rejoined`](crate::Store::rejoined).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejoined {
    /// How long it was away; `None` if nobody knows.
    pub absence: Option<Duration>,
    /// Whether what it had was dropped by [`Options::rejoin`](crate::Options::rejoin).
    pub was_emptied: bool,
    /// A number that every opening makes larger, and every [`Store::return_empty`]: whoever sees
    /// another one than before knows that the cache was away meanwhile.
    ///
    /// [`Store::return_empty`]: crate::Store::return_empty
    pub epoch: u64,
}

/// The file that says when a cache last served.
#[derive(Debug)]
pub(crate) struct Presence {
    file: File,
    boot: String,
    /// As it came back last.
    rejoined: Mutex<Rejoined>,
    /// As was asked for. Then its end is to be noted, too.
    how: Option<Rejoin>,
    /// Somebody tells again and again that it serves.
    is_told: AtomicBool,
    /// Held while the file is written.
    absence: Mutex<NotedAbsence>,
}

/// Whether the file says that nobody knows how long the cache was away. Until it is emptied,
/// nothing else is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NotedAbsence {
    #[default]
    None,
    /// It is to say so: writing it failed, or is under way.
    Due,
    Durable,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LastServed {
    boot: String,
    since_boot_ms: u64,
    epoch: u64,
}

impl LastServed {
    fn read(path: &Path) -> Option<LastServed> {
        // What cannot be read says nothing: nobody knows how long the cache was away, and nothing
        // is lost that it may keep.
        let file = File::open(path).ok()?;
        let mut bytes = vec![0; LEN_BYTES_MAX.min(file.metadata().ok()?.len()) as usize];
        file.read_exact_at(&mut bytes, 0).ok()?;
        LastServed::parse(std::str::from_utf8(&bytes).ok()?)
    }

    /// One line: `1 BOOT MILLISECONDS EPOCH CHECKSUM`.
    fn parse(text: &str) -> Option<LastServed> {
        let (said, checksum) = text.strip_suffix('\n')?.rsplit_once(' ')?;
        if u32::from_str_radix(checksum, 16).ok()? != crc32c(0, said.as_bytes()) {
            return None;
        }
        let mut words = said.split(' ');
        let (Some("1"), boot) = (words.next(), words.next()?.to_owned()) else { return None };
        let (since_boot_ms, epoch) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(LastServed { boot, since_boot_ms, epoch })
    }

    fn to_text(&self) -> String {
        // Always as long: what is written over it covers it.
        let said = format!("1 {} {:020} {:020}", self.boot, self.since_boot_ms, self.epoch);
        format!("{said} {:08x}\n", crc32c(0, said.as_bytes()))
    }

    /// How long ago that was.
    fn absence(&self, boot: &str, now_ms: u64) -> Option<Duration> {
        let is_of_now = !boot.is_empty() && self.boot == boot;
        is_of_now.then(|| now_ms.checked_sub(self.since_boot_ms).map(Duration::from_millis)).flatten()
    }
}

impl Rejoin {
    /// Whether a cache that was away so long begins empty.
    fn empties(self, absence: Option<Duration>) -> bool {
        match self {
            Rejoin::Warm => false,
            Rejoin::Cold => true,
            Rejoin::WarmWithin(most) => absence.is_none_or(|absence| absence > most),
        }
    }
}

/// A decision that is taken twice: what was right when an opening began need not be when it ends.
#[derive(Debug)]
pub(crate) struct Return {
    path: PathBuf,
    how: Option<Rejoin>,
    boot: String,
    found: Option<LastServed>,
}

impl Return {
    /// Of the cache in `home`.
    pub(crate) fn of(home: &Path, how: Option<Rejoin>) -> Return {
        let path = home.join(NAME);
        Return { how, boot: boot(), found: LastServed::read(&path), path }
    }

    fn absence(&self) -> Option<Duration> {
        self.found.as_ref()?.absence(&self.boot, since_boot_ms())
    }

    /// Whether it has to begin empty, if it begins to serve now.
    pub(crate) fn empties(&self) -> bool {
        self.how.unwrap_or_default().empties(self.absence())
    }

    /// It is open, by whomever: a command that writes one record serves nobody, so when it last
    /// served stays as it is.
    pub(crate) fn arrive(self, was_emptied: bool, wall_s: u64) -> io::Result<Presence> {
        let before = self.found.as_ref().map_or(0, |found| found.epoch);
        let epoch = before.saturating_add(1).max(wall_s);
        let rejoined = Rejoined { absence: self.absence(), was_emptied, epoch };
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path)?;
        let (how, is_told) = (self.how, AtomicBool::new(false));
        let (rejoined, absence) = (Mutex::new(rejoined), Mutex::default());
        let presence = Presence { file, boot: self.boot, rejoined, how, is_told, absence };
        // Without a time nobody knows how long it was away.
        let unknown = LastServed { boot: String::new(), since_boot_ms: 0, epoch };
        let text = LastServed { epoch, ..self.found.unwrap_or(unknown) }.to_text();
        presence.file.write_all_at(text.as_bytes(), 0)?;
        // A longer one is of a newer program.
        presence.file.set_len(text.len() as u64)?;
        Ok(presence)
    }
}

impl Presence {
    pub(crate) fn rejoined(&self) -> Rejoined {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Rejoined> {
        // It is whole between any two statements.
        self.rejoined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_absence(&self) -> MutexGuard<'_, NotedAbsence> {
        self.absence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As was asked for.
    pub(crate) fn how(&self) -> Rejoin {
        self.how.unwrap_or_default()
    }

    /// It was away while it ran, and is to be emptied. Until it says that it serves again, nobody
    /// knows how long it was away: an opening after an end of any kind empties it. Durable when it
    /// returns, and done once for all who ask.
    pub(crate) fn leave(&self) -> io::Result<()> {
        let mut absence = self.lock_absence();
        if *absence == NotedAbsence::Durable {
            return Ok(());
        }
        *absence = NotedAbsence::Due;
        let unknown = LastServed { boot: String::new(), since_boot_ms: 0, epoch: self.rejoined().epoch };
        let text = unknown.to_text();
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)?;
        self.file.sync_data()?;
        *absence = NotedAbsence::Durable;
        Ok(())
    }

    /// It is empty, and serves again.
    pub(crate) fn return_empty(&self, away: Option<Duration>) -> io::Result<Rejoined> {
        let mut absence = self.lock_absence();
        let rejoined = {
            let mut rejoined = self.lock();
            let epoch = rejoined.epoch.saturating_add(1);
            *rejoined = Rejoined { absence: away, was_emptied: true, epoch };
            *rejoined
        };
        self.is_told.store(true, Ordering::Relaxed);
        self.write()?;
        *absence = NotedAbsence::None;
        Ok(rejoined)
    }

    /// It serves now. Whoever tells it once goes on telling, and stops when it serves no more.
    pub(crate) fn tell(&self) -> io::Result<()> {
        self.is_told.store(true, Ordering::Relaxed);
        self.write_unless_away()
    }

    /// The store ends. If somebody told until when it served, that holds.
    pub(crate) fn end(&self) -> io::Result<()> {
        if self.is_told.load(Ordering::Relaxed) || self.how.is_none() { Ok(()) } else { self.write_unless_away() }
    }

    fn write_unless_away(&self) -> io::Result<()> {
        let absence = self.lock_absence();
        if *absence == NotedAbsence::None { self.write() } else { Ok(()) }
    }

    /// It serves now. No flush: after a power cut it does not count. What is there may be longer,
    /// but for what was written when it was opened.
    fn write(&self) -> io::Result<()> {
        let (boot, epoch) = (self.boot.clone(), self.rejoined().epoch);
        let text = LastServed { boot, since_boot_ms: since_boot_ms(), epoch }.to_text();
        self.file.write_all_at(text.as_bytes(), 0)?;
        // Its kernel's identity may have been another one, or none.
        self.file.set_len(text.len() as u64)
    }

    pub(crate) fn statistics(&self) -> [Statistic; 3] {
        let Rejoined { absence, was_emptied, epoch } = self.rejoined();
        let absent_ms = absence.map_or(0, |absence| u64::try_from(absence.as_millis()).unwrap_or(u64::MAX));
        [
            Statistic { name: "rejoin_epoch", value: epoch },
            Statistic { name: "rejoin_absent_ms", value: absent_ms },
            Statistic { name: "rejoin_was_emptied", value: u64::from(was_emptied) },
        ]
    }
}

/// The identity of the running kernel; empty if it cannot be had.
pub(crate) fn boot() -> String {
    // Nothing is lost without it: then nobody knows how long a cache was away.
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.chars().filter(|char| char.is_ascii_hexdigit() || *char == '-').collect()
}

/// Milliseconds since the kernel was started, suspended ones too. For servers.
#[doc(hidden)]
pub fn since_boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1000) + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(boot: &str, since_boot_ms: u64) -> LastServed {
        LastServed { boot: boot.into(), since_boot_ms, epoch: 7 }
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let said = served("6f1d-0a", 12_345);
        let text = said.to_text();
        assert_eq!(LastServed::parse(&text), Some(said.clone()));
        assert_eq!(text.len(), served("6f1d-0a", u64::MAX).to_text().len(), "what is written over it covers it");
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let damaged = String::from_utf8(bytes).ok().and_then(|text| LastServed::parse(&text));
            assert_eq!(damaged, None, "byte {at}");
            assert_eq!(LastServed::parse(&text[..at]), None, "{at} bytes");
        }
        assert_eq!(LastServed::parse(&text.replacen('1', "2", 1)), None, "of a newer program");
    }

    #[test]
    fn an_absence_is_known_within_one_boot_only() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(served("a", 5_000).absence("a", 6_000), second);
        assert_eq!(served("a", 5_000).absence("b", 6_000), None, "another boot");
        assert_eq!(served("a", 5_000).absence("a", 4_000), None, "from the future");
        assert_eq!(served("", 5_000).absence("", 6_000), None, "no identity");
    }

    #[test]
    fn what_is_not_known_empties_a_window() {
        let within = Rejoin::WarmWithin(Duration::from_secs(10));
        let away = |seconds| Some(Duration::from_secs(seconds));
        assert!(!within.empties(away(10)) && within.empties(away(11)) && within.empties(None));
        assert!(Rejoin::Cold.empties(away(0)) && !Rejoin::Warm.empties(None));
    }

    /// Between the two a crash leaves what no window trusts.
    #[test]
    fn a_cache_that_left_counts_as_away_until_it_is_empty() {
        let home = tempfile::tempdir().expect("a directory");
        let back = |how| Return::of(home.path(), how);
        let wide = Rejoin::WarmWithin(Duration::from_secs(3600));
        let served = back(Some(wide)).arrive(false, 100).expect("noted");
        served.tell().expect("told");
        assert!(!back(Some(wide)).empties(), "it has served just now");
        served.leave().expect("noted");
        assert!(back(Some(wide)).empties(), "it was to be emptied");
        served.tell().and_then(|()| served.end()).expect("not noted");
        assert!(back(Some(wide)).empties(), "it serves nobody until it is empty");
        let away = Some(Duration::from_secs(7));
        let rejoined = Rejoined { absence: away, was_emptied: true, epoch: 101 };
        assert_eq!(served.return_empty(away).expect("noted"), rejoined);
        assert_eq!(served.rejoined(), rejoined);
        assert!(!back(Some(wide)).empties(), "what it has now is of now");
        assert_eq!(back(Some(wide)).arrive(false, 50).expect("noted").rejoined().epoch, 102);
    }

    #[test]
    fn who_is_told_until_when_it_served_keeps_that() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join(NAME);
        let back = |how| Return::of(home.path(), how);
        let said = || LastServed::read(&path).expect("said");
        let first = back(Some(Rejoin::Warm)).arrive(false, 100).expect("noted");
        assert_eq!(first.rejoined(), Rejoined { absence: None, was_emptied: false, epoch: 100 });
        assert_eq!(said().absence(&boot(), since_boot_ms()), None, "it has not served");
        first.tell().expect("told");
        let told = said();
        std::thread::sleep(Duration::from_millis(5));
        first.end().expect("ended");
        assert_eq!(said(), told, "its drain is not service");
        // A command that opens it to write a record.
        let second = back(None).arrive(false, 50).expect("noted");
        assert_eq!(second.rejoined().epoch, 101, "a clock that was set back");
        second.end().expect("ended");
        assert_eq!(said(), LastServed { epoch: 101, ..told.clone() }, "it served nobody");
        // A program that has the cache for itself.
        let third = back(Some(Rejoin::Warm)).arrive(false, 50).expect("noted");
        std::thread::sleep(Duration::from_millis(5));
        third.end().expect("ended");
        assert!(said().since_boot_ms > told.since_boot_ms && said().epoch == 102, "{:?} after {told:?}", said());
    }
}
