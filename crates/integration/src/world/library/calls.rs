//! Calls of the model, made of the library.

use std::collections::VecDeque;

use stratakv::{
    Collection, End, Error, ErrorKind, Expiry, Kind, List, PutOptions, PutOutcome, ScanOptions, Store, WriteBatch,
};

use super::machine::Life;
use super::model::{COLLECTIONS, Call, Change, Contents, LISTS, Model, ModelRecord, Told};

fn collection(store: &Store, name: &str) -> Result<Collection, Error> {
    if name.is_empty() { Ok((**store).clone()) } else { store.collection(name) }
}

/// Makes the call; what it was answered.
pub(super) fn ask(life: &Life, call: &Call, wall_ms: u64) -> Result<Told, Error> {
    life.call(|store| match call {
        Call::Put { of, key, value, lifetime_ms } => {
            let expiry = if *lifetime_ms == 0 { Expiry::NEVER } else { Expiry(wall_ms + lifetime_ms) };
            let options = PutOptions { expiry, ..PutOptions::default() };
            written(collection(store, of)?.put_with(key, value, &options)?)
        }
        Call::Delete { of, key } => collection(store, of)?.delete(key).map(Told::Was),
        Call::Increment { of, key, by } => match collection(store, of)?.increment(key, *by) {
            Err(Error::NotANumber { .. }) => Ok(Told::NotANumber),
            number => number.map(Told::Number),
        },
        Call::Batch(changes) => batch(store, changes),
        Call::Move { from, to, end } => move_as_one(store, from, to, *end),
        Call::Load { of, first, count, value } => {
            collection(store, of)?.load(Call::loaded(*first, *count).map(|key| (key, value))).map(Told::Count)
        }
        Call::DeleteRange { of, from, to } => {
            collection(store, of)?.delete_range(from.as_slice()..to.as_slice()).map(Told::Count)
        }
        Call::PushAll { list, end, values } => store.list(list)?.push_all(*end, values).map(|()| Told::Done),
        Call::Pop { list, end } => {
            store.list(list)?.pop(*end).map(|element| Told::Value(element.map(|bytes| bytes.to_vec())))
        }
        Call::Insert { list, index, value } => {
            store.list(list)?.insert_at(*index as i64, value).map(|position| Told::Was(position.is_some()))
        }
        Call::Drop { name } => store.drop_collection(name).map(Told::Was),
        Call::Expire { name, after_ms } => {
            let expiry = if *after_ms == 0 { Expiry::NEVER } else { Expiry(wall_ms + after_ms) };
            store.expire_collection(name, expiry).map(Told::Was)
        }
        Call::Sync => store.sync().map(|()| Told::Done),
    })
}

fn written(outcome: PutOutcome) -> Result<Told, Error> {
    Ok(if matches!(outcome, PutOutcome::Written { .. }) { Told::Done } else { Told::Was(false) })
}

fn batch(store: &Store, changes: &[Change]) -> Result<Told, Error> {
    let mut batch = WriteBatch::new();
    for change in changes {
        match change {
            Change::Put { of, key, value } => _ = batch.put_in(&collection(store, of)?, key, value),
            Change::Delete { of, key } => _ = batch.delete_in(&collection(store, of)?, key),
            Change::Push { list, end, value } => _ = batch.push(&store.list(list)?, *end, value),
        }
    }
    written(store.write(batch)?)
}

fn move_as_one(store: &Store, from: &(&str, Vec<u8>), to: &(&str, Vec<u8>), end: End) -> Result<Told, Error> {
    let (source, target) = (collection(store, from.0)?, collection(store, to.0)?);
    let (first, second): (List, List) = (store.list(LISTS[0])?, store.list(LISTS[1])?);
    store.transact(|txn| {
        let found = txn.get(&source, &from.1)?.map(|record| record.to_bytes().to_vec());
        if let Some(value) = &found {
            txn.delete(&source, &from.1)?;
            txn.put(&target, &to.1, value)?;
        }
        if let Some(element) = txn.pop(&first, end)? {
            txn.push(&second, end, &element)?;
        }
        Ok(Told::Value(found))
    })
}

/// Reads everything that the store holds.
pub(super) fn observe(life: &Life) -> Result<Model, Error> {
    life.call(|store| {
        let mut model = Model::default();
        model.collections.insert("", Contents { expires: 0, holds: records(store)? });
        for name in store.collections()? {
            let expires = store.collection_expiry(&name)?.unwrap_or(Expiry::NEVER).0;
            let known = COLLECTIONS.iter().chain(&LISTS).find(|known| **known == name);
            let known = *known.ok_or_else(|| odd(&format!("a collection `{name}` that nobody made")))?;
            match store.kind_of(&name)? {
                Some(Kind::List) => {
                    let Some(list) = store.existing_list(&name)? else { return Err(odd("a list that is not there")) };
                    let elements = list.iter().map(|element| element.map(|element| element.value.to_vec()));
                    let holds = elements.collect::<Result<VecDeque<_>, _>>()?;
                    if list.len()? != holds.len() as u64 {
                        return Err(odd("a list has more or fewer elements than it says"));
                    }
                    model.lists.insert(known, Contents { expires, holds });
                }
                _ => {
                    let Some(found) = store.existing_collection(&name)? else {
                        return Err(odd("a collection that is not there"));
                    };
                    let holds = records(&found)?;
                    if found.len()? != holds.len() as u64 {
                        return Err(odd("a collection has more or fewer records than it says"));
                    }
                    model.collections.insert(known, Contents { expires, holds });
                }
            }
        }
        Ok(model)
    })
}

/// By a scan where there is an order; else, key by key.
fn records(of: &Collection) -> Result<std::collections::BTreeMap<Vec<u8>, ModelRecord>, Error> {
    let scanned: Result<Vec<_>, Error> = of.scan(ScanOptions::all()).collect();
    let held = |record: &stratakv::Record| ModelRecord { value: record.to_bytes().to_vec(), expires: record.expiry.0 };
    match scanned {
        Ok(all) => Ok(all.iter().map(|(key, record)| (key.to_vec(), held(record))).collect()),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            let keys: Vec<Vec<u8>> = Call::all_keys().collect();
            let found = of.multi_get(&keys)?;
            Ok(keys.into_iter().zip(found).filter_map(|(key, record)| Some((key, held(&record?)))).collect())
        }
        Err(error) => Err(error),
    }
}

fn odd(what: &str) -> Error {
    Error::Option(what.to_owned())
}
