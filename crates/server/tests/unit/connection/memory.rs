//! Connections whose server has little memory for clients, and those that would do more than their
//! share.

use std::sync::Arc;

use stratakv_base::random::Random;

use super::super::Connection;
use crate::bench::Bench;
use crate::block_budget::BlockBudget;
use crate::memory_budget::{MemoryBudget, MemoryPermit};
use crate::schedule::UNITS_EACH;

const MIB: u64 = 1 << 20;

fn bench(budget: &Arc<MemoryBudget>, sent: &[u8]) -> Bench {
    let mut bench = Bench::new(sent);
    bench.connection = Connection::new(1 << 20, BlockBudget::new(0), MemoryPermit::new(budget));
    bench
}

fn set_command(bytes: usize) -> Vec<u8> {
    format!("set a 0 0 {bytes}\r\n{}\r\n", "x".repeat(bytes)).into_bytes()
}

/// Everything that can happen without another connection's doing; sends end only if the client
/// reads.
fn go_on(bench: &mut Bench, reads: bool) {
    let mut random = Random::new(1);
    (0..2000).for_each(|_| go_on_once(bench, &mut random, reads));
}

fn go_on_once(bench: &mut Bench, random: &mut Random, reads: bool) {
    bench.advance();
    if let Some(buffer) = bench.connection.next_recv() {
        if bench.unsent.is_empty() {
            bench.connection.room_taken(buffer);
        } else {
            bench.receive(buffer, 100_000);
        }
    }
    if let Some((chunks, _)) = bench.connection.next_send()
        && reads
    {
        bench.take_sent(chunks);
        bench.connection.sent(true);
    }
    if bench.model.waiting() > 0 {
        let (sequence, reply) = bench.model.answer(random);
        bench.connection.replied(sequence, reply);
    }
    bench.connection.true_up(0);
}

#[test]
fn a_long_value_is_received_when_there_is_room_for_all_of_it() {
    let budget = MemoryBudget::new(3 * MIB);
    let mut other = MemoryPermit::new(&budget);
    let value = other.try_value(0, MIB);
    assert!(value.is_some());
    let mut waiting = bench(&budget, &set_command(1_000_000));
    go_on(&mut waiting, true);
    assert!(waiting.connection.is_starved() && waiting.answer.is_empty());
    assert!(waiting.unsent.len() > 900_000, "{} bytes were left with the client", waiting.unsent.len());
    assert!(budget.held_bytes() < budget.max_bytes(), "{} bytes are held", budget.held_bytes());
    let mut short = bench(&budget, &set_command(1000));
    go_on(&mut short, true);
    assert_eq!(short.answer, b"STORED\r\n", "a short one needs no permit");
    drop((other, value));
    go_on(&mut waiting, true);
    assert_eq!(waiting.answer, b"STORED\r\n");
    drop((waiting, short));
    assert_eq!(budget.held_bytes(), 0);
}

/// Of values that come slice by slice, too: their fronts are longer than what was asked for.
#[test]
fn clients_that_take_no_answers_hold_no_more_than_the_budget_and_short_answers_go_on() {
    for front_bytes in [None, Some(64 << 10)] {
        let budget = MemoryBudget::new(3 * MIB);
        let mut all: Vec<Bench> = (0..30)
            .map(|_| {
                let mut bench = bench(&budget, &set_command(500_000));
                bench.model.front_bytes = front_bytes;
                go_on(&mut bench, true);
                assert_eq!(bench.answer, b"STORED\r\n");
                bench
            })
            .collect();
        for bench in &mut all {
            bench.unsent.extend(b"get a\r\n".repeat(64));
            go_on(bench, false);
        }
        assert!(budget.peak_bytes() <= budget.max_bytes(), "{} bytes, {front_bytes:?}", budget.peak_bytes());
        assert!(all.iter().any(|bench| bench.connection.is_starved()));
        let mut short = bench(&budget, b"set b 0 0 1\r\n1\r\nget b\r\nget b\r\n");
        go_on(&mut short, true);
        assert_eq!(short.answer, b"STORED\r\nVALUE b 0 1\r\n1\r\nEND\r\nVALUE b 0 1\r\n1\r\nEND\r\n");
        // Who reads after all gets everything.
        let mut last = all.pop().unwrap();
        all.clear();
        last.connection.sent(true);
        go_on(&mut last, true);
        let answers = if front_bytes.is_none() { 50 } else { 10 };
        assert!(last.answer.len() > answers * 500_000, "{}", last.answer.len());
        assert!(front_bytes.is_some() || last.answer.ends_with(b"\r\nEND\r\n"));
    }
}

