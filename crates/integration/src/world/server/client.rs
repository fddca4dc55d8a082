//! A memcache client with keys of its own: what it has asked, what it may be answered, and how it
//! behaves.
//!
//! Of each key it knows the states that it may be in, one after an answer that tells. A cache may
//! have forgotten any key, so there `absent` is always one of them; once it is seen to be absent it
//! stays so until it is written. Where an answer is an error the key is as it was; where the
//! outcome is not known, the write shows at once, or after the next opening, or never.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use stratakv::Engine;
use stratakv_base::random::Random;
use stratakv_protocol::memcache::reply;
use stratakv_sim::net::{ClientRead, Net, Peer};

use super::circumstances::Circumstances;
use super::command::{self, Command, Hits, KnownItem, State};
use super::line::{Line, Mood, text};
use super::talker::Talker;
use crate::world::Statistics;

/// Commands asked and not answered.
const PENDING_MAX: usize = 24;
/// So long a server that has hung up waits for its client to do the same.
const LINGER_NS: u64 = 2_000_000_000;

/// What clients count together: how often it was asked for, and answered.
#[derive(Debug, Default)]
pub(super) struct Tally {
    asked: Cell<u64>,
    answered: Cell<u64>,
}

impl Tally {
    fn ask(&self) -> Command {
        self.asked.set(self.asked.get() + 1);
        Command::Tally { at_least: self.answered.get() + 1 }
    }
}

/// See the module.
pub(super) struct Client {
    number: u64,
    value_bytes_max: u64,
    /// Values that a cache may find too long.
    long_bytes: u64,
    /// Values that a cache may send slice by slice.
    sliced_bytes: u64,
    /// A cache: it may forget.
    forgets: bool,
    /// A disk has given reason for errors in this life.
    excused: bool,
    /// A cache does without its volume.
    is_degraded: bool,
    /// What all clients count together, if they share a key.
    tally: Option<Rc<Tally>>,
    /// The shard of that key has broken in this life.
    tally_is_broken: bool,
    /// Keys whose shard has broken in this life.
    broken: Vec<bool>,
    /// Seconds after which what it stores expires.
    lifetime: u32,
    /// The server may have too many connections already.
    may_be_refused: bool,
    line: Line,
    /// What each key may hold.
    keys: Vec<Vec<State>>,
    /// What writes of unknown outcome may have made of each key, to be seen after the next opening.
    later: Vec<Vec<State>>,
    /// Of a cache: what a key was before a get missed it, for so many commands, itself included,
    /// that were asked already. A get of these may have been carried out before the miss: a long
    /// value is asked for twice, and may be gone the second time.
    missed: Vec<(Vec<State>, usize)>,
    /// Commands written, in order, that are not answered.
    pending: VecDeque<Command>,
    counter: u64,
}

impl Client {
    pub(super) fn new(number: u64, circumstances: &Circumstances) -> Client {
        Client {
            number,
            value_bytes_max: circumstances.value_bytes_max,
            long_bytes: circumstances.setup.memory_bytes / 12,
            // Two slices of a page: none is shorter.
            sliced_bytes: 8 << 10,
            forgets: circumstances.setup.engine == Engine::Tier,
            excused: false,
            is_degraded: false,
            tally: None,
            tally_is_broken: false,
            broken: vec![false; circumstances.keys],
            lifetime: circumstances.lifetime,
            may_be_refused: circumstances.connections_max < 100,
            line: Line::default(),
            keys: vec![vec![None]; circumstances.keys],
            later: vec![Vec::new(); circumstances.keys],
            missed: vec![(Vec::new(), 0); circumstances.keys],
            pending: VecDeque::new(),
            counter: 0,
        }
    }

    /// Counts with others, and says versions itself.
    pub(super) fn share(&mut self, tally: &Rc<Tally>) {
        self.tally = Some(Rc::clone(tally));
    }

    /// Whether something has given reason for errors about this key.
    fn may_fail(&self, key: usize) -> bool {
        self.excused || self.broken[key]
    }

    /// Whether it waits for nothing.
    fn is_quiet(&self) -> bool {
        self.pending.iter().all(Command::is_silent) && self.line.to_write.is_empty()
    }

    fn push(&mut self, command: Command, statistics: &mut Statistics) {
        statistics.asked += 1;
        let mut bytes = Vec::new();
        command.write(|key| self.name(key), self.lifetime, &mut bytes);
        self.line.to_write.extend(bytes);
        self.pending.push_back(command);
    }

