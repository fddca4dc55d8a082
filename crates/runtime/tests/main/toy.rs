//! A toy engine: one page for each one-byte key, no cache, a write and a flush for each put.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};
use std::thread;

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key, Level, Mono};
use stratakv_device::ring::RingKind;
use stratakv_device::volume::OpenMode;
use stratakv_device::{BlockPart, Class, Pool, Volume};
use stratakv_engine::{
    Capabilities, Change, ChangeKind, Effects, Error, Evicted, Expect, Io, IoOutcome, Message, Operation, Record,
    RecordPart, Reply, Shard, ShardEvent, ShardId, Statistic, Token, Value,
};
use stratakv_runtime::{Member, Runtime, RuntimeOptions};

#[derive(Default)]
pub struct Toy {
    pub next: u32,
    pub waiting: HashMap<u32, Token>,
    pub closed: bool,
    pub room: usize,
    pub timer: Option<(Mono, Token)>,
    /// Panics at the next completion.
    pub defective: bool,
    /// Numbers sent to shard 1, one for each operation that is refused; and those heard, with
    /// whether each came after the one before.
    pub sent: u64,
    pub heard: u64,
    pub heard_out_of_order: bool,
}

/// Keys that are answered at once, the first of them when the test lets go of [`HOLDING`].
pub const HELD: u8 = 254;
pub const AT_ONCE: u8 = 255;
/// Keys from this one on tell an event when they are put: the record, and one that was evicted.
pub const TELLS: u8 = 250;
pub static HOLDING: Mutex<()> = Mutex::new(());
pub static IS_HELD: AtomicBool = AtomicBool::new(false);

fn page_of(key: &Key) -> u64 {
    u64::from(key.user()[0]) * 4096
}

impl Toy {
    fn io(&mut self, token: Token) -> Io {
        self.next += 1;
        self.waiting.insert(self.next, token);
        Io { slot: self.next, generation: 0 }
    }
}

impl Shard for Toy {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    fn accept(&mut self, token: Token, operation: Operation, effects: &mut Effects) -> Result<(), Operation> {
        if self.waiting.len() >= self.room {
            return Err(operation);
        }
        match operation {
            Operation::Get { key, .. } if key.user()[0] >= HELD => {
                if key.user()[0] == HELD {
                    IS_HELD.store(true, Ordering::Release);
                    drop(HOLDING.lock());
                }
                effects.reply(token, Reply::Record(None));
            }
            Operation::Get { key, .. } => {
                let io = self.io(token);
                effects.read(io, page_of(&key), effects.block(Class::Page).unwrap(), 4096);
            }
            Operation::Write { changes, .. } => {
                let ChangeKind::Put { value, .. } = &changes[0].kind else { unreachable!() };
                if changes[0].key.user()[0] >= TELLS {
                    effects.events.push(ShardEvent::Grew { usable_bytes: u64::from(changes[0].key.user()[0]) });
                    if effects.tells_evictions {
                        let key = changes[0].key.clone();
                        let evicted = Evicted { key, value_bytes: 8, expiry: Expiry::NEVER, used: false };
                        effects.events.push(ShardEvent::Evicted(evicted));
                    }
                }
                let mut block = effects.block(Class::Page).unwrap();
                block.fill(0);
                block[..value.len()].copy_from_slice(value);
                let io = self.io(token);
                effects.write(io, page_of(&changes[0].key), vec![BlockPart::whole(Arc::new(block))], false);
            }
            // Stands for any timer: answers a second after it was asked, by the engine's clock.
            Operation::Sync => {
                let at = Mono(effects.now().mono.0 + 20_000_000);
                self.timer = Some((at, token));
            }
            _ => {
                self.sent += 1;
                effects.send(ShardId(1), Message(Box::new(self.sent)));
                effects.reply(token, Reply::Failed(Error::Busy));
            }
        }
        Ok(())
    }
    fn complete(&mut self, io: Io, outcome: IoOutcome, effects: &mut Effects) {
        let token = self.waiting.remove(&io.slot).unwrap();
        assert!(!self.defective, "a planted defect");
        match outcome {
            IoOutcome::Read(block, result) => {
                result.unwrap();
                let value = Value::Inline(Bytes::copy_from_slice(&block[..8]));
                let record = Record { value, value_bytes: 8, flags: 0, version: 1, expiry: Expiry::NEVER };
                effects.reply(token, Reply::Record(Some(record)));
            }
            IoOutcome::Write(result) => {
                result.unwrap();
                let io = self.io(token);
                effects.flush(io);
            }
            IoOutcome::Flush(result) => {
                result.unwrap();
                effects.reply(token, Reply::Done { version: 1, existed: false });
            }
            IoOutcome::Allocate(_) | IoOutcome::Discard(_) => unreachable!(),
        }
    }
    fn message(&mut self, _: ShardId, message: Message, _: &mut Effects) {
        let number = *message.0.downcast::<u64>().unwrap();
        self.heard_out_of_order |= number != self.heard + 1;
        self.heard = number;
    }
    fn tick_end(&mut self, effects: &mut Effects) {
        if let Some((at, token)) = self.timer {
            if at <= effects.now().mono {
                self.timer = None;
                effects.reply(token, Reply::Done { version: 0, existed: false });
            } else {
                effects.wake_at(at);
            }
        }
    }
    fn cancel(&mut self, _: &dyn Fn(Token) -> bool, _: &mut Effects) {}
    fn close(&mut self, _: &mut Effects) {
        self.closed = true;
    }
    fn is_closed(&self) -> bool {
        self.closed && self.waiting.is_empty()
    }
    fn statistics(&self, _: &mut Vec<Statistic>) {}
}

pub fn start(kind: RingKind, shards: usize, room: usize) -> (tempfile::TempDir, Arc<Runtime<Toy>>) {
    let directory = tempfile::tempdir().unwrap();
    let members = (0..shards).map(|number| {
        let path = directory.path().join(format!("{number}.vol"));
        let volume = Volume::open(&path, OpenMode { create: true, read_only: false }).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(256 * 4096).unwrap();
        Member { shard: Toy { room, ..Toy::default() }, volume: Arc::new(volume), pool: Pool::new(4 << 20) }
    });
    let options = RuntimeOptions { ring: kind, ring_entries: 64, reactors: 2 };
    let runtime = Runtime::start(members.collect(), options).unwrap();
    (directory, runtime)
}

fn key(byte: u8) -> Key {
    Key::new(CollectionId(0), &[byte]).unwrap()
}
pub fn put(byte: u8, value: u64) -> Operation {
    let value = Bytes::copy_from_slice(&value.to_le_bytes());
    let kind = ChangeKind::Put { value, flags: 0, expiry: Expiry::NEVER };
    let change = Change { key: key(byte), expect: Expect::Any, kind };
    Operation::Write { changes: vec![change], level: Level::PowerLoss }
}
pub fn get(byte: u8) -> Operation {
    Operation::Get { key: key(byte), part: RecordPart::Whole }
}
pub fn number(reply: &Reply) -> u64 {
    let Reply::Record(Some(record)) = reply else { panic!("{reply:?}") };
    u64::from_le_bytes(record.value.to_bytes()[..].try_into().unwrap())
}

struct Unpark(thread::Thread);
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}
