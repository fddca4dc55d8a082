//! Numbers of things on the command line: `100M` keys, `64K` connections.

use stratakv_base::quantity::parse_count;

/// A number of things, as `usize`.
pub(crate) fn parse_usize(text: &str) -> Result<usize, String> {
    usize::try_from(parse_count(text)?).map_err(|_| format!("`{text}` is too large"))
}

/// At least one of them.
pub(crate) fn parse_some(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("at least 1".into()),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_suffixes() {
        assert_eq!((parse_usize("10K"), parse_some("100M")), (Ok(10_000), Ok(100_000_000)));
        assert!(parse_some("0").is_err() && parse_usize("ten").is_err());
    }
}