    fn is_refused(&self) -> bool {
        self.line.heard == self.line.received.len() && reply::TOO_MANY_CONNECTIONS.starts_with(&self.line.received)
    }

    fn name(&self, key: usize) -> String {
        format!("client-{}-key-{key}", self.number)
    }

    fn read(
        &mut self,
        net: &mut Net,
        peer: Peer,
        max: usize,
        random: &mut Random,
        statistics: &mut Statistics,
    ) -> Result<(), String> {
        match net.read(peer, max, &mut self.line.received, random) {
            ClientRead::Bytes(count) => {
                self.line.heard += count;
                self.answers(statistics)
            }
            ClientRead::Nothing => Ok(()),
            // The words of the refusal may be lost: it is closed with bytes unread.
            ClientRead::End | ClientRead::Reset if self.may_be_refused && self.is_refused() && !net.was_heard(peer) => {
                // Nothing was done.
                self.disconnected();
                Ok(())
            }
            ClientRead::End if self.line.mood == Mood::Finished && self.is_quiet() && self.line.received.is_empty() => {
                net.close(peer);
                self.lost();
                Ok(())
            }
            // It talked on and did not take what it was answered for as long as a server that has
            // hung up waits.
            ClientRead::Reset if self.line.chatters.is_some_and(|since| since.0 + LINGER_NS <= net.now.0) => {
                net.close(peer);
                self.line.mood = Mood::Left;
                Ok(())
            }
            // A long value whose shard broke while it was sent; one of a cache that could not be
            // read to its end, or of which too little was taken for two seconds while its segment
            // was to make room: its client was told how long it is, so there is no other way.
            ClientRead::End | ClientRead::Reset if !self.pending.is_empty() && self.may_be_cut_off() => {
                net.close(peer);
                self.line.mood = Mood::Left;
                Ok(())
            }
            end => Err(format!(
                "{}: the server ended the connection ({end:?}); received {:?}",
                self.describe(),
                text(&self.line.received)
            )),
        }
    }

    /// The connection is gone and nothing of it is under way any more: of what was not answered,
    /// some first commands on each key were done.
    fn lost(&mut self) {
        let mut newest = self.keys.clone();
        newest.iter_mut().zip(&self.later).for_each(|(states, later)| add(states, later.clone()));
        for command in std::mem::take(&mut self.pending) {
            let Some(key) = command.changes() else { continue };
            newest[key] = self.unheard(key, &command, &newest[key]);
            add(&mut self.keys[key], newest[key].clone());
            if !self.later[key].is_empty() || self.may_fail(key) {
                // It may have been under way when its shard gave up.
                add(&mut self.later[key], newest[key].clone());
            }
        }
        self.disconnected();
    }

    fn may_be_cut_off(&self) -> bool {
        let is_sliced = |held: &KnownItem| held.value.len() as u64 > self.sliced_bytes;
        let has_sliced = |key: &usize| self.keys[*key].iter().flatten().any(is_sliced);
        let broke = || (0..self.keys.len()).any(|key| self.broken[key] && has_sliced(&key));
        broke() || self.forgets && (self.excused || (0..self.keys.len()).any(|key| has_sliced(&key)))
    }

    /// What a key may be after a command whose answer is not heard: one that failed leaves it as it
    /// was, whatever came after it.
    fn unheard(&self, key: usize, command: &Command, states: &[State]) -> Vec<State> {
        let after: Vec<State> = states.iter().map(|state| command.carry_out(state).0).collect();
        let is_long = |held: &KnownItem| held.value.len() as u64 > self.long_bytes;
        let may_have_failed = self.may_fail(key) || self.forgets && after.iter().flatten().any(is_long);
        let mut all = possible(self.forgets, after);
        if may_have_failed {
            add(&mut all, states.to_vec());
        }
        all
    }

    fn disconnected(&mut self) {
        self.pending.clear();
        self.missed.iter_mut().for_each(|missed| missed.1 = 0);
        self.line = Line::default();
    }

