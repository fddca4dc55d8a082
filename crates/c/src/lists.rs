//! Lists.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use stratakv::End;

use crate::arg::{self, Array, Bytes, Out, Room, Text};
use crate::record::{self, Record};
use crate::records::pieces;
use crate::status::{Answer, Failure, Status, c_function, found};
use crate::store::Store;

/// `stratakv_list`.
pub struct List {
    pub(crate) list: stratakv::List,
}

/// `stratakv_position`.
pub struct Position {
    position: stratakv::Position,
}

/// `stratakv_elements`, with the value that it gave last.
pub struct Elements {
    elements: stratakv::Elements,
    value: bytes::Bytes,
}

type Made<'a, T> = Out<'a, Option<Box<T>>>;

pub(crate) fn end(end: c_int) -> Result<End, Failure> {
    match end {
        0 => Ok(End::Front),
        1 => Ok(End::Back),
        _ => Err(Failure::usage(format!("{end} is no end of a list: 0 is its front, 1 its back"))),
    }
}

pub(crate) fn list(list: Option<&List>) -> Result<&stratakv::List, Failure> {
    Ok(&arg::handle(list, "list")?.list)
}

/// Gives an element that may be absent.
pub(crate) fn element(value: Option<bytes::Bytes>, out: Out<'_, Record>) -> Answer {
    let status = found(value.is_some());
    record::give(out, value.map(Record::value));
    Ok(status)
}

/// The place for a value, empty until it is known.
pub(crate) fn emptied<'a>(out: Out<'a, Record>) -> Result<Out<'a, Record>, Failure> {
    arg::wanted(out, "value").map(|out| cleared(Some(out)))
}

