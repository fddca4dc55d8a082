//! Places in the order of answers, and what they wait for.

use std::time::Duration;

use stratakv_engine::Operation;
use stratakv_protocol::memcache::expiry;

use super::{Connection, Context, Submission, Target, delete_everything};
use crate::answer::{Answer, FlushWords};
use crate::pending::{Access, AccessFilter, PendingAnswer, Reading};

impl Connection {
    pub(super) fn flush(&mut self, delay: i64, noreply: bool, words: FlushWords, context: &mut Context<'_>) {
        context.counters.cmd_flush.add(1);
        let at = expiry(delay, context.wall);
        let is_later = delay > 0 && !at.is_past(context.wall);
        let later = is_later.then(|| Duration::from_millis(at.0.saturating_sub(context.wall.0)));
        context.server.flush_later(later);
        match later {
            Some(_) => self.answer(Answer::Flushed(words), noreply),
            None => {
                self.submit(Target::Every, delete_everything(context.level), context);
                context.server.sweep_nodes();
                self.place(Answer::Flushed(words), noreply, Access::Everything).missing = context.shards;
            }
        }
    }

    /// Asks for what the next place in the order of answers waits for.
    pub(super) fn submit(&mut self, target: Target, operation: Operation, context: &mut Context<'_>) {
        let sequence = self.answers.first.wrapping_add(self.answers.pending.len() as u32);
        context.submissions.push(Submission { sequence, target, operation });
    }

    /// The next place in the order of answers. It is filled where it lies: to push one would copy
    /// its 264 bytes twice.
    pub(super) fn place(&mut self, answer: Answer, noreply: bool, access: Access) -> &mut PendingAnswer {
        let last = self.answers.pending.len();
        if last == 0 {
            self.answers.accesses = AccessFilter::default();
        }
        self.answers.accesses.add(access);
        self.answers.pending.resize_with(last + 1, PendingAnswer::default);
        let place = &mut self.answers.pending[last];
        (place.answer, place.noreply, place.access) = (answer, noreply || self.client.reply_mode.is_silent(), access);
        place
    }

    /// Asks for what a request is first, which writes and reads so much, and makes its place.
    pub(super) fn place_request(
        &mut self,
        operation: Operation,
        (answer, noreply): (Answer, bool),
        access: Access,
        (writing_bytes, reading): (u64, Reading),
        context: &mut Context<'_>,
    ) {
        self.writing_bytes += writing_bytes;
        self.reading.bytes += reading.bytes;
        self.submit(Target::Key, operation, context);
        let place = self.place(answer, noreply, access);
        place.missing = 1;
        (place.writing_bytes, place.reading_bytes, place.whole) = (writing_bytes, reading.bytes, reading.whole);
    }

    /// An answer that needs no operation.
    pub(super) fn answer(&mut self, answer: Answer, noreply: bool) {
        let bytes = if let Answer::Written(text) = &answer { text.capacity() as u64 } else { 0 };
        self.reading.bytes += bytes;
        self.place(answer, noreply, Access::None).reading_bytes = bytes;
    }
}
