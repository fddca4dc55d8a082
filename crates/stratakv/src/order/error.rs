//! What can be wrong with an order.

use stratakv_base::key::KeyError;
use stratakv_base::limits::KEY_BYTES_MAX;
use stratakv_engine::Error as EngineError;

use crate::error::Error;

/// What is wrong with the order of a collection, or with what it was asked for. Nothing was
/// changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// Its function is not there.
    #[error(
        "`{collection}` is in the order `{order}`, which was not registered when the store was opened: give Options::order that name with the function \
         the collection was made with. (Store::stored_collection reads it as it lies, without the function.)"
    )]
    Unknown {
        /// The collection's name.
        collection: String,
        /// The order's.
        order: String,
    },
    /// It was made in another one.
    #[error(
        "`{collection}` is in {}, not in the order `{asked}`: open it without naming one, take another name, or drop it first",
        shown(is)
    )]
    Other {
        /// The collection's name.
        collection: String,
        /// The order it is in; `None`: that of its keys' bytes.
        is: Option<String>,
        /// The one asked for.
        asked: String,
    },
    /// Its function makes another sort key of a key than it did when that was put.
    #[error(
        "key `{key}` of `{collection}` lies elsewhere than the function of the order `{order}` would have it, so gets would miss it: open the store with \
         the function that the collection was made with, or copy it (Store::stored_collection) into one in an order with a new name"
    )]
    Changed {
        /// The collection's name.
        collection: String,
        /// The order's.
        order: String,
        /// The key, escaped.
        key: String,
    },
    /// A key of the collection that was not put through it.
    #[error(
        "`{collection}`, in the order `{order}`, has a key that was not made in an order, `{stored}`: operations take Collection::key; an \
         operation on that very key deletes it"
    )]
    Foreign {
        /// The collection's name.
        collection: String,
        /// The order's.
        order: String,
        /// As it is stored, escaped.
        stored: String,
    },
    /// A key and its sort key do not fit.
    #[error(
        "the key has {key_bytes} bytes and its sort key in the order `{order}` {sort_key_bytes}; as they are stored, together, they have {stored_bytes}, and \
         the most is {KEY_BYTES_MAX}: take a shorter key, or an order with shorter sort keys"
    )]
    TooLong {
        /// The order's name.
        order: String,
        /// Of the key.
        key_bytes: usize,
        /// Of its sort key.
        sort_key_bytes: usize,
        /// Of both with what is between them, and each zero of the sort key as two bytes.
        stored_bytes: usize,
    },
    /// Keys that begin alike, in an order in which they do not lie together.
    #[error(
        "keys that begin with `{prefix}` do not lie together in `{collection}`, which is in the order `{order}`: ask for a range, for what has a sort key that \
         begins so (ScanOptions::sort_prefix), or for all of it and filter"
    )]
    Prefix {
        /// The collection's name.
        collection: String,
        /// The order's.
        order: String,
        /// What was asked for, escaped.
        prefix: String,
    },
}

fn shown(order: &Option<String>) -> String {
    order.as_ref().map_or("the order of its keys' bytes".to_owned(), |order| format!("the order `{order}`"))
}

/// Why a key or value of a user is not taken; kept by batches until they are written.
#[derive(Clone, Debug)]
pub(crate) enum RejectedRecord {
    Engine(EngineError),
    Order(OrderError),
}

impl From<KeyError> for RejectedRecord {
    fn from(error: KeyError) -> RejectedRecord {
        RejectedRecord::Engine(error.into())
    }
}

impl From<EngineError> for RejectedRecord {
    fn from(error: EngineError) -> RejectedRecord {
        RejectedRecord::Engine(error)
    }
}

impl From<OrderError> for RejectedRecord {
    fn from(error: OrderError) -> RejectedRecord {
        RejectedRecord::Order(error)
    }
}

impl From<RejectedRecord> for Error {
    fn from(refusal: RejectedRecord) -> Error {
        match refusal {
            RejectedRecord::Engine(error) => error.into(),
            RejectedRecord::Order(error) => error.into(),
        }
    }
}
