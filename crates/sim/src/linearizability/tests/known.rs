//! What is right and what is wrong, one rule at a time.

use super::*;

fn right(entries: Vec<(u64, u64, Operation, Option<Reply>)>) {
    let history = history(entries);
    assert!(check(&history, STEPS).is_ok(), "{:?}", check(&history, STEPS));
}

#[track_caller]
fn wrong(entries: Vec<(u64, u64, Operation, Option<Reply>)>) -> String {
    violation(&history(entries))
}

#[track_caller]
fn after_crash(survives: Level, entries: Vec<(u64, u64, Operation, Option<Reply>)>) -> Result<Checked, Failure> {
    let mut history = history(entries);
    history.crash(100, survives);
    check(&history, STEPS)
}

#[test]
fn overlapping_operations_may_take_effect_in_either_order() {
    right(vec![(1, 6, put("k", "a"), done(1, false)), (2, 3, get("k"), absent()), (4, 5, get("k"), found("a", 1))]);
    right(vec![
        (1, 4, put("k", "a"), done(2, true)),
        (2, 3, put("k", "b"), done(1, false)),
        (5, 6, get("k"), found("a", 2)),
    ]);
    right(vec![
        (1, 2, put("n", "5"), done(1, false)),
        (3, 6, update("n", Update::Increment(10)), Some(Reply::Number { number: 16, version: 3 })),
        (4, 5, update("n", Update::Increment(1)), Some(Reply::Number { number: 6, version: 2 })),
        (7, 8, update("n", Update::Decrement(9)), Some(Reply::Number { number: 7, version: 4 })),
        (9, 10, get("n"), found("7 ", 4)),
        (11, 12, update("n", Update::Prepend(Bytes::from_static(b"x"))), done(5, true)),
        (13, 14, update("n", Update::Increment(1)), Some(Reply::Unmet(Unmet::NotANumber))),
        (15, 16, update("n", Update::Touch(Expiry::NEVER)), found("x7 ", 6)),
        (17, 18, delete("n"), done(7, true)),
        (19, 20, update("n", Update::Prepend(Bytes::from_static(b"x"))), Some(Reply::Unmet(Unmet::Absent))),
        (21, 22, delete("n"), done(0, false)),
    ]);
}

#[test]
fn an_operation_without_an_answer_may_have_happened_at_any_time_or_never() {
    right(vec![(1, 0, put("k", "a"), None), (2, 3, get("k"), absent()), (8, 9, get("k"), found("a", 7))]);
    right(vec![(1, 0, put("k", "a"), None), (2, 3, get("k"), absent()), (8, 9, get("k"), absent())]);
    let unknown = Some(Reply::Failed(Error::Unknown("")));
    right(vec![(1, 2, put("k", "a"), unknown), (3, 4, get("k"), absent()), (8, 9, get("k"), found("a", 7))]);
    wrong(vec![(2, 3, get("k"), found("a", 7)), (4, 0, put("k", "a"), None)]);
    let twice = vec![
        (1, 0, put("k", "a"), None),
        (2, 3, get("k"), found("a", 7)),
        (4, 5, delete("k"), done(8, true)),
        (6, 7, get("k"), found("a", 9)),
    ];
    wrong(twice);
    let refused = Some(Reply::Failed(Error::Busy));
    wrong(vec![(1, 2, put("k", "a"), refused), (3, 4, get("k"), found("a", 1))]);
}

#[test]
fn a_stale_read_is_found_and_explained() {
    let text = wrong(vec![
        (1, 2, put("k", "a"), done(1, false)),
        (3, 4, put("k", "b"), done(2, true)),
        (5, 6, get("k"), found("a", 1)),
        (7, 8, get("k"), found("b", 2)),
        (7, 9, put("other", "x"), done(3, false)),
    ]);
    let expected = "\
no order of operations explains what was answered about key \"k\"; 3 of 4 show it:
       1..2      client 1   put \"a\" (power_loss): done, version 1, was absent
       3..4      client 2   put \"b\" (power_loss): done, version 2, existed
       5..6      client 3   get: \"a\", version 1   <- finds no place
the longest order has 2 of them and ends with put \"a\" at 1, put \"b\" at 3; then \"k\" holds \"b\", version 2";
    assert_eq!(text, expected);
}

