//! Read-modify-write at the owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{Expiry, Key};
use stratakv_engine::update::{UpdateError, UpdatedRecord};
use stratakv_engine::{Error, Expect, RecordEdit, Reply, Unmet, Update};

use super::Subject;
use super::ask::{
    brief, done, expect_absent, expect_value, failed, fill, get, key, number, put, put_with, unmet, update_of,
};

/// Bytes join on either side; flags and expiry stay, the version grows.
pub fn append_and_prepend(subject: &mut dyn Subject) {
    let k = key("k");
    let expiry = Expiry(subject.wall().0 + 1000);
    let (first, _) = done(subject.execute(put_with(&k, "b", 9, expiry, Expect::Any)));
    let (second, existed) = done(subject.execute(update_of(&k, Update::Append("c".into()))));
    assert!(existed && second > first);
    done(subject.execute(update_of(&k, Update::Prepend("a".into()))));
    done(subject.execute(update_of(&k, Update::Append("".into()))));
    let record = expect_value(subject, &k, b"abc");
    assert_eq!((record.flags, record.expiry), (9, expiry), "flags and expiry stay");
    let mut expected = b"abc".to_vec();
    for round in 0..40u64 {
        let piece = fill(round, 977);
        expected.extend_from_slice(&piece);
        done(subject.execute(update_of(&k, Update::Append(piece))));
    }
    expect_value(subject, &k, &expected);
    subject.reopen();
    expect_value(subject, &k, &expected);
}

/// Decimal numbers of 64 bits: up with wrapping, down to 0, memcached's lengths.
pub fn increment_and_decrement(subject: &mut dyn Subject) {
    let k = key("n");
    let (first, _) = done(subject.execute(put_with(&k, "10", 3, Expiry::NEVER, Expect::Any)));
    let (ten_and_five, second) = number(subject.execute(update_of(&k, Update::Increment(5))));
    assert!(ten_and_five == 15 && second > first);
    assert_eq!(expect_value(subject, &k, b"15").flags, 3, "flags stay");
    assert_eq!(number(subject.execute(update_of(&k, Update::Increment(85)))).0, 100);
    expect_value(subject, &k, b"100");
    assert_eq!(number(subject.execute(update_of(&k, Update::Decrement(1)))).0, 99);
    expect_value(subject, &k, b"99 ");
    assert_eq!(number(subject.execute(update_of(&k, Update::Increment(1)))).0, 100, "padding is no part of the number");
    expect_value(subject, &k, b"100");
    assert_eq!(number(subject.execute(update_of(&k, Update::Decrement(1000)))).0, 0, "it stops at 0");
    put(subject, &k, u64::MAX.to_string());
    assert_eq!(number(subject.execute(update_of(&k, Update::Increment(2)))).0, 1, "it wraps");
    subject.reopen();
    let text = get(subject, &k).expect("it exists").value.to_bytes();
    assert_eq!(text.trim_ascii(), b"1");
}

/// A value counts that begins with a number: blanks and a sign may stand before it, anything behind
/// a blank.
pub fn what_begins_with_a_number_is_counted(subject: &mut dyn Subject) {
    let k = key("n");
    for (text, counted) in
        [(&b" 5"[..], &b"6 "[..]), (b"+5", b"6 "), (b"5 apples", b"6       "), (b"\t0099\n", b"100   ")]
    {
        put(subject, &k, text.to_vec());
        let said = subject.execute(update_of(&k, Update::Increment(1)));
        assert!(matches!(said, Reply::Number { .. }), "{text:?}: {said:?}");
        expect_value(subject, &k, counted);
    }
    let mut long = b"5 ".to_vec();
    long.resize(100_000, b'x');
    put(subject, &k, long);
    assert!(matches!(subject.execute(update_of(&k, Update::Increment(1))), Reply::Number { .. }));
    let mut counted = b"6".to_vec();
    counted.resize(100_000, b' ');
    expect_value(subject, &k, &counted);
}