/// The same, where a value may not be wanted.
pub(crate) fn cleared(mut out: Out<'_, Record>) -> Out<'_, Record> {
    if let Some(out) = &mut out {
        out.write(record::NONE);
    }
    out
}

fn made(out: Made<'_, List>, list: impl FnOnce() -> Result<Option<stratakv::List>, Failure>) -> Answer {
    let out = arg::wanted(out, "list")?.write(None);
    *out = list()?.map(|list| Box::new(List { list }));
    Ok(found(out.is_some()))
}

c_function! {
    /// The list of a name, made if there is none.
    fn stratakv_list_open(store: Option<&Store>, name: Text<'_>, list: Made<'_, List>) {
        made(list, || Ok(Some(arg::handle(store, "store")?.store.list(name.take("the name")?)?)))
    }
}

c_function! {
    /// The list of a name, if there is one.
    fn stratakv_list_existing(store: Option<&Store>, name: Text<'_>, list: Made<'_, List>) {
        made(list, || Ok(arg::handle(store, "store")?.store.existing_list(name.take("the name")?)?))
    }
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_list_free(list: Option<Box<List>>) {
    drop(list);
}

c_function! {
    /// How many elements there are.
    fn stratakv_list_count(list_: Option<&List>, count: Out<'_, u64>) {
        let elements = list(list_)?.len()?;
        arg::wanted(count, "count")?.write(elements);
        Ok(Status::Ok)
    }
}

c_function! {
    /// Puts an element at an end.
    fn stratakv_list_push(list_: Option<&List>, end_: c_int, value: Bytes<'_>, value_len: usize) {
        list(list_)?.push(end(end_)?, value.take(value_len, "the value")?)?;
        Ok(Status::Ok)
    }
}

c_function! {
    /// Puts several elements at an end as one.
    fn stratakv_list_push_all(
        list_: Option<&List>,
        end_: c_int,
        count: usize,
        values: Array<'_, Bytes<'_>>,
        value_lens: Array<'_, usize>,
    ) {
        let values = pieces(values, value_lens, count, "the values", "a value")?;
        list(list_)?.push_all(end(end_)?, &values)?;
        Ok(Status::Ok)
    }
}

c_function! {
    /// Takes the element at an end.
    fn stratakv_list_pop(list_: Option<&List>, end_: c_int, value: Out<'_, Record>) {
        let out = emptied(value)?;
        element(list(list_)?.pop(end(end_)?)?, out)
    }
}

c_function! {
    /// Takes several elements from an end as one.
    fn stratakv_list_pop_many(
        list_: Option<&List>,
        end_: c_int,
        room: usize,
        values: Room<'_, Record>,
        count: Out<'_, usize>,
    ) {
        let count = arg::wanted(count, "count")?.write(0);
        let places: &mut [MaybeUninit<Record>] = values.take(room, "the room for values")?;
        for place in places.iter_mut() {
            place.write(record::NONE);
        }
        let values = list(list_)?.pop_many(end(end_)?, room)?;
        *count = values.len();
        for (place, value) in places.iter_mut().zip(values) {
            place.write(Record::value(value));
        }
        Ok(Status::Ok)
    }
}

c_function! {
    /// Moves an element.
    fn stratakv_list_move(from: Option<&List>, from_end: c_int, to: Option<&List>, to_end: c_int, value: Out<'_, Record>) {
        let value = cleared(value);
        let moved = list(from)?.move_to(end(from_end)?, list(to)?, end(to_end)?)?;
        element(moved, value)
    }
}

c_function! {
    /// The element at an index.
    fn stratakv_list_get(list_: Option<&List>, index: i64, value: Out<'_, Record>) {
        let out = emptied(value)?;
        element(list(list_)?.get(index)?, out)
    }
}

c_function! {
    /// Inserts before the element at an index.
    fn stratakv_list_insert(list_: Option<&List>, index: i64, value: Bytes<'_>, value_len: usize) {
        let inserted = list(list_)?.insert_at(index, value.take(value_len, "the value")?)?;
        Ok(found(inserted.is_some()))
    }
}

c_function! {
    /// Names the element at an index.
    fn stratakv_list_position(list_: Option<&List>, index: i64, position: Made<'_, Position>) {
        let out = arg::wanted(position, "position")?.write(None);
        *out = list(list_)?.position(index)?.map(|position| Box::new(Position { position }));
        Ok(found(out.is_some()))
    }
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_position_free(position: Option<Box<Position>>) {
    drop(position);
}

c_function! {
    /// The element at a position.
    fn stratakv_list_at(list_: Option<&List>, position: Option<&Position>, value: Out<'_, Record>) {
        let out = emptied(value)?;
        element(list(list_)?.at(at(position)?)?, out)
    }
}

fn at(position: Option<&Position>) -> Result<&stratakv::Position, Failure> {
    Ok(&arg::handle(position, "position")?.position)
}

c_function! {
    /// Inserts before an element.
    fn stratakv_list_insert_before(list_: Option<&List>, position: Option<&Position>, value: Bytes<'_>, value_len: usize) {
        let value = value.take(value_len, "the value")?;
        Ok(found(list(list_)?.insert_before(at(position)?, value)?.is_some()))
    }
}

c_function! {
    /// Inserts after an element.
    fn stratakv_list_insert_after(list_: Option<&List>, position: Option<&Position>, value: Bytes<'_>, value_len: usize) {
        let value = value.take(value_len, "the value")?;
        Ok(found(list(list_)?.insert_after(at(position)?, value)?.is_some()))
    }
}

c_function! {
    /// Puts another value in an element's place.
    fn stratakv_list_replace(list_: Option<&List>, position: Option<&Position>, value: Bytes<'_>, value_len: usize) {
        let value = value.take(value_len, "the value")?;
        Ok(found(list(list_)?.replace(at(position)?, value)?.is_some()))
    }
}

c_function! {
    /// Removes an element.
    fn stratakv_list_erase(list_: Option<&List>, position: Option<&Position>) {
        Ok(found(list(list_)?.erase(at(position)?)?))
    }
}

c_function! {
    /// Begins a walk.
    fn stratakv_list_elements(list_: Option<&List>, reverse: c_int, elements: Made<'_, Elements>) {
        let out = arg::wanted(elements, "walk")?.write(None);
        let list = list(list_)?;
        let elements = if reverse == 0 { list.iter() } else { list.iter_back() };
        *out = Some(Box::new(Elements { elements, value: bytes::Bytes::new() }));
        Ok(Status::Ok)
    }
}

c_function! {
    /// The next element.
    fn stratakv_elements_next(elements: Option<&mut Elements>, value: Out<'_, Record>, position: Made<'_, Position>) {
        let value = cleared(value);
        let mut position = position;
        if let Some(out) = &mut position {
            out.write(None);
        }
        let walk = arg::handle_mut(elements, "walk")?;
        let next = walk.elements.next().transpose()?;
        let status = found(next.is_some());
        let next = next.map(|element| {
            walk.value = element.value;
            Box::new(Position { position: element.position })
        });
        record::give(value, next.is_some().then(|| Record::borrowed_value(&walk.value)));
        arg::give(position, next);
        Ok(status)
    }
}

/// Ends a walk.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_elements_free(elements: Option<Box<Elements>>) {
    drop(elements);
}