#[test]
fn a_read_that_goes_back_is_found() {
    wrong(vec![
        (1, 2, put("k", "a"), done(1, false)),
        (3, 9, put("k", "b"), done(2, true)),
        (4, 5, get("k"), found("b", 2)),
        (6, 7, get("k"), found("a", 1)),
    ]);
}

#[test]
fn a_lost_update_is_found() {
    let number = |number, version| Some(Reply::Number { number, version });
    wrong(vec![
        (1, 2, put("n", "0"), done(1, false)),
        (3, 5, update("n", Update::Increment(1)), number(1, 2)),
        (4, 6, update("n", Update::Increment(1)), number(1, 3)),
    ]);
    wrong(vec![
        (1, 2, put("k", "a"), done(1, false)),
        (3, 5, put_if("k", "b", Expect::Version(1)), done(2, true)),
        (4, 6, put_if("k", "c", Expect::Version(1)), done(3, true)),
    ]);
    wrong(vec![
        (3, 5, put_if("k", "b", Expect::Absent), done(2, false)),
        (4, 6, put_if("k", "c", Expect::Absent), done(3, false)),
    ]);
}

#[test]
fn a_condition_answers_what_holds() {
    let unmet = |unmet| Some(Reply::Unmet(unmet));
    right(vec![
        (1, 2, put_if("k", "a", Expect::Present), unmet(Unmet::Absent)),
        (3, 4, put_if("k", "a", Expect::Absent), done(1, false)),
        (5, 6, put_if("k", "b", Expect::Absent), unmet(Unmet::Present { version: 1 })),
        (7, 8, put_if("k", "b", Expect::Version(3)), unmet(Unmet::Version { found: 1 })),
        (9, 10, put_if("k", "b", Expect::Version(1)), done(2, true)),
    ]);
    wrong(vec![(1, 2, put("k", "a"), done(1, false)), (3, 4, delete("k"), done(0, false))]);
    wrong(vec![
        (1, 2, put("k", "a"), done(1, false)),
        (3, 4, put_if("k", "b", Expect::Absent), unmet(Unmet::Present { version: 2 })),
    ]);
}

#[test]
fn a_read_of_the_future_is_found() {
    wrong(vec![(1, 2, get("k"), found("a", 1)), (3, 4, put("k", "a"), done(1, false))]);
    wrong(vec![(1, 2, put("k", "a"), done(1, false)), (3, 4, get("k"), found("b", 1))]);
}

#[test]
fn a_resurrected_delete_is_found() {
    wrong(vec![
        (1, 2, put("k", "a"), done(1, false)),
        (3, 4, delete("k"), done(2, true)),
        (5, 6, get("k"), found("a", 1)),
    ]);
}

#[test]
fn a_version_that_does_not_grow_is_found() {
    wrong(vec![(1, 2, put("k", "a"), done(5, false)), (3, 4, put("k", "a"), done(5, true))]);
    wrong(vec![(1, 2, put("k", "a"), done(5, false)), (3, 4, get("k"), found("a", 6))]);
    wrong(vec![(1, 4, put("k", "a"), done(5, false)), (2, 3, put("k", "b"), done(6, false))]);
}

