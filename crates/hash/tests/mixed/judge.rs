//! What may be seen of a key whose writer goes on meanwhile.

use stratakv_base::Wall;

use crate::world::{Known, Seen, State, is_in};

/// A key before it was looked at, and after.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The last write that was answered before.
    pub done: State,
    /// The last write that was begun when it had been looked at.
    pub begun: State,
}

/// A time before, and after.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// What was asked with.
    pub asked: Wall,
    /// What expired up to here may have been given back.
    pub latest: Wall,
}

impl Window {
    /// For who looks afterwards: [`Window::close`] it then.
    pub fn open(known: &Known) -> Window {
        Window { done: known.done(), begun: State::default() }
    }

    pub fn close(&mut self, known: &Known) {
        self.begun = known.begun();
    }

    /// What cannot have been seen of a key with one writer.
    pub fn judge(&self, seen: Option<&Seen>, times: Times) -> Result<(), String> {
        let Window { done, begun } = *self;
        let is_right = match seen {
            Some(seen) => [done, begun].iter().all(|state| {
                let is_it = state.is_there && state.expiry == seen.expiry;
                seen.round != state.round || is_it
            }),
            None => self.may_be_gone(times),
        };
        let in_time = seen.is_none_or(|seen| (done.round..=begun.round).contains(&seen.round));
        if is_right && in_time { Ok(()) } else { Err(format!("{seen:?} was seen in {self:?}, {times:?}")) }
    }

    /// What cannot be if a key was seen, whatever it had.
    pub fn judge_there(&self) -> Result<(), String> {
        let never = !self.done.is_there && self.begun == self.done;
        if never { Err(format!("it was seen in {self:?}")) } else { Ok(()) }
    }

    fn may_be_gone(&self, times: Times) -> bool {
        let Window { done, begun } = *self;
        // Of what came between the two nothing is known.
        done.is_gone(times.latest)
            || begun.round > done.round && begun.is_gone(times.latest)
            || begun.round > done.round + 1
    }

    /// What cannot have been seen of a member of a group.
    pub fn judge_member(&self, (group, index): (u64, u64), seen: Option<&Seen>) -> Result<(), String> {
        let mut rounds = self.done.round..=self.begun.round;
        let is_right = match seen {
            Some(seen) => rounds.contains(&seen.round) && is_in(seen.round, group, index),
            None => rounds.any(|round| !is_in(round, group, index)),
        };
        if is_right { Ok(()) } else { Err(format!("{seen:?} was seen in {self:?}")) }
    }
}
