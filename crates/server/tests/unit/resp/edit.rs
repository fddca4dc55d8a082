//! What each rule makes of a record, and says.

use super::*;

const LATER: Expiry = Expiry(2_000_000_000_000);
const MAX: usize = 100;

/// The record after an edit, `None` if it stays, and the reply.
fn edited(edit: Edit, old: &[u8], expiry: Expiry) -> (Option<(String, Expiry, Option<u32>)>, String) {
    let rule = EditRule::new(edit, MAX);
    let changed = rule.apply(&Bytes::copy_from_slice(old), 7, expiry).ok();
    let answer = rule.answer(changed.is_some()).escape_ascii().to_string().replace("\\r\\n", "|");
    let shown = |new: UpdatedRecord| (new.value.escape_ascii().to_string(), Expiry(new.expiry), new.flags);
    (changed.map(shown), answer)
}

/// The value after an edit of a record that never ends, whose flags stay.
fn value(edit: Edit, old: &str) -> (Option<String>, String) {
    let (changed, answer) = edited(edit, old.as_bytes(), LATER);
    let value = changed.map(|(value, expiry, flags)| {
        assert_eq!((expiry, flags), (LATER, None), "expiry and flags stay");
        value
    });
    (value, answer)
}

fn made(new: &str, answer: &str) -> (Option<String>, String) {
    (Some(new.to_owned()), answer.to_owned())
}

fn refused(answer: &str) -> (Option<String>, String) {
    (None, answer.to_owned())
}

#[test]
fn numbers_are_counted_as_redis_does() {
    assert_eq!(value(Edit::Add(5), "10"), made("15", ":15|"));
    assert_eq!(value(Edit::Add(-20), "10"), made("-10", ":-10|"));
    assert_eq!(value(Edit::Add(0), "9223372036854775807"), made("9223372036854775807", ":9223372036854775807|"));
    for (delta, old) in [(1, i64::MAX), (-1, i64::MIN), (i64::MIN, -1)] {
        let refusal = refused("-ERR increment or decrement would overflow|");
        assert_eq!(value(Edit::Add(delta), &old.to_string()), refusal);
    }
    for old in ["", " 1", "1 ", "01", "abc", "1.5", "9223372036854775808"] {
        let refusal = refused("-ERR value is not an integer or out of range|");
        assert_eq!(value(Edit::Add(1), old), refusal, "{old:?}");
    }
    assert_eq!(value(Edit::AddFloat("0.1".into()), "10.50"), made("10.6", "$4|10.6|"));
    assert_eq!(value(Edit::AddFloat("1".into()), "a"), refused("-ERR value is not a valid float|"));
    let infinite = refused("-ERR increment would produce NaN or Infinity|");
    assert_eq!(value(Edit::AddFloat("1.7e308".into()), "1.7e308"), infinite);
}

#[test]
fn bytes_are_joined_and_overwritten_within_the_limit() {
    assert_eq!(value(Edit::Append("cd".into()), "ab"), made("abcd", ":4|"));
    assert_eq!(value(Edit::Append("".into()), "ab"), refused(":2|"), "nothing to write");
    let over = |bytes| {
        let limit = "and clients may store 100 (--item-bytes-max)";
        refused(&format!("-ERR string exceeds maximum allowed size: {bytes} bytes, {limit}|"))
    };
    assert_eq!(value(Edit::Append(vec![b'x'; 99].into()), "ab"), over(101));
    let set = |offset, text: &'static str| Edit::SetRange { offset, value: text.into() };
    assert_eq!(value(set(6, "Redis"), "Hello World"), made("Hello Redis", ":11|"));
    assert_eq!(value(set(3, "x"), "a"), made("a\\x00\\x00x", ":4|"));
    assert_eq!(value(set(1, ""), "abc"), refused(":3|"));
    assert_eq!(value(set(100, "x"), "a"), over(101));
    assert_eq!(value(set(usize::MAX, "x"), "a"), over(usize::MAX));
}

#[test]
fn a_bit_is_set_or_cleared_and_the_old_one_told() {
    let bit = |place, is_set| Edit::SetBit { place, is_set };
    assert_eq!(value(bit(7, true), ""), made("\\x01", ":0|"));
    assert_eq!(value(bit(1, false), "a"), made("!", ":1|"));
    assert_eq!(value(bit(16, true), "a"), made("a\\x00\\x80", ":0|"));
    assert_eq!(value(bit(799, false), "a").0.unwrap().matches("x00").count(), 99);
    assert!(value(bit(800, true), "a").1.starts_with("-ERR string exceeds"));
    let rule = EditRule::new(bit(9, true), MAX);
    assert_eq!(rule.absent(), Ok(Some((Bytes::from_static(b"\x00\x40"), Expiry::NEVER))));
    assert_eq!(rule.answer_of_absent(true, Version::Resp2), b":0\r\n");
}

