//! Values that are too long. The data block of one over `--item-bytes-max` is thrown away as it
//! comes and answered then, as with memcached: nothing is held for it, and clients that write all
//! of a request before they read are not cut off. What a cache refuses it must not go on serving: a
//! `set` that fails takes the old value along, whoever refused the new one. Other engines keep it.

use stratakv_base::{CollectionId, Key};
use stratakv_engine::{ChangeKind, Error, Expect, Reply};
use stratakv_protocol::memcache::binary::Status;
use stratakv_protocol::memcache::{BinaryCommand, BinaryRequest, Command, Meta, MetaVerb, StoreMode, Verb, reply};

use super::{Connection, Context, Submission, Target};
use crate::answer::{Answer, Dialect};
use crate::binary;
use crate::pending::OldValue;
use crate::request::{self, Action, Request};
use crate::watch;

/// A client that announces more is hung up on at once.
const SWALLOWED_BYTES_MAX: u64 = 1 << 30;

/// A command whose data block is being thrown away.
#[derive(Debug)]
pub(super) struct Refused {
    left_bytes: u64,
    /// What is not served any more, if the store is a cache.
    overwrites: Option<Key>,
    answer: Answer,
    noreply: bool,
}

/// A command whose value is over the limit, in any dialect.
struct TooLarge<'a> {
    key: &'a [u8],
    command: &'static str,
    data_bytes: usize,
    overwrites: bool,
}

impl Answer {
    /// The key that a storage command was to overwrite, whatever is there. Where memcached refuses
    /// such a value, that is gone.
    pub(super) fn overwrites(&self) -> Option<&Key> {
        match self {
            Answer::Stored { verb: Verb::Set, key, .. } => Some(key),
            Answer::Planned(planned) => {
                let request = &planned.plan.request;
                let Action::Store { mode, .. } = &request.action else { return None };
                let is_meta = matches!(planned.dialect, Dialect::Meta(_));
                match mode {
                    StoreMode::Set => Some(&request.key),
                    StoreMode::Add | StoreMode::Replace if is_meta => Some(&request.key),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

impl Connection {
    /// A text command whose value is too long.
    pub(super) fn refuse_value(&mut self, command: &Command<'_>, context: &mut Context<'_>) {
        let (store, decoded, noreply) = match command {
            Command::Store(store) => {
                let key = store.key;
                let (command, data_bytes) = (watch::command_of(store.verb), store.data_bytes);
                let overwrites = store.verb == Verb::Set;
                (TooLarge { key, command, data_bytes, overwrites }, None, store.noreply)
            }
            Command::Meta(meta @ Meta { verb: MetaVerb::Set { data_bytes, .. }, .. }) => {
                let store = TooLarge { key: b"", command: "set", data_bytes: *data_bytes, overwrites: true };
                (store, Some(meta.key()), false)
            }
            _ => return,
        };
        let store = TooLarge { key: decoded.as_deref().unwrap_or(store.key), ..store };
        let stranger = self.is_stranger(context);
        let answer = Answer::Text(if stranger { reply::UNAUTHENTICATED } else { reply::TOO_LARGE });
        self.refuse(&store, 2, answer, noreply && !stranger, stranger, context);
    }

    /// The same of the binary protocol.
    pub(super) fn refuse_binary_value(&mut self, request: &BinaryRequest<'_>, context: &mut Context<'_>) {
        let BinaryCommand::Store { mode, key, data_bytes, .. } = request.command else { return };
        if self.is_stranger(context) {
            // It is hung up on, whatever it asks.
            return self.binary_request(request, context);
        }
        let command = watch::command_of_mode(mode, request.compare.is_some());
        let store = TooLarge { key, command, data_bytes, overwrites: mode == StoreMode::Set };
        let answer = Answer::Written(binary::refused(request.tag, Status::TooLarge));
        self.refuse(&store, 0, answer, false, false, context);
    }

    fn refuse(
        &mut self,
        store: &TooLarge<'_>,
        line_end: u64,
        answer: Answer,
        noreply: bool,
        stranger: bool,
        context: &mut Context<'_>,
    ) {
        context.counters.protocol_errors.add(1);
        if !stranger {
            context.counters.store_too_large.add(1);
            context.log.refused(store.key, store.command, store.data_bytes as u64);
        }
        let left_bytes = store.data_bytes as u64 + line_end;
        let overwrites = (store.overwrites && !stranger && context.is_cache)
            .then(|| Key::new(CollectionId::default(), store.key).ok())
            .flatten();
        if left_bytes > SWALLOWED_BYTES_MAX {
            self.answer(answer, noreply);
            self.ending.closing = true;
            return;
        }
        self.unfinished.refused = Some(Refused { left_bytes, overwrites, answer, noreply });
    }

    /// Throws away what has come of the block of a refused command, and answers that once it is
    /// whole.
    pub(super) fn swallow(&mut self, mut refused: Refused, context: &mut Context<'_>) -> bool {
        let fresh = self.input.received.fresh().len();
        let taken = usize::try_from(refused.left_bytes).map_or(fresh, |left| left.min(fresh));
        self.input.received.consume(taken);
        refused.left_bytes -= taken as u64;
        if refused.left_bytes > 0 {
            self.input.hungry = true;
            self.unfinished.refused = Some(refused);
            return false;
        }
        let Refused { overwrites, answer, noreply, .. } = refused;
        let Some(key) = overwrites else {
            self.answer(answer, noreply);
            return true;
        };
        // Its answer is the same whatever comes of that.
        self.ask_once(Request::of(key, Action::Delete), answer, noreply, context)
    }

    /// Looks at the reply to an operation of this place: what to go on with, or nothing while the
    /// old value of a refused one has yet to be seen to.
    pub(super) fn after_old_value(&mut self, index: usize, reply: Reply) -> Option<Reply> {
        let pending = self.answers.pending.get_mut(index)?;
        match pending.old_value {
            OldValue::Stays
                if matches!(reply, Reply::Failed(Error::ValueTooLarge { .. }))
                    && pending.answer.overwrites().is_some() =>
            {
                pending.old_value = OldValue::Doubtful;
                pending.reply = Some(reply);
                self.answers.doubtful.push(self.answers.first.wrapping_add(index as u32));
                None
            }
            OldValue::Doubtful => {
                pending.old_value = OldValue::Handled;
                pending.reply.take()
            }
            OldValue::Stays | OldValue::Handled => Some(reply),
        }
    }

    /// Has a cache drop the old values of keys whose new ones it refused.
    pub(super) fn drop_old_values(&mut self, context: &mut Context<'_>) {
        for sequence in std::mem::take(&mut self.answers.doubtful) {
            let index = sequence.wrapping_sub(self.answers.first) as usize;
            let Some(pending) = self.answers.pending.get_mut(index) else { continue };
            match pending.answer.overwrites().filter(|_| context.is_cache) {
                Some(key) => {
                    let operation = request::write(key.clone(), Expect::Any, ChangeKind::Delete, context.level);
                    context.submissions.push(Submission { sequence, target: Target::Key, operation });
                }
                None => {
                    let refusal = pending.reply.clone().unwrap_or(Reply::Record(None));
                    self.replied(sequence, refusal);
                }
            }
        }
    }
}
