//! Several operations in one tick.

use stratakv_base::{Expiry, Key};
use stratakv_engine::{Error, Expect, Reply, Unmet, Update};

use super::Subject;
use super::ask::{brief, delete_of, done, expect_value, fill, get_of, key, number, put, put_of, put_with, update_of};

/// Each one finds the one before it.
pub fn increments_of_one_key_all_count(subject: &mut dyn Subject) {
    let k = key("n");
    put(subject, &k, "0");
    let replies = subject.execute_all((0..100).map(|_| update_of(&k, Update::Increment(1))).collect());
    let mut numbers: Vec<u64> = replies.into_iter().map(|reply| number(reply).0).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=100).collect::<Vec<u64>>());
    subject.reopen();
    expect_value(subject, &k, b"100");
}

/// Exactly one; the others learn of its version.
pub fn one_absent_put_wins(subject: &mut dyn Subject) {
    let k = key("k");
    let value = |number: usize| fill(number as u64, 100 + number * 100);
    let puts = (0..20).map(|number| put_with(&k, value(number), 0, Expiry::NEVER, Expect::Absent)).collect();
    let replies = subject.execute_all(puts);
    let winners: Vec<(usize, u64)> = replies
        .iter()
        .enumerate()
        .filter_map(|(number, reply)| match reply {
            Reply::Done { version, existed: false } => Some((number, *version)),
            _ => None,
        })
        .collect();
    let [(winner, version)] = winners[..] else { panic!("one put wins, not {winners:?}") };
    for (number, reply) in replies.iter().enumerate().filter(|(number, _)| *number != winner) {
        let unmet = matches!(reply, Reply::Unmet(Unmet::Present { version: seen }) if *seen == version);
        assert!(unmet, "put {number} is answered {}", brief(reply));
    }
    assert_eq!(expect_value(subject, &k, &value(winner)).version, version);
}

/// Puts, overwrites with other sizes, deletes: 200 keys at once, three times, reopened between.
pub fn many_keys_in_one_tick(subject: &mut dyn Subject) {
    let keys: Vec<Key> = (0..200).map(|number| key(format!("key{number}"))).collect();
    let size = |number: usize, round: usize| (number * 97 + round * 1501) % 6000;
    let blind = subject.capabilities().blind;
    for round in 0..3 {
        let puts = keys.iter().enumerate().map(|(number, key)| put_of(key, fill(number as u64, size(number, round))));
        for reply in subject.execute_all(puts.collect()) {
            assert_eq!(done(reply).1, round == 1 && !blind, "existed, in round {round}");
        }
        let replies = subject.execute_all(keys.iter().map(get_of).collect());
        for (number, (reply, key)) in replies.into_iter().zip(&keys).enumerate() {
            let Reply::Record(Some(record)) = reply else { panic!("key {number}: {}", brief(&reply)) };
            super::ask::check_value(&record, key, &fill(number as u64, size(number, round)));
        }
        subject.reopen();
        if round == 1 {
            let replies = subject.execute_all(keys.iter().map(delete_of).collect());
            assert!(replies.into_iter().all(|reply| done(reply).1), "all existed");
            subject.reopen();
        }
    }
    for (number, key) in keys.iter().enumerate() {
        expect_value(subject, key, &fill(number as u64, size(number, 2)));
    }
}

/// A read beside a write gives a whole value: the old one or the new one.
pub fn reads_see_old_or_new(subject: &mut dyn Subject) {
    for size in [50, 3000, 20_000, 150_000] {
        let k = key(format!("of {size}"));
        let (old, new) = (fill(1, size), fill(2, size + 13));
        put(subject, &k, old.clone());
        let operations = vec![get_of(&k), put_of(&k, new.clone()), get_of(&k), get_of(&k)];
        let replies = subject.execute_all(operations);
        for reply in [&replies[0], &replies[2], &replies[3]] {
            let Reply::Record(Some(record)) = reply else { panic!("{}", brief(reply)) };
            let found = record.value.to_bytes();
            assert!(found == old || found == new, "a value of {} bytes that nobody wrote", found.len());
        }
        expect_value(subject, &k, &new);
    }
}

/// Half of those who ask have left after the first tick. Everybody is answered, who stays as ever,
/// and writes are carried out. (That reads are given up is for tests of engines whose records are
/// not in memory then.)
pub fn reads_of_those_who_left_are_given_up(subject: &mut dyn Subject) {
    let keys: Vec<Key> = (0..200).map(|number| key(format!("key{number}"))).collect();
    let value = |number: usize| fill(number as u64, [300, 2_000, 40_000, 140_000][number / 2 % 4]);
    let other = |number: usize| fill(number as u64 + 1, 500);
    for chunk in (0..keys.len()).collect::<Vec<_>>().chunks(20) {
        let puts = chunk.iter().map(|number| put_of(&keys[*number], value(*number))).collect();
        subject.execute_all(puts).into_iter().for_each(|reply| _ = done(reply));
    }
    subject.reopen();
    // Gets of the first half, then puts of the other: of each, every other one leaves.
    let gets = keys[..100].iter().map(get_of);
    let puts = (100..200).map(|number| put_of(&keys[number], other(number)));
    let replies = subject.execute_leaving(gets.chain(puts).collect(), &|asked| asked % 2 == 1);
    for (number, reply) in replies.into_iter().enumerate() {
        match reply {
            Reply::Record(Some(record)) => super::ask::check_value(&record, &keys[number], &value(number)),
            Reply::Done { .. } if number >= 100 => {}
            Reply::Failed(Error::Cancelled) if number < 100 && number % 2 == 1 => {}
            reply => panic!("{number}: {}", brief(&reply)),
        }
    }
    for (number, key) in keys.iter().enumerate() {
        expect_value(subject, key, &if number < 100 { value(number) } else { other(number) });
    }
}