    /// Judges what has arrived, command by command.
    fn answers(&mut self, statistics: &mut Statistics) -> Result<(), String> {
        if self.may_be_refused && self.is_refused() {
            return Ok(());
        }
        loop {
            // What is not answered was done by the time the next answer comes.
            while self.pending.front().is_some_and(Command::is_silent) && !self.line.received.is_empty() {
                let Some(command) = self.pending.pop_front() else { break };
                if let Some(key) = command.changes() {
                    self.keys[key] = self.unheard(key, &command, &self.keys[key]);
                    if self.may_fail(key) {
                        let now = self.keys[key].clone();
                        add(&mut self.later[key], now);
                    }
                }
            }
            let Some(command) = self.pending.front() else {
                return if self.line.received.is_empty() { Ok(()) } else { Err(self.wrong("nothing was asked")) };
            };
            let (inner, parse): (_, command::ParseHits) = match command {
                Command::Meta(inner) => (&**inner, command::meta_hit),
                command => (command, command::hits),
            };
            let judged = match inner {
                Command::Get { keys, with_unique } => self.judge_get(&keys.clone(), *with_unique, parse, statistics)?,
                Command::Fixed { answer, .. } => self.judge_fixed(answer)?,
                Command::Tally { at_least } => self.judge_tally(*at_least, statistics)?,
                _ => self.judge_change(&command.clone(), statistics)?,
            };
            let Some(len) = judged else { return Ok(()) };
            statistics.answered += 1;
            statistics.note(&self.line.received[..len]);
            self.line.received.drain(..len);
            self.pending.pop_front();
            self.missed.iter_mut().for_each(|(_, left)| *left = left.saturating_sub(1));
        }
    }

    fn judge_tally(&self, at_least: u64, statistics: &mut Statistics) -> Result<Option<usize>, String> {
        let Some(tally) = &self.tally else { return Err(self.wrong("it was not asked")) };
        if let Some(line) = command::line(&self.line.received).filter(|line| line.starts_with(b"SERVER_ERROR ")) {
            let may_fail = self.excused || self.tally_is_broken;
            statistics.served.failed += 1;
            return if may_fail { Ok(Some(line.len())) } else { Err(self.wrong("it failed without a reason")) };
        }
        let Some((number, len)) = command::tally(&self.line.received).map_err(|error| self.wrong(&error))? else {
            return Ok(None);
        };
        if number < at_least || number > tally.asked.get() {
            return Err(self.wrong(&format!("it should be from {at_least} to {}", tally.asked.get())));
        }
        tally.answered.set(tally.answered.get() + 1);
        statistics.served.tallied += 1;
        Ok(Some(len))
    }

    fn judge_fixed(&self, answer: &[u8]) -> Result<Option<usize>, String> {
        match self.line.received.get(..answer.len()) {
            Some(found) if found == answer => Ok(Some(answer.len())),
            None if answer.starts_with(&self.line.received) => Ok(None),
            _ => Err(self.wrong(&format!("{:?} was due", text(answer)))),
        }
    }

    fn judge_change(&mut self, command: &Command, statistics: &mut Statistics) -> Result<Option<usize>, String> {
        let Some(key) = command.changes() else { return Ok(None) };
        self.missed[key].1 = 0;
        let Some(found) = command::line(&self.line.received).map(<[u8]>::to_vec) else { return Ok(None) };
        let mut after = Vec::new();
        let outcomes = self.keys[key].iter().map(|state| command.carry_out(state));
        add(&mut after, outcomes.clone().filter(|(_, answer)| *answer == found).map(|(state, _)| state).collect());
        if after.is_empty() {
            let len_max = outcomes.filter_map(|(state, _)| state).map(|held| held.value.len() as u64).max();
            if found == reply::TOO_LARGE && self.forgets && len_max > Some(self.long_bytes) {
                if command.overwrites() && !self.excused && !self.broken[key] {
                    // A cache does not go on with what was to be replaced.
                    self.keys[key] = vec![None];
                    self.later[key].clear();
                }
                return Ok(Some(found.len()));
            }
            self.judge_failure(key, command, &found, statistics)?;
            return Ok(Some(found.len()));
        }
        self.keys[key] = possible(self.forgets, after);
        self.later[key].clear();
        Ok(Some(found.len()))
    }

    /// A change was answered with something that it would not be if all went well.
    fn judge_failure(
        &mut self,
        key: usize,
        command: &Command,
        found: &[u8],
        statistics: &mut Statistics,
    ) -> Result<(), String> {
        if !self.is_excused(&[key], found) {
            return Err(self.wrong(&format!("{command:?}, key holds {:?}", self.keys[key])));
        }
        statistics.served.failed += 1;
        if found.starts_with(b"SERVER_ERROR the outcome is not known") {
            let both = self.keys[key].iter().chain(&self.later[key]);
            let after = possible(self.forgets, both.map(|state| command.carry_out(state).0).collect());
            add(&mut self.keys[key], after.clone());
            add(&mut self.later[key], after);
        }
        Ok(())
    }

