//! Shards that panic and rings that fail: everybody who waits is answered. Without threads: the
//! test ticks every driver.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker as TaskWaker};
use std::time::Duration;

use stratakv_device::memory::{Image, MemoryRing};
use stratakv_device::{Completion, DiskRequest, NetRequest, Pool, Ring, Socket, Volume, Wait, Waker};
use stratakv_engine::{Error, Operation, Reply};
use stratakv_runtime::{Clock, Driver, Event, Member, Runtime};

use crate::toy::{AT_ONCE, Toy, get, put};

/// A disk in memory whose ring fails after some submits: what is in flight then never comes back.
struct FailingRing {
    ring: MemoryRing,
    submits: u32,
}

impl Ring for FailingRing {
    fn disk(&mut self, tag: u64, volume: &Arc<Volume>, request: DiskRequest) {
        self.ring.disk(tag, volume, request);
    }
    fn net(&mut self, tag: u64, request: NetRequest) {
        self.ring.net(tag, request);
    }
    fn shutdown(&mut self, socket: &Socket) {
        self.ring.shutdown(socket);
    }
    fn submit(&mut self, wait: Wait) -> io::Result<()> {
        self.submits = self.submits.checked_sub(1).ok_or_else(|| io::Error::other("planted"))?;
        self.ring.submit(wait)
    }
    fn reap(&mut self, completions: &mut Vec<Completion>) {
        self.ring.reap(completions);
    }
    fn in_flight(&self) -> usize {
        self.ring.in_flight()
    }
    fn waker(&self) -> Waker {
        self.ring.waker()
    }
    fn name(&self) -> &'static str {
        "failing"
    }
}

fn ring(submits: u32) -> (Box<dyn Ring + Send>, Arc<Volume>) {
    let mut ring = MemoryRing::new().unwrap();
    let volume = ring.add("volume", Image { bytes: vec![0; 256 * 4096], capacity_bytes: None }).unwrap();
    (Box::new(FailingRing { ring, submits }), volume)
}

/// One shard, and one reactor whose ring fails after so many submits.
fn turned(toy: Toy, submits: u32) -> (Arc<Runtime<Toy>>, Driver<Toy>) {
    let (ring, volume) = ring(submits);
    let member = Member { shard: toy, volume, pool: Pool::new(4 << 20) };
    let (runtime, mut reactors) = Runtime::turned(vec![member], vec![ring], Clock::System);
    (runtime, reactors.pop().unwrap())
}

fn roomy(room: usize) -> Toy {
    Toy { room, ..Toy::default() }
}

fn tick(driver: &mut Driver<Toy>) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    driver.tick(Wait::None, &mut events)?;
    Ok(events)
}

pub fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(TaskWaker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn is_unknown(reply: &Reply) -> bool {
    matches!(reply, Reply::Failed(Error::Unknown(_)))
}

/// A shard's panic poisoned its lock: whoever waited for an operation in progress or in the backlog
/// waited for ever, and so did close.
#[test]
fn a_panic_in_a_tick_left_its_waiters_without_an_answer() {
    let toy = Toy { room: 1, defective: true, ..Toy::default() };
    let (runtime, mut reactor) = turned(toy, u32::MAX);
    let mut driver = runtime.driver_over(ring(u32::MAX).0);
    driver.submit(0, 7, put(1, 11));
    driver.submit(0, 8, put(2, 22));
    assert!(tick(&mut driver).unwrap().is_empty(), "one is in flight, the other finds no room");
    let mut waiting = pin!(runtime.execute_async(0, put(3, 33)));
    assert!(poll(waiting.as_mut()).is_none(), "it finds no room either");
    runtime.begin_close();
    assert!(!runtime.is_ended());
    let events = tick(&mut driver).unwrap();
    let mine = |event: &Event| matches!(event, Event::Reply { tag: 7, reply } if is_unknown(reply));
    assert!(events.iter().any(mine), "{events:?}");
    tick(&mut reactor).unwrap();
    assert!(runtime.is_ended(), "close would wait for ever");
    runtime.close();
    assert!(is_unknown(&runtime.execute(0, get(1))), "later operations are answered at once");
}

#[test]
fn a_panic_in_a_tick_left_the_backlog_without_an_answer() {
    let toy = Toy { room: 1, defective: true, ..Toy::default() };
    let (runtime, _reactor) = turned(toy, u32::MAX);
    let mut driver = runtime.driver_over(ring(u32::MAX).0);
    driver.submit(0, 7, put(1, 11));
    tick(&mut driver).unwrap();
    let mut waiting = pin!(runtime.execute_async(0, put(2, 22)));
    assert!(poll(waiting.as_mut()).is_none());
    // Handed over in the very tick that panics.
    driver.submit(0, 8, put(3, 33));
    let events = tick(&mut driver).unwrap();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events.iter().all(|event| matches!(event, Event::Reply { reply, .. } if is_unknown(reply))));
    assert!(poll(waiting.as_mut()).is_some_and(|reply| is_unknown(&reply)));
    let expected = |name: &str| u64::from(name == "broken_shards");
    let told = runtime.statistics();
    assert!(told.iter().all(|statistic| statistic.value == expected(statistic.name)), "{told:?}");
    assert!(matches!(runtime.failure(), Some((0, Error::Unknown(_)))), "{:?}", runtime.failure());
}

