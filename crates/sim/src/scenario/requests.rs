//! From a request of the plan to an operation, and what its answer should be.

use std::ops::{Bound, RangeInclusive};

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key, decimal};
use stratakv_engine::{Change, ChangeKind, Expect, Operation, PageRequest, RecordPart, Shard, Update};

use super::{World, level};
use crate::machine::Engine;
use crate::model::{ModelRecord, State};
use crate::plan::{Condition, Request, What};

/// What an answer is compared with.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// A write: its number in the history of its key, and what should come back.
    Write { key: u16, number: usize, expected: Expected },
    /// A write whose condition should not hold after the first writes of the key.
    Refusal { key: u16, after: usize },
    /// A read; writes up to `from` must be visible. `part` is the range of the value asked for.
    Read { key: u16, from: usize, part: RecordField },
    /// A page of a scan.
    Scan(Scanned),
    /// A snapshot: writes up to `from` must be visible, and the version be no less than `version`.
    OpenSnapshot { from: Vec<usize>, version: u64 },
    /// The end of a snapshot.
    CloseSnapshot { id: u64 },
    /// Writes of a load.
    Load { writes: Vec<(u16, usize)> },
    /// Writes of a range.
    Range { writes: Vec<(u16, usize)> },
    /// Everything up to these writes becomes durable.
    Sync { durable: Vec<usize> },
}

/// A page of a scan, and what it is judged by.
#[derive(Clone, Debug)]
pub(crate) struct Scanned {
    /// Keys in which it was asked for.
    pub(super) keys: RangeInclusive<u16>,
    pub(super) reverse: bool,
    pub(super) keys_only: bool,
    pub(super) items_max: u32,
    pub(super) bytes_max: u32,
    pub(super) sees: Sees,
}

/// What a page sees.
#[derive(Clone, Debug)]
pub(crate) enum Sees {
    /// The writes of each key up to these, and perhaps newer ones.
    Now(Vec<usize>),
    /// This snapshot.
    At(u64),
}

/// What a write should answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Done; whether it existed before is known, or not.
    Done(Option<bool>),
    /// The record, as touch answers.
    Record,
    /// This number.
    Number(u64),
}

/// Which part of a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordField {
    Meta,
    Range(u64, u64),
}

/// The name of a key: in the order of the numbers, of several lengths.
pub(crate) fn key(number: u16) -> Key {
    let mut name = format!("k{number:05}").into_bytes();
    match number % 16 {
        3 => name.extend(std::iter::repeat_n(b'x', 300)),
        7 => name.extend(std::iter::repeat_n(b'y', 40)),
        11 => name.extend(std::iter::repeat_n(b'z', 2500)),
        _ => {}
    }
    match Key::new(CollectionId(0), &name) {
        Ok(key) => key,
        Err(error) => panic!("the name of a key: {error}"),
    }
}

/// The number of a key by its name.
pub(crate) fn number_of(name: &[u8]) -> Option<u16> {
    std::str::from_utf8(name.get(1..6)?).ok()?.parse().ok()
}

