//! Bytes for a terminal.

use std::io::{self, Write};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_line_or_a_terminal_is_escaped() {
        let mut out = Vec::new();
        write_escaped(&mut out, b"na\xc3\xafve\t\\\n\x1b[2J\xff").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "naïve\\t\\\\\\n\\u{1b}[2J\\xff");
    }
}
