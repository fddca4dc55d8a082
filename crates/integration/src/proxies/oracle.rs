//! What a client knows of its keys, and what an answer means. Nobody else writes these keys.

/// What a key was given, in the order of its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenState {
    /// A value with its number in it.
    Value,
    /// Nothing: it was deleted.
    Deleted,
}

/// Whether a write is known to have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certainty {
    Acknowledged,
    /// It failed: it may have happened, and it may happen yet.
    Unknown,
}

/// A key of one client. Each of its writes has a number, from 1 on.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyRecord {
    writes: Vec<(GivenState, Certainty)>,
    /// The newest write that is known to have happened: acknowledged, or seen; 0 for none.
    newest: u64,
    /// Since when nothing was disturbed, when the newest was acknowledged; 0: something was.
    calm: u64,
}

/// What an answer to a get is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It is the newest, or one that may have happened since.
    Right,
    /// There is no value. A cache may have none.
    Miss,
    /// There is none, and nothing was disturbed since the newest was acknowledged.
    Lost,
    /// An older one, and nothing was disturbed since the newest was acknowledged.
    OlderInCalm,
    /// An older one that had been acknowledged.
    Stale,
    /// An older one that had failed, or a deletion that had: it came to the server later.
    Late,
    /// No write of this key.
    Alien,
}

impl KeyRecord {
    /// A value is to be set; its number.
    pub(super) fn begin_set(&mut self) -> u64 {
        self.begin(GivenState::Value)
    }

    /// The key is to be deleted; the number of that.
    pub(super) fn begin_delete(&mut self) -> u64 {
        self.begin(GivenState::Deleted)
    }

    fn begin(&mut self, state: GivenState) -> u64 {
        self.writes.push((state, Certainty::Unknown));
        self.writes.len() as u64
    }

    /// The last write is acknowledged, in this calm (0 for none).
    pub(super) fn acknowledge(&mut self, calm: u64) {
        if let Some((_, certainty)) = self.writes.last_mut() {
            *certainty = Certainty::Acknowledged;
        }
        (self.newest, self.calm) = (self.writes.len() as u64, calm);
    }

    /// A get answers this number, in this calm.
    pub(super) fn judge(&mut self, found: Option<u64>, calm: u64) -> Judgement {
        let in_calm = calm != 0 && calm == self.calm;
        let state = |number: u64| number.checked_sub(1).and_then(|place| self.writes.get(place as usize));
        let Some(number) = found else {
            let is_there = matches!(state(self.newest), Some((GivenState::Value, _)));
            let may_come = |(state, certainty): &(GivenState, Certainty)| {
                (*state, *certainty) == (GivenState::Deleted, Certainty::Unknown)
            };
            return match in_calm && is_there {
                true if self.writes.iter().any(may_come) => Judgement::Late,
                true => Judgement::Lost,
                false => Judgement::Miss,
            };
        };
        match state(number) {
            Some((GivenState::Value, _)) if number > self.newest => {
                // A write that had failed: from now on it is known to have happened.
                (self.newest, self.calm) = (number, 0);
                Judgement::Right
            }
            Some((GivenState::Value, _)) if number == self.newest => Judgement::Right,
            Some((GivenState::Value, Certainty::Unknown)) => Judgement::Late,
            Some((GivenState::Value, Certainty::Acknowledged)) if in_calm => Judgement::OlderInCalm,
            Some((GivenState::Value, Certainty::Acknowledged)) => Judgement::Stale,
            _ => Judgement::Alien,
        }
    }
}

/// A counter of one client, which adds one again and again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CounterRecord {
    /// The last answer, or what it was set to.
    low: u64,
    /// It can be no more than this, if everything was carried out once.
    high: u64,
    /// Additions that failed: they may happen yet.
    unknown: u64,
    /// Setting it failed once: it may be set to less yet.
    may_be_set: bool,
    calm: u64,
}

/// What an answer to an addition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Right,
    /// No more than before, and nothing was disturbed meanwhile.
    LessInCalm,
    /// No more than before.
    Stale,
    /// More than was added: something was carried out twice.
    TooMuch,
}

impl CounterRecord {
    /// It is to be set to this, as it is not there.
    pub(super) fn base(&self) -> u64 {
        self.high
    }

    /// It is set to [`CounterRecord::base`], in this calm. What failed before may come on top.
    pub(super) fn is_set(&mut self, calm: u64) {
        (self.low, self.calm) = (self.high, calm);
        self.high += self.unknown;
    }

