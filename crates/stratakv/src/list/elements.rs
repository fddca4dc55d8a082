//! Iteration over a list.

use bytes::Bytes;

use super::Position;
use crate::error::Error;
use crate::scan::Scan;

/// An element, and where it is.
#[derive(Clone, Debug)]
pub struct Element {
    /// Its value.
    pub value: Bytes,
    /// Names it as it is here.
    pub position: Position,
}

/// A running iteration over a list, in memory bounded as a [`Scan`]. An element that cannot be read
/// is an error in its place; the iteration goes on after it.
pub struct Elements(Scan);

impl Elements {
    pub(super) fn new(scan: Scan) -> Elements {
        Elements(scan)
    }
}

impl Iterator for Elements {
    type Item = Result<Element, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.0.next()?;
        Some(item.map(|(key, record)| Element {
            value: record.to_bytes(),
            position: Position { key, version: record.version },
        }))
    }
}
