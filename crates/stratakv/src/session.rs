//! [`Session`]: many operations in flight from one thread.

use std::io;
use std::marker::PhantomData;
use std::ops::Bound;
use std::time::Duration;

use stratakv_base::Key;
use stratakv_base::slots::Slots;
use stratakv_device::Wait;
use stratakv_engine::{Error as EngineError, Item, Operation, PageRequest, Reply};
use stratakv_runtime::Event;

use crate::error::Error;
use crate::merge::{Gather, Page, merge_pages};
use crate::raw::Driver;
use crate::routing::Route;
use crate::store::Store;

/// Submit and poll, with a ring of its own: the thread that polls runs the shards' ticks and does
/// their I/O, so nothing hops between threads, and one system call serves many operations.
///
/// Operations of one session on one key take effect in the order of submission only if the earlier
/// one was answered first. While operations are in flight, poll: writes of other threads may ride
/// on this session's I/O and wait with it. So may this thread's own blocking calls, which would
/// then wait for ever: poll until nothing is in flight, or call [`Session::rest`], before a
/// blocking call or [`Store::close`] in the same thread. A session stays in the thread that made
/// it: it is not `Send`. Dropping a session lets writes that have begun end; their outcome is not
/// told.
pub struct Session {
    store: Store,
    driver: Driver,
    /// What each of the driver's tags is for.
    slots: Slots<SessionSlot, u64>,
    in_flight: usize,
    next_ticket: u64,
    events: Vec<Event>,
    done: Vec<(u64, Reply)>,
    batch_wait: Duration,
    /// A ring belongs to the thread that first submitted on it: a session cannot move to another.
    thread_bound: PhantomData<*const ()>,
}

enum SessionSlot {
    /// One operation on one shard.
    Single { ticket: u64 },
    /// One shard's part of a `Whole`.
    Share { whole: u64, shard: usize },
    /// An operation on several shards.
    Whole(Box<Whole>),
}

struct Whole {
    ticket: u64,
    missing: usize,
    step: MultiShardStep,
}

enum MultiShardStep {
    /// Keys-only pages of every shard.
    Keys {
        request: PageRequest,
        pages: Vec<Page>,
    },
    /// Pages with the records of the merged keys.
    Records {
        request: PageRequest,
        pages: Vec<Page>,
        next: Option<Bound<Key>>,
    },
    /// Pages of shards that have their keys not in memory.
    Gather {
        request: PageRequest,
        gather: Gather,
    },
    /// Answers that are added up.
    Sum(u64),
    Failed(EngineError),
}

impl Session {
    pub(crate) fn new(store: Store, driver: Driver) -> Session {
        Session {
            store,
            driver,
            slots: Slots::default(),
            in_flight: 0,
            next_ticket: 0,
            events: Vec::new(),
            done: Vec::new(),
            batch_wait: Duration::from_micros(200),
            thread_bound: PhantomData,
        }
    }

    /// The longest wait for company: [`Session::poll`] returns with fewer answers than asked for
    /// once this has passed and there is at least one. Default: 200 µs.
    pub fn set_batch_wait(&mut self, wait: Duration) {
        self.batch_wait = wait;
    }

    /// The old name of [`Session::set_batch_wait`].
    #[doc(hidden)]
    #[deprecated(note = "use `set_batch_wait`")]
    pub fn set_gather(&mut self, wait: Duration) {
        self.set_batch_wait(wait);
    }