/// What was left for a reactor whose ring had failed was never done, nor answered.
#[test]
fn a_reactor_without_a_ring_left_requests_at_its_door() {
    let (runtime, mut reactor) = turned(roomy(8), 1);
    let mut begun = pin!(runtime.execute_async(0, put(1, 11)));
    assert!(poll(begun.as_mut()).is_none());
    tick(&mut reactor).unwrap();
    let mut at_the_door = pin!(runtime.execute_async(0, put(2, 22)));
    assert!(poll(at_the_door.as_mut()).is_none());
    tick(&mut reactor).unwrap_err();
    drop(reactor);
    assert!(poll(begun).is_some_and(|reply| is_unknown(&reply)));
    assert!(poll(at_the_door).is_some_and(|reply| is_unknown(&reply)));
    assert!(is_unknown(&runtime.execute(0, get(1))));
    runtime.close();
}

/// A timer belongs to the reactor of its shard: with the reactor gone it never fired.
#[test]
fn a_reactor_without_a_ring_forgot_its_timers() {
    let (runtime, mut reactor) = turned(roomy(8), 0);
    let mut timed = pin!(runtime.execute_async(0, Operation::Sync));
    assert!(poll(timed.as_mut()).is_none());
    tick(&mut reactor).unwrap_err();
    drop(reactor);
    assert!(poll(timed).is_some_and(|reply| is_unknown(&reply)));
}

/// Other threads' operations may ride on a driver's requests, which its ring took with it.
#[test]
fn a_driver_without_a_ring_left_the_operations_of_others_waiting() {
    let (runtime, _reactor) = turned(roomy(1), u32::MAX);
    let mut driver = runtime.driver_over(ring(0).0);
    driver.submit(0, 7, put(1, 11));
    tick(&mut driver).unwrap_err();
    let mut waiting = pin!(runtime.execute_async(0, put(2, 22)));
    assert!(
        poll(waiting.as_mut()).is_some_and(|reply| is_unknown(&reply)),
        "there is room for one, and that one is lost"
    );
    drop(driver);
    runtime.close();
}

/// A driver went on after its ring had failed: answers came, and the next request was given to a
/// ring that never gives it back.
#[test]
fn a_driver_went_on_without_its_ring() {
    let (runtime, _reactor) = turned(roomy(1), u32::MAX);
    let mut driver = runtime.driver_over(ring(0).0);
    driver.submit(0, 7, put(1, 11));
    tick(&mut driver).unwrap_err();
    driver.submit(0, 8, get(1));
    tick(&mut driver).unwrap_err();
    driver.rest(&mut Vec::new()).unwrap_err();
}

#[test]
fn drivers_that_end_in_order_break_nothing() {
    let (runtime, mut reactor) = turned(roomy(8), u32::MAX);
    let mut write = pin!(runtime.execute_async(0, put(1, 11)));
    assert!(poll(write.as_mut()).is_none());
    let reply = (0..10).find_map(|_| {
        tick(&mut reactor).unwrap();
        poll(write.as_mut())
    });
    assert!(matches!(reply, Some(Reply::Done { .. })));
    runtime.begin_close();
    tick(&mut reactor).unwrap();
    assert!(runtime.is_ended());
    runtime.close();
    drop(reactor);
    assert!(matches!(runtime.execute(0, get(1)), Reply::Failed(Error::Closed)));
}

/// A driver whose ring cannot be submitted to, so that it is seen when it is.
#[test]
fn answers_from_memory_go_out_with_what_they_follow_and_requests_do_not_wait_for_long() {
    let (runtime, mut reactor) = turned(roomy(64), u32::MAX);
    let comes_back = Wait::For { completions: 1, timeout: None };
    let mut driver = runtime.driver_over(ring(0).0);
    let mut events = Vec::new();
    for tick in 0..2 {
        driver.submit(0, tick, get(AT_ONCE));
        driver.tick(comes_back, &mut events).unwrap();
    }
    assert_eq!(events.len(), 2);
    driver.submit(0, 2, get(AT_ONCE));
    driver.tick(comes_back, &mut events).unwrap_err();
    // A ring for which there is much to do is not kept waiting at all.
    let mut driver = runtime.driver_over(ring(0).0);
    (0..32).for_each(|number| driver.submit(0, number, get(1)));
    driver.submit(0, 32, get(AT_ONCE));
    driver.tick(comes_back, &mut events).unwrap_err();
    drop(driver);
    runtime.begin_close();
    let _ = tick(&mut reactor);
    runtime.close();
}

/// What a session asked of its disk lay there while its caller was busy with the answers that came
/// from memory: only the third poll submitted it.
#[test]
fn requests_of_a_session_do_not_wait_for_its_caller() {
    let (runtime, mut reactor) = turned(roomy(64), u32::MAX);
    let mut driver = runtime.driver_over(ring(1).0);
    driver.leave_background();
    let mut events = Vec::new();
    driver.tick(Wait::None, &mut events).unwrap();
    std::thread::sleep(Duration::from_millis(1));
    driver.submit(0, 0, get(1));
    driver.submit(0, 1, get(AT_ONCE));
    driver.tick(Wait::For { completions: 1, timeout: None }, &mut events).unwrap_err();
    drop(driver);
    runtime.begin_close();
    let _ = tick(&mut reactor);
    runtime.close();
}
