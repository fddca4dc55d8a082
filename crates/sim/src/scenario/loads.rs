//! Loads of several keys: all of them or none.

use stratakv_base::Expiry;
use stratakv_engine::{Error, LoadRecord, Operation, Reply, Unmet};

use super::requests::{Asked, key};
use super::{World, level};
use crate::machine::Engine;
use crate::model::{ModelRecord, State};
use crate::plan::Request;

/// A load without an answer: for each key the state that it leaves, and those that later writes
/// leave.
pub(super) type OpenLoad = Vec<(u16, Vec<State>)>;

impl<E: Engine> World<'_, E> {
    /// Hands over a load of this key and the next ones, to an engine that has loads.
    pub(super) fn load(&mut self, request: &Request, count: u16, len: u32) -> Result<(), String> {
        let keys = request.key..(request.key + count).min(self.setup.keys);
        if !self.machine.takes_loads() || keys.is_empty() {
            return Ok(());
        }
        let (mut records, mut writes) = (Vec::new(), Vec::new());
        for number in keys {
            let value = self.value(len);
            let after = Some(ModelRecord { value: value.clone(), flags: 0, expiry: Expiry::NEVER });
            writes.push((number, self.histories[usize::from(number)].hand_over(after, request.power_loss)));
            records.push(LoadRecord { key: key(number), value, flags: 0, expiry: Expiry::NEVER });
        }
        let operation = Operation::Load { records: records.into(), level: level(request.power_loss) };
        let nothing = writes.clone();
        if !self.hand_over_load(operation, writes) {
            self.refuse_load(&nothing);
        }
        Ok(())
    }

    /// Whether the shard takes it.
    fn hand_over_load(&mut self, operation: Operation, writes: Vec<(u16, usize)>) -> bool {
        let Some(token) = self.machine.submit(operation) else { return false };
        self.statistics.operations += 1;
        self.asked.push((token, Asked::Load { writes }));
        true
    }

    fn refuse_load(&mut self, writes: &[(u16, usize)]) {
        writes.iter().for_each(|(key, number)| self.histories[usize::from(*key)].refused(*number));
    }

    /// Whether a load of the key is under way, which may be refused at any time.
    pub(super) fn is_loading(&self, key: usize) -> bool {
        let has = |writes: &[(u16, usize)]| writes.iter().any(|(number, _)| usize::from(*number) == key);
        self.asked.iter().any(|(_, asked)| matches!(asked, Asked::Load { writes } if has(writes)))
    }

    pub(super) fn judge_load(&mut self, writes: &[(u16, usize)], reply: &Reply) -> Result<(), String> {
        match reply {
            Reply::Done { version, existed: false } => {
                if *version <= self.floor && !self.lies() {
                    return Err(format!("version {version} is not above {}", self.floor));
                }
                self.highest = self.highest.max(*version);
                self.statistics.acknowledged += 1;
                self.statistics.loads += 1;
                for (key, number) in writes {
                    let history = &mut self.histories[usize::from(*key)];
                    history.acknowledged(*number);
                    history.versioned(*number, *version)?;
                }
                Ok(())
            }
            // Something lies there: to the model too, if only as what is gone.
            Reply::Unmet(Unmet::Occupied) => {
                self.refuse_load(writes);
                Ok(())
            }
            Reply::Failed(error) => {
                self.failed(error, self.meets_damage_of_others(), Some(2))?;
                if !matches!(error, Error::Unknown(_)) {
                    self.refuse_load(writes);
                }
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    }

    /// What the loads that have no answer leave, before a crash forgets it.
    pub(super) fn open_loads(&self) -> Vec<OpenLoad> {
        let open = |(key, number): &(u16, usize)| (*key, self.histories[usize::from(*key)].states_from(*number));
        let loads = self.asked.iter().filter_map(|(_, asked)| match asked {
            Asked::Load { writes } => Some(writes.iter().map(open).collect()),
            _ => None,
        });
        loads.collect()
    }

    /// Compares what a crash left of them: where one key has its record, each of the others has its
    /// own, or what was written later.
    pub(super) fn compare_loads(&self, loads: &[OpenLoad]) -> Result<(), String> {
        for load in loads {
            let newest = |key: u16| self.histories[usize::from(key)].newest();
            let is_there = load.iter().any(|(key, states)| states.first() == Some(newest(*key)));
            if let Some((key, _)) = load.iter().find(|(key, states)| is_there && !states.contains(newest(*key))) {
                let keys: Vec<u16> = load.iter().map(|(key, _)| *key).collect();
                return Err(format!("of a load of the keys {keys:?} key {key} is not there after a crash"));
            }
        }
        Ok(())
    }
}