    /// Operations submitted and not yet returned by [`Session::poll`].
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Queues an operation; it begins at the next [`Session::poll`]. Returns its ticket.
    pub fn submit(&mut self, operation: Operation) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.in_flight += 1;
        match self.store.inner().route(&operation) {
            Route::Shard(shard) => {
                let tag = self.slots.insert(SessionSlot::Single { ticket });
                self.driver.submit(shard, tag, operation);
            }
            Route::Refused(error) => self.done.push((ticket, Reply::Failed(error))),
            Route::Answered(reply) => self.done.push((ticket, reply)),
            Route::All => self.submit_to_all(ticket, operation),
        }
        ticket
    }

    fn submit_to_all(&mut self, ticket: u64, operation: Operation) {
        let (step, operation) = match operation {
            Operation::Page(request) if self.store.inner().gathers() => {
                let gathered = self.store.inner().gathered_of(&request);
                return self.go_on(ticket, *request, Gather::new(gathered, self.store.shards()));
            }
            Operation::Page(request) => {
                let keys = PageRequest { keys_only: true, ..(*request).clone() };
                (MultiShardStep::Keys { request: *request, pages: Vec::new() }, Operation::Page(keys.into()))
            }
            other => (MultiShardStep::Sum(0), other),
        };
        let shards = self.store.shards();
        let whole = self.slots.insert(SessionSlot::Whole(Box::new(Whole { ticket, missing: shards, step })));
        for shard in 0..shards {
            let tag = self.slots.insert(SessionSlot::Share { whole, shard });
            self.driver.submit(shard, tag, operation.clone());
        }
    }

    /// Runs ticks until at least `min` answers are there (fewer if fewer are in flight, or after
    /// the batch wait if there is one), and returns them with their tickets.
    ///
    /// # Errors
    /// The ring failed; the outcome of everything in flight is unknown.
    pub fn poll(&mut self, min: usize) -> Result<Vec<(u64, Reply)>, Error> {
        let min = min.min(self.in_flight);
        loop {
            let missing = min.saturating_sub(self.done.len()) as u32;
            let wait = match missing {
                0 => Wait::None,
                _ => Wait::For { completions: missing, timeout: Some(self.batch_wait) },
            };
            let before = self.done.len();
            self.driver.tick(wait, &mut self.events).map_err(ring_error)?;
            let mut events = std::mem::take(&mut self.events);
            for event in events.drain(..) {
                if let Event::Reply { tag, reply } = event {
                    self.answered(tag, reply);
                }
            }
            self.events = events;
            let patience_over = !self.done.is_empty() && self.done.len() == before;
            if self.done.len() >= min || patience_over {
                break;
            }
        }
        self.in_flight -= self.done.len();
        if self.in_flight == 0 {
            let done = std::mem::take(&mut self.done);
            self.rest()?;
            return Ok(done);
        }
        Ok(std::mem::take(&mut self.done))
    }

    /// Sees the I/O under way through and leaves what follows from it to the store's reactors:
    /// after this the thread may make blocking calls. Answers are kept for the next
    /// [`Session::poll`].
    ///
    /// # Errors
    /// The ring failed.
    pub fn rest(&mut self) -> Result<(), Error> {
        let mut events = std::mem::take(&mut self.events);
        let rested = self.driver.rest(&mut events).map_err(ring_error);
        for event in events.drain(..) {
            if let Event::Reply { tag, reply } = event {
                self.answered(tag, reply);
            }
        }
        self.events = events;
        rested
    }

    fn answered(&mut self, tag: u64, reply: Reply) {
        match self.slots.remove(tag) {
            Some(SessionSlot::Single { ticket }) => self.done.push((ticket, reply)),
            Some(SessionSlot::Share { whole, shard }) => self.share_answered(whole, shard, reply),
            Some(SessionSlot::Whole(_)) | None => {}
        }
    }

    fn share_answered(&mut self, tag: u64, shard: usize, reply: Reply) {
        let Some(SessionSlot::Whole(whole)) = self.slots.get_mut(tag) else { return };
        whole.missing -= 1;
        match (&mut whole.step, reply) {
            (
                MultiShardStep::Keys { pages, .. } | MultiShardStep::Records { pages, .. },
                Reply::Page { items, next },
            ) => {
                pages.push((items, next));
            }
            (MultiShardStep::Gather { gather, .. }, Reply::Page { items, next }) => gather.take(shard, (items, next)),
            (MultiShardStep::Sum(sum), Reply::Number { number, .. }) => *sum += number,
            (MultiShardStep::Sum(_), Reply::Done { .. }) | (MultiShardStep::Failed(_), _) => {}
            (step, Reply::Failed(error)) => *step = MultiShardStep::Failed(error),
            (step, _) => {
                *step = MultiShardStep::Failed(EngineError::Unknown("the engine gave an answer of another kind"))
            }
        }
        if whole.missing == 0
            && let Some(SessionSlot::Whole(whole)) = self.slots.remove(tag)
        {
            self.whole_answered(*whole);
        }
    }

    fn whole_answered(&mut self, whole: Whole) {
        let ticket = whole.ticket;
        let reply = match whole.step {
            MultiShardStep::Failed(error) => Reply::Failed(error),
            MultiShardStep::Sum(number) => Reply::Number { number, version: 0 },
            MultiShardStep::Gather { request, gather } => return self.go_on(ticket, request, gather),
            MultiShardStep::Records { request, pages, next } => {
                let (items, cut) = merge_pages(pages, request.reverse, request.items_max as usize);
                self.store.inner().saw(&items);
                Reply::Page { items, next: cut.or(next) }
            }
            MultiShardStep::Keys { request, pages } => {
                let (items, next) = merge_pages(pages, request.reverse, request.items_max as usize);
                if !request.keys_only && !items.is_empty() {
                    return self.read_records(ticket, items, request, next);
                }
                Reply::Page { items, next }
            }
        };
        self.done.push((ticket, reply));
    }

    /// Asks for what a page lacks; or it is finished.
    fn go_on(&mut self, ticket: u64, request: PageRequest, mut gather: Gather) {
        let wanted = gather.wants();
        if wanted.is_empty() {
            let is_of_keys = gather.is_of_keys();
            let (items, next) = gather.finish();
            if is_of_keys && !request.keys_only && !items.is_empty() {
                return self.read_records(ticket, items, request, next);
            }
            self.store.inner().saw(&items);
            return self.done.push((ticket, Reply::Page { items, next }));
        }
        let step = MultiShardStep::Gather { request, gather };
        let whole = self.slots.insert(SessionSlot::Whole(Box::new(Whole { ticket, missing: wanted.len(), step })));
        for (shard, page) in wanted {
            let tag = self.slots.insert(SessionSlot::Share { whole, shard });
            self.driver.submit(shard, tag, Operation::Page(page.into()));
        }
    }

    fn read_records(&mut self, ticket: u64, items: Vec<Item>, request: PageRequest, next: Option<Bound<Key>>) {
        let keys = items.into_iter().map(|item| item.key).collect();
        let operations = self.store.inner().pages(keys, &request);
        let step = MultiShardStep::Records { request, pages: Vec::with_capacity(operations.len()), next };
        let whole = self.slots.insert(SessionSlot::Whole(Box::new(Whole { ticket, missing: operations.len(), step })));
        for (shard, operation) in operations {
            let tag = self.slots.insert(SessionSlot::Share { whole, shard });
            self.driver.submit(shard, tag, operation);
        }
    }
}

fn ring_error(error: io::Error) -> Error {
    Error::Io { what: "do I/O through", path: "the I/O ring".into(), error }
}
