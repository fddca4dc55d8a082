//! Transactions: what they see, what they notice, and that their sums come out.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use stratakv::{Collection, Commit, End, Error, ErrorKind, Expect, Expiry, Level, Next, Options, PutOptions, Store};
use stratakv_base::random::Random;
use stratakv_integration::engine::Engine;
use stratakv_integration::place;

fn open(engine: Engine, path: &Path) -> Store {
    let options = engine.options().memory_bytes(96 << 20).level(Level::ProcessCrash);
    options.shards(if engine == Engine::Slab { 3 } else { 1 }).open(path).expect("the store opens")
}

fn text(collection: &Collection, key: &[u8]) -> Option<String> {
    let record = collection.get(key).expect("a get")?;
    Some(String::from_utf8_lossy(&record.to_bytes()).into_owned())
}

fn number(record: Option<stratakv::Record>) -> i64 {
    record.map_or(0, |record| String::from_utf8_lossy(&record.to_bytes()).parse().expect("digits"))
}

fn conflict(commit: Commit) -> Vec<u8> {
    match commit {
        Commit::Conflict { key: Some(key) } => key.user().to_vec(),
        other => panic!("a conflict is told with its key, not {other:?}"),
    }
}

fn done(commit: Commit) -> u64 {
    match commit {
        Commit::Done { version } => version,
        Commit::Conflict { key } => panic!("nobody else was there, but {key:?}"),
    }
}

#[test]
fn a_transaction_sees_its_own_writes_and_nobody_else_does() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let users = store.collection("users").expect("made");
        store.put(b"a", b"1").expect("a put");
        let mut txn = store.transaction();
        txn.put(&store, b"a", b"2").expect("kept");
        txn.put(&users, b"a", b"ada").expect("kept");
        txn.delete(&store, b"b").expect("kept");
        let seen = |txn: &mut stratakv::Transaction, collection: &Collection, key: &[u8]| {
            txn.get(collection, key).expect("a get").map(|record| record.to_bytes())
        };
        assert_eq!(seen(&mut txn, &store, b"a"), Some("2".into()));
        assert_eq!(seen(&mut txn, &users, b"a"), Some("ada".into()));
        txn.delete(&store, b"a").expect("kept");
        assert_eq!(seen(&mut txn, &store, b"a"), None);
        let flagged = PutOptions { flags: 7, expiry: Expiry::MAX, expect: Expect::Absent, ..PutOptions::default() };
        assert!(txn.put_with(&store, b"a", b"3", &flagged).expect("kept"), "it is absent here");
        assert!(!txn.put_with(&store, b"a", b"4", &flagged).expect("answered"), "and now it is not");
        let before = txn.fetch_update(&users, b"a", |_| Next::value("eve")).expect("kept");
        assert_eq!(before.map(|record| record.to_bytes()), Some("ada".into()));
        assert_eq!((text(&store, b"a"), text(&users, b"a")), (Some("1".into()), None), "nothing is done yet");
        assert!(done(txn.commit().expect("committed")) > 0);
        assert_eq!((text(&store, b"a"), text(&users, b"a")), (Some("3".into()), Some("eve".into())));
        let record = store.get(b"a").expect("a get").expect("it is there");
        assert_eq!((record.flags, record.expiry), (7, Expiry::MAX));
        let mut dropped = store.transaction();
        dropped.put(&store, b"a", b"never").expect("kept");
        drop(dropped);
        assert_eq!(text(&store, b"a"), Some("3".into()));
        assert_eq!(done(store.transaction().commit().expect("nothing to do")), 0);
    }
}

#[test]
fn what_others_change_meanwhile_is_a_conflict_with_its_key() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let reads: [&[u8]; 4] = [b"there", b"gone", b"read", b"absent"];
        for (changed, delete) in [(b"there", false), (b"there", true)] {
            store.put(b"there", b"1").expect("a put");
            let mut txn = store.transaction();
            txn.get(&store, b"there").expect("a get");
            txn.put(&store, b"there", b"2").expect("kept");
            if delete {
                store.delete(changed).expect("deleted");
            } else {
                store.put(changed, b"3").expect("a put");
            }
            assert_eq!(conflict(txn.commit().expect("answered")), b"there");
        }
        // Keys that are only read, present and absent, with writes of other keys and without.
        for changed in [&b"read"[..], b"absent"] {
            for writes in [true, false] {
                store.put(b"read", b"1").expect("a put");
                store.delete(b"absent").expect("deleted");
                let mut txn = store.transaction();
                for key in reads {
                    txn.get(&store, key).expect("a get");
                }
                if writes {
                    txn.put(&store, b"written", b"x").expect("kept");
                }
                store.put(changed, b"2").expect("a put");
                assert_eq!(conflict(txn.commit().expect("answered")), changed);
                assert_eq!(text(&store, b"written"), None, "nothing was done");
            }
        }
        // Blind writes meet no conflict; a read that still holds neither.
        let mut txn = store.transaction();
        txn.put(&store, b"read", b"blind").expect("kept");
        txn.get(&store, b"there").expect("a get");
        store.put(b"read", b"other").expect("a put");
        done(txn.commit().expect("committed"));
        assert_eq!(text(&store, b"read"), Some("blind".into()));
    }
}

