//! Elements by lot: which ones comes of the call's seed.

use std::borrow::Cow;
use std::collections::HashSet;

use stratakv_protocol::resp::number;

use super::super::arguments::{NOT_AN_INTEGER, RequestRefusal};
use super::super::records::{Call, Records};
use super::super::session::mixed;

/// Bytes of a reply that each element has at least.
const ELEMENT_BYTES_MIN: usize = 6;
/// Most elements of one command: it draws, sorts and tells them without a pause for others.
const ELEMENTS_MAX: usize = 1 << 17;

/// One place of so many; `None`: there is none.
pub(in crate::resp) fn any(len: usize, seed: u64) -> Option<usize> {
    usize::try_from(mixed(seed).checked_rem(len as u64)?).ok()
}

/// How many elements a command asks for.
///
/// # Errors
/// It is no number, or the one whose negative there is not.
pub(super) fn count(text: &[u8]) -> Result<i64, RequestRefusal> {
    match number::integer(text) {
        None => Err(Cow::Borrowed(NOT_AN_INTEGER)),
        Some(i64::MIN) => {
            Err(Cow::Owned(format!("ERR value is out of range, value must between {} and {}", -i64::MAX, i64::MAX)))
        }
        Some(count) => Ok(count),
    }
}

/// Places of so many elements: `count` different ones, or all; below zero as many as that, and one
/// may come often.
///
/// # Errors
/// The reply would be longer than a value may be.
pub(super) fn places(
    call: &Call<'_>,
    records: &dyn Records,
    (len, count): (usize, i64),
) -> Result<Vec<usize>, RequestRefusal> {
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let mut seed = call.seed;
    let mut draw = |below: usize| {
        seed = mixed(seed);
        any(below, seed).unwrap_or_default()
    };
    let told = if count < 0 { wanted } else { wanted.min(len) };
    if told > ELEMENTS_MAX && len > 0 {
        return Err(Cow::Owned(format!(
            "ERR {told} elements are more than the {ELEMENTS_MAX} that a command may draw: ask for less"
        )));
    }
    if told > call.reply_bytes_max.max(call.value_bytes_max) / ELEMENT_BYTES_MIN && len > 0 {
        records.needs_room();
        return Err(Cow::Owned(format!(
            "ERR {told} elements have more than the {} bytes that a reply may have: ask for less",
            call.reply_bytes_max
        )));
    }
    if count < 0 && len > 0 {
        return Ok((0..wanted).map(|_| draw(len)).collect());
    }
    if told < len / 2 {
        // Most draws meet no other.
        let mut seen = HashSet::with_capacity(told);
        let mut places = Vec::with_capacity(told);
        while places.len() < told {
            let place = draw(len);
            places.extend(seen.insert(place).then_some(place));
        }
        return Ok(places);
    }
    let mut all: Vec<usize> = (0..len).collect();
    if wanted < len {
        // The front of a shuffled deck.
        (0..wanted).for_each(|place| all.swap(place, place + draw(len - place)));
        all.truncate(wanted);
    }
    Ok(all)
}
