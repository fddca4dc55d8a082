//! The runtime against a toy engine, on real files.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use stratakv_device::Wait;
use stratakv_device::ring::RingKind;
use stratakv_engine::{Error, Operation, Reply, Shard};
use stratakv_runtime::Event;

use crate::toy::{AT_ONCE, HELD, HOLDING, IS_HELD, block_on, get, number, put, start};

fn every_way_in_gives_the_same_answers(kind: RingKind) {
    let (_directory, runtime) = start(kind, 2, 8);
    assert!(matches!(runtime.execute(0, put(1, 11)), Reply::Done { .. }));
    assert_eq!(number(&runtime.execute(0, get(1))), 11);
    let writes = (0..40).map(|i| (usize::from(i) % 2, put(i, 100 + u64::from(i)))).collect();
    assert!(runtime.execute_many(writes).iter().all(|reply| matches!(reply, Reply::Done { .. })));
    let reads = runtime.execute_many((0..40).map(|i| (usize::from(i) % 2, get(i))).collect());
    assert!(reads.iter().map(number).eq(100..140));
    assert!(matches!(block_on(runtime.execute_async(1, put(7, 77))), Reply::Done { .. }));
    assert_eq!(number(&block_on(runtime.execute_async(1, get(7)))), 77);
    let mut driver = runtime.driver().unwrap();
    (0..40).for_each(|i| driver.submit(usize::from(i) % 2, u64::from(i), get(i)));
    let mut events = Vec::new();
    while events.len() < 40 {
        driver.tick(Wait::For { completions: 1, timeout: None }, &mut events).unwrap();
    }
    for event in &events {
        let Event::Reply { tag, reply } = event else { panic!("{event:?}") };
        assert_eq!(number(reply), if *tag == 7 { 77 } else { 100 + tag });
    }
    drop(driver);
    runtime.close();
    assert!(matches!(runtime.execute(0, get(1)), Reply::Failed(Error::Closed)));
}

#[test]
fn every_way_in_gives_the_same_answers_on_io_uring() {
    every_way_in_gives_the_same_answers(RingKind::Auto);
}

#[test]
fn every_way_in_gives_the_same_answers_on_threads() {
    every_way_in_gives_the_same_answers(RingKind::Blocking);
}

/// A shard that another thread held was once dropped from the tick's list, and its operations were
/// never answered.
#[test]
fn drivers_that_meet_at_a_shard_are_all_answered() {
    let (_directory, runtime) = start(RingKind::Auto, 3, 64);
    thread::scope(|scope| {
        for thread in 0..4u8 {
            let runtime = &runtime;
            scope.spawn(move || {
                let mut driver = runtime.driver().unwrap();
                let mut events = Vec::new();
                for round in 0..300u64 {
                    (0..3).for_each(|shard| driver.submit(shard, round, put(thread * 3 + shard as u8, round)));
                    while events.len() < 3 {
                        driver.tick(Wait::For { completions: 1, timeout: None }, &mut events).unwrap();
                    }
                    assert!(
                        events.drain(..).all(|event| matches!(event, Event::Reply { reply: Reply::Done { .. }, .. }))
                    );
                }
            });
        }
    });
    runtime.close();
}

#[test]
fn a_timer_fires_without_any_caller() {
    let (_directory, runtime) = start(RingKind::Auto, 1, 8);
    assert!(matches!(runtime.execute(0, Operation::Sync), Reply::Done { .. }));
    runtime.close();
}

#[test]
fn many_threads_with_little_room_are_all_answered() {
    let (_directory, runtime) = start(RingKind::Auto, 2, 3);
    thread::scope(|scope| {
        for thread in 0..8u8 {
            let runtime = &runtime;
            scope.spawn(move || {
                for round in 0..50u64 {
                    let shard = usize::from(thread) % 2;
                    assert!(matches!(runtime.execute(shard, put(thread, round)), Reply::Done { .. }));
                    assert_eq!(number(&runtime.execute(shard, get(thread))), round);
                }
            });
        }
    });
    runtime.close();
}

#[test]
fn a_dropped_driver_sees_its_writes_through() {
    let (_directory, runtime) = start(RingKind::Auto, 1, 64);
    let mut driver = runtime.driver().unwrap();
    (0..32).for_each(|i| driver.submit(0, u64::from(i), put(i, 500 + u64::from(i))));
    driver.tick(Wait::None, &mut Vec::new()).unwrap();
    drop(driver);
    // Their flushes were left to a reactor; closing waits for them.
    runtime.close();
    assert!(runtime.look(Shard::is_closed).iter().all(|closed| *closed));
}

/// Two threads ran ticks of one shard, and what the later tick said could arrive first: a batch's
/// abort before its share, which then waited for ever.
#[test]
fn what_a_later_tick_says_does_not_overtake_an_earlier_one() {
    let (_directory, runtime) = start(RingKind::Blocking, 2, 8);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    assert!(matches!(
                        runtime.execute(0, Operation::Backup { shard: 0, cursor: 0 }),
                        Reply::Failed(Error::Busy)
                    ));
                }
            });
        }
    });
    runtime.close();
    let states = runtime.look(|toy| (toy.sent, toy.heard, toy.heard_out_of_order));
    assert_eq!(states, [(200_000, 0, false), (0, 200_000, false)], "each was heard, in order");
}

/// A thread that had lost its processor within a tick of a shard kept others from all that they
/// had to do.
#[test]
fn a_shard_that_another_thread_holds_keeps_nobody_from_other_work() {
    let (_directory, runtime) = start(RingKind::Blocking, 2, 8);
    let holding = HOLDING.lock().unwrap();
    thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let runtime = &runtime;
        let holder = scope.spawn(|| runtime.execute(0, get(HELD)));
        scope.spawn(move || {
            let mut driver = runtime.driver().unwrap();
            let mut events = Vec::new();
            // Until the other thread has it.
            while !IS_HELD.load(Ordering::Acquire) {
                thread::yield_now();
            }
            driver.submit(0, 0, get(AT_ONCE));
            driver.submit(1, 1, get(AT_ONCE));
            driver.tick(Wait::For { completions: 1, timeout: None }, &mut events).unwrap();
            let tags: Vec<u64> =
                events.drain(..).map(|event| if let Event::Reply { tag, .. } = event { tag } else { 9 }).collect();
            let is_put_off = tags == [1];
            tell.send(tags).unwrap();
            while is_put_off && events.is_empty() {
                driver.tick(Wait::For { completions: 1, timeout: None }, &mut events).unwrap();
            }
            assert!(!is_put_off || matches!(events[0], Event::Reply { tag: 0, .. }));
        });
        let tags = told.recv_timeout(Duration::from_secs(30));
        drop(holding);
        assert_eq!(tags, Ok(vec![1]));
        holder.join().unwrap();
    });
    runtime.close();
}
