//! Keys as the engines see them: a collection's number in order-preserving form, then the user's
//! bytes.

use smallvec::SmallVec;

use crate::limits::KEY_BYTES_MAX;

/// Number of a key space of its own. 0 is the default collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub u32);

/// A key with its collection, encoded so that bytewise order is (collection, key) order.
///
/// Layout: collections below 0xFF take one byte; others take 0xFF and four bytes, big-endian.
/// Keys of up to 38 encoded bytes need no allocation.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(SmallVec<[u8; 40]>);

/// The derived one would copy byte by byte.
impl Clone for Key {
    fn clone(&self) -> Key {
        Key(SmallVec::from_slice(&self.0))
    }
}

impl CollectionId {
    /// The engines' own collection: no operation reaches it, no scan shows it.
    pub const ENGINE: CollectionId = CollectionId(u32::MAX);
    /// Nodes of long structures of Redis clients: no listing shows it.
    pub const NODES: CollectionId = CollectionId(u32::MAX - 2);
}

/// Why bytes cannot be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A key has at least one byte.
    #[error("the key is empty; a key has 1 to {KEY_BYTES_MAX} bytes")]
    Empty,
    /// Longer than [`KEY_BYTES_MAX`].
    #[error("the key has {0} bytes; a key has 1 to {KEY_BYTES_MAX} bytes")]
    TooLong(usize),
    /// In [`CollectionId::ENGINE`].
    #[error("the key lies in the engine's own collection")]
    Reserved,
}

impl Key {
    /// Longest encoded key, in bytes.
    pub const ENCODED_BYTES_MAX: usize = KEY_BYTES_MAX + 5;

    /// The key `user` of `collection`.
    ///
    /// # Errors
    /// `user` is empty or longer than [`KEY_BYTES_MAX`].
    pub fn new(collection: CollectionId, user: &[u8]) -> Result<Key, KeyError> {
        match user.len() {
            0 => Err(KeyError::Empty),
            len if len > KEY_BYTES_MAX => Err(KeyError::TooLong(len)),
            _ => Ok(Key::bound(collection, user)),
        }
    }

    /// A bound for scans: like [`Key::new`], but `user` may be empty (before every key of the
    /// collection) or over-long.
    pub fn bound(collection: CollectionId, user: &[u8]) -> Key {
        let mut bytes = SmallVec::new();
        match u8::try_from(collection.0) {
            Ok(small) if small < 0xFF => bytes.push(small),
            _ => {
                bytes.push(0xFF);
                bytes.extend_from_slice(&collection.0.to_be_bytes());
            }
        }
        bytes.extend_from_slice(user);
        Key(bytes)
    }

    /// A key from its encoded form, as stored in records.
    /// `None` if `encoded` is no encoding of a key.
    pub fn from_encoded(encoded: &[u8]) -> Option<Key> {
        let user = Self::split(encoded)?.1;
        (!user.is_empty() && user.len() <= KEY_BYTES_MAX).then(|| Key(SmallVec::from_slice(encoded)))
    }

    /// The encoded bytes: what indexes and records hold.
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }

    /// Whether a record may have this key: bounds may lie outside.
    ///
    /// # Errors
    /// As [`Key::new`]; [`KeyError::Reserved`].
    pub fn check(&self) -> Result<(), KeyError> {
        match (self.user().len(), self.collection()) {
            (0, _) => Err(KeyError::Empty),
            (len, _) if len > KEY_BYTES_MAX => Err(KeyError::TooLong(len)),
            (_, CollectionId::ENGINE) => Err(KeyError::Reserved),
            _ => Ok(()),
        }
    }

    /// The collection.
    pub fn collection(&self) -> CollectionId {
        Self::split(&self.0).map(|(collection, _)| collection).unwrap_or_default()
    }

    /// The user's bytes.
    pub fn user(&self) -> &[u8] {
        Self::split(&self.0).map(|(_, user)| user).unwrap_or_default()
    }

    fn split(encoded: &[u8]) -> Option<(CollectionId, &[u8])> {
        match encoded.split_first()? {
            (0xFF, rest) => {
                let (number, user) = rest.split_first_chunk::<4>()?;
                let number = u32::from_be_bytes(*number);
                (number >= 0xFF).then_some((CollectionId(number), user))
            }
            (small, user) => Some((CollectionId(u32::from(*small)), user)),
        }
    }
}

/// For people: the key, escaped, and its collection's number unless that is the default one.
impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`", self.user().escape_ascii())?;
        match self.collection() {
            CollectionId(0) => Ok(()),
            CollectionId(number) => write!(f, " of collection {number}"),
        }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.collection().0, self.user().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_are_kept() {
        assert_eq!(Key::new(CollectionId(0), b""), Err(KeyError::Empty));
        assert!(Key::new(CollectionId(0), &vec![0; KEY_BYTES_MAX]).is_ok());
        assert_eq!(Key::new(CollectionId(0), &vec![0; KEY_BYTES_MAX + 1]), Err(KeyError::TooLong(KEY_BYTES_MAX + 1)));
        assert!(Key::from_encoded(b"\x00").is_none());
        assert!(Key::from_encoded(b"").is_none());
        assert!(Key::from_encoded(b"\xff\x00\x00\x00\x01k").is_none(), "not the shortest form");
    }

    proptest! {
        #[test]
        fn order_is_collection_then_bytes(a in any::<u32>(), b in any::<u32>(), x in prop::collection::vec(any::<u8>(), 1..9), y in prop::collection::vec(any::<u8>(), 1..9)) {
            let (a, b) = (CollectionId(a % 600), CollectionId(b % 600));
            let (left, right) = (Key::new(a, &x).unwrap(), Key::new(b, &y).unwrap());
            prop_assert_eq!(left.cmp(&right), (a, &x).cmp(&(b, &y)));
            prop_assert_eq!(left.collection(), a);
            prop_assert_eq!(left.user(), &x[..]);
            prop_assert_eq!(Key::from_encoded(left.encoded()), Some(left.clone()));
        }
    }
}
