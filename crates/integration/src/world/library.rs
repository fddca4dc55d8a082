//! A user of the library: collections, lists, batches, transactions, loads and expiry, called as a
//! program calls them, while the power fails in the middle of calls and disks fail under them.
//!
//! There is one caller, so at any moment the store is what its calls made of it (`model::Model`),
//! and after a crash that, or what the call under way would have made of it as well. After each
//! opening, and now and then, everything is read and compared: names, their expiry, records and
//! elements. Engine `hash` runs in a simulated region of persistent memory, the others on simulated
//! disks.

mod calls;
mod machine;
mod model;

use std::collections::BTreeMap;

use stratakv::{Collection, Engine, ErrorKind, Placement, WriteBatch};
use stratakv_base::probe;
use stratakv_base::random::Random;
use stratakv_sim::disk::Chances;

use crate::world::{Host, Medium, Setup, Statistics, left_out};
use machine::{Life, Machine};
use model::{COLLECTIONS, Call, Calls, Model, Wholeness};

/// Volumes of `matrix` have so many bytes beside their region at least, others so many in all: a
/// few collections fit.
const VOLUME_BYTES_MIN: u64 = 1 << 20;

/// Runs the world of a seed.
///
/// # Errors
/// What the store did wrong.
pub fn run(seed: u64) -> Result<Statistics, String> {
    run_over(Medium::Kernel, seed)
}

/// As [`run`], with disks that are driven so.
///
/// # Errors
/// What the library did wrong.
pub fn run_over(medium: Medium, seed: u64) -> Result<Statistics, String> {
    let mut random = Random::new(seed ^ 0x11B4_A47E_0000_0001);
    let mut setup = Setup { medium, ..Setup::draw(&mut random) };
    setup.capacity_bytes = setup.capacity_bytes.max(VOLUME_BYTES_MIN);
    setup.engine = if seed % 4 == 2 { Engine::Matrix } else { Engine::Slab };
    setup.placement = if seed % 4 == 1 { Placement::Packed } else { Placement::InPlace };
    let troubles = match random.below(6) {
        0 => Chances { read_error: 300, ..setup.chances },
        1 => Chances { write_error: 60, flush_error: 60, ..setup.chances },
        2 => Chances { error_forever: 30, ..setup.chances },
        // Controllers misbehave as often as writes fail.
        _ if medium == Medium::Nvme => Chances { write_error: 60, ..setup.chances },
        _ => setup.chances,
    };
    setup.chances = Chances { delay: setup.chances.delay, ..troubles };
    let host_seed = random.next_u64();
    let machine = if seed % 4 == 3 { Machine::in_region() } else { Machine::on_disks(Host::new(setup, host_seed)) };
    let mut run = Run {
        has_power_cuts: setup.engine != Engine::Matrix,
        machine,
        calls: Calls::new(&mut random),
        random,
        candidates: vec![Model::with_default()],
        wholeness: Wholeness::Whole,
        expired: Vec::new(),
        statistics: Statistics { runs: 1, ..Statistics::default() },
    };
    let lives = 2 + run.random.below(5);
    for _ in 0..lives {
        run.life()?;
    }
    Ok(run.statistics)
}

struct Run {
    machine: Machine,
    has_power_cuts: bool,
    calls: Calls,
    random: Random,
    /// What the store may hold: one state, or several after a call that was not answered, as it was
    /// done further and further.
    candidates: Vec<Model>,
    wholeness: Wholeness,
    /// Handles of collections that have expired in this life.
    expired: Vec<Collection>,
    statistics: Statistics,
}