/// Write skew: each of two reads both and takes one away. Under snapshots both would succeed.
#[test]
fn two_that_read_what_the_other_writes_are_not_both_done() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        for _ in 0..10 {
            store.put(b"ada is on call", b"1").expect("a put");
            store.put(b"eve is on call", b"1").expect("a put");
            let mut one = store.transaction();
            let mut other = store.transaction();
            for txn in [&mut one, &mut other] {
                for key in [b"ada is on call", b"eve is on call"] {
                    assert!(txn.get(&store, key).expect("a get").is_some());
                }
            }
            one.delete(&store, b"ada is on call").expect("kept");
            other.delete(&store, b"eve is on call").expect("kept");
            done(one.commit().expect("committed"));
            assert_eq!(conflict(other.commit().expect("answered")), b"ada is on call");
        }
    }
}

#[test]
fn money_moves_and_its_sum_stays() {
    Engine::ALL.iter().for_each(|engine| transfer(*engine, false));
}

#[test]
fn money_moves_and_a_list_tells_in_which_order() {
    Engine::ALL.iter().for_each(|engine| transfer(*engine, true));
}

fn transfer(engine: Engine, logged: bool) {
    const ACCOUNTS: u64 = 5;
    let place = place::directory();
    let path = place.path().join("data");
    let store = open(engine, &path);
    let accounts = store.collection("accounts").expect("made");
    let (accounts, log) = (&accounts, &store.list("log").expect("made"));
    let key = |number: u64| number.to_be_bytes();
    for number in 0..ACCOUNTS {
        accounts.put(key(number), b"100").expect("a put");
    }
    let transfers = AtomicU32::new(0);
    thread::scope(|scope| {
        for thread in 0..3 {
            let (store, transfers) = (&store, &transfers);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..40 {
                    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
                    let amount = random.below(30) as i64;
                    let moved = store.transact(|txn| -> Result<bool, Error> {
                        let left = number(txn.get(accounts, key(from))?) - amount;
                        if left < 0 || from == to {
                            return Ok(false);
                        }
                        let there = number(txn.get(accounts, key(to))?) + amount;
                        txn.put(accounts, key(from), left.to_string().as_bytes())?;
                        txn.put(accounts, key(to), there.to_string().as_bytes())?;
                        if logged {
                            txn.push_back(log, format!("{from} {to} {amount}").as_bytes())?;
                        }
                        Ok(true)
                    });
                    transfers.fetch_add(u32::from(moved.expect("done in the end")), Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..100 {
                let sum = store.transact(|txn| -> Result<i64, Error> {
                    (0..ACCOUNTS).map(|account| Ok(number(txn.get(accounts, key(account))?))).sum()
                });
                assert_eq!(sum.expect("read"), 100 * ACCOUNTS as i64);
            }
        });
    });
    let mut model: BTreeMap<u64, i64> = (0..ACCOUNTS).map(|number| (number, 100)).collect();
    let mut entries = 0;
    for entry in log.iter() {
        let entry = String::from_utf8_lossy(&entry.expect("an entry").value).into_owned();
        let numbers: Vec<i64> = entry.split(' ').map(|word| word.parse().expect("a number")).collect();
        *model.entry(numbers[0] as u64).or_default() -= numbers[2];
        *model.entry(numbers[1] as u64).or_default() += numbers[2];
        assert!(model.values().all(|amount| *amount >= 0), "the log is in the order of the transfers");
        entries += 1;
    }
    let left: BTreeMap<u64, i64> =
        (0..ACCOUNTS).map(|account| (account, number(accounts.get(key(account)).expect("a get")))).collect();
    assert_eq!(left.values().sum::<i64>(), 100 * ACCOUNTS as i64);
    if logged {
        assert_eq!((entries, left), (transfers.load(Ordering::Relaxed), model));
    }
}

#[test]
fn lists_within_a_transaction_are_as_it_made_them() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let (list, other) = (store.list("l").expect("made"), store.list("other").expect("made"));
        list.push_all(End::Back, &["1", "2", "3"]).expect("pushed");
        let mut txn = store.transaction();
        assert_eq!(txn.pop_front(&list).expect("popped"), Some("1".into()));
        assert_eq!(txn.pop_front(&list).expect("popped"), Some("2".into()));
        txn.push_front(&list, b"2b").expect("kept");
        txn.push_back(&list, b"4").expect("kept");
        assert_eq!(txn.pop_back(&list).expect("popped"), Some("4".into()));
        assert_eq!(txn.peek(&list, End::Back).expect("seen"), Some("3".into()));
        assert_eq!(txn.pop_back(&list).expect("popped"), Some("3".into()));
        assert_eq!(txn.pop_back(&list).expect("popped"), Some("2b".into()));
        assert_eq!(txn.pop_front(&list).expect("popped"), None);
        for value in ["a", "b"] {
            txn.push_back(&list, value.as_bytes()).expect("kept");
            txn.push_front(&other, value.as_bytes()).expect("kept");
        }
        assert_eq!(list.len().expect("counted"), 3);
        done(txn.commit().expect("committed"));
        let all = |list: &stratakv::List| list.iter().map(|one| one.expect("one").value).collect::<Vec<_>>();
        assert_eq!((all(&list), all(&other)), (vec!["a".into(), "b".into()], vec!["b".into(), "a".into()]));
    }
}

