//! Backups that clients ask for. One at a time, in a thread of its own, each into a new directory
//! in one that was named at the start: a client chooses a name there, never a path.

use std::collections::VecDeque;
use std::fmt::Write;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stratakv::{BackupRate, BackupSummary, BackupWatch};
use stratakv_protocol::memcache::reply;

use crate::server::lock;

/// Ended backups that are told of.
const REMEMBERED: usize = 16;

/// The backups of a server.
pub(crate) struct Backups {
    /// Where they go; nowhere: clients get none.
    directory: Option<PathBuf>,
    /// Most bytes a second of one.
    rate: Option<NonZeroU64>,
    /// The newest one last, no two of one name.
    jobs: Mutex<VecDeque<Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    called_off: AtomicBool,
    /// When the last one was whole, in seconds of the wall clock; 0: none was.
    whole_at: AtomicU64,
}

/// A backup under way, or ended.
struct Job {
    name: String,
    begun: Instant,
    /// What it holds so far.
    written: BackupSummary,
    /// How long it took, and why it failed if it did.
    ended: Option<(Duration, Result<(), String>)>,
}

impl Backups {
    pub(crate) fn new(directory: Option<PathBuf>, rate: Option<NonZeroU64>) -> Arc<Backups> {
        let (jobs, thread) = (Mutex::default(), Mutex::default());
        Arc::new(Backups { directory, rate, jobs, thread, called_off: false.into(), whole_at: 0.into() })
    }

    /// Begins one, for a client that is connected from `peer`; `copy` writes it into a directory,
    /// and tells `added` of what it has written. The answer for the client. Does not wait.
    pub(crate) fn begin(
        self: &Arc<Self>,
        name: &str,
        peer: Option<SocketAddr>,
        copy: impl FnOnce(&Path, &BackupWatch<'_>) -> Result<BackupSummary, String> + Send + 'static,
    ) -> Vec<u8> {
        let mut answer = Vec::new();
        let Some(directory) = &self.directory else {
            reply::client_error(&mut answer, "this server takes no backups: start it with --backup-dir DIR");
            return answer;
        };
        // There is no authentication: others could fill the disk.
        if !peer.is_some_and(is_local) {
            reply::client_error(
                &mut answer,
                "backups are begun from the server's own machine, over its loopback address",
            );
            return answer;
        }
        let mut jobs = lock(&self.jobs);
        if let Some(running) = jobs.back().filter(|job| job.ended.is_none()) {
            reply::server_error(&mut answer, &format!("busy: the backup {} is under way", running.name));
            return answer;
        }
        let (backups, to) = (Arc::clone(self), directory.join(name));
        let body = move || {
            let rate = backups.rate.map(BackupRate::new);
            let added = |more: &BackupSummary| {
                backups.added(more) && rate.as_ref().is_none_or(|rate| rate.keep(more, || backups.goes_on()))
            };
            let copied = copy_into(&to, |added| copy(&to, added), &added);
            backups.ended(&to, copied);
        };
        // The one before has ended, so its thread is not waited for.
        match std::thread::Builder::new().name("backup".into()).spawn(body) {
            Ok(thread) => *lock(&self.thread) = Some(thread),
            Err(error) => {
                reply::server_error(&mut answer, &format!("cannot start a thread: {error}"));
                return answer;
            }
        }
        jobs.retain(|job| job.name != name);
        let surplus = jobs.len().saturating_sub(REMEMBERED);
        jobs.drain(..surplus);
        let written = BackupSummary::default();
        jobs.push_back(Job { name: name.to_owned(), begun: Instant::now(), written, ended: None });
        reply::OK.to_vec()
    }

    /// Notes what was written; whether to go on.
    fn added(&self, more: &BackupSummary) -> bool {
        if let Some(job) = lock(&self.jobs).back_mut() {
            job.written.records += more.records;
            job.written.bytes += more.bytes;
        }
        self.goes_on()
    }

    fn goes_on(&self) -> bool {
        !self.called_off.load(Ordering::Acquire)
    }

    fn ended(&self, to: &Path, copied: Result<BackupSummary, String>) {
        let mut jobs = lock(&self.jobs);
        let Some(job) = jobs.back_mut() else { return };
        match &copied {
            Ok(BackupSummary { records, bytes }) => {
                tracing::info!(to = %to.display(), records, bytes, "a backup is complete")
            }
            Err(why) => tracing::warn!(to = %to.display(), why, "a backup failed"),
        }
        if copied.is_ok() {
            let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
            self.whole_at.store(now.as_secs(), Ordering::Relaxed);
        }
        let ended = copied.map(|whole| job.written = whole);
        job.ended = Some((job.begun.elapsed(), ended));
    }

    /// When the last one was whole, in seconds of the wall clock.
    pub(crate) fn whole_at(&self) -> Option<u64> {
        Some(self.whole_at.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// Whether the one that ended last failed.
    pub(crate) fn has_failed(&self) -> bool {
        let jobs = lock(&self.jobs);
        jobs.iter().rev().find_map(|job| job.ended.as_ref()).is_some_and(|(_, ended)| ended.is_err())
    }

    /// Whether one is under way.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.jobs).back().is_some_and(|job| job.ended.is_none())
    }

    /// Appends what `stats backup` tells, without its end: the one under way, and those that ended
    /// last.
    pub(crate) fn tell(&self, out: &mut Vec<u8>) {
        for job in lock(&self.jobs).iter() {
            let mut stat = |what: &str, value: &str| reply::stat(out, &format!("backup:{}:{what}", job.name), value);
            let (state, took) = match &job.ended {
                None => ("running", job.begun.elapsed()),
                Some((took, Ok(()))) => ("done", *took),
                Some((took, Err(_))) => ("failed", *took),
            };
            stat("state", state);
            stat("records", &job.written.records.to_string());
            stat("bytes", &job.written.bytes.to_string());
            stat("seconds", &took.as_secs().to_string());
            if let Some((_, Err(why))) = &job.ended {
                stat("error", &one_line(why));
            }
        }
    }

    /// Calls off the backup under way, and waits until it has ended.
    pub(crate) fn stop(&self) {
        self.called_off.store(true, Ordering::Release);
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a backup ended by a defect");
        }
    }
}

/// Has `copy` fill a directory that is made for it. What a failure leaves is removed, so that the
/// name can be used again.
fn copy_into(
    to: &Path,
    copy: impl FnOnce(&BackupWatch<'_>) -> Result<BackupSummary, String>,
    added: &BackupWatch<'_>,
) -> Result<BackupSummary, String> {
    let made = DirBuilder::new().mode(0o700).create(to);
    made.map_err(|error| {
        let hint = if error.kind() == ErrorKind::AlreadyExists { "; remove it, or choose another name" } else { "" };
        format!("cannot make {}: {error}{hint}", to.display())
    })?;
    // A panic must not leave the job running for ever.
    let copied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| copy(added)));
    copied.unwrap_or_else(|_| Err("a defect ended it".into())).map_err(|why| match fs::remove_dir_all(to) {
        Ok(()) => why,
        Err(error) => format!("{why}; what there is of it in {} cannot be removed: {error}", to.display()),
    })
}

/// Whether a client is on this machine.
pub(crate) fn is_local(peer: SocketAddr) -> bool {
    // 127.0.0.1 has another name where both families come in at one socket.
    peer.ip().to_canonical().is_loopback()
}

pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        // Writing to a String does not fail.
        let _ = match character.is_control() {
            true => write!(line, "{}", character.escape_default()),
            false => write!(line, "{character}"),
        };
    }
    line
}

#[cfg(test)]
#[path = "../tests/unit/backups.rs"]
mod tests;