#[test]
fn a_new_value_takes_the_place_of_the_old_one() {
    let replace = |expiry, wants_old| Edit::Replace { value: "new".into(), expiry, wants_old, only_if_present: false };
    let new = |expiry| Some(("new".to_owned(), expiry, Some(0)));
    assert_eq!(edited(replace(None, false), b"old", LATER), (new(LATER), "+OK|".into()));
    assert_eq!(edited(replace(Some(Expiry::NEVER), true), b"old", LATER), (new(Expiry::NEVER), "$3|old|".into()));
    let long = [b'x'; MAX + 1];
    let (changed, answer) = edited(replace(None, true), &long, LATER);
    assert!(changed.is_none() && answer.starts_with("-ERR string exceeds"), "{answer}");
    assert!(edited(replace(None, false), &long, LATER).0.is_some(), "it is not told");
    let (changed, answer) = edited(Edit::Remove, b"old", LATER);
    let (value, expiry, _) = changed.unwrap();
    assert!(value.is_empty() && expiry.is_past(stratakv_base::Wall(1)));
    assert_eq!(
        (answer.as_str(), edited(Edit::Make { value: "new".into(), expiry: LATER }, b"old", LATER)),
        ("$3|old|", (None, "$3|old|".into()))
    );
}

#[test]
fn an_expiry_is_set_where_its_condition_holds() {
    let sooner = Expiry(LATER.0 - 1);
    let never = Expiry::NEVER;
    let (nx, xx) =
        (ExpireIf { has_none: true, ..ExpireIf::default() }, ExpireIf { has_one: true, ..ExpireIf::default() });
    let gt = ExpireIf { is_later: true, ..ExpireIf::default() };
    let lt = ExpireIf { is_earlier: true, ..ExpireIf::default() };
    for (only_if, old, new, holds) in [
        (nx, never, LATER, true),
        (nx, sooner, LATER, false),
        (xx, never, LATER, false),
        (xx, sooner, LATER, true),
        (gt, sooner, LATER, true),
        (gt, LATER, sooner, false),
        (gt, LATER, LATER, false),
        (gt, never, LATER, false),
        (lt, LATER, sooner, true),
        (lt, sooner, LATER, false),
        (lt, never, LATER, true),
    ] {
        let (changed, answer) = edited(Edit::Expire { expiry: new, only_if }, b"v", old);
        let expected = holds.then(|| ("v".to_owned(), new, None));
        assert_eq!((changed, answer), (expected, format!(":{}|", u8::from(holds))), "{only_if:?} {old:?}");
    }
    assert_eq!(edited(Edit::Persist, b"v", LATER), (Some(("v".into(), never, None)), ":1|".into()));
    assert_eq!(edited(Edit::Persist, b"v", never), (None, ":0|".into()));
}

#[test]
fn where_there_is_no_record_one_is_made_or_not() {
    let made = |edit: Edit| {
        let rule = EditRule::new(edit, MAX);
        let made = rule.create().map(|made| made.value.escape_ascii().to_string());
        let answer = rule.answer_of_absent(made.is_ok(), Version::Resp2).escape_ascii().to_string();
        (made, answer.replace("\\r\\n", "|"))
    };
    let some = |value: &str, answer: &str| (Ok(value.to_owned()), answer.to_owned());
    let none = |answer: &str| (Err(UpdateError::Unmet(Unmet::Absent)), answer.to_owned());
    let replace =
        |wants_old, only_if_present| Edit::Replace { value: "v".into(), expiry: None, wants_old, only_if_present };
    assert_eq!(made(replace(false, false)), some("v", "+OK|"));
    assert_eq!(made(replace(true, false)), some("v", "$-1|"));
    assert_eq!(made(replace(true, true)), none("$-1|"));
    assert_eq!(made(Edit::Remove), none("$-1|"));
    assert_eq!(made(Edit::Append("ab".into())), some("ab", ":2|"));
    assert_eq!(made(Edit::SetRange { offset: 2, value: "x".into() }), some("\\x00\\x00x", ":3|"));
    assert_eq!(made(Edit::SetRange { offset: 2, value: "".into() }), none(":0|"));
    let (refused, answer) = made(Edit::SetRange { offset: 100, value: "x".into() });
    assert!(refused.is_err() && answer.starts_with("-ERR string exceeds"), "{answer}");
    assert_eq!(made(Edit::Make { value: "v".into(), expiry: LATER }), some("v", "$-1|"));
    assert_eq!(made(Edit::Add(-3)), some("-3", ":-3|"));
    assert_eq!(made(Edit::AddFloat("1.50".into())), some("1.5", "$3|1.5|"));
    let expire = Edit::Expire { expiry: LATER, only_if: ExpireIf::default() };
    assert_eq!((made(expire), made(Edit::Persist)), (none(":0|"), none(":0|")));
}