/// Each had places for as many values as it had asked for, and no room for the first of them:
/// places alone held the budget, and more, and nobody was answered any more.
#[test]
fn a_crowd_that_asks_for_many_values_is_answered_within_the_budget() {
    let budget = MemoryBudget::new(MIB / 2);
    let mut random = Random::new(1);
    let mut all: Vec<Bench> = (0..150)
        .map(|_| {
            let mut bench = bench(&budget, &set_command(10 << 10));
            go_on(&mut bench, true);
            bench.unsent.extend_from_slice(format!("get{}\r\n", " a".repeat(40)).as_bytes());
            bench
        })
        .collect();
    for _ in 0..20_000 {
        all.iter_mut().for_each(|bench| go_on_once(bench, &mut random, true));
        if all.iter().all(|bench| bench.answer.ends_with(b"END\r\n")) {
            break;
        }
    }
    let answered = all.iter().filter(|bench| bench.answer.ends_with(b"END\r\n")).count();
    assert_eq!(answered, all.len());
    assert!(budget.peak_bytes() <= budget.max_bytes(), "{} bytes", budget.peak_bytes());
}

/// The end of a get waited for room of its own, so that whoever asked had the value, and what
/// follows it a round later.
#[test]
fn the_end_of_a_get_comes_with_its_last_value_though_there_is_no_room_for_more() {
    let budget = MemoryBudget::new(MIB);
    let mut bench = bench(&budget, &set_command(3000));
    go_on(&mut bench, true);
    let mut other = MemoryPermit::new(&budget);
    other.set(MIB);
    bench.unsent.extend_from_slice(b"get a\r\n");
    let buffer = bench.connection.next_recv().unwrap_or_default();
    bench.answer.clear();
    bench.receive(buffer, 100);
    bench.advance();
    let (sequence, reply) = bench.model.answer(&mut Random::new(1));
    bench.connection.replied(sequence, reply);
    bench.advance();
    let (chunks, _) = bench.connection.next_send().expect("it is answered");
    bench.take_sent(chunks);
    assert!(bench.answer.ends_with(b"\r\nEND\r\n"), "{} bytes", bench.answer.len());
}

/// Texts that were made and not sent counted nowhere.
#[test]
fn texts_that_wait_count_as_what_is_read() {
    let held = |texts: usize| {
        let budget = MemoryBudget::new(64 * MIB);
        // A value before them, which has not come, keeps them from being put into words.
        let mut bench = bench(&budget, &[&b"get a\r\n"[..], &b"version\r\n".repeat(texts)].concat());
        let buffer = bench.connection.next_recv().unwrap();
        bench.receive(buffer, 1000);
        bench.advance();
        assert_eq!(bench.model.waiting(), 1);
        bench.connection.answer_bytes()
    };
    assert!(held(10) - held(0) >= 10 * b"VERSION 1.0\r\n".len() as u64);
}

#[test]
fn one_tick_does_no_more_invalid_lines_than_a_share() {
    let mut bench = Bench::new(&[]);
    let sent = b"foo\r\n".repeat(1000);
    let mut buffer = bench.connection.next_recv().unwrap();
    buffer.extend_from_slice(&sent);
    bench.connection.received(buffer, sent.len());
    for tick in 1..5 {
        bench.advance();
        assert!(bench.connection.wants_more());
        assert_eq!(bench.counters.protocol_errors.get(), tick * UNITS_EACH as u64);
    }
}

/// The bytes of answers counted against no share, so that a tick beside a crowd of gets took as
/// long as the crowd had asked for.
#[test]
fn values_count_against_the_share_of_whoever_gets_them() {
    let spent = |value_bytes: usize| {
        let sent = format!("set a 0 0 {value_bytes}\r\n{}\r\nget a\r\n", "v".repeat(value_bytes));
        let mut bench = Bench::new(sent.as_bytes()).run(&mut Random::new(1), 1 << 20);
        bench.connection.take_spent()
    };
    assert!(spent(64 << 10) - spent(1) >= 32, "a unit for 2 KiB");
}
