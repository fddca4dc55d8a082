//! A Redis client with keys of its own: commands of every kind of structure, of several keys, and
//! transactions, and what may be answered.
//!
//! It knows everything that its keys may hold together: one after an answer that tells, as many as
//! there are ways to have carried out what was not answered. Commands of one connection that name
//! no common key may be carried out in any order. It lives on disks that do not fail.

use std::collections::VecDeque;

use stratakv_base::random::Random;
use stratakv_sim::net::{ClientRead, Net};

use super::circumstances::Circumstances;
use super::line::{Line, Mood, text};
use super::structures::{Value, Values, carry_out};
use super::talker::Talker;
use crate::world::Statistics;

/// Changes asked and not answered: each doubles what may be.
const CHANGES_MAX: usize = 4;
/// Commands asked and not answered.
const PENDING_MAX: usize = 30;
/// Keys of a client.
const KEYS: u64 = 6;
/// Bytes of a key from which on it is cut short or removed.
const LONG_BYTES: usize = 60_000;

/// A command, or a transaction.
#[derive(Clone, Debug)]
struct Request {
    commands: Vec<Vec<Vec<u8>>>,
    is_transaction: bool,
}

impl Request {
    fn one(command: Vec<Vec<u8>>) -> Request {
        Request { commands: vec![command], is_transaction: false }
    }

    fn changes(&self) -> bool {
        const ONLY_READ: [&[u8]; 17] = [
            b"TYPE",
            b"EXISTS",
            b"GET",
            b"STRLEN",
            b"HGET",
            b"HLEN",
            b"HGETALL",
            b"SISMEMBER",
            b"SCARD",
            b"SMEMBERS",
            b"ZSCORE",
            b"ZRANK",
            b"ZCARD",
            b"ZRANGE",
            b"LLEN",
            b"LINDEX",
            b"LRANGE",
        ];
        self.commands.iter().any(|words| !ONLY_READ.contains(&&words[0][..]))
    }

    fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.commands.iter().flat_map(|words| {
            let has_two = [&b"RENAME"[..], b"COPY", b"LMOVE", b"SMOVE"].contains(&&words[0][..]);
            words.iter().skip(1).take(if has_two { 2 } else { 1 })
        })
    }

    fn shares_a_key(&self, other: &Request) -> bool {
        self.keys().any(|key| other.keys().any(|another| key == another))
    }

    fn write(&self, out: &mut impl Extend<u8>) {
        let mut write = |words: &[Vec<u8>]| {
            out.extend(format!("*{}\r\n", words.len()).into_bytes());
            for word in words {
                out.extend(format!("${}\r\n", word.len()).into_bytes());
                out.extend(word.iter().copied());
                out.extend(*b"\r\n");
            }
        };
        if self.is_transaction {
            write(&[b"MULTI".to_vec()]);
        }
        self.commands.iter().for_each(|words| write(words));
        if self.is_transaction {
            write(&[b"EXEC".to_vec()]);
        }
    }

    /// What it makes of the keys, and what it answers.
    fn carry_out(&self, values: &Values) -> (Values, Vec<u8>) {
        let (mut values, mut out) = (values.clone(), Vec::new());
        if self.is_transaction {
            out.extend(b"+OK\r\n");
            self.commands.iter().for_each(|_| out.extend(b"+QUEUED\r\n"));
            out.extend(format!("*{}\r\n", self.commands.len()).bytes());
        }
        self.commands.iter().for_each(|words| carry_out(&mut values, words).write(&mut out));
        (values, out)
    }
}

/// See the module.
pub(super) struct RedisClient {
    number: u64,
    value_bytes_max: u64,
    line: Line,
    /// Everything that its keys may hold.
    worlds: Vec<Values>,
    pending: VecDeque<Request>,
    counter: u64,
}

impl RedisClient {
    pub(super) fn new(number: u64, circumstances: &Circumstances) -> RedisClient {
        RedisClient {
            number,
            value_bytes_max: circumstances.value_bytes_max.min(2_000),
            line: Line::default(),
            worlds: vec![Values::new()],
            pending: VecDeque::new(),
            counter: 0,
        }
    }

