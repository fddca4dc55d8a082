//! Walking over all records of the default collection, shard after shard. Engines in order give
//! pages of keys; the others give pages of a list.

use std::ops::Bound;

use stratakv_base::{CollectionId, Key};
use stratakv_engine::{Item, ListRequest, Operation, PageRequest};

/// Where a walk goes on.
#[derive(Clone, Debug)]
pub(crate) struct WalkPlace {
    pub(crate) shard: usize,
    at: At,
}

/// Where the next page of a shard begins.
#[derive(Clone, Debug)]
enum At {
    Key(Bound<Key>),
    /// Of an engine without order.
    Cursor(u64),
}

impl At {
    fn start() -> At {
        At::Key(Bound::Included(Key::bound(CollectionId(0), b"")))
    }
}

impl WalkPlace {
    /// The beginning, for an engine with order as long as none has said otherwise.
    pub(crate) fn start() -> WalkPlace {
        WalkPlace { shard: 0, at: At::start() }
    }

    /// Asks for the next page, of so many records and bytes at most.
    pub(crate) fn page(&self, items_max: u32, bytes_max: u32) -> Operation {
        let from = match &self.at {
            At::Key(from) => from.clone(),
            At::Cursor(cursor) => {
                let shard = self.shard as u32;
                let collection = CollectionId::default();
                return Operation::List(ListRequest { collection, cursor: *cursor, shard, items_max });
            }
        };
        Operation::Page(
            PageRequest {
                from,
                to: Bound::Excluded(Key::bound(CollectionId(1), b"")),
                reverse: false,
                keys_only: true,
                items_max,
                bytes_max,
                at: None,
            }
            .into(),
        )
    }

    /// A page of keys came, and the next one begins there, or in the next shard.
    pub(crate) fn pass_page(&mut self, next: Option<Bound<Key>>) {
        self.pass(next.map(At::Key));
    }

    /// The same of a page of a list.
    pub(crate) fn pass_list(&mut self, next: Option<u64>) {
        self.pass(next.map(At::Cursor));
    }

    fn pass(&mut self, next: Option<At>) {
        match (next, &self.at) {
            (Some(at), _) => self.at = at,
            (None, At::Key(_)) => (self.shard, self.at) = (self.shard + 1, At::start()),
            (None, At::Cursor(_)) => (self.shard, self.at) = (self.shard + 1, At::Cursor(0)),
        }
    }

    /// The engine has no order: it is asked for lists.
    pub(crate) fn has_no_order(&mut self) {
        self.at = At::Cursor(0);
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let key = match &self.at {
            At::Key(Bound::Included(key) | Bound::Excluded(key)) => key.encoded().len(),
            _ => 0,
        };
        size_of::<WalkPlace>() + key
    }
}

/// The keys of a page of either kind.
pub(crate) fn keys_of(items: Vec<Item>) -> impl Iterator<Item = Key> {
    items.into_iter().map(|item| item.key)
}