impl Run {
    fn life(&mut self) -> Result<(), String> {
        let life = self.machine.open(&mut self.random, &mut self.statistics)?;
        self.expired.clear();
        let outcome = self.use_store(&life).and_then(|()| self.still_reads(&life));
        let power = self.has_power_cuts && self.random.below(4) > 0;
        let closes = outcome.is_ok() && !life.is_cut() && !self.machine.is_excused(&life) && self.random.below(5) == 0;
        self.expired.clear();
        let mut closed = Ok(());
        if closes {
            let outcome = life.close();
            if !self.machine.is_excused(&life) {
                closed = outcome.map_err(|why| format!("it does not close on a sound machine: {why}"));
            }
            self.statistics.closes += 1;
        } else {
            *(if power { &mut self.statistics.power_cuts } else { &mut self.statistics.kills }) += 1;
        }
        let ended = self.machine.end(life, power);
        outcome.and(closed).and(ended)
    }

    fn use_store(&mut self, life: &Life) -> Result<(), String> {
        if !self.looks_right(life, true)? {
            return Ok(());
        }
        let events = [8, 40, 120][self.random.below(3) as usize] + self.random.below(30);
        let cut_at = self.random.below(events);
        let mut handles = BTreeMap::new();
        for event in 0..events {
            let (ticks, power) = (self.random.below(40), self.has_power_cuts && self.random.below(4) > 0);
            if event == cut_at && life.has_region() && self.random.below(3) == 0 {
                life.fail_after(ticks);
            } else if event == cut_at && self.random.below(4) > 0 {
                life.cut_after(ticks, power);
            }
            let is_left_out = left_out::is_next();
            if !is_left_out && !self.event(life, &mut handles)? {
                return Ok(());
            }
        }
        self.looks_right(life, false).map(|_| ())
    }

    /// A region that can no longer be written back is read as before. What was under way may be
    /// there or not, and again at the next opening.
    fn still_reads(&mut self, life: &Life) -> Result<(), String> {
        if !life.has_failed() {
            return Ok(());
        }
        probe!("library: read on after writing the region back had failed");
        let found = calls::observe(life).map_err(|error| format!("reads have stopped with the writes: {error}"))?;
        found
            .judge(&self.candidates, self.wholeness == Wholeness::Each)
            .map_err(|why| format!("after writing back had failed: {why}"))
    }

    /// False: the machine has failed, and the life is over.
    fn event(&mut self, life: &Life, handles: &mut BTreeMap<&'static str, Collection>) -> Result<bool, String> {
        match self.random.below(24) {
            0 => {
                life.pass_ms([100, 700, 2_100, 9_000][self.random.below(4) as usize]);
                let gone = self.expire(life.wall_ms());
                self.expired.extend(gone.iter().filter_map(|name| handles.remove(name)));
            }
            1 => life.rest(self.random.below(60)),
            2 => return self.looks_right(life, false),
            3 if !self.expired.is_empty() => return self.write_to_expired(life),
            _ => {
                let call = self.calls.draw(&mut self.random);
                let is_answered = self.call(life, &call)?;
                if !is_answered {
                    return Ok(false);
                }
                for name in call.makes().into_iter().filter(|name| COLLECTIONS[1..].contains(name)) {
                    if let Ok(Some(handle)) = life.call(|store| store.existing_collection(name)) {
                        handles.insert(name, handle);
                    }
                }
                if let Call::Drop { name } = call {
                    handles.remove(name);
                }
            }
        }
        Ok(true)
    }

