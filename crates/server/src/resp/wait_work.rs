//! A command that waits (`BLPOP` and its kin), under way: it looks at its keys when it is called,
//! takes what is there, and goes on waiting at its old place if another was faster.

use std::sync::Arc;
use std::time::Duration;

use stratakv_base::Key;
use stratakv_engine::Reply;
use stratakv_protocol::resp::encode;

use super::arguments::{Arguments, Gathered};
use super::calls::ConnectionAddress;
use super::commands::waits::{WaitRequest, attempt, attempt_again};
use super::data::{CallSettings, DataCommand, DataWork, Progress};
use super::many::{ManyLimits, ManyWork};
use super::reply::written;
use super::turns::TurnNews;
use super::waiting::{Called, Unblock, Waiter};
use super::work::{Asked, WorkContext};

const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// Why a client waits no longer although it got nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    TimedOut,
    /// It has left, or the server stops: there is nobody to be answered.
    Left,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct WaitWork {
    command: Arc<WaitCommand>,
    settings: CallSettings,
    limits: ManyLimits,
    /// Its places in the queues, from the time on at which it begins.
    waiter: Option<Arc<Waiter>>,
    /// It has looked at its keys before.
    has_waited: bool,
    look: Option<Look>,
    /// Keys that it is to look at after this one, the last one first.
    next_keys: Vec<usize>,
    end: Option<WaitEnd>,
}

/// What does not change while it waits.
#[derive(Debug)]
struct WaitCommand {
    arguments: Gathered,
    request: WaitRequest,
    /// Those that it waits at; behind them the one that it changes too.
    keys: Vec<Key>,
    /// How many it waits at.
    waited: usize,
    client: (u64, ConnectionAddress),
}

/// A look at one key, or at both of a move, or over the nodes of a long list.
#[derive(Clone, Debug)]
enum Look {
    /// It waits for room for what it reads.
    Room,
    One(DataWork),
    Both(Box<ManyWork>),
}

impl WaitWork {
    /// The command of a client: `keys` are all of them, each once.
    pub(crate) fn new(
        (a, request): (&Arguments<'_>, WaitRequest),
        keys: Vec<Key>,
        client: (u64, ConnectionAddress),
        (settings, limits): (CallSettings, ManyLimits),
    ) -> WaitWork {
        let waited = if request.moves() { 1 } else { keys.len() };
        let command = Arc::new(WaitCommand { arguments: a.gather(), request, keys, waited, client });
        WaitWork {
            command,
            settings,
            limits,
            waiter: None,
            has_waited: false,
            look: None,
            next_keys: Vec::new(),
            end: None,
        }
    }

    /// Bytes of memory that it holds, in the queues too.
    pub(crate) fn held_bytes(&self) -> usize {
        let WaitCommand { arguments, keys, .. } = &*self.command;
        let names: usize = keys.iter().map(|key| size_of::<Key>() + key.user().len()).sum();
        size_of::<WaitCommand>() + arguments.held_bytes() + names + Waiter::held_bytes(keys)
    }

    /// For how long it waits.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.command.request.timeout
    }

    /// Whether it does nothing until it is called.
    pub(crate) fn is_idle(&self) -> bool {
        self.look.is_none()
    }

    /// Its client is gone: it leaves the queues.
    pub(crate) fn give_up(&mut self) {
        self.end = Some(WaitEnd::Left);
        self.next_keys.clear();
        self.waiter = None;
    }

    /// There is news for the turn with this ticket; whether it waits for that.
    pub(crate) fn hear(&mut self, ticket: u64, news: TurnNews) -> bool {
        match &mut self.look {
            Some(Look::Both(both)) => both.hear(ticket, news),
            _ => false,
        }
    }

    pub(crate) fn begin(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        let WaitCommand { request, keys, waited, client, .. } = &*self.command;
        let keys = keys.get(..*waited).unwrap_or_default();
        self.waiter = Some(Arc::new(context.waits.enter(*client, request.kind(), keys)));
        let progress = self.proceed(context, asked);
        self.has_waited |= self.look.is_none();
        progress
    }

    /// It may have been called, or is to end.
    pub(crate) fn resume(&mut self, end: Option<WaitEnd>, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        self.end = self.end.or(end);
        match self.look {
            Some(_) => Progress::Waits,
            None => self.proceed(context, asked),
        }
    }

