//! Bytes for a terminal.

use std::io::{self, Write};

use stratakv_structures::{Kind, kind_of, len};

/// Writes `bytes` on one line: UTF-8 as it is, with backslashes, control characters and invalid
/// bytes escaped as in Rust (`\\`, `\n`, `\xff`).
pub(crate) fn write_escaped(output: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => output.write_all(b"\\\\")?,
                control if control.is_control() => write!(output, "{}", control.escape_default())?,
                other => write!(output, "{other}")?,
            }
        }
        for byte in chunk.invalid() {
            write!(output, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

/// As [`write_escaped`], for a message.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    // Writing to a Vec does not fail.
    let _ = write_escaped(&mut out, bytes);
    String::from_utf8_lossy(&out).into_owned()
}

/// What stands for the value of a structure of Redis clients, whose bytes tell a person nothing:
/// `(hash, 2 elements)`. `None` of any other value.
pub(crate) fn structure(flags: u32, value: &[u8]) -> Option<String> {
    match kind_of(flags, value) {
        Kind::String => None,
        kind => Some(match len(value) {
            Ok(1) => format!("({}, 1 element)", kind.name()),
            Ok(elements) => format!("({}, {elements} elements)", kind.name()),
            Err(_) => format!("({} structure)", kind.name()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_structure_is_told_and_a_string_is_not() {
        let flags = stratakv_structures::STRUCTURE_FLAGS;
        let hash = |count: u8| [&b"\xffSKV\x01\x01\x00\x00"[..], &[count, 0, 0, 0]].concat();
        assert_eq!(structure(flags, &hash(2)).as_deref(), Some("(hash, 2 elements)"));
        assert_eq!(structure(flags, &hash(1)).as_deref(), Some("(hash, 1 element)"));
        assert_eq!(structure(flags, &hash(1)[..9]).as_deref(), Some("(damaged structure)"));
        assert_eq!((structure(0, &hash(2)), structure(flags, b"text")), (None, None));
    }

    #[test]
    fn what_would_break_a_line_or_a_terminal_is_escaped() {
        let mut out = Vec::new();
        write_escaped(&mut out, b"na\xc3\xafve\t\\\n\x1b[2J\xff").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "naïve\\t\\\\\\n\\u{1b}[2J\\xff");
    }
}