#[test]
fn a_split_batch_is_found() {
    let batch = |value| write(&[("a", Some(value)), ("b", Some(value))], Level::PowerLoss);
    let start = || vec![(1, 2, batch("1"), done(2, false)), (3, 8, batch("2"), done(4, true))];
    let with = |rest: Vec<(u64, u64, Operation, Option<Reply>)>| [start(), rest].concat();
    right(with(vec![(4, 5, get("a"), found("1", 1)), (6, 7, get("b"), found("2", 4))]));
    let text = wrong(with(vec![(4, 5, get("a"), found("2", 3)), (6, 7, get("b"), found("1", 2))]));
    assert!(text.contains("batch [a: put \"2\"; b: put \"2\"]"), "{text}");
    // Each key alone would be right.
    right(vec![
        (1, 2, put("a", "1"), done(1, false)),
        (1, 2, put("b", "1"), done(2, false)),
        (3, 8, put("a", "2"), done(3, true)),
        (3, 8, put("b", "2"), done(4, true)),
        (4, 5, get("a"), found("2", 3)),
        (6, 7, get("b"), found("1", 2)),
    ]);
}

#[test]
fn a_durable_write_lost_by_a_crash_is_found() {
    for survives in [Level::PowerLoss, Level::ProcessCrash] {
        let entries = |last| vec![(1, 2, put("k", "a"), done(1, false)), (101, 102, get("k"), last)];
        assert!(after_crash(survives, entries(found("a", 1))).is_ok());
        let text = after_crash(survives, entries(absent())).expect_err("it is lost").to_string();
        assert!(text.contains("100           crash"), "{text}");
    }
}

#[test]
fn a_power_cut_takes_a_suffix_of_what_was_not_durable() {
    let process = |value| write(&[("k", Some(value))], Level::ProcessCrash);
    let entries = |last| {
        vec![
            (1, 2, put("k", "a"), done(1, false)),
            (3, 4, process("b"), done(2, true)),
            (5, 6, process("c"), done(3, true)),
            (7, 8, get("k"), found("c", 3)),
            (101, 102, get("k"), last),
        ]
    };
    for (value, version) in [("a", 1), ("b", 2), ("c", 3)] {
        assert!(after_crash(Level::PowerLoss, entries(found(value, version))).is_ok(), "{value}");
        assert_eq!(after_crash(Level::ProcessCrash, entries(found(value, version))).is_ok(), value == "c");
    }
    assert!(after_crash(Level::PowerLoss, entries(absent())).is_err(), "the first was durable");
    // What came before a durable write is durable with it.
    let append = |text: &'static [u8]| update("k", Update::Append(Bytes::from_static(text)));
    let hole = |last| {
        vec![(1, 2, process("b"), done(1, false)), (3, 4, append(b"c"), done(2, true)), (101, 102, get("k"), last)]
    };
    assert!(after_crash(Level::PowerLoss, hole(found("bc", 2))).is_ok());
    assert!(after_crash(Level::PowerLoss, hole(found("b", 1))).is_err());
    assert!(after_crash(Level::PowerLoss, hole(absent())).is_err());
    // A version may be used again once its write is lost.
    let mut again = entries(found("b", 2));
    again.extend([(103, 104, put("k", "d"), done(3, true)), (105, 106, get("k"), found("d", 3))]);
    assert!(after_crash(Level::PowerLoss, again).is_ok());
}

#[test]
fn a_sync_makes_durable_what_was_acknowledged_before_it() {
    let process = |value| write(&[("k", Some(value))], Level::ProcessCrash);
    let entries = |asked, last| {
        vec![
            (1, 4, process("a"), done(1, false)),
            (asked, 7, Operation::Sync, done(0, false)),
            (101, 102, get("k"), last),
        ]
    };
    assert!(after_crash(Level::PowerLoss, entries(6, absent())).is_err());
    assert!(after_crash(Level::PowerLoss, entries(3, absent())).is_ok(), "it was not acknowledged yet");
    let mut late = entries(6, absent());
    late[1].1 = 103;
    assert!(after_crash(Level::PowerLoss, late).is_ok(), "the sync was not answered");
}