    /// Whether the line is an error for which a disk, or a shard that broke, has given reason.
    fn is_excused(&self, keys: &[usize], line: &[u8]) -> bool {
        let line = String::from_utf8_lossy(line);
        let is_defect = line.contains("a defect stopped") || line.contains("ring of this shard");
        let is_broken = keys.iter().any(|key| self.broken[*key]);
        (is_broken || self.excused && !is_defect) && line.starts_with("SERVER_ERROR ")
    }

    fn judge_get(
        &mut self,
        keys: &[usize],
        with_unique: bool,
        parse: command::ParseHits,
        statistics: &mut Statistics,
    ) -> Result<Option<usize>, String> {
        let Some(Hits { hits, error, len }) = parse(&self.line.received).map_err(|error| self.wrong(&error))? else {
            return Ok(None);
        };
        if let Some(error) = &error {
            if !self.is_excused(keys, error) {
                return Err(self.wrong("it failed without a reason"));
            }
            statistics.served.failed += 1;
        }
        statistics.served.hits += hits.len() as u64;
        statistics.served.degraded_hits += if self.is_degraded { hits.len() as u64 } else { 0 };
        let mut hits = hits.into_iter().peekable();
        for key in keys {
            if error.is_some() && hits.peek().is_none() {
                // Whether it is missing or failed is not told.
                break;
            }
            let hit = hits.next_if(|hit| hit.key == self.name(*key));
            let is_it = |state: &State| match (&hit, state) {
                (None, None) => true,
                (Some(hit), Some(held)) => {
                    let unique = hit.unique.is_none() || held.unique.is_none() || held.unique == hit.unique;
                    hit.value == held.value && hit.flags == held.flags && unique
                }
                _ => false,
            };
            let mut states: Vec<State> = self.keys[*key].iter().filter(|state| is_it(state)).cloned().collect();
            let (before, left) = &self.missed[*key];
            if states.is_empty() && hit.is_some() && *left > 0 && before.iter().any(is_it) {
                continue;
            }
            let bad_unique = hit.as_ref().is_some_and(|hit| hit.unique.is_some() != with_unique);
            if states.is_empty() || bad_unique {
                return Err(self.wrong(&format!("key {key} holds {:?}", self.keys[*key])));
            }
            if hit.is_none() && self.forgets && self.keys[*key].iter().any(Option::is_some) {
                self.missed[*key] = (self.keys[*key].clone(), self.pending.len());
            }
            if let Some(unique) = hit.and_then(|hit| hit.unique) {
                states.iter_mut().flatten().for_each(|held| held.unique = Some(unique));
                states.dedup();
            }
            self.keys[*key] = possible(self.forgets, states);
        }
        match hits.next() {
            None => Ok(Some(len)),
            Some(hit) => Err(self.wrong(&format!("{} was not asked for, or not there", hit.key))),
        }
    }

    fn wrong(&self, why: &str) -> String {
        let command = self.pending.front();
        format!("client {}: {command:?} was answered {:?}: {why}", self.number, text(&self.line.received))
    }
}

impl Talker for Client {
    fn line(&mut self) -> &mut Line {
        &mut self.line
    }

