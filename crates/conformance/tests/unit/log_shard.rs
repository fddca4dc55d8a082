//! The smallest durable shard: every change is appended to a log and flushed, one operation at a
//! time; opening replays the log.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use stratakv_base::checksum::crc32c;
use stratakv_base::codec::Reader;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Expiry, Key};
use stratakv_device::{BlockPart, Class};
use stratakv_engine::{
    Capabilities, Effects, Error, Io, IoOutcome, Message, Opener, Operation, PageRequest, Progress, Record, RecordPart,
    Reply, Shard, ShardId, Statistic, Token, Value,
};

use crate::{Opening, Oracle, Subject};

const IO: Io = Io { slot: 0, generation: 0 };
const MAGIC: u32 = 0x10C_10C;

/// A defect to plant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    None,
    /// Acknowledges writes that no flush followed.
    NoFlush,
    /// Answers before it writes, and writes at the next tick.
    Early,
}

pub struct LogShard {
    oracle: Oracle,
    end: u64,
    queue: VecDeque<(Token, Operation)>,
    busy: Option<(Token, Reply)>,
    late: Option<Vec<u8>>,
    defect: Defect,
    closing: bool,
}

impl LogShard {
    fn next(&mut self, effects: &mut Effects) {
        self.oracle.set_wall(effects.now().wall);
        if let Some(record) = self.late.take() {
            self.append(&record, effects);
        }
        while self.busy.is_none() {
            let Some((token, operation)) = self.queue.pop_front() else { return };
            let keys = self.keys_of(&operation);
            let before = self.oracle.version();
            let reply = self.oracle.execute(operation);
            if keys.is_empty() || self.oracle.version() == before {
                effects.reply(token, reply);
                continue;
            }
            let record = self.record_of(&keys);
            if self.defect == Defect::Early {
                effects.reply(token, reply);
                self.late = Some(record);
                return effects.more();
            }
            self.append(&record, effects);
            self.busy = Some((token, reply));
        }
    }

