//! Clients that take long values slice by slice, some at once and some never to their end.

use stratakv_base::Wall;
use stratakv_engine::{Hold, Operation, Record, RecordPart, Reply, Value};

use super::{Asked, World, key};

/// A value that is being taken.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) key: usize,
    /// When it was begun, and the oldest state that counted then.
    floor: u64,
    wall: Wall,
    hold: Hold,
    front: Record,
    bytes: Vec<u8>,
    asked_bytes: u32,
}

impl World<'_> {
    /// Goes on with a value of which some came, and judges one that is complete.
    pub(super) fn take_slices(&mut self, asked: &Asked, reply: &Reply) -> Result<(), (usize, String)> {
        let mut taken = match (asked, reply) {
            (Asked::Get { key, floor, wall }, Reply::Part(front, hold)) => {
                let (bytes, hold) = (front.value.to_bytes().to_vec(), hold.clone());
                let front = Record { value: Value::Inline(bytes::Bytes::new()), ..front.clone() };
                Box::new(Taken { key: *key, floor: *floor, wall: *wall, hold, front, bytes, asked_bytes: 0 })
            }
            (Asked::Slices(taken), Reply::Record(Some(record))) => {
                let mut taken = taken.clone();
                if record.version != taken.front.version || record.value.len() != u64::from(taken.asked_bytes) {
                    let why = format!("version {}, {} bytes of {taken:?}", record.version, record.value.len());
                    return Err((taken.key, why));
                }
                taken.bytes.extend_from_slice(&record.value.to_bytes());
                taken
            }
            (Asked::Slices(_), _) => {
                self.statistics.sliced[1] += 1;
                return Ok(());
            }
            _ => return Ok(()),
        };
        let left = taken.front.value_bytes - taken.bytes.len() as u64;
        if left == 0 {
            self.statistics.sliced[0] += 1;
            self.statistics.hits += 1;
            let record = Record { value: Value::Inline(taken.bytes.into()), ..taken.front };
            let seen = self.judge.seen(taken.key, taken.floor, &record, taken.wall, self.flips);
            return seen.map_err(|why| (taken.key, why));
        }
        // One in sixteen loses interest.
        if self.random.below(16) > 0 {
            taken.asked_bytes = (1 + self.random.below(left * 2)).min(left) as u32;
            let (start, len) = (taken.bytes.len() as u64, taken.asked_bytes);
            let part = RecordPart::Sliced { hold: taken.hold.id(), start, len };
            if let Some(token) = self.machine.submit(Operation::Get { key: key(taken.key), part }) {
                self.asked.push((token, Asked::Slices(taken)));
            }
        }
        Ok(())
    }
}
