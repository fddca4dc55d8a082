//! Collections in an order of the user's own: an order is a function from keys to *sort keys*, and
//! records are stored under both, so that engines, which compare bytes, have them in that order
//! without knowing ([`stored`]). The name of a collection's order is in the catalogue; its function
//! is the user's.

mod builtin;
mod error;
mod stored;

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use stratakv_base::key::KeyError;
use stratakv_base::limits::KEY_BYTES_MAX;
use stratakv_base::{CollectionId, Key};

use crate::collection::Collection;
use crate::error::Error;
use crate::scan::{Extent, successor, whole};

pub use error::OrderError;
pub(crate) use error::RejectedRecord;

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

type SortKey = Arc<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// An order of keys, for collections made in it
/// ([`Store::collection_in_order`](crate::Store::collection_in_order)): a name, and a function that
/// makes of each key its *sort key*. Records are in the order of the bytes of their sort keys, and
/// where these are the same, of their keys.
///
/// ```
/// # fn main() -> Result<(), stratakv::Error> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("data");
/// // Names by their length, and then by their bytes.
/// let length = |key: &[u8]| (key.len() as u32).to_be_bytes().to_vec();
/// let by_length = stratakv::Order::new("by-length", length);
/// let store = stratakv::Options::new().order(by_length).open(&path)?;
/// let names = store.collection_in_order("names", "by-length")?;
/// for name in ["Grace", "Barbara", "Ada", "Edsger"] {
///     names.put(name.as_bytes(), b"")?;
/// }
/// let items = names.scan(stratakv::ScanOptions::all());
/// let keys: Result<Vec<_>, _> = items.map(|item| item.map(|(key, _)| key)).collect();
/// assert_eq!(keys?, ["Ada", "Grace", "Edsger", "Barbara"]);
/// assert!(names.get(b"Grace")?.is_some());
/// // Some are built in.
/// let ports = store.collection_in_order("ports", stratakv::Order::NUMERIC)?;
/// # store.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Order {
    name: String,
    sort_key: SortKey,
}

impl Order {
    /// Decimal numbers of any length by their value (`-7`, `2.50`, `10`; neither `+`, exponents nor
    /// spaces), then all other keys by their bytes.
    pub const NUMERIC: &str = builtin::NUMERIC;
    /// The order of bytes, downwards.
    pub const REVERSED: &str = builtin::REVERSED;
    /// The order of bytes with `A` to `Z` taken for `a` to `z`. Keys that differ in nothing else
    /// are different keys, next to each other.
    pub const IGNORING_ASCII_CASE: &str = builtin::IGNORING_ASCII_CASE;
    /// The names of all that are built in.
    pub const BUILT_IN: [&str; 3] = [Self::NUMERIC, Self::REVERSED, Self::IGNORING_ASCII_CASE];

    /// An order of that name: 1 to 64 letters, digits, `-`, `_` and `.`, not beginning with
    /// `stratakv.`. A bad one is told by [`Options::open`](crate::Options::open).
    ///
    /// The function makes of a key its sort key, any bytes, for every key; it must make the same of
    /// it for ever. One that changes gets a new name. It is called in the thread of whoever calls
    /// the store, once for each key given, and once for each that a scan comes across; no lock is
    /// held meanwhile. It must not panic.
    pub fn new(name: impl Into<String>, sort_key: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> Order {
        Order { name: name.into(), sort_key: Arc::new(sort_key) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Order({})", self.name)
    }
}

/// Whether the catalogue can hold such a name.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Whether orders can be registered together.
pub(crate) fn check(orders: &[Order]) -> Result<(), Error> {
    let refuse = |why: String| Err(Error::Option(why));
    for (at, order) in orders.iter().enumerate() {
        let name = order.name();
        if !is_name(name) {
            let (len, shown) = (name.len(), name.escape_debug().take(NAME_BYTES_MAX).collect::<String>());
            return refuse(format!(
                "`{shown}`, of {len} bytes, is no name of an order: it has 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`"
            ));
        }
        if name.starts_with(builtin::PREFIX) {
            return refuse(format!(
                "the order `{name}`: names that begin with `{}` are the store's own. Take another one; what is built in needs no registration",
                builtin::PREFIX
            ));
        }
        if orders.iter().take(at).any(|before| before.name() == name) {
            return refuse(format!("two orders are called `{name}`: register each under a name of its own"));
        }
    }
    Ok(())
}

/// The orders that a store was opened with.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    registered: Vec<Order>,
    /// Collections in an order that were looked up since the store was opened, also those that are
    /// gone by now.
    met: RwLock<HashSet<CollectionId>>,
}

impl Orders {
    pub(crate) fn new(registered: Vec<Order>) -> Orders {
        Orders { registered, met: RwLock::default() }
    }