    fn key(&self, key: u64) -> Vec<u8> {
        format!("redis-{}-key-{key}", self.number).into_bytes()
    }

    fn draw(&mut self, random: &mut Random) -> Request {
        match random.below(12) {
            0 => {
                let commands = (0..1 + random.below(4)).map(|_| self.command(random)).collect();
                Request { commands, is_transaction: true }
            }
            _ => Request::one(self.command(random)),
        }
    }

    fn command(&mut self, random: &mut Random) -> Vec<Vec<u8>> {
        self.counter += 1;
        let number = random.below(KEYS);
        let key = self.key(number);
        let bytes = self.worlds.iter().filter_map(|values| values.get(&key)).map(Value::bytes).max();
        if bytes.unwrap_or_default() > LONG_BYTES {
            return [b"DEL".to_vec(), key].into();
        }
        // Mostly of the key's own kind.
        let kind = if random.below(12) == 0 { random.below(5) } else { number % 5 };
        let mut words = match (random.below(14), kind) {
            (0, _) => {
                let other = self.key((number + 5 * random.below(2)) % KEYS);
                let name: &[u8] = [&b"RENAME"[..], b"COPY"][random.below(2) as usize];
                let mut words = vec![name.to_vec(), key, other];
                if name == b"COPY" {
                    words.push(b"REPLACE".to_vec());
                }
                // Upon itself they say other things.
                return if words[1] == words[2] { vec![b"DEL".to_vec(), words.swap_remove(1)] } else { words };
            }
            (1, _) => [&b"DEL"[..], b"TYPE", b"EXISTS"][random.below(3) as usize].to_vec(),
            (_, 0) => [&b"SET"[..], b"GET", b"APPEND", b"INCRBY", b"STRLEN"][random.below(5) as usize].to_vec(),
            (_, 1) => [&b"HSET"[..], b"HSET", b"HDEL", b"HGET", b"HLEN", b"HGETALL"][random.below(6) as usize].to_vec(),
            (_, 2) => [
                &b"LPUSH"[..],
                b"RPUSH",
                b"RPUSH",
                b"LPOP",
                b"RPOP",
                b"LLEN",
                b"LINDEX",
                b"LSET",
                b"LTRIM",
                b"LRANGE",
                b"LMOVE",
            ][random.below(11) as usize]
                .to_vec(),
            (_, 3) => [&b"SADD"[..], b"SADD", b"SREM", b"SISMEMBER", b"SCARD", b"SMEMBERS", b"SMOVE"]
                [random.below(7) as usize]
                .to_vec(),
            _ => [
                &b"ZADD"[..],
                b"ZADD",
                b"ZREM",
                b"ZSCORE",
                b"ZRANK",
                b"ZCARD",
                b"ZPOPMIN",
                b"ZREMRANGEBYRANK",
                b"ZRANGE",
            ][random.below(9) as usize]
                .to_vec(),
        };
        let name = std::mem::take(&mut words);
        let mut words = vec![name.clone(), key];
        self.arguments(&name, number, random, &mut words);
        words
    }

