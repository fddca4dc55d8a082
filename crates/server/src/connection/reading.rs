//! Reading values: how much is asked for, what is asked for again, and long ones slice by slice.

use bytes::Bytes;
use stratakv_base::Key;
use stratakv_engine::{Hold, Operation, Record, RecordPart, Reply, Value};

use super::{Connection, Context, Submission, Target};
use crate::answer::Answer;
use crate::memory_budget::FREE_BYTES;
use crate::pending::PendingAnswer;
use crate::schedule::cost_of;
use crate::structure::is_structure;

/// Bytes of answers read, being read, waiting and being sent for one connection, beyond which
/// nothing more is begun. A longer value comes alone; one that is next in order and asked for again
/// comes beside those behind it.
pub(super) const HELD_BYTES_MAX: u64 = 2 << 20;
/// The same while the server's memory for clients is scarce.
const HELD_BYTES_SCARCE: u64 = 128 << 10;
/// How much of a value is asked for at first: as much as recent ones had, within these. What is
/// longer the engine does not read, and it is asked for again when there is room for all of it.
const FIRST_BYTES_MIN: u64 = 16 << 10;
const FIRST_BYTES_MAX: u64 = 16 << 20;
/// Of a long value so much is asked for at once: some slices, which the engine reads side by side.
const SLICES_BYTES: u64 = 256 << 10;
/// The same while the server's memory for clients is scarce.
const SLICES_BYTES_SCARCE: u64 = 64 << 10;
/// The next ones are asked for while no more than this waits to be sent, so that they are read
/// while those before them leave.
const AHEAD_BYTES_MAX: u64 = 512 << 10;

/// A long value that is taken slice by slice. It is begun once it is next in order; from then on an
/// error can only end the connection.
#[derive(Debug)]
pub(crate) struct Stream {
    hold: Hold,
    /// What is known of it, and its first bytes; until they are on their way.
    front: Option<Record>,
    version: u64,
    value_bytes: u64,
    /// So much of it was taken.
    taken_bytes: u64,
    /// Being read.
    asked_bytes: u64,
    /// It is one of Redis clients, and no value.
    is_structure: bool,
}

impl Connection {
    /// How much of the next value is asked for at first.
    pub(super) fn first_bytes(&self) -> u64 {
        if self.budget().is_scarce() {
            return FREE_BYTES;
        }
        self.reading.value_bytes.clamp(FIRST_BYTES_MIN, FIRST_BYTES_MAX).next_power_of_two()
    }

    /// Whether so many bytes more of answers may be held, as far as the connection alone is
    /// concerned.
    pub(super) fn may_hold(&self, bytes: u64) -> bool {
        let held = self.answer_bytes();
        let most = if self.budget().is_scarce() { HELD_BYTES_SCARCE } else { HELD_BYTES_MAX };
        held == 0 || held + bytes <= most
    }

    /// A value is longer than was expected, and is asked for again: so many bytes.
    pub(super) fn postpone(&mut self, index: usize, bytes: u64) {
        let Some(pending) = self.answers.pending.get_mut(index) else { return };
        self.reading.value_bytes = bytes.max(self.reading.value_bytes - self.reading.value_bytes / 8);
        self.reading.bytes -= std::mem::take(&mut pending.reading_bytes);
        pending.again_bytes = Some(bytes);
        self.reading.postponed += 1;
    }

    /// Asks for postponed values, in order, while there is room for them.
    pub(super) fn ask_again(&mut self, context: &mut Context<'_>) {
        let mut index = 0;
        while self.reading.postponed > 0 && index < self.answers.pending.len() && !self.ending.broken {
            let bytes = self.answers.pending.get(index).and_then(|pending| pending.again_bytes);
            if let Some(bytes) = bytes.filter(|bytes| !self.ask_postponed(index, *bytes, context)) {
                if self.lacks_room(index, bytes) {
                    continue;
                }
                return;
            }
            // With that room a command may want more at once.
            let wants_more = self.answers.pending.get(index).is_some_and(|pending| pending.again_bytes.is_some());
            index += usize::from(!wants_more);
        }
    }

    /// Asks for a postponed value, if there is room for it.
    fn ask_postponed(&mut self, index: usize, bytes: u64, context: &mut Context<'_>) -> bool {
        // What was read for those behind the first one leaves after it: there is no waiting for
        // that room, nor for the part of the budget that those who go on have.
        let some_leave = self.sending.output.bytes() + self.sending.bytes > 0;
        let may = match index {
            0 => (!some_leave || self.may_hold(bytes)) && self.may_take(bytes),
            _ => self.may_hold(bytes) && self.may_begin(bytes),
        };
        let Some(pending) = self.answers.pending.get_mut(index).filter(|_| may) else { return false };
        if let Answer::Work(_) = pending.answer {
            (pending.reading_bytes, pending.again_bytes) = (pending.reading_bytes + bytes, None);
            self.reading.bytes += bytes;
            self.reading.postponed -= 1;
            self.go_on_with_room(index, bytes, context);
            return true;
        }
        let Some(key) = pending.answer.reads().cloned() else { return false };
        (pending.reading_bytes, pending.again_bytes) = (bytes, None);
        self.reading.bytes += bytes;
        self.reading.postponed -= 1;
        let part = RecordPart::Sliced { hold: 0, start: 0, len: bytes.try_into().unwrap_or(u32::MAX) };
        let sequence = self.answers.first.wrapping_add(index as u32);
        context.submissions.push(Submission { sequence, target: Target::Key, operation: Operation::Get { key, part } });
        true
    }