#[test]
fn what_a_get_showed_before_a_crash_was_durable() {
    for (level, lost) in [(Level::PowerLoss, false), (Level::ProcessCrash, true)] {
        let entries = |shown| {
            let operation = write(&[("k", Some("a"))], level);
            vec![(1, 0, operation, None), (2, 3, get("k"), shown), (101, 102, get("k"), absent())]
        };
        assert_eq!(after_crash(Level::PowerLoss, entries(found("a", 1))).is_ok(), lost);
        assert!(after_crash(Level::PowerLoss, entries(absent())).is_ok());
        assert!(after_crash(Level::ProcessCrash, entries(found("a", 1))).is_err());
    }
}

#[test]
fn a_batch_is_lost_as_a_whole_and_other_keys_lose_theirs_apart() {
    let batch = || write(&[("a", Some("1")), ("b", Some("1"))], Level::ProcessCrash);
    let single = |name| write(&[(name, Some("2"))], Level::ProcessCrash);
    let entries = |a, b| {
        vec![
            (1, 2, batch(), done(2, false)),
            (3, 4, single("a"), done(3, true)),
            (5, 6, single("b"), done(4, true)),
            (101, 102, get("a"), a),
            (103, 104, get("b"), b),
        ]
    };
    let (old, new) = (|version| found("1", version), |version| found("2", version));
    for (a, b) in [(new(3), new(4)), (old(1), new(4)), (new(3), old(2)), (old(1), old(2)), (absent(), absent())] {
        assert!(after_crash(Level::PowerLoss, entries(a, b)).is_ok());
    }
    for (a, b) in [(absent(), old(2)), (absent(), new(4)), (new(3), absent())] {
        assert!(after_crash(Level::PowerLoss, entries(a, b)).is_err());
    }
}

#[test]
fn what_was_under_way_at_a_crash_happens_before_it_or_never() {
    let entries =
        |first, second| vec![(1, 0, put("k", "a"), None), (101, 102, get("k"), first), (103, 104, get("k"), second)];
    assert!(after_crash(Level::ProcessCrash, entries(found("a", 1), found("a", 1))).is_ok());
    assert!(after_crash(Level::ProcessCrash, entries(absent(), absent())).is_ok());
    assert!(after_crash(Level::ProcessCrash, entries(absent(), found("a", 1))).is_err());
    // Two crashes in a row: the first need not make durable what it left, a power cut does.
    let mut history = history(vec![
        (1, 2, write(&[("k", Some("a"))], Level::ProcessCrash), done(1, false)),
        (101, 102, get("k"), found("a", 1)),
        (201, 202, get("k"), absent()),
    ]);
    history.crash(100, Level::ProcessCrash);
    history.crash(200, Level::PowerLoss);
    assert!(check(&history, STEPS).is_ok());
    let mut history = super::history(
        history
            .entries
            .into_iter()
            .map(|entry| (entry.invoked, entry.returned.unwrap_or(0), entry.operation, entry.reply))
            .collect(),
    );
    history.crash(100, Level::PowerLoss);
    history.crash(200, Level::PowerLoss);
    assert!(check(&history, STEPS).is_err());
}

#[test]
fn what_cannot_be_checked_is_refused_and_too_much_is_not_decided() {
    let range = Operation::DeleteRange {
        range: Box::new((std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)),
        level: Level::PowerLoss,
    };
    assert!(matches!(check(&history(vec![(1, 2, range, done(1, true))]), STEPS), Err(Failure::NotModelled(_))));
    let odd = history(vec![(1, 2, get("k"), Some(Reply::Number { number: 1, version: 1 }))]);
    assert!(matches!(check(&odd, STEPS), Err(Failure::Violation(_))), "an answer of another kind");
    // Twelve puts at the same time, then a value nobody wrote: every order has to be tried.
    let mut entries: Vec<_> =
        (0..12).map(|number| (number, 100, put("k", &format!("{number}")), done(0, true))).collect();
    entries[0].3 = done(0, false);
    entries.push((101, 102, get("k"), found("x", 0)));
    let history = history(entries);
    assert!(matches!(check(&history, 10_000), Err(Failure::Undecided { .. })));
    assert!(matches!(check(&history, STEPS), Err(Failure::Violation(_))));
}