    fn arguments(&self, name: &[u8], number: u64, random: &mut Random, words: &mut Vec<Vec<u8>>) {
        let place = |random: &mut Random| (random.below(60) as i64 - 30).to_string().into_bytes();
        let count = if random.below(4) == 0 { 1 + random.below(40) } else { 1 };
        match name {
            b"SET" | b"APPEND" => words.push(self.value(random)),
            b"INCRBY" => words.push(random.below(100).to_string().into_bytes()),
            b"HSET" => (0..count).for_each(|_| words.extend([element(random), self.value(random)])),
            b"HDEL" | b"SREM" | b"ZREM" => words.extend((0..count).map(|_| element(random))),
            b"HGET" | b"SISMEMBER" | b"ZSCORE" | b"ZRANK" => words.push(element(random)),
            b"SADD" => words.extend((0..count).map(|_| element(random))),
            b"LPUSH" | b"RPUSH" => words.extend((0..count).map(|_| self.value(random))),
            b"LINDEX" => words.push(place(random)),
            b"LSET" => words.extend([place(random), self.value(random)]),
            b"LTRIM" => words.extend([[&b"0"[..], b"1", b"-30"][random.below(3) as usize].to_vec(), b"-2".to_vec()]),
            b"LRANGE" => words.extend([place(random), place(random)]),
            b"LMOVE" => {
                let end = |random: &mut Random| [&b"LEFT"[..], b"RIGHT"][random.below(2) as usize].to_vec();
                words.extend([self.key((number + random.below(2)) % KEYS), end(random), end(random)]);
            }
            b"SMOVE" => words.extend([self.key((number + random.below(2)) % KEYS), element(random)]),
            b"ZADD" => {
                (0..count).for_each(|_| words.extend([random.below(20).to_string().into_bytes(), element(random)]))
            }
            b"ZPOPMIN" => words.push((1 + random.below(3)).to_string().into_bytes()),
            b"ZREMRANGEBYRANK" => words.extend([place(random), b"3".to_vec()]),
            b"ZRANGE" => words.extend([place(random), place(random), b"WITHSCORES".to_vec()]),
            _ => {}
        }
    }

    fn value(&self, random: &mut Random) -> Vec<u8> {
        let unit = format!("<{}\r\n>", self.counter);
        let len = random.below(self.value_bytes_max + 1) as usize;
        match random.below(3) {
            0 => self.counter.to_string().into_bytes(),
            _ => unit.bytes().cycle().take(len.max(unit.len())).collect(),
        }
    }

    fn push(&mut self, request: Request, statistics: &mut Statistics) {
        statistics.asked += 1;
        request.write(&mut self.line.to_write);
        self.pending.push_back(request);
    }

    /// Judges what has arrived, request by request.
    fn answers(&mut self, statistics: &mut Statistics) -> Result<(), String> {
        while !self.line.received.is_empty() {
            let Some(request) = self.pending.front() else {
                // The answer to its farewell.
                let is_farewell = self.line.chatters.is_some() && b"+OK\r\n".starts_with(&self.line.received);
                return if is_farewell { Ok(()) } else { Err(self.wrong("nothing was asked")) };
            };
            let all: Vec<(Values, Vec<u8>)> = self.worlds.iter().map(|values| request.carry_out(values)).collect();
            let received = &self.line.received;
            let len = all
                .iter()
                .map(|(_, answer)| answer.len())
                .find(|len| received.get(..*len).is_some_and(|found| all.iter().any(|(_, answer)| answer == found)));
            let Some(len) = len else {
                let may_come = all.iter().any(|(_, answer)| answer.starts_with(received));
                let due: Vec<String> = all.iter().take(3).map(|(_, answer)| text(answer)).collect();
                return if may_come { Ok(()) } else { Err(self.wrong(&format!("due was one of {due:?}"))) };
            };
            let found = received[..len].to_vec();
            let mut worlds = Vec::new();
            for (values, answer) in all {
                if answer == found && !worlds.contains(&values) {
                    worlds.push(values);
                }
            }
            self.worlds = worlds;
            statistics.answered += 1;
            statistics.note(&found);
            self.line.received.drain(..len);
            self.pending.pop_front();
        }
        Ok(())
    }

    /// The connection is gone, and nothing of it is under way any more: of the changes that were
    /// not answered any may have been carried out, after those before it that name one of its keys.
    fn lost(&mut self) {
        let asked: Vec<Request> = self.pending.drain(..).filter(Request::changes).collect();
        let mut worlds = Vec::new();
        for done in 0..1u32 << asked.len() {
            let is_done = |at: usize| done >> at & 1 == 1;
            let needs = |at: usize, before: usize| asked[at].shares_a_key(&asked[before]);
            let is_possible =
                (0..asked.len()).all(|at| !is_done(at) || (0..at).all(|before| is_done(before) || !needs(at, before)));
            if !is_possible {
                continue;
            }
            for values in &self.worlds {
                let done = asked.iter().enumerate().filter(|(at, _)| is_done(*at));
                let values = done.fold(values.clone(), |values, (_, request)| request.carry_out(&values).0);
                if !worlds.contains(&values) {
                    worlds.push(values);
                }
            }
        }
        self.worlds = worlds;
        self.line = Line::default();
    }

