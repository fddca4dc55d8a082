//! Answers as memcached 1.6 words them.

/// A storage command was carried out.
pub const STORED: &[u8] = b"STORED\r\n";
/// The condition of add, replace, append or prepend did not hold.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// The version of a cas is not the present one.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// The key does not exist.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// A delete was carried out.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// A touch was carried out.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// Done.
pub const OK: &[u8] = b"OK\r\n";
/// The end of values or statistics.
pub const END: &[u8] = b"END\r\n";
/// The end of a list of meta commands.
pub const META_END: &[u8] = b"EN\r\n";
/// `stats reset` was carried out.
pub const RESET: &[u8] = b"RESET\r\n";
/// The end of a line.
pub const CRLF: &[u8] = b"\r\n";
/// No such command, or the wrong number of words.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// A word of the line is not what it should be.
pub const BAD_LINE: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// As [`BAD_LINE`], for delete.
pub const BAD_DELETE: &[u8] = b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
/// A data block does not end where its length says.
pub const BAD_DATA_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// The delta of incr or decr is no number of 64 bits.
pub const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
/// The value of incr or decr is no number of 64 bits.
pub const NOT_A_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// Of a value that only Redis clients can read.
pub const NOT_A_STRING: &[u8] =
    b"CLIENT_ERROR the key holds a structure of Redis, which memcache clients cannot read or append to\r\n";
/// Flags that tell structures from values.
pub const RESERVED_FLAGS: &[u8] = b"CLIENT_ERROR flags 1397446145 are reserved for structures of Redis\r\n";
/// The expiry time is no number.
pub const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
/// A flag of a meta command says no number.
pub const META_BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
/// A flag of a meta command occurs twice.
pub const META_DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
/// No meta command has such a flag.
pub const META_INVALID_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
/// What is wrong with the flags of md and ma is not told further.
pub const META_BAD_FLAGS: &[u8] = b"CLIENT_ERROR invalid or duplicate flag\r\n";
/// mg has too many flags.
pub const MG_TOO_MANY_FLAGS: &[u8] = b"CLIENT_ERROR options flags are too long\r\n";
/// Another meta command has too many flags.
pub const META_TOO_MANY_FLAGS: &[u8] = b"CLIENT_ERROR options flags too long\r\n";
/// The opaque of a meta command is too long.
pub const META_OPAQUE_TOO_LONG: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";
/// The key of a meta command is no base64.
pub const META_BAD_BASE64: &[u8] = b"CLIENT_ERROR error decoding key\r\n";
/// How many records `mr` may give.
pub const RANGE_BAD_COUNT: &[u8] = b"CLIENT_ERROR bad count: 1 to 1000, negative for descending order\r\n";
/// `mr` has no such range.
pub const RANGE_BAD_ENDS: &[u8] =
    b"CLIENT_ERROR bad range: - or key or [key or (key, then key or [key or (key or +\r\n";
/// `mr` on an engine without order.
pub const RANGE_WITHOUT_ORDER: &[u8] =
    b"SERVER_ERROR the engine keeps keys in no order: lru_crawler mgdump all lists them\r\n";
/// A mode has one letter.
pub const META_MODE_LENGTH: &[u8] = b"CLIENT_ERROR incorrect length for M token\r\n";
/// ms knows no such mode.
pub const META_BAD_STORE_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
/// ma knows no such mode.
pub const META_BAD_ARITHMETIC_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";
/// The delta of a meta command is no number of 64 bits.
pub const META_BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta value\r\n";
/// The initial value of a meta command is no number of 64 bits.
pub const META_BAD_INITIAL: &[u8] = b"CLIENT_ERROR invalid numeric initial value\r\n";
/// The answer of mn.
pub const META_NOOP: &[u8] = b"MN\r\n";
/// `slabs` of a server without slab classes.
pub const SLABS_FIXED: &[u8] = b"CLIENT_ERROR slab reassignment disabled\r\n";
/// `lru` of a server without such lists.
pub const LRU_FIXED: &[u8] = b"ERROR lru mode not available\r\n";
/// The shares of `lru tune` leave too little.
pub const LRU_SHARES: &[u8] = b"ERROR hot and warm pcts must not exceed 80\r\n";
/// The pause of `lru_crawler sleep` is too long.
pub const CRAWLER_SLEEP: &[u8] = b"CLIENT_ERROR sleep must be one second or less\r\n";
/// There is no such slab class.
pub const BAD_CLASS: &[u8] = b"BADCLASS invalid class id\r\n";
/// There is no such slab class, as `stats cachedump` says it.
pub const BAD_SLAB: &[u8] = b"CLIENT_ERROR Illegal slab id\r\n";
/// The limit of `cache_memlimit` is too small.
pub const MEMORY_TOO_SMALL: &[u8] = b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
/// The limit of `cache_memlimit` was meant in bytes.
pub const MEMORY_NO_BYTES: &[u8] = b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n";
/// The memory of the store is fixed while it is open, or so little is not enough.
pub const MEMORY_FIXED: &[u8] = b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";
/// `refresh_certs` of a server without TLS.
pub const NO_TLS: &[u8] = b"Error TLS not enabled\r\n";
/// `shutdown` of a server that does not let its clients.
pub const NO_SHUTDOWN: &[u8] = b"ERROR: shutdown not enabled\r\n";
/// `shutdown` has no such form.
pub const BAD_SHUTDOWN: &[u8] = b"CLIENT_ERROR invalid shutdown mode\r\n";
/// How `stats detail` is used.
pub const DETAIL_USAGE: &[u8] = b"CLIENT_ERROR usage: stats detail on|off|dump\r\n";
/// `stats cachedump` needs two numbers.
pub const CACHEDUMP_USAGE: &[u8] = b"CLIENT_ERROR bad command line\r\n";
/// The client has to say who it is.
pub const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
/// It is not who it says.
pub const AUTHENTICATION_FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
/// The name of a backup is none.
pub const BAD_BACKUP_NAME: &[u8] =
    b"CLIENT_ERROR a backup's name has 1 to 100 letters, digits, `-`, `_` and `.`, the first one a letter or a digit\r\n";
