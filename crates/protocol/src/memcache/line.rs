//! Words and numbers of a command line.

use super::{BACKUP_NAME_BYTES_MAX, KEY_BYTES_MAX};
use stratakv_base::decimal;

/// Words separated by one or more spaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub(super) fn new(line: &'a [u8]) -> Self {
        Tokens { rest: line }
    }

    /// What follows the words taken so far.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|byte| *byte != b' ')?;
        let word = self.rest.split_at_checked(start)?.1;
        let end = word.iter().position(|byte| *byte == b' ').unwrap_or(word.len());
        let (word, rest) = word.split_at_checked(end)?;
        self.rest = rest;
        Some(word)
    }
}

/// The words of a line, if there are at most `N`; `None` if there are more.
pub(super) fn words<const N: usize>(tokens: Tokens<'_>) -> Option<([&[u8]; N], usize)> {
    let mut words = [&[][..]; N];
    let mut count = 0;
    for word in tokens {
        *words.get_mut(count)? = word;
        count += 1;
    }
    Some((words, count))
}

/// Whether `key` may be a key. Control characters may be in it: the protocol's text forbids them,
/// memcached takes them, and clients (libmemcached's memaslap) send them.
pub(super) fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= KEY_BYTES_MAX && !key.contains(&0)
}

/// Whether a backup may have this name. It becomes that of a directory: nothing in it leads
/// elsewhere, hides it, or looks like an option.
pub fn is_backup_name(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphanumeric())
        && name.len() <= BACKUP_NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// A number as memcached reads it, if it fits.
pub(super) fn unsigned<T: TryFrom<u64>>(word: &[u8]) -> Option<T> {
    decimal::unsigned(word).and_then(|number| T::try_from(number).ok())
}

/// As [`unsigned`], with or without sign.
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    decimal::signed(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_separated_by_runs_of_spaces() {
        let all: Vec<&[u8]> = Tokens::new(b"  a  bc d ").collect();
        assert_eq!(all, [&b"a"[..], b"bc", b"d"]);
        assert!(words::<2>(Tokens::new(b"a b c")).is_none());
        assert_eq!(words::<3>(Tokens::new(b"a b")).unwrap().1, 2);
    }

    #[test]
    fn names_of_backups_lead_nowhere_else() {
        for good in ["monday", "2026-11-02T03.04_full", "7", &"n".repeat(100)] {
            assert!(is_backup_name(good), "{good}");
        }
        let long = "n".repeat(101);
        for bad in
            ["", ".", "..", ".hidden", "-rf", "_", "a/b", "../a", "/etc", "a\\b", "a b", "a\n", "ä", "a\0", &long]
        {
            assert!(!is_backup_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn numbers_are_whole_words_that_fit() {
        assert_eq!(unsigned::<u64>(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned::<u64>(b"18446744073709551616"), None);
        assert_eq!(unsigned::<u32>(b"4294967296"), None);
        assert_eq!(unsigned::<u32>(b"+7"), Some(7));
        for bad in [&b""[..], b"+", b"-1", b"1x", b"0x10", b"++1"] {
            assert_eq!(unsigned::<u64>(bad), None, "{}", bad.escape_ascii());
        }
        assert_eq!(signed(b"-1"), Some(-1));
        assert_eq!(signed(b"-+1"), None);
        assert_eq!(signed(b"-"), None);
        assert_eq!(signed(b"99999999999999999999999"), None);
    }
}