impl<E: Engine> World<'_, E> {
    /// Hands over an operation, unless its answer could not be judged.
    pub(super) fn submit(&mut self, request: &Request) -> Result<(), String> {
        if self.asked.len() >= 64 || !self.machine.is_on() {
            return Ok(());
        }
        let number = usize::from(request.key);
        // A refused write would change what those behind it are expected to do.
        if let What::Load { count, len } = request.what {
            return self.load(request, u16::from(count), len);
        }
        let certain = self.histories[number].is_certain();
        let refusals = self.may_refuse(number);
        let simple = matches!(request.what, What::Put { expect: Condition::Any, .. } | What::Delete(Condition::Any));
        let known = self.histories[number].is_known();
        if !request.what.reads() && !simple && ((!certain && refusals) || !known) {
            return Ok(());
        }
        match request.what {
            What::Put { len, expect, ttl } => {
                let value = self.value(len);
                self.put(request, value, expect, ttl)
            }
            What::PutNumber(number) => self.put(request, number.to_string().into(), Condition::Any, 0),
            What::Delete(expect) => {
                let kind = ChangeKind::Delete;
                self.write(request, expect, kind, None, known && (certain || !refusals))
            }
            What::Join { len, front } => self.join(request, len, front),
            What::Count { by, down } => self.count(request, u64::from(by), down),
            What::Touch(ttl) => {
                let expiry = self.expiry(ttl);
                let after = self.present(request.key).map(|held| ModelRecord { expiry, ..held });
                self.update(request, Update::Touch(expiry), after, Expected::Record)
            }
            What::Get => self.read(request, RecordPart::Whole, RecordField::Range(0, u64::MAX)),
            What::GetMeta => self.read(request, RecordPart::Meta, RecordField::Meta),
            What::GetRange { start, len } => {
                let (start, len) = (u64::from(start), u64::from(len));
                self.read(request, RecordPart::Range { start, len }, RecordField::Range(start, len))
            }
            What::Scan { reverse, keys_only, items } => self.scan(request.key, reverse, keys_only, items),
            What::DeleteRange { count } => self.delete_range(request, u16::from(count)),
            What::Load { .. } => Ok(()),
            What::OpenSnapshot | What::PageSnapshot { .. } | What::CloseSnapshot { .. } => self.ask_snapshots(request),
            What::Sync => {
                let durable = self.histories.iter().map(|history| history.acked()).collect();
                self.hand_over(Operation::Sync, Asked::Sync { durable })
            }
        }
    }

    /// Whether a write of the key that is under way may be refused for want of space, or fail.
    fn may_refuse(&self, number: usize) -> bool {
        let key_bytes = key(number as u16).encoded().len();
        self.errors()
            || self.is_loading(number)
            || self.may_be_full(Some(1), 6)
            || self.histories[number].open_pages(key_bytes) > 1
    }

    pub(super) fn hand_over(&mut self, operation: Operation, asked: Asked) -> Result<(), String> {
        // A shard that is closing takes nothing.
        if let Some(token) = self.machine.submit(operation) {
            self.statistics.operations += 1;
            self.asked.push((token, asked));
        } else if let Asked::Write { key, number, .. } = asked {
            self.histories[usize::from(key)].refused(number);
        }
        Ok(())
    }

    /// A value that no other write has, and of which every piece tells where it belongs.
    pub(super) fn value(&mut self, len: u32) -> Bytes {
        self.counter += 1;
        let stamp = u64::from(self.counter).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 0x80;
        let mut value = vec![b'v'; len as usize];
        for (number, word) in (0u64..).zip(value.chunks_mut(8)) {
            let bytes = stamp.wrapping_add(number << 8).to_le_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
        value.into()
    }

    /// Seconds, and a part of one.
    fn expiry(&self, ttl: u32) -> Expiry {
        let millis = (u64::from(ttl) * 1000).saturating_sub(u64::from(self.counter % 1000));
        if ttl == 0 { Expiry::NEVER } else { Expiry::after(self.machine.now().wall, millis) }
    }

    /// What the key holds when everything handed over is done.
    fn present(&self, key: u16) -> State {
        let wall = self.machine.now().wall;
        self.histories[usize::from(key)].newest().clone().filter(|held| !held.expiry.is_past(wall))
    }

    fn put(&mut self, request: &Request, value: Bytes, expect: Condition, ttl: u32) -> Result<(), String> {
        let flags = if self.counter.is_multiple_of(3) { self.counter } else { 0 };
        let expiry = self.expiry(ttl);
        let after = Some(ModelRecord { value: value.clone(), flags, expiry });
        let history = &self.histories[usize::from(request.key)];
        let (certain, known) = (history.is_certain(), history.is_known());
        let refusals = self.may_refuse(usize::from(request.key));
        self.write(request, expect, ChangeKind::Put { value, flags, expiry }, after, known && (certain || !refusals))
    }

    fn write(
        &mut self,
        request: &Request,
        condition: Condition,
        kind: ChangeKind,
        after: State,
        certain: bool,
    ) -> Result<(), String> {
        let index = usize::from(request.key);
        let existed = self.present(request.key).is_some();
        let version = self.histories[index].newest_version();
        let (expect, met) = match (condition, version) {
            (Condition::Any, _) => (Expect::Any, true),
            (Condition::Absent, _) => (Expect::Absent, !existed),
            (Condition::Present, _) => (Expect::Present, existed),
            // A version not heard of yet cannot be asked for.
            (_, None) => return Ok(()),
            (Condition::SameVersion, Some(version)) => (Expect::Version(version), existed),
            (Condition::OtherVersion, Some(version)) => (Expect::Version(version ^ 1 << 20), false),
        };
        let changes = vec![Change { key: key(request.key), expect, kind }];
        let operation = Operation::Write { changes, level: level(request.power_loss) };
        if !met {
            let after = self.histories[index].writes();
            return self.hand_over(operation, Asked::Refusal { key: request.key, after });
        }
        let unseen = self.machine.shard().capabilities().blind && condition == Condition::Any && after.is_some();
        let expected = Expected::Done((certain && !unseen).then_some(existed));
        let number = self.histories[index].hand_over(after, request.power_loss);
        self.hand_over(operation, Asked::Write { key: request.key, number, expected })
    }

    fn update(&mut self, request: &Request, update: Update, after: State, expected: Expected) -> Result<(), String> {
        let operation = Operation::Update { key: key(request.key), update, level: level(request.power_loss) };
        if after.is_none() {
            let after = self.histories[usize::from(request.key)].writes();
            return self.hand_over(operation, Asked::Refusal { key: request.key, after });
        }
        let number = self.histories[usize::from(request.key)].hand_over(after, request.power_loss);
        self.hand_over(operation, Asked::Write { key: request.key, number, expected })
    }

    fn join(&mut self, request: &Request, len: u16, front: bool) -> Result<(), String> {
        let more = self.value(u32::from(len));
        let after = self.present(request.key).map(|held| {
            let value = if front { [&more[..], &held.value].concat() } else { [&held.value[..], &more].concat() };
            ModelRecord { value: value.into(), ..held }
        });
        let update = if front { Update::Prepend(more) } else { Update::Append(more) };
        self.update(request, update, after, Expected::Done(Some(true)))
    }

    fn count(&mut self, request: &Request, by: u64, down: bool) -> Result<(), String> {
        let update = if down { Update::Decrement(by) } else { Update::Increment(by) };
        let held = self.present(request.key);
        let number = held.as_ref().and_then(|held| decimal::unsigned(&held.value));
        let (Some(held), Some(number)) = (held, number) else {
            return self.update(request, update, None, Expected::Done(None));
        };
        let number = if down { number.saturating_sub(by) } else { number.wrapping_add(by) };
        let value = decimal::padded(number, held.value.len()).into();
        let after = Some(ModelRecord { value, ..held });
        self.update(request, update, after, Expected::Number(number))
    }

    fn read(&mut self, request: &Request, part: RecordPart, asked: RecordField) -> Result<(), String> {
        let from = self.histories[usize::from(request.key)].acked();
        let operation = Operation::Get { key: key(request.key), part };
        self.hand_over(operation, Asked::Read { key: request.key, from, part: asked })
    }

    fn scan(&mut self, number: u16, reverse: bool, keys_only: bool, items: u8) -> Result<(), String> {
        let bound = Bound::Included(key(number));
        let (from, to) = if reverse { (Bound::Unbounded, bound) } else { (bound, Bound::Unbounded) };
        let items_max = u32::from(items);
        // Some pages end for their bytes, some for their items.
        let bytes_max = [1 << 20, 4_000, 300][usize::from(items) % 3];
        let request = PageRequest { from, to, reverse, keys_only, items_max, bytes_max, at: None };
        let sees = Sees::Now(self.histories.iter().map(|history| history.acked()).collect());
        let keys = if reverse { 0..=number } else { number..=u16::MAX };
        let scanned = Scanned { keys, reverse, keys_only, items_max, bytes_max, sees };
        self.hand_over(Operation::Page(request.into()), Asked::Scan(scanned))
    }

    fn delete_range(&mut self, request: &Request, count: u16) -> Result<(), String> {
        let keys = request.key..(request.key + count).min(self.setup.keys);
        // It comes behind the writes under way, unless one is refused: then it is not known what
        // there is to remove.
        let can_be_judged = |key: u16| {
            let history = &self.histories[usize::from(key)];
            history.is_known() && (history.is_certain() || !self.may_refuse(usize::from(key)))
        };
        if !keys.clone().all(can_be_judged) {
            return Ok(());
        }
        let present = keys.clone().filter(|key| self.present(*key).is_some());
        let present: Vec<u16> = present.collect();
        let mut number = |key: u16| self.histories[usize::from(key)].hand_over(None, request.power_loss);
        let writes: Vec<(u16, usize)> = present.into_iter().map(|key| (key, number(key))).collect();
        let from = Bound::Included(key(keys.start));
        let to = Bound::Excluded(key(keys.end));
        let operation = Operation::DeleteRange { range: Box::new((from, to)), level: level(request.power_loss) };
        self.hand_over(operation, Asked::Range { writes })
    }
}

impl What {
    /// Whether it changes nothing.
    fn reads(&self) -> bool {
        use What::*;
        matches!(self, Get | GetMeta | GetRange { .. } | Scan { .. } | Sync | OpenSnapshot | PageSnapshot { .. })
            || matches!(self, CloseSnapshot { .. })
    }
}