    /// Forgets what has expired; which names have.
    fn expire(&mut self, wall_ms: u64) -> Vec<&'static str> {
        let mut gone = Vec::new();
        for model in &mut self.candidates {
            gone = model.expire(wall_ms);
        }
        gone
    }

    fn model(&self) -> Model {
        self.candidates.last().cloned().unwrap_or_default()
    }

    /// One call. False: it failed, and the machine is why.
    fn call(&mut self, life: &Life, call: &Call) -> Result<bool, String> {
        self.statistics.asked += 1;
        let wall_ms = life.wall_ms();
        self.expire(wall_ms);
        let mut model = self.model();
        let mut candidates = vec![model.clone()];
        for name in call.makes() {
            model.make(name);
            candidates.push(model.clone());
        }
        let due = model.carry_out(call, wall_ms);
        candidates.push(model.clone());
        let answer = calls::ask(life, call, wall_ms);
        self.statistics.note(format!("{call:?}{:?}", answer.as_ref().ok()).as_bytes());
        match answer {
            Ok(told) if told == due => {
                self.statistics.answered += 1;
                self.candidates = vec![model];
                Ok(true)
            }
            Ok(told) => Err(format!("{call:?} was answered {told:?}, and {due:?} was due")),
            Err(error) => {
                (self.candidates, self.wholeness) = (candidates, call.wholeness());
                if self.machine.is_excused(life) {
                    self.statistics.served.failed += 1;
                    return Ok(false);
                }
                match error.kind() {
                    // Then only what it made first is there.
                    ErrorKind::Full => self.looks_right(life, false),
                    _ => Err(format!("{call:?} failed on a sound machine: {error}")),
                }
            }
        }
    }

    /// Nothing can be put into a collection that has expired; of a batch, nothing anywhere.
    fn write_to_expired(&mut self, life: &Life) -> Result<bool, String> {
        let handle = self.expired[self.random.below(self.expired.len() as u64) as usize].clone();
        let is_first = self.random.below(2) == 0;
        let answer = life.call(|store| {
            let mut batch = WriteBatch::new();
            if is_first {
                batch.put_in(&handle, b"key-000", b"too late");
            }
            batch.put(b"key-000", b"beside it");
            if !is_first {
                batch.put_in(&handle, b"key-001", b"too late");
            }
            store.write(batch)
        });
        match answer {
            Err(_) if self.machine.is_excused(life) => Ok(false),
            Err(error) if error.to_string().contains("has expired") => Ok(true),
            answer => Err(format!("a write to a collection that has expired was answered {answer:?}")),
        }
    }

    /// Reads everything. False: the machine has failed.
    fn looks_right(&mut self, life: &Life, opened: bool) -> Result<bool, String> {
        self.expire(life.wall_ms());
        let found = match life
            .call(|store| if opened { store.complete_names() } else { Ok(()) })
            .and_then(|()| calls::observe(life))
        {
            Ok(found) => found,
            Err(_) if self.machine.is_excused(life) => return Ok(false),
            Err(error) => return Err(format!("it cannot be read on a sound machine: {error}")),
        };
        let when = if opened { "after an opening" } else { "in the middle of a life" };
        found.judge(&self.candidates, self.wholeness == Wholeness::Each).map_err(|why| format!("{when}: {why}"))?;
        (self.candidates, self.wholeness) = (vec![found], Wholeness::Whole);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::model::Told;
    use super::*;

    #[test]
    fn a_state_between_two_is_one_of_a_load_and_of_no_batch() {
        let mut random = Random::new(1);
        let mut calls = Calls::new(&mut random);
        let mut before = Model::with_default();
        let load = Call::Load { of: "", first: 0, count: 3, value: b"v".to_vec() };
        let mut after = before.clone();
        assert_eq!(after.carry_out(&load, 0), Told::Count(3));
        let mut part = after.clone();
        assert_eq!(part.carry_out(&Call::Delete { of: "", key: b"key-001".to_vec() }, 0), Told::Was(true));
        assert!(part.judge(&[before.clone(), after.clone()], true).is_ok());
        assert!(part.judge(&[before.clone(), after.clone()], false).is_err());
        assert!(part.judge(&[after], true).is_err());
        (0..500).for_each(|_| drop(before.carry_out(&calls.draw(&mut random), 1)));
        assert!(!before.lists.is_empty());
    }

    #[test]
    fn some_seeds_of_each_engine_lose_nothing() {
        for seed in 0..24 {
            run(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn a_seed_gives_the_same_run() {
        for seed in 0..4 {
            assert_eq!(run(seed).map(|sums| sums.digest), run(seed).map(|sums| sums.digest), "seed {seed}");
        }
    }
}