    fn farewell(&self) -> &'static [u8] {
        b"quit\r\n"
    }

    fn begin_life(&mut self) {
        (self.excused, self.is_degraded) = (false, false);
        self.broken.fill(false);
        self.tally_is_broken = false;
        // Versions that clients gave end with the process.
        let given = self.keys.iter_mut().chain(&mut self.later).flatten().flatten();
        given.filter(|held| held.unique >= Some(command::GIVEN)).for_each(|held| held.unique = None);
    }

    fn shard_broke(&mut self, has: &dyn Fn(&str) -> bool) {
        for key in 0..self.keys.len() {
            self.broken[key] |= has(&self.name(key));
        }
        self.tally_is_broken |= has(command::TALLY);
    }

    fn excuse(&mut self, is_degraded: bool) {
        (self.excused, self.is_degraded) = (true, is_degraded);
    }

    fn ask(&mut self, random: &mut Random, statistics: &mut Statistics) {
        if !self.line.is_open() || self.pending.len() >= PENDING_MAX {
            return;
        }
        self.counter += 1;
        let unique = |states: &Vec<State>| match &states[..] {
            [Some(held)] | [Some(held), None] | [None, Some(held)] => held.unique,
            _ => None,
        };
        let uniques: Vec<Option<u64>> = self.keys.iter().map(unique).collect();
        let mut command = Command::draw(random, self.counter, self.value_bytes_max, &uniques);
        if let Some(tally) = &self.tally {
            command = match command {
                _ if !self.forgets && random.below(6) == 0 => tally.ask(),
                Command::Meta(inner) if random.below(2) == 0 => {
                    Command::Meta(Box::new(inner.with_version(self.counter)))
                }
                command => command,
            };
        }
        if command.keys().iter().any(|key| self.may_fail(*key)) {
            // What is not answered may have failed: of many such there would be too many outcomes.
            command.wants_an_answer();
        }
        self.push(command, statistics);
    }

    fn ask_everything(&mut self, statistics: &mut Statistics) {
        if self.line.mood == Mood::Good && self.line.peer.is_some() {
            self.push(Command::Get { keys: (0..self.keys.len()).collect(), with_unique: true }, statistics);
        }
    }

    fn act(&mut self, net: &mut Net, random: &mut Random, statistics: &mut Statistics) -> Result<bool, String> {
        let Some(peer) = self.line.peer else { return Ok(false) };
        let before = self.line.heard;
        self.line.write_some(net, random);
        if matches!(self.line.mood, Mood::Good | Mood::Finished) {
            let max = [1, 7, 100, 1 << 20][random.below(4) as usize];
            self.read(net, peer, max, random, statistics)?;
        }
        if self.line.mood == Mood::Finished && self.line.chatters.is_some() && random.below(2) == 0 {
            // Thrown away; it must not take back answers that are still on their way.
            net.write(peer, b"get unheard\r\n");
        }
        if self.line.mood == Mood::Left && net.is_released(peer) {
            self.lost();
        }
        Ok(self.line.heard > before)
    }

    fn server_died(&mut self, net: &mut Net, random: &mut Random, statistics: &mut Statistics) -> Result<(), String> {
        if self.line.read_rest(net, random) {
            self.answers(statistics)?;
        }
        self.lost();
        let later = self.later.iter_mut().map(std::mem::take);
        self.keys.iter_mut().zip(later).for_each(|(states, later)| add(states, later));
        Ok(())
    }

    fn is_content(&self) -> bool {
        self.line.mood != Mood::Left && (self.is_quiet() || !self.line.must_be_served())
    }

    fn describe(&self) -> String {
        format!(
            "client {}: {:?}, {} pending, {} to write",
            self.number,
            self.line.mood,
            self.pending.len(),
            self.line.to_write.len()
        )
    }
}

/// The states, each once, and of a cache that the key is forgotten.
fn possible(forgets: bool, states: Vec<State>) -> Vec<State> {
    let mut all = Vec::new();
    add(&mut all, states);
    if forgets {
        add(&mut all, vec![None]);
    }
    all
}

fn add(states: &mut Vec<State>, more: Vec<State>) {
    for state in more {
        if !states.contains(&state) {
            states.push(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::command::Verb;
    use super::*;
    use crate::world::On;

    fn held(value: &[u8]) -> State {
        Some(command::KnownItem { flags: 0, value: value.to_vec(), unique: None })
    }

    /// What key 0 may hold after a client left with these commands unanswered.
    fn left_with(excused: bool, asked: &[(Verb, &[u8])]) -> Vec<State> {
        let mut client = Client::new(0, &Circumstances::draw(On::Matrix, &mut Random::new(1)));
        client.excused = excused;
        let store = |(verb, value): &(Verb, &[u8])| Command::Store {
            verb: *verb,
            key: 0,
            flags: 0,
            value: value.to_vec(),
            noreply: false,
        };
        client.pending = asked.iter().map(store).collect();
        client.lost();
        client.keys.swap_remove(0)
    }

    /// A set failed as its disk did and said so to nobody; the append after it was done on what was
    /// there before.
    #[test]
    fn an_unread_failure_before_a_done_append_was_called_a_lost_write() {
        let asked: [(Verb, &[u8]); 3] = [(Verb::Set, b"old"), (Verb::Set, b"failed"), (Verb::Append, b"+more")];
        let states = left_with(true, &asked);
        assert!(states.contains(&held(b"old+more")), "{states:?}");
        // And nothing but what some of them make, in order.
        let all: [&[u8]; 4] = [b"old", b"failed", b"failed+more", b"old+more"];
        assert!(states.iter().flatten().all(|held| all.contains(&&held.value[..])), "{states:?}");
    }

    /// Without a disk's reason nothing fails: it is some first commands, and none between is left
    /// out.
    #[test]
    fn without_a_reason_no_command_may_be_left_out() {
        let states = left_with(false, &[(Verb::Set, b"old"), (Verb::Set, b"new"), (Verb::Append, b"+more")]);
        assert_eq!(states, [None, held(b"old"), held(b"new"), held(b"new+more")]);
    }
}
