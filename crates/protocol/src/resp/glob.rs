//! Patterns of keys, as Redis has them: `*`, `?`, `[a-z]`, `[^a-z]`, and `\` before a byte that
//! stands for itself.

/// Longest pattern: to match it takes at most as many steps as its length times that of the key.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// Whether all of `text` matches. Neither recursion nor repeated search: a `*` is only ever tried
/// again for the last one met.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Behind the last `*`, and how much of the text it stands for.
    let mut star: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(read) {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, read));
            continue;
        }
        match one(pattern.get(at..).unwrap_or_default(), *byte) {
            Some(length) => (at, read) = (at + length, read + 1),
            None => {
                let Some((behind, until)) = star else { return false };
                (at, read) = (behind, until + 1);
                star = Some((behind, until + 1));
            }
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// How long the front of a pattern is that stands for this byte; `None`: it does not match.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', class @ ..] => {
            let (is_in, length) = in_class(class, byte);
            is_in.then_some(length + 1)
        }
        [first, ..] => (*first == byte).then_some(1),
    }
}

/// Whether a byte is in a class, and how long that is, with its `]`. A class without end ends with
/// the pattern.
fn in_class(class: &[u8], byte: u8) -> (bool, usize) {
    let is_inverted = class.first() == Some(&b'^');
    let mut at = usize::from(is_inverted);
    let mut is_in = false;
    loop {
        match class.get(at..).unwrap_or_default() {
            [] => return (is_in != is_inverted, at),
            [b']', ..] => return (is_in != is_inverted, at + 1),
            [b'\\', escaped, ..] => {
                is_in |= *escaped == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                is_in |= (*from.min(to)..=*from.max(to)).contains(&byte);
                at += 3;
            }
            [single, ..] => {
                is_in |= *single == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text) in [
            (&b"*"[..], &b""[..]),
            (b"*", b"anything"),
            (b"h?llo", b"hello"),
            (b"h*llo", b"heeeello"),
            (b"h[ae]llo", b"hallo"),
            (b"h[^e]llo", b"hbllo"),
            (b"h[a-c]llo", b"hbllo"),
            (b"h[c-a]llo", b"hbllo"),
            (b"a\\*b", b"a*b"),
            (b"[\\]]", b"]"),
            (b"user:*:name", b"user:1:2:name"),
            (b"*a*b", b"aabab"),
            (b"[a", b"a"),
            (b"", b""),
            (b"\\", b"\\"),
            (b"**", b"x"),
        ] {
            assert!(matches(pattern, text), "{} {}", pattern.escape_ascii(), text.escape_ascii());
        }
        for (pattern, text) in [
            (&b""[..], &b"a"[..]),
            (b"a", b""),
            (b"h?llo", b"hllo"),
            (b"h[^e]llo", b"hello"),
            (b"a\\*b", b"axb"),
            (b"*a", b"ab"),
            (b"[]", b"a"),
            (b"?", b""),
        ] {
            assert!(!matches(pattern, text), "{} {}", pattern.escape_ascii(), text.escape_ascii());
        }
    }

    /// By recursion this would take 2^100 steps.
    #[test]
    fn no_pattern_takes_long() {
        let pattern = b"a*".repeat(PATTERN_BYTES_MAX / 2);
        assert!(!matches(&[&pattern[..], b"b"].concat(), &[b'a'; 5000]));
    }
}
