//! Every record of a server read once, so that what it cannot read is known; and ranges deleted.

use std::io::{Read, Write};
use std::ops::Bound;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stratakv_protocol::memcache::{KEY_BYTES_MAX, reply};

use super::Client;
use super::range::{PageEnd, RangeRequest};
use crate::failure::Failure;
use crate::text::escaped;

/// Keys that are asked for, or deleted, at once.
const AT_ONCE: usize = 64;

/// What came of reading everything.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Keys whose records could not be read, with the server's words.
    pub(crate) damaged: Vec<(Vec<u8>, String)>,
    /// Keys that the protocol cannot ask for, or whose values it cannot carry.
    pub(crate) unread: u64,
}

/// Takes a page of keys.
type TakeKeys<'t, S> = &'t mut dyn FnMut(&mut Client<S>, Vec<Vec<u8>>) -> Result<(), Failure>;

impl<S: Read + Write> Client<S> {
    /// Gives the keys of a range to `take`, a page at a time.
    ///
    /// # Errors
    /// As of [`Client::page`], and of `take`.
    pub(crate) fn keys_of_range(&mut self, mut range: RangeRequest, take: TakeKeys<'_, S>) -> Result<(), Failure> {
        range.keys_only = true;
        loop {
            let mut keys = Vec::new();
            let end = self.page(&range, usize::MAX, &mut |record| {
                keys.push(record.key);
                Ok(())
            })?;
            if end == PageEnd::Unordered {
                let holds = |key: &Vec<u8>| is_in(&range, key);
                let all: Vec<Vec<u8>> = self.keys()?.into_iter().filter(holds).collect();
                return all.chunks(AT_ONCE).try_for_each(|some| take(self, some.to_vec()));
            }
            take(self, keys)?;
            match end {
                PageEnd::Behind(key) => range.go_on(key),
                _ => return Ok(()),
            }
        }
    }

    /// Reads the values of keys, and adds to what is known. Each is asked for by itself: one that
    /// is damaged hides no other.
    ///
    /// # Errors
    /// As of [`Client::get`]; not what the server says of a key.
    pub(crate) fn verify(&mut self, keys: &[Vec<u8>], known: &mut Verified) -> Result<(), Failure> {
        for some in keys.chunks(AT_ONCE) {
            let (some, long): (Vec<&Vec<u8>>, Vec<_>) = some.iter().partition(|key| key.len() <= KEY_BYTES_MAX);
            known.unread += long.len() as u64;
            let asked: String = some.iter().map(|key| format!("mg {} b v\r\n", STANDARD.encode(key))).collect();
            self.send(&[asked.as_bytes()])?;
            for key in some {
                let line = self.line()?;
                if [line.as_slice(), b"\r\n"].concat() == reply::NOT_A_STRING {
                    known.unread += 1;
                } else if let Some(why) = line.strip_prefix(b"SERVER_ERROR ") {
                    known.damaged.push((key.clone(), escaped(why)));
                } else if line != b"EN" {
                    known.bytes += self.passed_value(&line)?;
                    known.records += 1;
                }
            }
        }
        Ok(())
    }

    /// Deletes keys; how many were there, and how many the protocol cannot name.
    ///
    /// # Errors
    /// As of [`Client::get`].
    pub(crate) fn delete_all(&mut self, keys: &[Vec<u8>]) -> Result<(u64, u64), Failure> {
        let (mut deleted, mut unnamed) = (0, 0);
        for some in keys.chunks(AT_ONCE) {
            let (some, long): (Vec<&Vec<u8>>, Vec<_>) = some.iter().partition(|key| key.len() <= KEY_BYTES_MAX);
            unnamed += long.len() as u64;
            let asked: String = some.iter().map(|key| format!("md {} b\r\n", STANDARD.encode(key))).collect();
            self.send(&[asked.as_bytes()])?;
            let mut refused = None;
            for _ in some {
                match self.line()?.as_slice() {
                    line if line.starts_with(b"HD") => deleted += 1,
                    line if line.starts_with(b"NF") => {}
                    // The answers behind it are on their way.
                    line => drop(refused.get_or_insert_with(|| line.to_vec())),
                }
            }
            if let Some(line) = refused {
                return Err(self.refused(&line));
            }
        }
        Ok((deleted, unnamed))
    }
}

/// Whether a key lies in a range.
fn is_in(range: &RangeRequest, key: &[u8]) -> bool {
    let is_behind = match &range.from {
        Bound::Unbounded => true,
        Bound::Included(from) => key >= from.as_slice(),
        Bound::Excluded(from) => key > from.as_slice(),
    };
    is_behind
        && match &range.to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to.as_slice(),
            Bound::Excluded(to) => key < to.as_slice(),
        }
}
