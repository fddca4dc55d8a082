//! Collections that clients list, make and drop. One request at a time, in a thread of its own: it
//! is several operations of the library, and a drop deletes every key. `stats collections` tells
//! what came of the last ones.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stratakv::{Error, ErrorKind, Expiry, Kind, Store};
use stratakv_protocol::memcache::{CollectionsAction, CollectionsRequest, reply};

use crate::server::lock;

/// Ended requests that are told of.
const REMEMBERED: usize = 4;
/// How long a server that stops waits for a drop: what it leaves, the store's next opening drops.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is asked for, without what it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Task {
    List { described: bool },
    Create { name: String, order: Option<String> },
    Drop { name: String },
}

/// A name in base64, and what is told of it.
type Line = (String, String);

struct Job {
    token: String,
    /// None while it is under way.
    ended: Option<Ended>,
}

/// As it is told: a state, and lines.
struct Ended {
    state: &'static str,
    lines: Vec<Line>,
    error: Option<(&'static str, String)>,
}

/// The requests of a server's clients.
#[derive(Default)]
pub(crate) struct CollectionJobs {
    /// The newest one last, no two of one token.
    jobs: Mutex<VecDeque<Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// A request has ended.
    changed: Condvar,
    /// The server stops: records are counted no more.
    is_stopping: AtomicBool,
}

impl CollectionJobs {
    /// Begins a request; the answer for the client. Does not wait. `is_trusted`: the client said
    /// who it is, or is on this machine.
    pub(crate) fn begin(self: &Arc<Self>, store: &Store, asked: &CollectionsRequest<'_>, is_trusted: bool) -> Vec<u8> {
        let mut answer = Vec::new();
        let Some(task) = task_of(asked.action) else { return reply::BAD_COLLECTIONS.to_vec() };
        // As backups: where nobody says who it is, what changes the store is asked for from here.
        if !is_trusted && !matches!(task, Task::List { .. }) {
            reply::client_error(
                &mut answer,
                "without accounts (--auth-file) collections are made and dropped from the server's own machine, over its loopback address",
            );
            return answer;
        }
        let mut jobs = lock(&self.jobs);
        if jobs.back().is_some_and(|job| job.ended.is_none()) {
            reply::server_error(&mut answer, "busy: another request about collections is under way");
            return answer;
        }
        let (ours, store) = (Arc::clone(self), store.clone());
        let body = move || {
            // A panic must not leave the request running for ever.
            let outcome =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| carry_out(&store, &task, &ours.is_stopping)));
            ours.ended(outcome.map_or_else(|_| Ended::failed("failed", "a defect ended it"), Ended::by));
        };
        // The one before has ended, so its thread is not waited for.
        match std::thread::Builder::new().name("collections".into()).spawn(body) {
            Ok(thread) => *lock(&self.thread) = Some(thread),
            Err(error) => {
                reply::server_error(&mut answer, &format!("cannot start a thread: {error}"));
                return answer;
            }
        }
        jobs.retain(|job| job.token != asked.token);
        let surplus = jobs.len().saturating_sub(REMEMBERED);
        jobs.drain(..surplus);
        jobs.push_back(Job { token: asked.token.to_owned(), ended: None });
        reply::OK.to_vec()
    }

    fn ended(&self, ended: Ended) {
        if let Some(job) = lock(&self.jobs).back_mut() {
            job.ended = Some(ended);
        }
        self.changed.notify_all();
    }

    /// Appends what `stats collections` tells, without its end.
    pub(crate) fn tell(&self, out: &mut Vec<u8>) {
        for job in lock(&self.jobs).iter() {
            let mut stat = |what: &str, value: &str| reply::stat(out, &format!("{}:{what}", job.token), value);
            let Some(Ended { state, lines, error }) = &job.ended else {
                stat("state", "running");
                continue;
            };
            stat("state", state);
            if let Some((kind, why)) = error {
                stat("kind", kind);
                stat("error", &crate::backups::one_line(why));
            }
            for (name, told) in lines {
                stat(&format!("name:{name}"), told);
            }
        }
    }

    /// Ends the request under way, and waits for it. A drop that takes longer goes on until the
    /// store is closed.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let thread = lock(&self.thread).take();
        let is_under_way = |jobs: &mut VecDeque<Job>| jobs.back().is_some_and(|job| job.ended.is_none());
        let waited = self.changed.wait_timeout_while(lock(&self.jobs), PATIENCE, is_under_way);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            tracing::info!("a request about collections is left under way: the next opening finishes a drop");
        } else {
            Self::join(thread);
        }
    }

    fn join(thread: Option<JoinHandle<()>>) {
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a request about collections ended by a defect");
        }
    }
}

/// `None`: a name is no base64 of UTF-8.
fn task_of(action: CollectionsAction<'_>) -> Option<Task> {
    let decoded = |name: &str| String::from_utf8(STANDARD.decode(name).ok()?).ok();
    Some(match action {
        CollectionsAction::List => Task::List { described: false },
        CollectionsAction::Describe => Task::List { described: true },
        CollectionsAction::Create { name, order } => {
            Task::Create { name: decoded(name)?, order: order.map(str::to_owned) }
        }
        CollectionsAction::Drop { name } => Task::Drop { name: decoded(name)? },
    })
}

