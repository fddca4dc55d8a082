//! Inline commands: words of a line, as a person types them.

/// Quotes that do not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quotes do not match")]
pub struct UnbalancedQuotes;

/// The words of a line, by the rules of Redis: words in double quotes have escapes, those in single
/// quotes have `\'` alone, and a closing quote ends its word.
///
/// # Errors
/// [`UnbalancedQuotes`].
pub fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let mut rest = Reader { bytes: line };
    let mut words = Vec::new();
    loop {
        while rest.peek().is_some_and(is_space) {
            rest.next();
        }
        if rest.peek().is_none() {
            return Ok(words);
        }
        words.push(word(&mut rest)?);
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0)
}

fn word(rest: &mut Reader<'_>) -> Result<Vec<u8>, UnbalancedQuotes> {
    let mut word = Vec::new();
    while let Some(byte) = rest.peek().filter(|byte| !is_space(*byte)) {
        rest.next();
        match byte {
            b'"' | b'\'' => {
                quoted(rest, byte, &mut word)?;
                // A word cannot go on behind its closing quote.
                return match rest.peek() {
                    Some(next) if !is_space(next) => Err(UnbalancedQuotes),
                    _ => Ok(word),
                };
            }
            byte => word.push(byte),
        }
    }
    Ok(word)
}

/// What is in quotes, up to the closing one.
fn quoted(rest: &mut Reader<'_>, quote: u8, word: &mut Vec<u8>) -> Result<(), UnbalancedQuotes> {
    loop {
        match rest.next().ok_or(UnbalancedQuotes)? {
            byte if byte == quote => return Ok(()),
            b'\\' if quote == b'"' => word.push(escaped(rest)?),
            b'\\' if rest.peek() == Some(b'\'') => {
                rest.next();
                word.push(b'\'');
            }
            byte => word.push(byte),
        }
    }
}

/// What a backslash in double quotes stands for.
fn escaped(rest: &mut Reader<'_>) -> Result<u8, UnbalancedQuotes> {
    let byte = rest.next().ok_or(UnbalancedQuotes)?;
    let hex = |byte: u8| (byte as char).to_digit(16);
    if let (b'x', [high, low, ..]) = (byte, rest.bytes)
        && let (Some(high), Some(low)) = (hex(*high), hex(*low))
    {
        rest.next();
        rest.next();
        return Ok((high << 4 | low) as u8);
    }
    Ok(match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        byte => byte,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &[u8]) -> Result<String, UnbalancedQuotes> {
        let shown = |word: &Vec<u8>| word.escape_ascii().to_string();
        words(line).map(|words| words.iter().map(shown).collect::<Vec<_>>().join("|"))
    }

    #[test]
    fn lines_are_taken_apart_as_redis_does() {
        for (line, expected) in [
            (&b""[..], ""),
            (b"  \t ", ""),
            (b"PING", "PING"),
            (b" set  a\tb ", "set|a|b"),
            (b"set a \"b c\"", "set|a|b c"),
            (br#"set a "\x41\x4g\n\"\\q\q""#, r#"set|a|Ax4g\n\"\\qq"#),
            (br"set a 'b\'c\n'", r"set|a|b\'c\\n"),
            (b"set a \"\" ''", "set|a||"),
            (b"pre\"fix\"", "prefix"),
            (b"\xff\x80", r"\xff\x80"),
        ] {
            assert_eq!(of(line).as_deref(), Ok(expected), "{}", line.escape_ascii());
        }
        for line in [&b"\""[..], b"'", b"set \"a", b"set 'a", b"\"a\"b", b"'a'b", b"\"\\", br#""\"#] {
            assert_eq!(of(line), Err(UnbalancedQuotes), "{}", line.escape_ascii());
        }
    }
}
