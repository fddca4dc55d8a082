//! One thread of a soak: a session, keys of its own, and what each of them holds.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use stratakv::raw::{Change, ChangeKind, Operation, RecordPart, Reply};
use stratakv::{CollectionId, Expect, Expiry, Key, Level, Session, Store};
use stratakv_base::random::Random;

use super::{LANES, Plan, Shared};
use crate::value;

/// Operations in flight.
const IN_FLIGHT: usize = 32;
/// Of the bytes that may be alive, so many for each key on average.
const KEY_SHARE_BYTES: u64 = 64 << 10;
/// What an item takes besides its value, about.
const OVERHEAD_BYTES: u64 = 64;
/// Seconds about a deadline in which both answers are right.
const GRACE_S: u32 = 2;

/// What a key holds.
#[derive(Clone, Copy, Default)]
struct Item {
    sequence: u32,
    /// 0: nothing.
    len: u32,
    /// 0: never.
    deadline_s: u32,
    busy: bool,
}

#[derive(Clone, Copy)]
enum Doing {
    Put { len: u32, deadline_s: u32 },
    Delete,
    Get,
}

struct Lane<'a> {
    number: u64,
    plan: &'a Plan,
    shared: &'a Shared,
    items: Vec<Item>,
    random: Random,
    live_bytes: u64,
    deadlines: BinaryHeap<Reverse<(u32, u32, u32)>>,
    doing: HashMap<u64, (u32, Doing)>,
}

/// Works until told to stop, then reads every key.
pub(super) fn run(store: &Store, plan: &Plan, number: u64, shared: &Shared) -> Result<(), String> {
    let keys = (plan.capacity_bytes / LANES / KEY_SHARE_BYTES).max(64) as usize;
    let mut lane = Lane {
        number,
        plan,
        shared,
        items: vec![Item::default(); keys],
        random: Random::new(plan.seed.wrapping_mul(31).wrapping_add(number)),
        live_bytes: 0,
        deadlines: BinaryHeap::new(),
        doing: HashMap::new(),
    };
    let mut session = store.session().map_err(|error| error.to_string())?;
    let outcome = lane.work(&mut session).and_then(|()| lane.read_all(&mut session));
    if outcome.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    outcome
}

fn now_s() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}

/// The bytes of a value; short ones are the front of a longer one.
fn value_of(key: u64, sequence: u32, len: u32) -> Vec<u8> {
    let mut value = value::encode(key, u64::from(sequence), len as usize);
    value.truncate(len as usize);
    value
}