/// Everything else is left alone.
pub fn only_numbers_are_counted(subject: &mut dyn Subject) {
    let k = key("n");
    let long = fill(1, 5000);
    for text in [&b""[..], b" ", b"abc", b"12x", b"x12", b"-1", b"+-1", b"1.5", b"18446744073709551616", &long] {
        let version = put(subject, &k, text.to_vec());
        assert_eq!(unmet(subject.execute(update_of(&k, Update::Increment(1)))), Unmet::NotANumber, "{text:?}");
        assert_eq!(unmet(subject.execute(update_of(&k, Update::Decrement(1)))), Unmet::NotANumber, "{text:?}");
        assert_eq!(expect_value(subject, &k, text).version, version, "nothing changed");
    }
}

/// A touch changes the expiry and nothing else, and answers with the record.
pub fn touch(subject: &mut dyn Subject) {
    let k = key("k");
    let value = fill(3, 3000);
    done(subject.execute(put_with(&k, value.clone(), 7, Expiry::NEVER, Expect::Any)));
    let soon = Expiry(subject.wall().0 + 50);
    match subject.execute(update_of(&k, Update::Touch(soon))) {
        Reply::Record(Some(record)) => {
            assert_eq!((record.flags, record.expiry, record.value_bytes), (7, soon, 3000));
            assert!(record.value.to_bytes() == value, "a touch answers with the value");
        }
        other => panic!("a touch is answered with the record, not {}", brief(&other)),
    }
    subject.reopen();
    assert_eq!(expect_value(subject, &k, &value).expiry, soon);
    assert!(matches!(subject.execute(update_of(&k, Update::Touch(Expiry::NEVER))), Reply::Record(Some(_))));
    subject.advance_wall(100);
    let record = expect_value(subject, &k, &value);
    assert_eq!((record.flags, record.expiry), (7, Expiry::NEVER));
}

/// Doubles a value, and tells how long the old one was; one of more than 40 bytes stays.
#[derive(Debug, Default)]
struct Doubling {
    flags: Option<u32>,
    expiry: Option<Expiry>,
    old_bytes: AtomicU64,
    old_flags: AtomicU32,
}

impl RecordEdit for Doubling {
    fn apply(&self, value: &Bytes, flags: u32, expiry: Expiry) -> Result<UpdatedRecord, UpdateError> {
        self.old_bytes.store(value.len() as u64, Ordering::Relaxed);
        self.old_flags.store(flags, Ordering::Relaxed);
        match value.len() {
            0..=40 => {
                let (value, expiry) = (value.repeat(2).into(), self.expiry.unwrap_or(expiry).0);
                Ok(UpdatedRecord { value, expiry, number: None, flags: self.flags })
            }
            _ => Err(UpdateError::Unmet(Unmet::Unchanged)),
        }
    }

    fn value_bytes(&self) -> u64 {
        0
    }
}

/// An edit changes the record by its own rule, or leaves it as it is, and tells what it saw.
pub fn edits(subject: &mut dyn Subject) {
    let k = key("k");
    let expiry = Expiry(subject.wall().0 + 1000);
    let (first, _) = done(subject.execute(put_with(&k, "0123456789", 9, expiry, Expect::Any)));
    let edit = Arc::new(Doubling::default());
    let (second, existed) = done(subject.execute(update_of(&k, Update::Edit(edit.clone()))));
    assert!(existed && second > first);
    assert_eq!(edit.old_bytes.load(Ordering::Relaxed), 10);
    assert_eq!(edit.old_flags.load(Ordering::Relaxed), 9);
    let record = expect_value(subject, &k, b"01234567890123456789");
    assert_eq!((record.flags, record.expiry), (9, expiry), "flags and expiry stay");
    let later = Expiry(expiry.0 + 1000);
    let edit = Arc::new(Doubling { flags: Some(4), expiry: Some(later), ..Doubling::default() });
    done(subject.execute(update_of(&k, Update::Edit(edit))));
    let value = b"0123456789".repeat(4);
    let record = expect_value(subject, &k, &value);
    assert_eq!((record.flags, record.expiry), (4, later), "the edit says so");
    let both = (0..2).map(|_| update_of(&k, Update::Edit(Arc::new(Doubling::default())))).collect();
    let replies = subject.execute_all(both);
    assert!(matches!(&replies[..], [Reply::Done { existed: true, .. }, Reply::Unmet(Unmet::Unchanged)]), "{replies:?}");
    let record = expect_value(subject, &k, &value.repeat(2));
    let edit = Arc::new(Doubling { flags: Some(1), ..Doubling::default() });
    assert_eq!(unmet(subject.execute(update_of(&k, Update::Edit(edit.clone())))), Unmet::Unchanged);
    assert_eq!(edit.old_bytes.load(Ordering::Relaxed), 80);
    subject.reopen();
    let after = expect_value(subject, &k, &value.repeat(2));
    assert_eq!((after.flags, after.expiry, after.version), (record.flags, record.expiry, record.version));
    let absent = update_of(&key("none"), Update::Edit(edit));
    assert_eq!(unmet(subject.execute(absent)), Unmet::Absent);
    subject.advance_wall(3000);
    assert_eq!(unmet(subject.execute(update_of(&k, Update::Edit(Arc::new(Doubling::default()))))), Unmet::Absent);
}