/// A request about collections is none.
pub const BAD_COLLECTIONS: &[u8] =
    b"CLIENT_ERROR usage: collections WORD list|describe|create NAME [ORDER]|drop NAME, names in base64\r\n";
/// The data block is longer than the limit.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// As many connections watch as may.
pub const TOO_MANY_WATCHERS: &[u8] = b"WATCHER_TOO_MANY log watcher limit reached\r\n";
/// The connection limit is reached; the connection is closed.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";

/// Appends `VALUE <key> <flags> <bytes>[ <cas>]\r\n`. The value and [`CRLF`] follow.
pub fn value_header(out: &mut Vec<u8>, key: &[u8], flags: u32, value_bytes: u64, cas: Option<u64>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    decimal(out, u64::from(flags));
    out.push(b' ');
    decimal(out, value_bytes);
    if let Some(cas) = cas {
        out.push(b' ');
        decimal(out, cas);
    }
    out.extend_from_slice(CRLF);
}

/// Appends a number's line: the answer of incr and decr.
pub fn number(out: &mut Vec<u8>, number: u64) {
    decimal(out, number);
    out.extend_from_slice(CRLF);
}

/// Appends `STAT <name> <value>\r\n`.
pub fn stat(out: &mut Vec<u8>, name: &str, value: impl std::fmt::Display) {
    use std::io::Write;
    // Writing to a Vec does not fail.
    let _ = write!(out, "STAT {name} {value}\r\n");
}

/// Appends `VERSION <version>\r\n`.
pub fn version(out: &mut Vec<u8>, version: &str) {
    out.extend_from_slice(b"VERSION ");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(CRLF);
}

/// Appends `SERVER_ERROR <message>\r\n`; control characters of the message become spaces, so it
/// stays one line.
pub fn server_error(out: &mut Vec<u8>, message: &str) {
    error(out, b"SERVER_ERROR ", message);
}

/// Appends `CLIENT_ERROR <message>\r\n`, as [`server_error`].
pub fn client_error(out: &mut Vec<u8>, message: &str) {
    error(out, b"CLIENT_ERROR ", message);
}

fn error(out: &mut Vec<u8>, kind: &[u8], message: &str) {
    out.extend_from_slice(kind);
    out.extend(message.bytes().map(|byte| if byte < b' ' { b' ' } else { byte }));
    out.extend_from_slice(CRLF);
}

/// Appends a key as lists and watchers' lines have it: letters, digits and `-._~` as they are,
/// other bytes as `%XX`.
pub fn encoded_key(out: &mut Vec<u8>, key: &[u8]) {
    use std::io::Write;
    for byte in key {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            byte if byte.is_ascii_alphanumeric() => out.push(*byte),
            // Writing to a Vec does not fail.
            byte => _ = write!(out, "%{byte:02X}"),
        }
    }
}

/// Appends a number's digits.
pub fn decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        at -= 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn replies_are_worded_as_memcached_does() {
        assert_eq!(written(|out| value_header(out, b"k", 0, 10, None)), "VALUE k 0 10\r\n");
        assert_eq!(
            written(|out| value_header(out, b"k", u32::MAX, 0, Some(u64::MAX))),
            "VALUE k 4294967295 0 18446744073709551615\r\n"
        );
        assert_eq!(written(|out| number(out, 1_203)), "1203\r\n");
        assert_eq!(written(|out| stat(out, "pid", 7)), "STAT pid 7\r\n");
        assert_eq!(written(|out| version(out, "1.2")), "VERSION 1.2\r\n");
        assert_eq!(written(|out| server_error(out, "a\r\nb")), "SERVER_ERROR a  b\r\n");
        assert_eq!(written(|out| client_error(out, "a\nb")), "CLIENT_ERROR a b\r\n");
    }
}