/// What is told; `None`: there is no such collection.
fn carry_out(store: &Store, task: &Task, is_stopping: &AtomicBool) -> Result<Option<Vec<Line>>, Error> {
    match task {
        Task::List { described } => {
            let goes_on = || !is_stopping.load(Ordering::Relaxed);
            let lines = store.collections()?.into_iter().map(|name| {
                let told = if *described { described_by(store, &name, goes_on)? } else { "-".to_owned() };
                Ok((STANDARD.encode(name), told))
            });
            return lines.collect::<Result<_, _>>().map(Some);
        }
        Task::Create { name, order: Some(order) } => drop(store.collection_in_order(name, order)?),
        Task::Create { name, order: None } => drop(store.collection(name)?),
        Task::Drop { name } => {
            if !store.drop_collection(name)? {
                return Ok(None);
            }
            tracing::info!(name, "a client has dropped a collection");
        }
    }
    Ok(Some(Vec::new()))
}

/// Its kind, how many records it has, when it expires, and its order.
///
/// # Errors
/// The store fails, or `goes_on` says no.
fn described_by(store: &Store, name: &str, goes_on: impl Fn() -> bool) -> Result<String, Error> {
    let kind = store.kind_of(name)?.unwrap_or_default();
    let list = if kind == Kind::List { store.existing_list(name)? } else { None };
    let records = match list {
        Some(list) => Some(list.records().clone()),
        // Of an order whose function is not here it can be counted all the same.
        None => store.stored_collection(name)?,
    };
    // Dropped meanwhile.
    let Some(records) = records else { return Ok("gone".into()) };
    let expiry = match store.collection_expiry(name)?.unwrap_or(Expiry::NEVER) {
        Expiry::NEVER => "never".to_owned(),
        expiry => expiry.seconds().to_string(),
    };
    let kind = if kind == Kind::List { "list" } else { "keyvalue" };
    let count = records.len_while(goes_on)?.ok_or(stratakv_engine::Error::Closed)?;
    Ok(format!("{kind} {count} {expiry} {}", records.order().unwrap_or("bytes")))
}

impl Ended {
    fn failed(kind: &'static str, why: &str) -> Ended {
        Ended { state: "failed", lines: Vec::new(), error: Some((kind, why.to_owned())) }
    }

    fn by(outcome: Result<Option<Vec<Line>>, Error>) -> Ended {
        let (state, lines) = match outcome {
            Ok(Some(lines)) => ("done", lines),
            Ok(None) => ("absent", Vec::new()),
            Err(error) => {
                let kind = match error.kind() {
                    ErrorKind::Usage => "usage",
                    ErrorKind::Unsupported => "unsupported",
                    ErrorKind::Corrupt => "corrupt",
                    _ => "failed",
                };
                return Ended::failed(kind, &error.to_string());
            }
        };
        Ended { state, lines, error: None }
    }
}

#[cfg(test)]
mod tests {
    use stratakv::{Level, Options};

    use super::*;

    fn asked<'a>(token: &'a str, action: CollectionsAction<'a>) -> CollectionsRequest<'a> {
        CollectionsRequest { token, action }
    }

    fn told(jobs: &CollectionJobs) -> String {
        let mut out = Vec::new();
        jobs.tell(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_server_that_stops_counts_no_further() {
        let folder = tempfile::tempdir().unwrap();
        let store = Options::new().level(Level::ProcessCrash).open(folder.path().join("data")).unwrap();
        let records = store.collection("a").unwrap();
        (0..5_000).for_each(|number: u32| _ = records.put(number.to_be_bytes(), "v").unwrap());
        // Asked before each page, and the second one is refused.
        let asked_for = std::cell::Cell::new(0);
        let once = || asked_for.replace(asked_for.get() + 1) < 1;
        assert_eq!(described_by(&store, "a", once).unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(asked_for.get(), 2);
        assert_eq!(described_by(&store, "a", || true).unwrap(), "keyvalue 5000 never bytes");
        let jobs = Arc::new(CollectionJobs::default());
        jobs.stop();
        assert_eq!(jobs.begin(&store, &asked("t", CollectionsAction::Describe), false), reply::OK);
        CollectionJobs::join(lock(&jobs.thread).take());
        assert!(told(&jobs).starts_with("STAT t:state failed\r\n"), "{}", told(&jobs));
    }

    #[test]
    fn strangers_may_list_collections_and_change_none() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().level(Level::ProcessCrash);
        let store = options.open(folder.path().join("data")).unwrap();
        store.collection("a b").unwrap();
        let jobs = Arc::new(CollectionJobs::default());
        let begin = |request: &CollectionsRequest<'_>, is_trusted| {
            let answer = String::from_utf8(jobs.begin(&store, request, is_trusted)).unwrap();
            CollectionJobs::join(lock(&jobs.thread).take());
            answer
        };
        let create = asked("t", CollectionsAction::Create { name: "Yw==", order: None });
        let remove = asked("t", CollectionsAction::Drop { name: "YSBi" });
        for change in [&create, &remove] {
            assert!(begin(change, false).starts_with("CLIENT_ERROR without accounts"));
        }
        assert_eq!(begin(&asked("t", CollectionsAction::List), false), "OK\r\n");
        assert_eq!(told(&jobs), "STAT t:state done\r\nSTAT t:name:YSBi -\r\n");
        assert_eq!((begin(&create, true), begin(&remove, true)), ("OK\r\n".to_owned(), "OK\r\n".to_owned()));
        assert_eq!(store.collections().unwrap(), ["c"]);
        assert_eq!(begin(&asked("again", remove.action), true), "OK\r\n");
        assert!(told(&jobs).ends_with("STAT again:state absent\r\n"), "{}", told(&jobs));
        assert!(begin(&asked("t", CollectionsAction::Drop { name: "?" }), true).contains("usage"));
        // Of many only the last ones are told of.
        (0..9).for_each(|number| drop(begin(&asked(&format!("n{number}"), CollectionsAction::List), true)));
        assert!(!told(&jobs).contains("n3:") && told(&jobs).contains("n4:state done"), "{}", told(&jobs));
    }
}