    /// Does what it is called for, or waits.
    fn proceed(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        if self.is_over() {
            return Progress::Ended(Vec::new());
        }
        match self.waiter.as_ref().map_or(Called::No, |waiter| waiter.take_call()) {
            Called::Unblocked(Unblock::Error) => Progress::Ended(written(|out| encode::error(out, UNBLOCKED))),
            Called::Unblocked(Unblock::Timeout) => self.timed_out(),
            Called::Look(places) => {
                self.next_keys = places;
                self.next_keys.reverse();
                self.look_at_next(context, asked)
            }
            Called::No => match self.end {
                Some(WaitEnd::TimedOut) => self.timed_out(),
                Some(WaitEnd::Left) => Progress::Ended(Vec::new()),
                None => Progress::Waits,
            },
        }
    }

    /// Its client has left, and what came before that is done. It takes no call any more, and what
    /// it was called for it does not say to have looked at: who is behind it is called instead.
    fn is_over(&self) -> bool {
        self.end == Some(WaitEnd::Left) && self.has_waited
    }

    fn timed_out(&self) -> Progress {
        Progress::Ended(written(|out| encode::null_array(out, self.settings.version)))
    }

    /// Looks at the next key where it is the first.
    fn look_at_next(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        let command = Arc::clone(&self.command);
        if self.is_over() {
            return Progress::Ended(Vec::new());
        }
        let Some(key) = self.next_keys.pop().and_then(|place| command.keys.get(place)) else {
            self.has_waited = true;
            return self.proceed(context, asked);
        };
        self.settings.wall = context.here.wall;
        let arguments = Arguments::new(&command.arguments, b"", &[]);
        if command.keys.len() > command.waited {
            self.look = Some(Look::Room);
            return Progress::WantsRoom(self.both().first_bytes());
        }
        let one = match command.waited {
            1 => None,
            _ => Some(command.request.of_key(arguments, key.user())),
        };
        let arguments = one.as_ref().map_or(arguments, |one| Arguments::new(one, b"", &[]));
        let data = DataCommand::new(self.core(), &arguments);
        let mut work = DataWork::new(key.clone(), data, (self.settings, self.limits), false);
        let progress = work.begin(context, asked);
        self.look = Some(Look::One(work));
        progress
    }

    fn core(&self) -> super::records::Core {
        if self.has_waited { attempt_again } else { attempt }
    }

    /// A look at both keys of a move.
    fn both(&self) -> ManyWork {
        let arguments = Arguments::new(&self.command.arguments, b"", &[]);
        let data = DataCommand::new(self.core(), &arguments);
        ManyWork::new(vec![Arc::new(data)], self.command.keys.clone(), self.settings, self.limits)
    }

    /// There is no room now: it gives back what can be made again.
    pub(crate) fn shed(&mut self) {
        if let Some(Look::Both(both)) = &mut self.look {
            both.shed();
        }
    }

    /// There is room for so many bytes that it reads.
    pub(crate) fn has_room(&mut self, bytes: u64, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        match &mut self.look {
            Some(Look::Room) => {
                let mut both = Box::new(self.both());
                let progress = both.begin(context, asked);
                self.look = Some(Look::Both(both));
                self.follow(progress, context, asked)
            }
            Some(Look::Both(both)) => {
                let progress = both.has_room(bytes, context, asked);
                self.follow(progress, context, asked)
            }
            Some(Look::One(_)) | None => Progress::Waits,
        }
    }

    pub(crate) fn step(&mut self, reply: Reply, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        let progress = match &mut self.look {
            Some(Look::One(work)) => work.step(reply, context),
            Some(Look::Both(both)) => both.step(reply, context, asked),
            Some(Look::Room) | None => Progress::Waits,
        };
        self.follow(progress, context, asked)
    }

    /// A look may have ended: with an answer, or with nothing.
    fn follow(&mut self, progress: Progress, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        match progress {
            Progress::NeedsNodes => {
                if let Some(Look::One(work)) = &self.look {
                    let many = Box::new(work.with_nodes());
                    let bytes = many.first_bytes();
                    self.look = Some(Look::Both(many));
                    return Progress::WantsRoom(bytes);
                }
                Progress::Waits
            }
            Progress::Ended(answer) if is_nothing(&answer) => {
                self.look = None;
                self.look_at_next(context, asked)
            }
            progress => progress,
        }
    }
}

/// Whether this is what an attempt answers that found nothing.
fn is_nothing(answer: &[u8]) -> bool {
    matches!(answer, b"*-1\r\n" | b"$-1\r\n" | b"_\r\n")
}
