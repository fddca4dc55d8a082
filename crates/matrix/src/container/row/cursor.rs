//! A cursor over a row, or over what is not down of it, or over a column's part of it.

use stratakv_pmem::Pmem;

use super::super::record::Head;
use super::View;
use crate::cursor::{Cursor, Stop};
use crate::entry::Meta;

/// A place in a row. Elements that are down are passed over.
pub struct RowCursor<'a, P> {
    view: View<'a, P>,
    /// The elements it goes over.
    from: u32,
    to: u32,
    /// One less than `from`: before the first. `to`: behind the last.
    at: i64,
    head: Option<Head>,
}

impl<'a, P: Pmem> RowCursor<'a, P> {
    /// Over all that is not down.
    pub(in super::super) fn new(view: View<'a, P>) -> RowCursor<'a, P> {
        let (from, to) = view.row.live_ends().map_or((0, 0), |(first, last)| (first, last + 1));
        RowCursor::over(view, from, to)
    }

    /// Over the elements of a range.
    pub(in super::super) fn over(view: View<'a, P>, from: u32, to: u32) -> RowCursor<'a, P> {
        RowCursor { view, from, to, at: i64::from(from) - 1, head: None }
    }

    /// The key with the first element at or after `element`; what is down lies in one piece.
    fn forward(&self, element: i64) -> i64 {
        let down = self.view.row.down;
        let is_down = u32::try_from(element).is_ok_and(|element| self.view.row.is_down(element));
        if is_down { if down.wrapped { i64::from(self.to) } else { i64::from(down.to) } } else { element }
    }

    fn back(&self, element: i64) -> i64 {
        let down = self.view.row.down;
        let is_down = u32::try_from(element).is_ok_and(|element| self.view.row.is_down(element));
        let before = if down.wrapped { i64::from(self.from) } else { i64::from(down.from) };
        if is_down { before - 1 } else { element }
    }

    fn stand(&mut self, element: i64) -> Result<(), Stop> {
        self.at = element.clamp(i64::from(self.from) - 1, i64::from(self.to));
        self.head = None;
        if let Ok(element) = u32::try_from(self.at)
            && (self.from..self.to).contains(&element)
        {
            self.head = Some(self.view.row.head(self.view.medium, element)?);
        }
        Ok(())
    }
}

impl<P: Pmem> RowCursor<'_, P> {
    /// Goes to where [`Cursor::seek`] does, for a key of which the row's first element that is not
    /// before it was found.
    pub(in super::super) fn seek_from(&mut self, found: u32) -> Result<(), Stop> {
        self.stand(self.forward(found.max(self.from).into()))
    }

    /// As [`RowCursor::seek_from`] for [`Cursor::seek_before`].
    pub(in super::super) fn seek_back_from(&mut self, found: u32) -> Result<(), Stop> {
        self.stand(self.back(i64::from(found.min(self.to)) - 1))
    }
}

impl<P: Pmem> Cursor for RowCursor<'_, P> {
    fn seek(&mut self, key: &[u8]) -> Result<(), Stop> {
        self.seek_from(self.view.first_at_or_after(key)?)
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<(), Stop> {
        let end = key.map_or(Ok(self.to), |key| self.view.first_at_or_after(key))?;
        self.seek_back_from(end)
    }

    fn next(&mut self) -> Result<(), Stop> {
        self.stand(self.forward(self.at + 1))
    }

    fn prev(&mut self) -> Result<(), Stop> {
        self.stand(self.back(self.at - 1))
    }

    fn key(&self) -> Option<&[u8]> {
        self.head.as_ref().map(Head::key)
    }

    fn meta(&self) -> Option<Meta> {
        self.head.as_ref().map(Head::meta)
    }

    fn value(&self, into: &mut Vec<u8>) -> Result<(), Stop> {
        self.head.as_ref().map_or(Ok(()), |head| head.value(self.view.medium, into)).map_err(Stop::from)
    }
}
