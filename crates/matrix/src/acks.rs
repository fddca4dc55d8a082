//! [`Acks`]: replies that wait until what they rest on is durable. A step of an operation adds one,
//! `Matrix::commit` gives them out once a tick, behind the fence. It never answers by itself.

use stratakv_base::fault_point;
use stratakv_engine::{Error, Reply, Token};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    /// Each with the version up to which the log has to be durable: of writes, and of whoever may
    /// have seen one.
    pending: Vec<(Token, Reply, u64)>,
    /// Who asked for a sync in this tick.
    syncs: Vec<Token>,
}

impl Acks {
    /// A reply that rests on everything up to `version`.
    pub(crate) fn hold(&mut self, token: Token, reply: Reply, version: u64) {
        self.pending.push((token, reply, version));
    }

    /// A sync: its reply comes once the region is written back.
    pub(crate) fn hold_sync(&mut self, token: Token) {
        self.syncs.push(token);
    }

    /// Whether replies are held back.
    pub(crate) fn any_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(crate) fn any_syncs(&self) -> bool {
        !self.syncs.is_empty()
    }

    /// Nothing behind the version `durable` became durable: what rests on it is not known.
    pub(crate) fn fail_behind(&mut self, durable: u64) {
        let is_lost = |version: u64| {
            fault_point!("trial_all_rests_on_the_log", return true);
            version > durable
        };
        for (_, reply, _) in self.pending.iter_mut().filter(|(_, _, version)| is_lost(*version)) {
            let why = "the persistent memory failed while the write was made durable";
            *reply = Reply::Failed(Error::Unknown(why));
        }
    }

    /// What is to be answered now.
    pub(crate) fn take(&mut self) -> Vec<(Token, Reply, u64)> {
        std::mem::take(&mut self.pending)
    }

    pub(crate) fn take_syncs(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.syncs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_rests_on_the_lost_end_of_the_log_fails() {
        let mut acks = Acks::default();
        let token = |slot| Token { slot, generation: 0 };
        (1..4)
            .for_each(|version| acks.hold(token(version), Reply::Done { version: 1, existed: false }, version.into()));
        acks.fail_behind(2);
        let failed = |(token, reply, _): &(Token, Reply, u64)| matches!(reply, Reply::Failed(_)).then_some(token.slot);
        assert_eq!(acks.take().iter().filter_map(failed).collect::<Vec<_>>(), [3]);
        assert!(!acks.any_pending());
    }
}
