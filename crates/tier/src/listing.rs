//! Lists of all records, a page at a time, in the order of their tags.
//!
//! An entry of the index keeps its tag for as long as its item exists, wherever the item goes and
//! however the tables grow. So a page is an interval of tags, and each record is in one page.
//! Keys in DRAM are taken from there. Items on the volume are read and checked as for a get; only
//! header and key of one are kept. A shard gathers one page at a time, so that lists hold little
//! memory however many clients ask for them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use stratakv_base::Key;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_engine::{Effects, Error, Item, ListRequest, Record, Reply, Token, Value};

use crate::fetch::{Fetched, LISTER};
use crate::index::{Loc, Tag};
use crate::item::{HEADER_BYTES, Header};
use crate::tier::Tier;

/// Chunks of the index that one page looks at.
const CHUNKS_MAX: usize = 512;
/// Bytes of keys and of pages to be read at which a page ends.
const BYTES_MAX: usize = 512 << 10;

/// What is known of an item without its value.
type Known = (Header, Vec<u8>);

/// A page that is being gathered.
#[derive(Debug)]
struct Gathering {
    token: Token,
    request: ListRequest,
    /// What was read, by place. `None`: there is no whole item.
    read: HashMap<Loc, Option<Known>>,
    /// Reads that are missing.
    missing: usize,
    /// First pages of the segments that stay as they are meanwhile.
    pins: Vec<u64>,
    is_cancelled: bool,
}

/// Lists that clients of a shard ask for.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    waiting: VecDeque<(Token, ListRequest)>,
    gathering: Option<Gathering>,
}

impl Listings {
    pub(crate) fn add(&mut self, token: Token, request: ListRequest) {
        self.waiting.push_back((token, request));
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.gathering.is_none()
    }

    /// Whether a page can go on: every tick asks, nearly always in vain.
    fn is_ready(&self) -> bool {
        self.gathering.as_ref().map_or(!self.waiting.is_empty(), |gathering| gathering.missing == 0)
    }

    /// The page that comes next.
    fn next(&mut self) -> Option<Gathering> {
        let begin = |(token, request)| {
            let read = HashMap::new();
            Gathering { token, request, read, missing: 0, pins: Vec::new(), is_cancelled: false }
        };
        self.gathering.take().or_else(|| self.waiting.pop_front().map(begin))
    }
}

/// A page as far as it is known.
#[derive(Default)]
struct Page {
    items: Vec<Item>,
    missing: Vec<(Tag, Loc)>,
    bytes: usize,
}

impl Page {
    fn is_full(&self, items_max: u32) -> bool {
        self.items.len() + self.missing.len() >= items_max.max(1) as usize || self.bytes >= BYTES_MAX
    }

    /// Adds an item, of those with one key the newest.
    fn add(&mut self, same_tag_from: usize, item: Item) {
        let version = |item: &Item| item.record.as_ref().map_or(0, |record| record.version);
        let twin = self.items.iter_mut().skip(same_tag_from).find(|other| other.key == item.key);
        match twin {
            Some(older) if version(older) < version(&item) => *older = item,
            Some(_) => {}
            None => self.items.push(item),
        }
    }
}

impl Tier {
    /// Gathers the page whose turn it is, as far as it can be.
    pub(crate) fn pump_listing(&mut self, effects: &mut Effects) {
        if !self.listings.is_ready() {
            return;
        }
        let Some(mut gathering) = self.listings.next() else { return };
        if gathering.is_cancelled {
            return self.end_listing(&gathering, Reply::Failed(Error::Cancelled), effects);
        }
        let (Page { items, missing, .. }, next) = self.gather_page(&gathering);
        if missing.is_empty() {
            return self.end_listing(&gathering, Reply::Listed { items, next: next.map(Tag::bits) }, effects);
        }
        for (tag, loc) in missing {
            match self.fetch_item(tag, loc, LISTER, true) {
                Some(pin) => {
                    gathering.pins.push(pin);
                    gathering.missing += 1;
                }
                // No segment is there any more.
                None => _ = gathering.read.insert(loc.place(), None),
            }
        }
        if gathering.missing == 0 {
            effects.more();
        }
        self.listings.gathering = Some(gathering);
    }

    fn end_listing(&mut self, gathering: &Gathering, reply: Reply, effects: &mut Effects) {
        self.unpin(&gathering.pins);
        // What it tells of must be so after a crash too, whichever keys it is about.
        self.answer(gathering.token, reply, None, effects);
        if !self.listings.is_idle() {
            effects.more();
        }
    }

    /// What the index has now from the request's cursor on, and where the next page begins.
    fn gather_page(&self, gathering: &Gathering) -> (Page, Option<Tag>) {
        let ListRequest { cursor, items_max, .. } = gathering.request;
        let mut page = Page::default();
        let mut from = Tag::checked(cursor);
        for _ in 0..CHUNKS_MAX {
            let Some(tag) = from else { break };
            let (entries, next) = self.index.chunk(tag);
            for same in entries.chunk_by(|(one, _), (other, _)| one == other) {
                if page.is_full(items_max) {
                    return (page, same.first().map(|(tag, _)| *tag));
                }
                let begin = page.items.len();
                same.iter().for_each(|(tag, loc)| self.gather_entry(gathering, *tag, *loc, begin, &mut page));
            }
            from = next;
        }
        (page, from)
    }

    fn gather_entry(&self, gathering: &Gathering, tag: Tag, loc: Loc, begin: usize, page: &mut Page) {
        let (header, key) = match self.segments.item(loc) {
            Some((segment, offset, header)) => (header, segment.key(offset, &header)),
            None if !loc.is_on_volume() => return,
            None => {
                let pages = if self.has_front(loc) { self.front_pages() } else { loc.pages() };
                page.bytes += pages as usize * PAGE_BYTES;
                match gathering.read.get(&loc.place()) {
                    Some(Some((header, key))) => (*header, key.clone()),
                    Some(None) => return,
                    None => return page.missing.push((tag, loc)),
                }
            }
        };
        page.bytes += key.len();
        let Some(key) = Key::from_encoded(&key) else { return };
        if key.collection() != gathering.request.collection || !self.is_visible(&key, &header) {
            return;
        }
        let Header { value_bytes, flags, version, expiry, .. } = header;
        let value = Value::Inline(Bytes::new());
        let record = Record { value, value_bytes: value_bytes.into(), flags, version, expiry };
        page.add(begin, Item { key, record: Some(record) });
    }

    /// An item that the page waits for was read, or cannot be.
    pub(crate) fn listed_item_read(&mut self, place: Loc, item: Option<Arc<Fetched>>) {
        let Some(gathering) = &mut self.listings.gathering else { return };
        let known = item.map(|item| {
            let key = item.slices(HEADER_BYTES, item.header.key_bytes as usize);
            (item.header, key.flatten().copied().collect())
        });
        gathering.read.insert(place, known);
        gathering.missing -= 1;
    }

    /// Gives up the lists of those who have left.
    pub(crate) fn cancel_listings(&mut self, has_left: &dyn Fn(Token) -> bool, effects: &mut Effects) {
        if let Some(gathering) = &mut self.listings.gathering {
            gathering.is_cancelled |= has_left(gathering.token);
        }
        for (token, request) in std::mem::take(&mut self.listings.waiting) {
            match has_left(token) {
                true => effects.reply(token, Reply::Failed(Error::Cancelled)),
                false => self.listings.waiting.push_back((token, request)),
            }
        }
    }
}
