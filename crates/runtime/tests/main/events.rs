//! What shards tell reaches who listens: in order, once, and what was told before there was
//! anybody, too.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use stratakv_device::memory::{Image, MemoryRing};
use stratakv_device::{Pool, Wait};
use stratakv_engine::{Reply, ShardEvent, ShardId};
use stratakv_runtime::{Clock, Driver, EvictionListener, Member, Runtime};

use crate::failures::poll;
use crate::toy::{TELLS, Toy, put};

/// Shards whose reactors the test ticks.
fn turned(toys: Vec<Toy>) -> (Arc<Runtime<Toy>>, Vec<Driver<Toy>>) {
    let mut ring = MemoryRing::new().unwrap();
    let members = toys.into_iter().enumerate().map(|(number, shard)| {
        let image = Image { bytes: vec![0; 256 * 4096], capacity_bytes: None };
        let volume = ring.add(format!("volume {number}"), image).unwrap();
        Member { shard, volume, pool: Pool::new(4 << 20) }
    });
    let members = members.collect();
    Runtime::turned(members, vec![Box::new(ring)], Clock::System)
}

fn toys(count: usize) -> Vec<Toy> {
    (0..count).map(|_| Toy { room: 8, ..Toy::default() }).collect()
}

type Heard = Arc<Mutex<Vec<String>>>;

fn take(heard: &Heard) -> Vec<String> {
    std::mem::take(&mut heard.lock().unwrap())
}

fn listen(runtime: &Runtime<Toy>) -> Heard {
    let heard = Heard::default();
    let told = Arc::clone(&heard);
    runtime.listen(Box::new(move |ShardId(shard), event| {
        let event = match event {
            ShardEvent::Grew { usable_bytes } => format!("{shard} grew {usable_bytes}"),
            ShardEvent::Failed { .. } => format!("{shard} failed"),
            other => format!("{shard} {other:?}"),
        };
        told.lock().unwrap().push(event);
    }));
    heard
}

/// Puts a key by each way that there is: by the thread that asks, and by a driver.
fn tell(runtime: &Arc<Runtime<Toy>>, reactors: &mut [Driver<Toy>], shard: usize, key: u8) {
    let driver = &mut reactors[0];
    driver.submit(shard, 7, put(key, 1));
    let mut events = Vec::new();
    for _ in 0..10 {
        driver.tick(Wait::None, &mut events).unwrap();
    }
    assert!(matches!(&events[..], [stratakv_runtime::Event::Reply { reply: Reply::Done { .. }, .. }]), "{events:?}");
    let mut asked = pin!(runtime.execute_async(shard, put(key + 1, 1)));
    assert!(poll(asked.as_mut()).is_none());
    (0..10).for_each(|_| driver.tick(Wait::None, &mut events).unwrap());
    assert!(matches!(poll(asked), Some(Reply::Done { .. })));
}

#[test]
fn what_shards_tell_is_heard_once_and_in_order() {
    let (runtime, mut reactors) = turned(toys(2));
    tell(&runtime, &mut reactors, 1, TELLS);
    tell(&runtime, &mut reactors, 0, TELLS);
    let heard = listen(&runtime);
    let grew = |shard: usize, key: u8| format!("{shard} grew {key}");
    let before = [grew(1, TELLS), grew(1, TELLS + 1), grew(0, TELLS), grew(0, TELLS + 1)];
    assert_eq!(take(&heard), before, "what was told before anybody listened");
    tell(&runtime, &mut reactors, 0, TELLS + 2);
    tell(&runtime, &mut reactors, 1, TELLS);
    let after = [grew(0, TELLS + 2), grew(0, TELLS + 3), grew(1, TELLS), grew(1, TELLS + 1)];
    assert_eq!(take(&heard), after);
    assert!(take(&listen(&runtime)).is_empty(), "there is one listener");
    tell(&runtime, &mut reactors, 1, 1);
    assert!(take(&heard).is_empty());
}

#[test]
fn a_shard_that_breaks_is_told_once() {
    let mut all = toys(2);
    all[1].defective = true;
    let (runtime, mut reactors) = turned(all);
    let heard = listen(&runtime);
    for _ in 0..3 {
        let mut asked = pin!(runtime.execute_async(1, put(1, 1)));
        let at_once = poll(asked.as_mut());
        (0..5).for_each(|_| reactors[0].tick(Wait::None, &mut Vec::new()).unwrap());
        assert!(matches!(at_once.or_else(|| poll(asked)), Some(Reply::Failed(_))));
    }
    assert_eq!(take(&heard), ["1 failed"]);
}

#[test]
fn evictions_are_told_while_somebody_listens() {
    let (runtime, mut reactors) = turned(toys(1));
    let heard = Heard::default();
    let told = Arc::clone(&heard);
    let listener: EvictionListener =
        Arc::new(move |evicted, _| told.lock().unwrap().push(format!("{:?}", evicted.key.user())));
    tell(&runtime, &mut reactors, 0, TELLS);
    runtime.listen_to_evictions(Some(listener));
    tell(&runtime, &mut reactors, 0, TELLS + 2);
    assert_eq!(take(&heard), [format!("[{}]", TELLS + 2), format!("[{}]", TELLS + 3)]);
    runtime.listen_to_evictions(None);
    tell(&runtime, &mut reactors, 0, TELLS);
    assert!(take(&heard).is_empty());
    assert_eq!(take(&listen(&runtime)).len(), 6, "evictions are none of the other events");
}
