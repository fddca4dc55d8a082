//! Replies of every type, appended to a buffer.
//!
//! What RESP2 has no type for becomes what Redis sends there: a map an array of twice the length, a
//! double a bulk string.

use std::io::Write;

use super::number::double_text;

/// Which version of the protocol a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// Of every client until it says otherwise.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

/// `+text`. The text has no line end; one would be a space.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text);
}

/// `-text`: a word in capitals, and what is wrong.
pub fn error(out: &mut Vec<u8>, text: &str) {
    line(out, b'-', text);
}

fn line(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// `:number`.
pub fn integer(out: &mut Vec<u8>, number: i64) {
    header(out, b':', number);
}

fn header(out: &mut Vec<u8>, kind: u8, number: i64) {
    // Writing to a vector does not fail.
    let _ = write!(out, "{}{number}\r\n", kind as char);
}

fn length(out: &mut Vec<u8>, kind: u8, length: usize) {
    header(out, kind, i64::try_from(length).unwrap_or(i64::MAX));
}

/// What comes before the bytes of a bulk string, and a line end behind them.
pub fn bulk_header(out: &mut Vec<u8>, bytes: u64) {
    header(out, b'$', i64::try_from(bytes).unwrap_or(i64::MAX));
}

/// A bulk string.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// The beginning of an array of so many replies, which follow.
pub fn array(out: &mut Vec<u8>, replies: usize) {
    length(out, b'*', replies);
}

/// The beginning of a push of so many replies: data that no request asked for.
pub fn push(out: &mut Vec<u8>, replies: usize, version: Version) {
    length(out, if version == Version::Resp3 { b'>' } else { b'*' }, replies);
}

/// The beginning of a map of so many pairs.
pub fn map(out: &mut Vec<u8>, pairs: usize, version: Version) {
    match version {
        Version::Resp2 => array(out, pairs.saturating_mul(2)),
        Version::Resp3 => length(out, b'%', pairs),
    }
}

/// The beginning of a set of so many replies.
pub fn set(out: &mut Vec<u8>, replies: usize, version: Version) {
    length(out, if version == Version::Resp3 { b'~' } else { b'*' }, replies);
}

/// There is no such value.
pub fn null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(if version == Version::Resp3 { b"_\r\n" } else { b"$-1\r\n" });
}

/// There is no such array.
pub fn null_array(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(if version == Version::Resp3 { b"_\r\n" } else { b"*-1\r\n" });
}

/// True or false; in RESP2 1 or 0.
pub fn boolean(out: &mut Vec<u8>, is_true: bool, version: Version) {
    match version {
        Version::Resp2 => integer(out, i64::from(is_true)),
        Version::Resp3 => out.extend_from_slice(if is_true { b"#t\r\n" } else { b"#f\r\n" }),
    }
}

/// A number with a fraction, in 17 digits.
pub fn double(out: &mut Vec<u8>, number: f64, version: Version) {
    let text = double_text(number);
    match version {
        Version::Resp2 => bulk(out, text.as_bytes()),
        Version::Resp3 => line(out, b',', &text),
    }
}

/// A whole number beyond 64 bits, in decimal digits.
pub fn big_number(out: &mut Vec<u8>, digits: &str, version: Version) {
    match version {
        Version::Resp2 => bulk(out, digits.as_bytes()),
        Version::Resp3 => line(out, b'(', digits),
    }
}

/// Plain text for people.
pub fn verbatim(out: &mut Vec<u8>, text: &[u8], version: Version) {
    if version == Version::Resp2 {
        return bulk(out, text);
    }
    length(out, b'=', text.len().saturating_add(4));
    out.extend_from_slice(b"txt:");
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// An error of any bytes; in RESP2 its lines become one.
pub fn bulk_error(out: &mut Vec<u8>, text: &str, version: Version) {
    if version == Version::Resp2 {
        return error(out, text);
    }
    length(out, b'!', text.len());
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(write: impl Fn(&mut Vec<u8>, Version)) -> [String; 2] {
        [Version::Resp2, Version::Resp3].map(|version| {
            let mut out = Vec::new();
            write(&mut out, version);
            out.escape_ascii().to_string().replace("\\r\\n", "|")
        })
    }

    #[test]
    fn every_type_is_written_as_its_version_has_it() {
        assert_eq!(both(|out, _| simple(out, "OK")), ["+OK|"; 2]);
        assert_eq!(both(|out, _| error(out, "ERR a\r\n-b")), ["-ERR a  -b|"; 2]);
        assert_eq!(both(|out, _| integer(out, i64::MIN)), [":-9223372036854775808|"; 2]);
        assert_eq!(both(|out, _| bulk(out, b"a\r\n\xff")), ["$4|a|\\xff|"; 2]);
        assert_eq!(both(|out, _| bulk(out, b"")), ["$0||"; 2]);
        assert_eq!(both(|out, _| bulk_header(out, 1 << 40)), ["$1099511627776|"; 2]);
        assert_eq!(both(|out, _| array(out, 3)), ["*3|"; 2]);
        assert_eq!(both(|out, version| push(out, 2, version)), ["*2|", ">2|"]);
        assert_eq!(both(|out, version| map(out, 2, version)), ["*4|", "%2|"]);
        assert_eq!(both(|out, version| set(out, 2, version)), ["*2|", "~2|"]);
        assert_eq!(both(null), ["$-1|", "_|"]);
        assert_eq!(both(null_array), ["*-1|", "_|"]);
        assert_eq!(both(|out, version| boolean(out, true, version)), [":1|", "#t|"]);
        assert_eq!(both(|out, version| double(out, 0.5, version)), ["$3|0.5|", ",0.5|"]);
        assert_eq!(both(|out, version| double(out, f64::NEG_INFINITY, version)), ["$4|-inf|", ",-inf|"]);
        assert_eq!(both(|out, version| double(out, f64::NAN, version)), ["$3|nan|", ",nan|"]);
        assert_eq!(both(|out, version| big_number(out, "12", version)), ["$2|12|", "(12|"]);
        assert_eq!(both(|out, version| verbatim(out, b"a\n", version)), ["$2|a\\n|", "=6|txt:a\\n|"]);
        assert_eq!(both(|out, version| bulk_error(out, "E\n", version)), ["-E |", "!2|E\\n|"]);
    }
}
