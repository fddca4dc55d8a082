//! A memcache client with keys of its own: what it has asked, what it may be answered, and how it behaves.

use std::collections::VecDeque;

use stratakv_base::random::Random;
use stratakv_protocol::memcache::reply;
use stratakv_sim::net::{Found, Net, Peer};

use super::command::{self, Command, State};
use crate::world::Statistics;

const KEYS: usize = 3;
/// Commands asked and not answered.
const PENDING_MAX: usize = 24;

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// Writes and reads.
    Good,
    /// Writes, and reads nothing.
    Deaf,
    /// Has gone without a word.
    Gone,
    /// Has closed or reset the connection in the middle of something; connects again when the server has let go.
    Left,
    /// Has said all it will, and waits for the end.
    Finished,
}

/// See the module.
pub(super) struct Client {
    number: usize,
    value_bytes_max: u64,
    /// The server may have too many connections already.
    may_be_refused: bool,
    peer: Option<Peer>,
    /// Bytes received over this connection.
    heard: usize,
    pub(super) mood: Mood,
    /// What each key may hold.
    keys: Vec<Vec<State>>,
    /// Commands written, in order, that are not answered.
    pending: VecDeque<Command>,
    to_write: VecDeque<u8>,
    received: Vec<u8>,
    counter: u64,
    /// Goes on talking after its `quit`.
    chatters: bool,
}

impl Client {
    pub(super) fn new(number: usize, value_bytes_max: u64, may_be_refused: bool) -> Client {
        Client {
            number,
            value_bytes_max,
            may_be_refused,
            peer: None,
            heard: 0,
            mood: Mood::Good,
            keys: vec![vec![None]; KEYS],
            pending: VecDeque::new(),
            to_write: VecDeque::new(),
            received: Vec::new(),
            counter: 0,
            chatters: false,
        }
    }

    /// Whether it waits for nothing.
    pub(super) fn is_quiet(&self) -> bool {
        self.pending.iter().all(Command::is_silent) && self.to_write.is_empty()
    }

    /// Whether its answers must come, whatever others do.
    pub(super) fn must_be_served(&self) -> bool {
        matches!(self.mood, Mood::Good | Mood::Finished) && self.peer.is_some()
    }

    pub(super) fn describe(&self) -> String {
        format!(
            "client {}: {:?}, {} pending, {} to write",
            self.number,
            self.mood,
            self.pending.len(),
            self.to_write.len()
        )
    }

    /// Connects if it is not connected.
    pub(super) fn connect(&mut self, net: &mut Net, statistics: &mut Statistics) {
        if self.peer.is_none()
            && let Some(peer) = net.connect()
        {
            (self.peer, self.mood) = (Some(peer), Mood::Good);
            statistics.connections += 1;
        }
    }

    /// Asks something new.
    pub(super) fn ask(&mut self, random: &mut Random, statistics: &mut Statistics) {
        if !matches!(self.mood, Mood::Good | Mood::Deaf) || self.peer.is_none() || self.pending.len() >= PENDING_MAX {
            return;
        }
        self.counter += 1;
        let unique = |states: &Vec<State>| match &states[..] {
            [Some(held)] => held.unique,
            _ => None,
        };
        let uniques: Vec<Option<u64>> = self.keys.iter().map(unique).collect();
        let command = Command::draw(random, self.counter, self.value_bytes_max, &uniques);
        self.push(command, statistics);
    }

    /// Reads all keys, once everything else is answered.
    pub(super) fn ask_everything(&mut self, statistics: &mut Statistics) {
        if self.mood == Mood::Good && self.peer.is_some() {
            self.push(Command::Get { keys: (0..KEYS).collect(), with_unique: true }, statistics);
        }
    }

    fn push(&mut self, command: Command, statistics: &mut Statistics) {
        statistics.asked += 1;
        let mut bytes = Vec::new();
        command.write(|key| self.name(key), &mut bytes);
        self.to_write.extend(bytes);
        self.pending.push_back(command);
    }

    fn is_refused(&self) -> bool {
        self.heard == self.received.len() && reply::TOO_MANY_CONNECTIONS.starts_with(&self.received)
    }

    fn name(&self, key: usize) -> String {
        format!("client-{}-key-{key}", self.number)
    }