    fn wrong(&self, why: &str) -> String {
        let shown: Option<Vec<String>> =
            self.pending.front().map(|request| request.commands.iter().map(|words| text(&words.join(&b' '))).collect());
        format!("redis client {}: {shown:?} was answered {:?}: {why}", self.number, text(&self.line.received))
    }
}

/// One of few fields and members, so that they are met again; some of them long.
fn element(random: &mut Random) -> Vec<u8> {
    let number = random.below(150);
    let len = if number.is_multiple_of(3) { 100 } else { 3 };
    format!("{number:0len$}").into_bytes()
}

impl Talker for RedisClient {
    fn line(&mut self) -> &mut Line {
        &mut self.line
    }

    fn listener(&self) -> usize {
        1
    }

    fn farewell(&self) -> &'static [u8] {
        b"*1\r\n$4\r\nQUIT\r\n"
    }

    fn begin_life(&mut self) {}

    fn shard_broke(&mut self, _: &dyn Fn(&str) -> bool) {}

    fn excuse(&mut self, _: bool) {}

    fn ask(&mut self, random: &mut Random, statistics: &mut Statistics) {
        let changes = self.pending.iter().filter(|request| request.changes()).count();
        if self.line.is_open() && self.pending.len() < PENDING_MAX && changes < CHANGES_MAX {
            let request = self.draw(random);
            self.push(request, statistics);
        }
    }

    fn ask_everything(&mut self, statistics: &mut Statistics) {
        if self.line.mood != Mood::Good || self.line.peer.is_none() {
            return;
        }
        for number in 0..KEYS {
            let key = self.key(number);
            let reads: [&[&[u8]]; 5] = [
                &[b"GET"],
                &[b"HGETALL"],
                &[b"LRANGE", b"0", b"-1"],
                &[b"SMEMBERS"],
                &[b"ZRANGE", b"0", b"-1", b"WITHSCORES"],
            ];
            for read in reads {
                let mut words: Vec<Vec<u8>> = read.iter().map(|word| word.to_vec()).collect();
                words.insert(1, key.clone());
                self.push(Request::one(words), statistics);
            }
        }
    }

    fn act(&mut self, net: &mut Net, random: &mut Random, statistics: &mut Statistics) -> Result<bool, String> {
        let Some(peer) = self.line.peer else { return Ok(false) };
        let before = self.line.heard;
        self.line.write_some(net, random);
        if matches!(self.line.mood, Mood::Good | Mood::Finished) {
            let max = [1, 7, 100, 1 << 20][random.below(4) as usize];
            match net.read(peer, max, &mut self.line.received, random) {
                ClientRead::Bytes(count) => {
                    self.line.heard += count;
                    self.answers(statistics)?;
                }
                ClientRead::Nothing => {}
                ClientRead::End if self.line.mood == Mood::Finished => {
                    // The answer to its farewell is the last one.
                    let is_farewell = self.line.received.is_empty() || self.line.received == b"+OK\r\n";
                    if !self.pending.is_empty() || !is_farewell {
                        return Err(self.wrong("the server ended the connection"));
                    }
                    net.close(peer);
                    self.lost();
                }
                end => return Err(self.wrong(&format!("the server ended the connection ({end:?})"))),
            }
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
        Ok(())
    }

    fn is_content(&self) -> bool {
        let is_quiet = self.pending.is_empty() && self.line.to_write.is_empty();
        self.line.mood != Mood::Left && (is_quiet || !self.line.must_be_served())
    }

    fn describe(&self) -> String {
        let (mood, pending, left) = (self.line.mood, self.pending.len(), self.line.to_write.len());
        format!("redis client {}: {mood:?}, {pending} pending, {left} to write", self.number)
    }
}
