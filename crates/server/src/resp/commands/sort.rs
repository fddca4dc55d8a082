//! SORT: the elements of a list, set or sorted set in order. There are no patterns with `*`, which
//! would read keys that the command does not name.

use std::borrow::Cow;

use stratakv_base::Expiry;
use stratakv_protocol::resp::{encode, number};
use stratakv_structures::{Kind, List};

use super::super::arguments::{Arguments, RequestRefusal, SYNTAX};
use super::super::forms::{ElementBytes, ListForm, SetForm, SortedSetForm};
use super::super::records::{Call, Records, StoredRecord, check_kind, reply_too_long, store};

type Done = Result<(), RequestRefusal>;

const NO_PATTERNS: RequestRefusal = Cow::Borrowed(
    "ERR BY and GET of SORT take no pattern with `*` here: read the other keys with MGET or HGET, and sort in the client",
);
const NOT_A_NUMBER: RequestRefusal = Cow::Borrowed("ERR One or more scores can't be converted into double");
/// Bytes that an element takes beside its own in a list that is made.
const ELEMENT_BYTES: usize = 16;

/// What GET tells of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// `GET #`, and where there is no GET.
    Element,
    /// The value of a pattern without `*`: there is none.
    Nothing,
}

/// What SORT says beside its key.
#[derive(Debug, Default)]
struct SortOptions {
    is_descending: bool,
    is_alphabetic: bool,
    /// BY a pattern without `*`.
    keeps_order: bool,
    /// The first one, and how many; below zero: all.
    limit: Option<(i64, i64)>,
    told: Vec<Told>,
    /// Where the key stands that gets the result.
    stores_at: Option<usize>,
}

impl SortOptions {
    fn read(a: &Arguments<'_>) -> Result<SortOptions, RequestRefusal> {
        let (mut options, mut at) = (SortOptions::default(), 2);
        while at < a.len() {
            let has = |more: usize| at + more < a.len();
            match () {
                () if a.is(at, "ASC") => options.is_descending = false,
                () if a.is(at, "DESC") => options.is_descending = true,
                () if a.is(at, "ALPHA") => options.is_alphabetic = true,
                () if a.is(at, "LIMIT") && has(2) => {
                    options.limit = Some((a.integer(at + 1)?, a.integer(at + 2)?));
                    at += 2;
                }
                () if a.is(at, "STORE") && has(1) && a.is(0, "SORT") => {
                    options.stores_at = Some(at + 1);
                    at += 1;
                }
                () if (a.is(at, "BY") || a.is(at, "GET")) && has(1) => {
                    let pattern = a.get(at + 1);
                    match a.is(at, "BY") {
                        _ if pattern.contains(&b'*') => return Err(NO_PATTERNS),
                        true => options.keeps_order = true,
                        false if pattern == b"#" => options.told.push(Told::Element),
                        false => options.told.push(Told::Nothing),
                    }
                    at += 1;
                }
                () => return Err(Cow::Borrowed(SYNTAX)),
            }
            at += 1;
        }
        Ok(options)
    }

    /// Which of so many elements are told.
    fn places(&self, len: usize) -> std::ops::Range<usize> {
        let Some((first, count)) = self.limit else { return 0..len };
        let bounded = |number: i64| usize::try_from(number).unwrap_or(0).min(len);
        let first = bounded(first);
        let count = if count < 0 { len } else { bounded(count) };
        first..(first + count).min(len)
    }
}

/// Where the arguments name the key that gets the result, if they do.
pub(crate) fn stored_at(a: &Arguments<'_>) -> Option<usize> {
    SortOptions::read(a).ok()?.stores_at
}

/// The elements of a structure in its own order, those of a sorted set by score.
fn elements<'a>(
    (records, key): (&dyn Records, &[u8]),
    record: &'a StoredRecord,
) -> Result<Vec<ElementBytes<'a>>, RequestRefusal> {
    match record.kind() {
        Kind::List => {
            let list = ListForm::of(Some(record))?;
            list.range((records, key), 0..list.len())
        }
        Kind::Set => SetForm::of(Some(record))?.members((records, key)),
        Kind::SortedSet => {
            let set = SortedSetForm::of(Some(record))?;
            let entries = set.range((records, key), 0..set.len())?;
            Ok(entries.into_iter().map(|(member, _)| member).collect())
        }
        // Says what is wrong: the type, or damage.
        _ => check_kind(record.flags, &record.value, Kind::List).map(|()| Vec::new()),
    }
}

/// The number that an element is: blanks may come before it, and nothing is 0, as C reads it.
fn weight(element: &[u8]) -> Result<f64, RequestRefusal> {
    match element.trim_ascii_start() {
        b"" if element.is_empty() => Ok(0.0),
        digits => number::double(digits).ok_or(NOT_A_NUMBER),
    }
}

/// Puts elements in order. What has the same number is in the order of its bytes.
fn sorted(elements: Vec<ElementBytes<'_>>, is_alphabetic: bool) -> Result<Vec<ElementBytes<'_>>, RequestRefusal> {
    let mut elements = elements;
    if is_alphabetic {
        elements.sort_unstable();
        return Ok(elements);
    }
    let weighted = elements.into_iter().map(|element| Ok((weight(&element)?, element)));
    let mut weighted = weighted.collect::<Result<Vec<(f64, ElementBytes<'_>)>, RequestRefusal>>()?;
    // No number is NaN; the two zeros are equal.
    weighted.sort_unstable_by(|(one, first), (other, second)| {
        one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal).then_with(|| first.cmp(second))
    });
    Ok(weighted.into_iter().map(|(_, element)| element).collect())
}

/// SORT and SORT_RO.
pub(crate) fn sort(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let options = SortOptions::read(&call.a)?;
    let key = call.a.get(1);
    let record = records.get(key)?;
    let kind = record.as_ref().map(StoredRecord::kind);
    let mut all = match &record {
        Some(record) => elements((records, key), record)?,
        None => Vec::new(),
    };
    // A stored result is the same whatever order a set has inside.
    let is_stored_set = kind == Some(Kind::Set) && options.stores_at.is_some();
    let sorts = !options.keeps_order || is_stored_set;
    if sorts {
        all = sorted(all, options.is_alphabetic || options.keeps_order)?;
    }
    if options.is_descending && (sorts || kind != Some(Kind::Set)) {
        all.reverse();
    }
    let chosen = all.get(options.places(all.len())).unwrap_or_default();
    let told: &[Told] = if options.told.is_empty() { &[Told::Element] } else { &options.told };
    let bytes: usize = chosen.iter().map(|element| element.len() + ELEMENT_BYTES).sum();
    // Once they are no more than was read.
    if bytes.saturating_mul(told.len() - 1) > call.reply_bytes_max {
        return Err(reply_too_long(call));
    }
    let results = chosen.iter().flat_map(|element| told.iter().map(move |told| (element, *told)));
    let Some(stores_at) = options.stores_at else {
        encode::array(out, chosen.len() * told.len());
        results.for_each(|(element, told)| match told {
            Told::Element => encode::bulk(out, element),
            Told::Nothing => encode::null(out, call.version),
        });
        return Ok(());
    };
    let elements = results.map(|(element, told)| if told == Told::Element { &element[..] } else { b"" });
    let list = List { elements: elements.collect() };
    store(call, records, call.a.get(stores_at), (list.encode(usize::MAX), Expiry::NEVER))?;
    encode::integer(out, list.elements.len() as i64);
    Ok(())
}