    /// Writes some of what it has to say, reads some of what has come. Says whether it heard anything.
    ///
    /// # Errors
    /// An answer is wrong, or the server closed without reason.
    pub(super) fn act(
        &mut self,
        net: &mut Net,
        random: &mut Random,
        statistics: &mut Statistics,
    ) -> Result<bool, String> {
        let Some(peer) = self.peer else { return Ok(false) };
        let before = self.heard;
        if matches!(self.mood, Mood::Good | Mood::Deaf) && !self.to_write.is_empty() {
            let count = 1 + random.below(self.to_write.len() as u64) as usize;
            let count = [1, count, self.to_write.len()][random.below(3) as usize];
            let bytes: Vec<u8> = self.to_write.iter().take(count).copied().collect();
            let written = net.write(peer, &bytes);
            self.to_write.drain(..written);
        }
        if matches!(self.mood, Mood::Good | Mood::Finished) {
            let max = [1, 7, 100, 1 << 20][random.below(4) as usize];
            self.read(net, peer, max, random, statistics)?;
        }
        if self.mood == Mood::Finished && self.chatters && random.below(2) == 0 {
            // Thrown away; it must not take back answers that are still on their way.
            net.write(peer, b"get unheard\r\n");
        }
        if self.mood == Mood::Left && net.is_released(peer) {
            self.lost();
        }
        Ok(self.heard > before)
    }

    fn read(
        &mut self,
        net: &mut Net,
        peer: Peer,
        max: usize,
        random: &mut Random,
        statistics: &mut Statistics,
    ) -> Result<(), String> {
        match net.read(peer, max, &mut self.received, random) {
            Found::Bytes(count) => {
                self.heard += count;
                self.answers(statistics)
            }
            Found::Nothing => Ok(()),
            // The words of the refusal may be lost: it is closed with bytes unread.
            Found::End | Found::Reset if self.may_be_refused && self.is_refused() => {
                // Nothing was done.
                self.disconnected();
                Ok(())
            }
            Found::End if self.mood == Mood::Finished && self.is_quiet() && self.received.is_empty() => {
                net.close(peer);
                self.lost();
                Ok(())
            }
            end => Err(format!(
                "{}: the server ended the connection ({end:?}); received {:?}",
                self.describe(),
                text(&self.received)
            )),
        }
    }

    /// Says nothing more after what it has asked, and waits until the server has answered and closed.
    pub(super) fn finish(&mut self, net: &mut Net, quit: bool) {
        let Some(peer) = self.peer.filter(|_| self.mood == Mood::Good && self.to_write.is_empty()) else { return };
        if quit {
            if net.write(peer, b"quit\r\n") < 6 {
                // A word cut short cannot be taken back.
                return self.leave(net, true);
            }
            self.chatters = true;
        } else {
            net.finish(peer);
        }
        self.mood = Mood::Finished;
    }

    /// Closes or resets, whatever is under way.
    pub(super) fn leave(&mut self, net: &mut Net, reset: bool) {
        let Some(peer) = self.peer.filter(|_| self.mood != Mood::Gone) else { return };
        if reset {
            net.reset(peer)
        } else {
            net.close(peer)
        }
        self.mood = Mood::Left;
    }

    /// Goes without a word.
    pub(super) fn vanish(&mut self, net: &mut Net) {
        if let Some(peer) = self.peer.filter(|_| self.mood == Mood::Good) {
            net.vanish(peer);
            self.mood = Mood::Gone;
        }
    }

    /// Stops reading, or begins again.
    pub(super) fn turn_deaf(&mut self) {
        self.mood = match self.mood {
            Mood::Good => Mood::Deaf,
            Mood::Deaf => Mood::Good,
            other => other,
        };
    }

    /// The server's process has ended: what had arrived before counts.
    ///
    /// # Errors
    /// An answer is wrong.
    pub(super) fn server_died(
        &mut self,
        net: &mut Net,
        random: &mut Random,
        statistics: &mut Statistics,
    ) -> Result<(), String> {
        if let Some(peer) = self.peer
            && matches!(self.mood, Mood::Good | Mood::Deaf | Mood::Finished)
        {
            while let Found::Bytes(count) = net.read(peer, 1 << 20, &mut self.received, random) {
                self.heard += count;
            }
            self.answers(statistics)?;
        }
        self.lost();
        Ok(())
    }