    /// The order of a collection, with its function if that is known.
    pub(crate) fn of(&self, collection: &str, order: &str) -> Arc<InOrder> {
        let registered = self.registered.iter().find(|known| known.name == order);
        let sort_key = registered.map(|known| Arc::clone(&known.sort_key)).or_else(|| builtin::find(order));
        let (collection, name) = (collection.to_owned(), order.to_owned());
        Arc::new(InOrder { collection, name, sort_key, checked: false.into() })
    }

    pub(crate) fn meet(&self, id: CollectionId) {
        self.met.write().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    pub(crate) fn met(&self) -> HashSet<CollectionId> {
        self.met.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The order of one collection.
pub(crate) struct InOrder {
    collection: String,
    name: String,
    /// `None`: it was not registered, or is not to be used.
    sort_key: Option<SortKey>,
    /// Whether the ends of the collection were held against the function.
    checked: AtomicBool,
}

impl std::fmt::Debug for InOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InOrder({} of {})", self.name, self.collection)
    }
}

impl InOrder {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The same without its function.
    fn as_stored(&self) -> InOrder {
        let (collection, name) = (self.collection.clone(), self.name.clone());
        InOrder { collection, name, sort_key: None, checked: true.into() }
    }

    pub(crate) fn check_known(&self) -> Result<(), OrderError> {
        self.function().map(|_| ())
    }

    fn function(&self) -> Result<&SortKey, OrderError> {
        let unknown = || OrderError::Unknown { collection: self.collection.clone(), order: self.name.clone() };
        self.sort_key.as_ref().ok_or_else(unknown)
    }

    /// Where a key is stored.
    fn place(&self, key: &[u8]) -> Result<Vec<u8>, RejectedRecord> {
        if key.is_empty() {
            return Err(KeyError::Empty.into());
        }
        let sort_key = self.function()?(key);
        let stored = stored::join(&sort_key, key);
        if stored.len() > KEY_BYTES_MAX {
            let (key_bytes, sort_key_bytes, stored_bytes) = (key.len(), sort_key.len(), stored.len());
            return Err(
                OrderError::TooLong { order: self.name.clone(), key_bytes, sort_key_bytes, stored_bytes }.into()
            );
        }
        Ok(stored)
    }

    /// Where a bound lies. The empty one lies before every key.
    fn bound(&self, key: &[u8]) -> Result<Bytes, OrderError> {
        match key {
            b"" => Ok(Bytes::new()),
            key => Ok(stored::join(&self.function()?(key), key).into()),
        }
    }

    /// The key that is stored so. If the function is there, it must have put it there.
    fn user_key<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], OrderError> {
        let (collection, order) = (|| self.collection.clone(), || self.name.clone());
        let Some(key) = stored::key_of(bytes) else {
            return Err(OrderError::Foreign {
                collection: collection(),
                order: order(),
                stored: bytes.escape_ascii().to_string(),
            });
        };
        match &self.sort_key {
            Some(sort_key) if stored::join(&sort_key(key), key) != bytes => Err(OrderError::Changed {
                collection: collection(),
                order: order(),
                key: key.escape_ascii().to_string(),
            }),
            _ => Ok(key),
        }
    }

