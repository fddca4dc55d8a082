//! Sets: commands of several keys.

use std::borrow::Cow;

use stratakv_base::Expiry;
use stratakv_protocol::resp::encode;
use stratakv_structures::Set;

use super::super::arguments::{RequestRefusal, SYNTAX};
use super::super::forms::SetForm;
use super::super::records::{Call, Records, StoredRecord, store};
use super::counts;
use super::sets::{expiry, parsed, record, whole_record, write_set};

type Done = Result<(), RequestRefusal>;

pub(crate) fn smove(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (source, destination, member) = (call.a.get(1), call.a.get(2), call.a.get(3));
    let Some(from) = record(records, source)? else {
        encode::integer(out, 0);
        return Ok(());
    };
    let to = record(records, destination)?;
    let mut from_set = SetForm::of(Some(&from))?;
    let is_member = from_set.contain((records, source), &[member])?.contains(&true);
    if source == destination || !is_member {
        encode::integer(out, i64::from(is_member));
        return Ok(());
    }
    let mut to_set = SetForm::of(to.as_ref())?;
    from_set.remove_all((records, source), &[member])?;
    // A destination that has it stays as it is, for those who watch it too.
    if to_set.insert_all((records, destination), &[member])? > 0 {
        to_set.store(call, (records, destination), expiry(to.as_ref()))?;
    }
    from_set.store(call, (records, source), expiry(Some(&from)))?;
    encode::integer(out, 1);
    Ok(())
}

/// How sets become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combination {
    Union,
    Intersection,
    Difference,
}

/// Gives the combined members of the sets of these keys to `then`.
fn combined<T>(
    records: &dyn Records,
    keys: impl Iterator<Item = Vec<u8>>,
    combination: Combination,
    then: impl FnOnce(&Set<'_>) -> Result<T, RequestRefusal>,
) -> Result<T, RequestRefusal> {
    let sources: Vec<Option<StoredRecord>> = keys.map(|key| whole_record(records, &key)).collect::<Result<_, _>>()?;
    let mut sources = sources.iter().map(|source| parsed(source.as_ref()));
    let mut all = sources.next().unwrap_or(Ok(Set::default()))?;
    for source in sources {
        let source = source?;
        match combination {
            Combination::Union => _ = all.insert_all(source.iter()),
            Combination::Intersection => all.intersect(&source),
            Combination::Difference => _ = all.remove_all(source.iter()),
        }
    }
    then(&all)
}

fn combine(call: &Call<'_>, records: &dyn Records, combination: Combination, out: &mut Vec<u8>) -> Done {
    let keys = call.a.from(1).map(<[u8]>::to_vec);
    combined(records, keys, combination, |set| write_set(call, set, out))
}

fn combine_and_store(call: &Call<'_>, records: &mut dyn Records, combination: Combination, out: &mut Vec<u8>) -> Done {
    let keys = call.a.from(2).map(<[u8]>::to_vec);
    let encode_set = |set: &Set<'_>| Ok((set.len(), set.encode(usize::MAX)));
    let (members, encoded) = combined(records, keys, combination, encode_set)?;
    store(call, records, call.a.get(1), (encoded, Expiry::NEVER))?;
    encode::integer(out, members as i64);
    Ok(())
}

pub(crate) fn sunion(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine(call, records, Combination::Union, out)
}

pub(crate) fn sinter(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine(call, records, Combination::Intersection, out)
}

pub(crate) fn sdiff(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine(call, records, Combination::Difference, out)
}

pub(crate) fn sunionstore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine_and_store(call, records, Combination::Union, out)
}

pub(crate) fn sinterstore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine_and_store(call, records, Combination::Intersection, out)
}

pub(crate) fn sdiffstore(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    combine_and_store(call, records, Combination::Difference, out)
}

pub(crate) fn sintercard(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let keys = counts::numbered_keys(call, 1, "ERR Number of keys can't be greater than number of args")?;
    let limit = match call.a.len() - keys.end {
        0 => 0,
        2 if call.a.is(keys.end, "LIMIT") => {
            counts::from_zero(call.a.get(keys.end + 1), "ERR LIMIT can't be negative")?
        }
        _ => return Err(Cow::Borrowed(SYNTAX)),
    };
    let keys = keys.map(|at| call.a.get(at).to_vec());
    let members = combined(records, keys, Combination::Intersection, |set| Ok(set.len()))?;
    let told = if limit > 0 { members.min(limit) } else { members };
    encode::integer(out, told as i64);
    Ok(())
}