    /// The front of a long value came.
    pub(super) fn begin_stream(&mut self, index: usize, mut record: Record, hold: Hold) {
        let Some(asked_bytes) = self.answers.pending.get(index).map(|pending| pending.reading_bytes) else { return };
        let read_bytes = record.value.len();
        self.reading.value_bytes = read_bytes.max(self.reading.value_bytes - self.reading.value_bytes / 8);
        // The engine reads whole slices. What there is no room for is let go, and read again when
        // it is its turn.
        let is_structure = is_structure(&record);
        let has_room = read_bytes <= asked_bytes || self.may_take(read_bytes - asked_bytes);
        if !has_room {
            record.value = Value::Inline(Bytes::new());
        }
        let read_bytes = record.value.len();
        let Some(pending) = self.answers.pending.get_mut(index) else { return };
        self.reading.bytes = self.reading.bytes - pending.reading_bytes + read_bytes;
        pending.reading_bytes = read_bytes;
        pending.block_permit = self.sending.block_budget.permit(&mut record.value);
        let (version, value_bytes) = (record.version, record.value_bytes);
        let stream = Stream {
            hold,
            front: Some(record),
            version,
            value_bytes,
            taken_bytes: read_bytes,
            asked_bytes: 0,
            is_structure,
        };
        pending.stream = Some(Box::new(stream));
    }

    /// More of the long value that is next in order came, or not.
    pub(super) fn slices_came(&mut self, index: usize, reply: Reply) {
        let Some(pending) = self.answers.pending.get_mut(index) else { return };
        let Some(stream) = &mut pending.stream else { return };
        let asked_bytes = std::mem::take(&mut stream.asked_bytes);
        self.reading.bytes -= std::mem::take(&mut pending.reading_bytes);
        match reply {
            Reply::Record(Some(mut record))
                if record.value.len() == asked_bytes && record.version == stream.version =>
            {
                stream.taken_bytes += asked_bytes;
                self.grant.spend(cost_of(asked_bytes));
                let block_permit = self.sending.block_budget.permit(&mut record.value);
                self.sending.output.push_value(record.value);
                self.sending.output.hold(block_permit);
            }
            reply => {
                // The client was told how long it is: there is no other way to say that there is no
                // more.
                let error = if let Reply::Failed(error) = reply { error.to_string() } else { "it is gone".to_owned() };
                tracing::warn!(error, "a value could not be read to its end; its connection is closed");
                self.abort();
            }
        }
    }

    /// Goes on with a long value that is next in order. True: it is complete.
    pub(super) fn pump_stream(&mut self, context: &mut Context<'_>) -> bool {
        let waiting_bytes = self.sending.output.bytes() + self.sending.bytes;
        let Some(first) = self.answers.pending.front_mut().filter(|_| !self.ending.broken) else { return false };
        let (Some(stream), Some(key)) = (&mut first.stream, first.answer.reads()) else { return false };
        if let Some(record) = stream.front.take() {
            self.reading.bytes -= std::mem::take(&mut first.reading_bytes);
            if first.noreply {
                (first.answer, first.stream, first.block_permit, first.missing) = (Answer::Text(b""), None, None, 0);
                return true;
            }
            if stream.is_structure {
                let encoder = &mut self.answers.response_encoder;
                encoder.refuse_structure(&first.answer, &mut self.sending.output, &context.here());
                (first.answer, first.stream, first.block_permit, first.missing) = (Answer::Text(b""), None, None, 0);
                return true;
            }
            if !self.answers.response_encoder.begin_value(
                &first.answer,
                record,
                &mut self.sending.output,
                &context.here(),
            ) {
                (first.answer, first.stream, first.block_permit, first.missing) = (Answer::Text(b""), None, None, 0);
                return true;
            }
            self.sending.output.hold(first.block_permit.take());
        }
        if stream.asked_bytes > 0 {
            return false;
        }
        if stream.taken_bytes == stream.value_bytes {
            (first.answer, first.stream, first.missing) = (Answer::Text(first.answer.end_of_value()), None, 0);
            return true;
        }
        let (hold, start, left, key) =
            (stream.hold.id(), stream.taken_bytes, stream.value_bytes - stream.taken_bytes, key.clone());
        self.next_slices((hold, start, left), key, waiting_bytes, context);
        false
    }

    /// Asks for the next slices, if there is room for them.
    fn next_slices(
        &mut self,
        (hold, start, left): (u64, u64, u64),
        key: Key,
        waiting_bytes: u64,
        context: &mut Context<'_>,
    ) {
        let (slices_bytes, ahead_bytes) =
            if self.budget().is_scarce() { (SLICES_BYTES_SCARCE, 0) } else { (SLICES_BYTES, AHEAD_BYTES_MAX) };
        let len = slices_bytes.min(left);
        if waiting_bytes > ahead_bytes || !self.may_take(len) {
            return;
        }
        let part = RecordPart::Sliced { hold, start, len: len as u32 };
        let operation = Operation::Get { key, part };
        context.submissions.push(Submission { sequence: self.answers.first, target: Target::Key, operation });
        self.reading.bytes += len;
        if let Some(PendingAnswer { stream: Some(stream), reading_bytes, .. }) = self.answers.pending.front_mut() {
            (stream.asked_bytes, *reading_bytes) = (len, len);
        }
    }
}