/// Makes a record where there is none; one that is there grows by a byte.
#[derive(Debug)]
struct Making;

impl RecordEdit for Making {
    fn apply(&self, value: &Bytes, _: u32, expiry: Expiry) -> Result<UpdatedRecord, UpdateError> {
        Ok(UpdatedRecord { value: [value, &b"+"[..]].concat().into(), expiry: expiry.0, number: None, flags: None })
    }

    fn create(&self) -> Result<UpdatedRecord, UpdateError> {
        Ok(UpdatedRecord { value: "made".into(), expiry: 0, number: None, flags: Some(7) })
    }

    fn value_bytes(&self) -> u64 {
        4
    }
}

/// An edit may make a record: of a key that never was, was deleted, or has expired.
pub fn edits_make_records(subject: &mut dyn Subject) {
    let make = |key: &Key| update_of(key, Update::Edit(Arc::new(Making)));
    let (fresh, deleted, expired) = (key("fresh"), key("deleted"), key("expired"));
    put(subject, &deleted, "old");
    super::ask::delete(subject, &deleted);
    let soon = Expiry(subject.wall().0 + 1000);
    done(subject.execute(put_with(&expired, "a value of another length", 3, soon, Expect::Any)));
    subject.advance_wall(3000);
    for key in [&fresh, &deleted, &expired] {
        let replies = subject.execute_all(vec![make(key), make(key)]);
        let existed = |reply: &Reply| matches!(reply, Reply::Done { existed: true, .. });
        assert_eq!(replies.iter().map(existed).collect::<Vec<_>>(), [false, true], "{replies:?}");
        let record = expect_value(subject, key, b"made+");
        assert_eq!((record.flags, record.expiry), (7, Expiry::NEVER));
    }
    subject.reopen();
    for key in [&fresh, &deleted, &expired] {
        expect_value(subject, key, b"made+");
        super::ask::delete(subject, key);
        expect_absent(subject, key);
    }
}

/// No other update makes a record.
pub fn of_an_absent_key(subject: &mut dyn Subject) {
    let k = key("k");
    for round in 0..2 {
        let updates =
            [Update::Append("a".into()), Update::Prepend("a".into()), Update::Increment(1), Update::Decrement(1)];
        for update in updates {
            assert_eq!(unmet(subject.execute(update_of(&k, update))), Unmet::Absent);
        }
        match subject.execute(update_of(&k, Update::Touch(Expiry::NEVER))) {
            Reply::Record(None) => {}
            other => panic!("a touch of an absent key finds no record, not {}", brief(&other)),
        }
        expect_absent(subject, &k);
        if round == 0 {
            put(subject, &k, "5");
            super::ask::delete(subject, &k);
        }
    }
}

/// An append that would be over the limit is refused, and the value is as before.
pub fn growing_past_the_limit_changes_nothing(subject: &mut dyn Subject) {
    let k = key("k");
    put(subject, &k, "0123456789");
    let error = failed(subject.execute(update_of(&k, Update::Append(vec![0; VALUE_BYTES_MAX - 9].into()))));
    assert!(
        matches!(error, Error::ValueTooLarge { len_bytes, .. } if len_bytes == VALUE_BYTES_MAX as u64 + 1),
        "{error}"
    );
    expect_value(subject, &k, b"0123456789");
}