    fn range(&self, extent: &Extent) -> Result<(Bound<Bytes>, Bound<Bytes>), OrderError> {
        let bound = |bound: &Bound<Bytes>| {
            Ok::<_, OrderError>(match bound {
                Bound::Unbounded => Bound::Unbounded,
                Bound::Included(key) => Bound::Included(self.bound(key)?),
                Bound::Excluded(key) => Bound::Excluded(self.bound(key)?),
            })
        };
        match extent {
            Extent::Range(from, to) => Ok((bound(from)?, bound(to)?)),
            Extent::SortPrefix(prefix) => Ok(beginning(&stored::escaped_prefix(prefix))),
            Extent::Prefix(prefix) if prefix.is_empty() => Ok((Bound::Unbounded, Bound::Unbounded)),
            Extent::Prefix(prefix) => Err(OrderError::Prefix {
                collection: self.collection.clone(),
                order: self.name.clone(),
                prefix: prefix.escape_ascii().to_string(),
            }),
        }
    }
}

/// What begins so.
fn beginning(prefix: &[u8]) -> (Bound<Bytes>, Bound<Bytes>) {
    let end = successor(prefix).map_or(Bound::Unbounded, |end| Bound::Excluded(end.into()));
    (Bound::Included(Bytes::copy_from_slice(prefix)), end)
}

/// The key that is stored so in a collection in an order; what it is stored as, if that was not
/// made in one.
pub(crate) fn given(stored: &[u8]) -> &[u8] {
    stored::key_of(stored).unwrap_or(stored)
}

impl Collection {
    /// The name of the order it is in; `None`: that of its keys' bytes.
    pub fn order(&self) -> Option<&str> {
        self.in_order().map(|order| order.name())
    }

    /// The key that operations ([`Operation`](crate::raw::Operation)) and sessions are given for a
    /// key of this collection. In the order of bytes it is [`Key::new`] with its number.
    ///
    /// # Errors
    /// A bad key; [`OrderError::TooLong`], [`OrderError::Unknown`].
    pub fn key(&self, key: impl AsRef<[u8]>) -> Result<Key, Error> {
        Ok(self.place(key.as_ref())?)
    }

    /// The key of this collection that replies of operations show as `key`: the other way round
    /// than [`Collection::key`].
    ///
    /// # Errors
    /// [`OrderError::Changed`], [`OrderError::Foreign`].
    pub fn user_key(&self, key: &Key) -> Result<Bytes, Error> {
        Ok(Bytes::copy_from_slice(match self.in_order() {
            None => key.user(),
            Some(order) => order.user_key(key.user())?,
        }))
    }

    pub(crate) fn place(&self, key: &[u8]) -> Result<Key, RejectedRecord> {
        Ok(match self.in_order() {
            None => Key::new(self.id(), key)?,
            Some(order) => Key::new(self.id(), &order.place(key)?)?,
        })
    }

    /// The bounds of a part of it.
    pub(crate) fn bounds(&self, extent: &Extent) -> Result<(Bound<Key>, Bound<Key>), Error> {
        let (from, to) = match (self.in_order(), extent) {
            (Some(order), extent) => order.range(extent)?,
            (None, Extent::Range(from, to)) => (from.clone(), to.clone()),
            (None, Extent::Prefix(prefix) | Extent::SortPrefix(prefix)) => beginning(prefix),
        };
        let key = |user: Bytes| Key::bound(self.id(), &user);
        let (first, end) = whole(self.id());
        let or = |bound: Bound<Key>, open| if bound == Bound::Unbounded { open } else { bound };
        Ok((or(from.map(key), first), or(to.map(key), end)))
    }

    /// Holds its first and last key against its function, the first time that it is opened.
    pub(crate) fn check_order(&self) -> Result<(), Error> {
        let Some(order) = self.in_order() else { return Ok(()) };
        order.check_known()?;
        if order.checked.load(Ordering::Acquire) {
            return Ok(());
        }
        for reverse in [false, true] {
            let Some(key) = self.key_of(self.page_of_all(reverse), 0)? else { break };
            // A key that does not belong there at all is told where it is met.
            if let Err(changed @ OrderError::Changed { .. }) = order.user_key(key.user()) {
                return Err(changed.into());
            }
        }
        order.checked.store(true, Ordering::Release);
        Ok(())
    }

    /// The same, without its function.
    pub(crate) fn as_stored(&self) -> Collection {
        let order = self.in_order().map(|order| Arc::new(order.as_stored()));
        Collection::new(Arc::clone(self.inner()), self.id(), order)
    }
}