    /// Keys that the operation may change.
    fn keys_of(&mut self, operation: &Operation) -> Vec<Key> {
        match operation {
            Operation::Write { changes, .. } => changes.iter().map(|change| change.key.clone()).collect(),
            Operation::Update { key, .. } => vec![key.clone()],
            Operation::DeleteRange { range, .. } => {
                let all = PageRequest {
                    from: Bound::Unbounded,
                    to: Bound::Unbounded,
                    reverse: false,
                    keys_only: true,
                    items_max: u32::MAX,
                    bytes_max: u32::MAX,
                    at: None,
                };
                let Reply::Page { items, .. } = self.oracle.execute(Operation::Page(all.into())) else {
                    return Vec::new();
                };
                items.into_iter().map(|item| item.key).filter(|key| range.contains(key)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What is now under the keys.
    fn record_of(&mut self, keys: &[Key]) -> Vec<u8> {
        let mut body = self.oracle.version().to_le_bytes().to_vec();
        for key in keys {
            body.extend_from_slice(&(key.encoded().len() as u32).to_le_bytes());
            body.extend_from_slice(key.encoded());
            let get = Operation::Get { key: key.clone(), part: RecordPart::Whole };
            let Reply::Record(record) = self.oracle.execute(get) else { continue };
            body.push(u8::from(record.is_some()));
            if let Some(record) = record {
                body.extend_from_slice(&record.flags.to_le_bytes());
                body.extend_from_slice(&record.expiry.0.to_le_bytes());
                body.extend_from_slice(&record.version.to_le_bytes());
                body.extend_from_slice(&record.value_bytes.to_le_bytes());
                body.extend_from_slice(&record.value.to_bytes());
            }
        }
        let mut record = MAGIC.to_le_bytes().to_vec();
        record.extend_from_slice(&(body.len() as u32).to_le_bytes());
        record.extend_from_slice(&crc32c(MAGIC, &body).to_le_bytes());
        record.extend_from_slice(&body);
        record.resize(record.len().next_multiple_of(PAGE_BYTES), 0);
        record
    }

    fn append(&mut self, record: &[u8], effects: &mut Effects) {
        let parts = record.chunks(PAGE_BYTES).map(|page| {
            let mut block = effects.block(Class::Page).expect("the pool is large enough for a test");
            block.copy_from_slice(page);
            BlockPart::whole(Arc::new(block))
        });
        let parts = parts.collect();
        effects.write(IO, self.end, parts, false);
        self.end += record.len() as u64;
    }

    /// Puts a record of the log into the oracle; its length, or `None` if there is none.
    fn replay(&mut self, log: &[u8]) -> Option<usize> {
        let mut reader = Reader::new(log);
        if reader.u32().ok()? != MAGIC {
            return None;
        }
        let (len, crc) = (reader.u32().ok()? as usize, reader.u32().ok()?);
        let body = reader.bytes(len).ok()?;
        if crc32c(MAGIC, body) != crc {
            return None;
        }
        let mut body = Reader::new(body);
        self.oracle.set_version(body.u64().ok()?);
        while body.left() > 0 {
            let key_len = body.u32().ok()? as usize;
            let key = Key::from_encoded(body.bytes(key_len).ok()?)?;
            let record = match body.u8().ok()? {
                0 => None,
                _ => {
                    let (flags, expiry) = (body.u32().ok()?, Expiry(body.u64().ok()?));
                    let (version, value_bytes) = (body.u64().ok()?, body.u64().ok()?);
                    let value = body.bytes(value_bytes as usize).ok()?.to_vec();
                    Some(Record { value: Value::Inline(value.into()), value_bytes, flags, version, expiry })
                }
            };
            self.oracle.restore(key, record);
        }
        Some((12 + len).next_multiple_of(PAGE_BYTES))
    }
}

impl Shard for LogShard {
    fn capabilities(&self) -> Capabilities {
        self.oracle.capabilities()
    }
    fn accept(&mut self, token: Token, operation: Operation, _: &mut Effects) -> Result<(), Operation> {
        if self.queue.len() >= 3 {
            return Err(operation);
        }
        self.queue.push_back((token, operation));
        Ok(())
    }
    fn complete(&mut self, _: Io, outcome: IoOutcome, effects: &mut Effects) {
        match outcome {
            IoOutcome::Write(Ok(())) if self.defect == Defect::None => return effects.flush(IO),
            IoOutcome::Write(Ok(())) | IoOutcome::Flush(Ok(())) => {}
            other => panic!("the disk in memory is large enough: {other:?}"),
        }
        if let Some((token, reply)) = self.busy.take() {
            effects.reply(token, reply);
        }
    }
    fn message(&mut self, _: ShardId, _: Message, _: &mut Effects) {}
    fn tick_end(&mut self, effects: &mut Effects) {
        self.next(effects);
    }
    fn cancel(&mut self, has_left: &dyn Fn(Token) -> bool, effects: &mut Effects) {
        let is_left =
            |(token, operation): &(Token, Operation)| has_left(*token) && matches!(operation, Operation::Get { .. });
        let left: Vec<Token> = self.queue.iter().filter(|asked| is_left(asked)).map(|(token, _)| *token).collect();
        self.queue.retain(|asked| !is_left(asked));
        left.into_iter().for_each(|token| effects.reply(token, Reply::Failed(Error::Cancelled)));
    }
    fn close(&mut self, _: &mut Effects) {
        self.closing = true;
    }
    fn is_closed(&self) -> bool {
        self.closing && self.busy.is_none() && self.late.is_none()
    }
    fn statistics(&self, _: &mut Vec<Statistic>) {}
}

/// Reads the log, 64 KiB at a time.
pub struct LogOpener {
    opening: Opening,
    defect: Defect,
    log: Vec<u8>,
    wall: stratakv_base::Wall,
}

impl LogOpener {
    pub fn new(opening: Opening, defect: Defect) -> LogOpener {
        LogOpener { opening, defect, log: Vec::new(), wall: stratakv_base::Wall(0) }
    }

    fn read(&mut self, effects: &mut Effects) {
        self.wall = effects.now().wall;
        let left = self.opening.len_bytes - self.log.len() as u64;
        if left > 0 {
            let block = effects.block(Class::Slice).expect("the pool is large enough for a test");
            let len = left.min(block.len() as u64) as u32;
            effects.read(IO, self.log.len() as u64, block, len);
        }
    }
}

impl Opener for LogOpener {
    type Shard = LogShard;
    fn start(&mut self, effects: &mut Effects) {
        self.read(effects);
    }
    fn complete(&mut self, _: Io, outcome: IoOutcome, effects: &mut Effects) {
        let IoOutcome::Read(block, Ok(())) = outcome else { panic!("a read within the disk") };
        let len = block.len().min((self.opening.len_bytes - self.log.len() as u64) as usize);
        self.log.extend_from_slice(&block[..len]);
        self.read(effects);
    }
    fn progress(&self) -> Progress {
        Progress::default()
    }
    fn is_finished(&self) -> bool {
        self.log.len() as u64 >= self.opening.len_bytes
    }
    fn finish(self) -> Result<LogShard, Error> {
        let mut shard = LogShard {
            oracle: Oracle::at(self.wall),
            end: 0,
            queue: VecDeque::new(),
            busy: None,
            late: None,
            defect: self.defect,
            closing: false,
        };
        while let Some(len) = shard.replay(&self.log[shard.end as usize..]) {
            shard.end += len as u64;
        }
        Ok(shard)
    }
}