    /// The connection is gone and nothing of it is under way any more: of what was not answered, some first commands on each key were done.
    fn lost(&mut self) {
        let mut newest = self.keys.clone();
        for command in self.pending.drain(..) {
            let Some(key) = command.changes() else { continue };
            newest[key] = newest[key].iter().map(|state| command.carry_out(state).0).collect();
            add(&mut self.keys[key], newest[key].clone());
        }
        self.disconnected();
    }

    fn disconnected(&mut self) {
        self.pending.clear();
        self.peer = None;
        self.heard = 0;
        self.to_write.clear();
        self.received.clear();
        self.mood = Mood::Good;
        self.chatters = false;
    }

    /// Judges what has arrived, command by command.
    fn answers(&mut self, statistics: &mut Statistics) -> Result<(), String> {
        if self.may_be_refused && self.is_refused() {
            return Ok(());
        }
        loop {
            // What is not answered was done by the time the next answer comes.
            while self.pending.front().is_some_and(Command::is_silent) && !self.received.is_empty() {
                let Some(command) = self.pending.pop_front() else { break };
                if let Some(key) = command.changes() {
                    self.keys[key] = self.keys[key].iter().map(|state| command.carry_out(state).0).collect();
                }
            }
            let Some(command) = self.pending.front() else {
                return if self.received.is_empty() { Ok(()) } else { Err(self.wrong("nothing was asked")) };
            };
            let judged = match command {
                Command::Get { keys, with_unique } => self.judge_get(&keys.clone(), *with_unique)?,
                Command::Fixed { answer, .. } => self.judge_fixed(answer)?,
                _ => self.judge_change(&command.clone())?,
            };
            let Some(len) = judged else { return Ok(()) };
            statistics.answered += 1;
            statistics.note(&self.received[..len]);
            self.received.drain(..len);
            self.pending.pop_front();
        }
    }

    fn judge_fixed(&self, answer: &[u8]) -> Result<Option<usize>, String> {
        match self.received.get(..answer.len()) {
            Some(found) if found == answer => Ok(Some(answer.len())),
            None if answer.starts_with(&self.received) => Ok(None),
            _ => Err(self.wrong(&format!("{:?} was due", text(answer)))),
        }
    }

    fn judge_change(&mut self, command: &Command) -> Result<Option<usize>, String> {
        let Some(key) = command.changes() else { return Ok(None) };
        let Some(found) = command::line(&self.received) else { return Ok(None) };
        let outcomes = self.keys[key].iter().map(|state| command.carry_out(state));
        let mut after = Vec::new();
        add(&mut after, outcomes.filter(|(_, answer)| answer == found).map(|(state, _)| state).collect());
        if after.is_empty() {
            return Err(self.wrong(&format!("{command:?}, key holds {:?}", self.keys[key])));
        }
        let len = found.len();
        self.keys[key] = after;
        Ok(Some(len))
    }

    fn judge_get(&mut self, keys: &[usize], with_unique: bool) -> Result<Option<usize>, String> {
        let Some((hits, len)) = command::hits(&self.received).map_err(|error| self.wrong(&error))? else {
            return Ok(None);
        };
        let mut hits = hits.into_iter().peekable();
        for key in keys {
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
            let bad_unique = hit.as_ref().is_some_and(|hit| hit.unique.is_some() != with_unique);
            if states.is_empty() || bad_unique {
                return Err(self.wrong(&format!("key {key} holds {:?}", self.keys[*key])));
            }
            if let Some(unique) = hit.and_then(|hit| hit.unique) {
                states.iter_mut().flatten().for_each(|held| held.unique = Some(unique));
                states.dedup();
            }
            self.keys[*key] = states;
        }
        match hits.next() {
            None => Ok(Some(len)),
            Some(hit) => Err(self.wrong(&format!("{} was not asked for, or not there", hit.key))),
        }
    }

    fn wrong(&self, why: &str) -> String {
        let command = self.pending.front();
        format!("client {}: {command:?} was answered {:?}: {why}", self.number, text(&self.received))
    }
}

fn add(states: &mut Vec<State>, more: Vec<State>) {
    for state in more {
        if !states.contains(&state) {
            states.push(state);
        }
    }
}

fn text(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(300)];
    String::from_utf8_lossy(shown).into_owned()
}
