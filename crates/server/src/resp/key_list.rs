//! Keys of one command, close together: 2 bytes each beside their own.

use std::borrow::Cow;

use stratakv_base::Key;

use super::arguments::{Arguments, RequestRefusal, key};

/// Most keys of one command: to look at them takes a few milliseconds, and others wait meanwhile.
pub(crate) const KEYS_MAX: usize = 65_536;

/// Keys still to be asked for, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyList {
    bytes: Vec<u8>,
    at: usize,
}

impl KeyList {
    /// Those of a command's arguments from `first` on, each `step` further.
    ///
    /// # Errors
    /// One cannot be a key, or there are more than [`KEYS_MAX`].
    pub(crate) fn of(arguments: &Arguments<'_>, first: usize, step: usize) -> Result<KeyList, RequestRefusal> {
        if arguments.len().saturating_sub(first).div_ceil(step.max(1)) > KEYS_MAX {
            return Err(Cow::Owned(format!("ERR a command takes up to {KEYS_MAX} keys: send them in parts")));
        }
        let mut list = KeyList::default();
        for name in arguments.from(first).step_by(step) {
            key(name)?;
            list.push(name);
        }
        Ok(list)
    }

    /// These.
    pub(crate) fn of_keys<'a>(keys: impl Iterator<Item = &'a Key>) -> KeyList {
        let mut list = KeyList::default();
        keys.for_each(|key| list.push(key.user()));
        list
    }

    /// A key has at most 65,535 bytes.
    fn push(&mut self, name: &[u8]) {
        self.bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(name);
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }
}

impl Iterator for KeyList {
    type Item = Key;

    fn next(&mut self) -> Option<Key> {
        let (len, rest) = self.bytes.get(self.at..)?.split_first_chunk::<2>()?;
        let len = usize::from(u16::from_le_bytes(*len));
        let key = key(rest.get(..len)?).ok()?;
        self.at += 2 + len;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments::Gathered;
    use super::*;

    #[test]
    fn keys_come_in_their_order_and_bad_ones_are_refused() {
        let mut gathered = Gathered::default();
        let long = vec![b'k'; 65_535];
        [&b"MSET"[..], b"a", b"1", &long, b"2"].iter().for_each(|argument| gathered.push(argument));
        let arguments = Arguments::new(&gathered, b"", &[]);
        let keys: Vec<Vec<u8>> = KeyList::of(&arguments, 1, 2).unwrap().map(|key| key.user().to_vec()).collect();
        assert_eq!(keys, [b"a".to_vec(), long]);
        gathered.push(b"");
        let arguments = Arguments::new(&gathered, b"", &[]);
        assert!(KeyList::of(&arguments, 1, 2).is_err(), "an empty key");
        let mut gathered = Gathered::default();
        (0..=KEYS_MAX).for_each(|_| gathered.push(b"a"));
        let arguments = Arguments::new(&gathered, b"", &[]);
        assert!(KeyList::of(&arguments, 1, 1).is_ok() && KeyList::of(&arguments, 0, 1).is_err());
        assert!(KeyList::default().is_empty() && KeyList::default().next().is_none());
    }
}