#[test]
fn another_end_of_a_list_is_a_conflict() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let store = open(engine, &place.path().join("data"));
        let list = store.list("l").expect("made");
        type Meanwhile = fn(&stratakv::List);
        let meanwhile: [(&str, bool, Meanwhile); 5] = [
            ("its element is taken", true, |list| drop(list.pop_front().expect("popped"))),
            ("another comes before it", true, |list| drop(list.push_front(b"0").expect("pushed"))),
            ("the other end changes", false, |list| drop(list.push_back(b"9").expect("pushed"))),
            ("it is taken and put back", true, |list| {
                let value = list.pop_front().expect("popped").expect("there is one");
                list.push_front(&value).expect("pushed");
            }),
            ("it is emptied", true, |list| drop(list.pop_many(End::Back, 100).expect("popped"))),
        ];
        for (what, conflicts, change) in meanwhile {
            list.push_all(End::Back, &["1", "2", "3"]).expect("pushed");
            let mut txn = store.transaction();
            let popped = txn.pop_front(&list).expect("popped");
            assert!(popped.is_some());
            change(&list);
            let commit = txn.commit().expect("answered");
            assert_eq!(matches!(commit, Commit::Conflict { key: Some(_) }), conflicts, "{what}: {commit:?}");
            list.pop_many(End::Front, 100).expect("popped");
        }
        let mut txn = store.transaction();
        assert_eq!(txn.pop_back(&list).expect("answered"), None);
        txn.put(&store, b"was empty", b"yes").expect("kept");
        list.push_back(b"x").expect("pushed");
        assert!(matches!(txn.commit(), Ok(Commit::Conflict { .. })));
        assert_eq!(text(&store, b"was empty"), None);
    }
}

#[test]
fn errors_of_a_transaction() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let (store, other) = (open(engine, &place.path().join("data")), open(engine, &place.path().join("other")));
        let elsewhere = other.collection("c").expect("made");
        let mut txn = store.transaction();
        assert_eq!(txn.put(&elsewhere, b"k", b"v").expect_err("two stores").kind(), ErrorKind::Usage);
        assert_eq!(txn.get(&store, b"").expect_err("a bad key").kind(), ErrorKind::Usage);
        for key in 0..3 {
            txn.put(&store, [key], vec![0; 30 << 20]).expect("kept");
        }
        let error = txn.commit().expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("in parts"), "{error}");
        // Always too late: told, with the key, in the end.
        let mut runs = 0_u32;
        let error = store.transact(|txn| -> Result<(), Error> {
            txn.get(&store, b"hot")?;
            txn.put(&store, b"mine", b"x")?;
            runs += 1;
            store.put(b"hot", runs.to_string().as_bytes()).map(drop)
        });
        let error = error.expect_err("nobody can win that");
        assert_eq!((error.kind(), runs), (ErrorKind::Busy, 100));
        assert!(error.to_string().contains("`hot`"), "{error}");
        assert_eq!(text(&store, b"mine"), None);
        // An error of the body is returned, unless what it saw did not fit together.
        let mut runs = 0;
        let failed = store.transact(|txn| -> Result<(), Error> {
            txn.get(&store, b"hot")?;
            txn.get(&store, b"mine")?;
            runs += 1;
            if runs == 1 {
                store.put(b"hot", b"changed")?;
            }
            Err(Error::Option("the body's own".into()))
        });
        assert!(failed.is_err_and(|error| error.to_string() == "the body's own"));
        assert_eq!(runs, 2);
    }
}

#[test]
fn a_store_may_be_read_only() {
    for engine in Engine::ALL.iter().copied() {
        let place = place::directory();
        let path = place.path().join("data");
        let store = open(engine, &path);
        store.put(b"a", b"1").expect("a put");
        store.put(b"b", b"2").expect("a put");
        store.close().expect("closed");
        let store = Options::new().read_only(true).create(false).memory_bytes(96 << 20).open(&path).expect("opened");
        let sum = store.transact(|txn| -> Result<i64, Error> {
            Ok(number(txn.get(&store, b"a")?) + number(txn.get(&store, b"b")?))
        });
        assert_eq!(sum.expect("read"), 3);
        let put = store.transact(|txn| txn.put(&store, b"a", b"9"));
        assert!(put.is_err_and(|error| error.to_string().contains("for reading only")));
    }
}