    /// Setting it failed: perhaps it is set all the same.
    pub(super) fn set_failed(&mut self) {
        self.may_be_set = true;
        self.high += self.unknown;
    }

    /// An addition failed.
    pub(super) fn failed(&mut self) {
        self.high += 1;
        self.unknown += 1;
        self.calm = 0;
    }

    /// An addition is answered so, in this calm.
    pub(super) fn judge(&mut self, sum: u64, calm: u64) -> Counted {
        self.high += 1;
        let in_calm = calm != 0 && calm == self.calm && !self.may_be_set;
        if sum > self.high {
            return Counted::TooMuch;
        }
        let is_less = sum <= self.low;
        // An older counter goes on from where it is.
        (self.low, self.calm) = (sum, calm);
        match (is_less, in_calm) {
            (false, _) => Counted::Right,
            (true, true) => Counted::LessInCalm,
            (true, false) => Counted::Stale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_value_is_told_from_one_that_came_late() {
        let mut key = KeyRecord::default();
        assert_eq!(key.judge(None, 1), Judgement::Miss, "nothing was set");
        assert_eq!(key.judge(Some(1), 1), Judgement::Alien);
        assert_eq!(key.begin_set(), 1);
        key.acknowledge(1);
        assert_eq!(key.judge(Some(1), 1), Judgement::Right);
        assert_eq!(key.judge(None, 1), Judgement::Lost);
        assert_eq!(key.judge(None, 2), Judgement::Miss, "something was disturbed");
        assert_eq!(key.begin_set(), 2);
        assert_eq!(key.judge(Some(1), 1), Judgement::Right, "the second one is not known");
        assert_eq!(key.begin_set(), 3);
        key.acknowledge(2);
        assert_eq!(key.judge(Some(1), 2), Judgement::OlderInCalm);
        assert_eq!(key.judge(Some(1), 3), Judgement::Stale);
        assert_eq!(key.judge(Some(2), 3), Judgement::Late);
        assert_eq!(key.judge(Some(3), 3), Judgement::Right);
        assert_eq!(key.judge(Some(4), 3), Judgement::Alien);
    }

    #[test]
    fn what_was_seen_is_known() {
        let mut key = KeyRecord::default();
        key.begin_set();
        key.acknowledge(1);
        key.begin_set();
        assert_eq!(key.judge(Some(2), 1), Judgement::Right, "it failed, and it is there");
        assert_eq!(key.judge(Some(1), 1), Judgement::Stale, "so the first one is older");
    }

    #[test]
    fn a_deleted_key_stays_away() {
        let mut key = KeyRecord::default();
        key.begin_set();
        key.acknowledge(1);
        assert_eq!(key.begin_delete(), 2);
        key.acknowledge(1);
        assert_eq!(key.judge(None, 1), Judgement::Miss);
        assert_eq!(key.judge(Some(1), 1), Judgement::OlderInCalm);
        assert_eq!(key.judge(Some(2), 1), Judgement::Alien, "there is no such value");
    }

    #[test]
    fn a_deletion_that_failed_may_come_late() {
        let mut key = KeyRecord::default();
        key.begin_delete();
        key.begin_set();
        key.acknowledge(1);
        assert_eq!(key.judge(None, 1), Judgement::Late);
    }

    #[test]
    fn a_sum_that_is_too_large_is_found() {
        let mut counter = CounterRecord::default();
        counter.is_set(1);
        assert_eq!(counter.judge(1, 1), Counted::Right);
        assert_eq!(counter.judge(3, 1), Counted::TooMuch);
        let mut counter = CounterRecord::default();
        counter.is_set(1);
        counter.failed();
        assert_eq!(counter.judge(2, 1), Counted::Right, "the one that failed was carried out");
        assert_eq!(counter.judge(2, 1), Counted::LessInCalm);
        assert_eq!(counter.judge(1, 2), Counted::Stale);
        assert_eq!(counter.judge(2, 2), Counted::Right, "it goes on from there");
    }

    #[test]
    fn an_addition_that_failed_may_come_on_top_of_a_new_base() {
        let mut counter = CounterRecord::default();
        counter.is_set(1);
        counter.failed();
        assert_eq!(counter.base(), 1);
        counter.is_set(2);
        assert_eq!(counter.judge(3, 2), Counted::Right, "the base, the late one, and this one");
        assert_eq!(counter.judge(5, 2), Counted::TooMuch);
    }
}