impl Lane<'_> {
    fn work(&mut self, session: &mut Session) -> Result<(), String> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.forget_expired();
            while session.in_flight() < IN_FLIGHT {
                let index = self.idle();
                let doing = self.choose(index);
                self.submit(session, index, doing);
            }
            self.take_answers(session)?;
        }
        while session.in_flight() > 0 {
            self.take_answers(session)?;
        }
        Ok(())
    }

    fn read_all(&mut self, session: &mut Session) -> Result<(), String> {
        for index in 0..self.items.len() as u32 {
            self.submit(session, index, Doing::Get);
            while session.in_flight() >= IN_FLIGHT
                || (index as usize + 1 == self.items.len() && session.in_flight() > 0)
            {
                self.take_answers(session)?;
            }
        }
        Ok(())
    }

    fn idle(&mut self) -> u32 {
        loop {
            let index = self.random.below(self.items.len() as u64) as u32;
            if !self.items[index as usize].busy {
                return index;
            }
        }
    }

    fn choose(&mut self, index: u32) -> Doing {
        let item = self.items[index as usize];
        let full = self.live_bytes >= self.shared.target.load(Ordering::Relaxed);
        match self.random.below(100) {
            _ if full && item.len > 0 => Doing::Delete,
            _ if full => Doing::Get,
            0..=24 => Doing::Get,
            25..=29 => Doing::Delete,
            draw => {
                let (least, most) = self.plan.value_bytes;
                // As many of each octave.
                let octaves = (most as f64 / least as f64).log2();
                let share = self.random.below(1 << 30) as f64 / f64::from(1 << 30);
                let len = (least as f64 * (octaves * share).exp2()) as u32;
                let ttl_s = if draw < 45 { 1 + self.random.below(30) as u32 } else { 0 };
                Doing::Put { len, deadline_s: if ttl_s > 0 { now_s() + ttl_s } else { 0 } }
            }
        }
    }

    fn submit(&mut self, session: &mut Session, index: u32, doing: Doing) {
        let key = Key::new(CollectionId::default(), format!("soak{}-{index:08}", self.number).as_bytes());
        let Ok(key) = key else { return };
        let item = &mut self.items[index as usize];
        item.busy = true;
        let write = |kind| Operation::Write {
            changes: vec![Change { key: key.clone(), expect: Expect::Any, kind }],
            level: Level::PowerLoss,
        };
        let operation = match doing {
            Doing::Get => Operation::Get { key, part: RecordPart::Whole },
            Doing::Delete => write(ChangeKind::Delete),
            Doing::Put { len, deadline_s } => {
                let value = Bytes::from(value_of(u64::from(index), item.sequence + 1, len));
                write(ChangeKind::Put { value, flags: 0, expiry: Expiry::at_second(deadline_s.into()) })
            }
        };
        self.doing.insert(session.submit(operation), (index, doing));
    }

    fn take_answers(&mut self, session: &mut Session) -> Result<(), String> {
        for (ticket, reply) in session.poll(1).map_err(|error| error.to_string())? {
            let (index, doing) = self.doing.remove(&ticket).ok_or("an answer to nothing")?;
            self.items[index as usize].busy = false;
            self.shared.operations.fetch_add(1, Ordering::Relaxed);
            self.answered(index, doing, reply).map_err(|why| format!("lane {}, key {index}: {why}", self.number))?;
        }
        Ok(())
    }

    fn answered(&mut self, index: u32, doing: Doing, reply: Reply) -> Result<(), String> {
        match (doing, reply) {
            (Doing::Get, Reply::Record(found)) => {
                let found = found.map(|record| record.value.to_bytes());
                self.compare(index, found.as_deref())
            }
            (Doing::Put { len, deadline_s }, Reply::Done { .. }) => {
                self.shared.written.fetch_add(u64::from(len), Ordering::Relaxed);
                self.set(index, len, deadline_s);
                Ok(())
            }
            (Doing::Delete, Reply::Done { .. }) => {
                self.set(index, 0, 0);
                Ok(())
            }
            (Doing::Put { .. } | Doing::Delete, Reply::Failed(stratakv::EngineError::Full(_))) => {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            (_, reply) => Err(format!("answered {reply:?}")),
        }
    }

    fn set(&mut self, index: u32, len: u32, deadline_s: u32) {
        let cost = |len: u32| if len > 0 { u64::from(len) + OVERHEAD_BYTES } else { 0 };
        let item = &mut self.items[index as usize];
        self.live_bytes += cost(len);
        self.live_bytes -= cost(item.len);
        *item = Item { sequence: item.sequence + 1, len, deadline_s, busy: item.busy };
        if deadline_s > 0 {
            self.deadlines.push(Reverse((deadline_s, index, item.sequence)));
        }
    }

    /// What has expired counts no more.
    fn forget_expired(&mut self) {
        let now = now_s();
        while let Some(Reverse((deadline_s, index, sequence))) = self.deadlines.peek().copied() {
            let item = self.items[index as usize];
            if deadline_s + GRACE_S > now || item.busy {
                return;
            }
            self.deadlines.pop();
            if item.sequence == sequence && item.len > 0 {
                self.set(index, 0, 0);
                self.items[index as usize].sequence = sequence;
            }
        }
    }

    fn compare(&self, index: u32, found: Option<&[u8]>) -> Result<(), String> {
        let item = self.items[index as usize];
        let now = now_s();
        let (may_be_gone, must_be_gone) = match item.deadline_s {
            0 => (item.len == 0, item.len == 0),
            deadline_s => (now + GRACE_S >= deadline_s, now > deadline_s + GRACE_S),
        };
        match found {
            None if may_be_gone => Ok(()),
            None => Err(format!("{} bytes of write {} are gone", item.len, item.sequence)),
            Some(_) if must_be_gone => Err("it is back".into()),
            Some(found) if found == value_of(u64::from(index), item.sequence, item.len) => Ok(()),
            Some(found) => Err(format!("{} bytes are not those of write {}", found.len(), item.sequence)),
        }
    }
}
