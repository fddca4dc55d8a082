//! Quantities as people write them: `4G`, `512MiB`, `1.5GB`; `500us`, `2ms`.

use std::time::Duration;

/// Parses a number of bytes. `K`, `M`, `G`, `T` (with or without `iB` or `B`) are powers of 1024.
///
/// # Errors
/// The text is no number, has an unknown unit, or does not fit 64 bits; the message says which.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        other => return Err(format!("unknown unit `{other}` in `{text}`: use K, M, G or T")),
    };
    let out_of_range = || format!("`{text}` is too large");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(out_of_range);
    }
    let number: f64 =
        number.parse().map_err(|_| format!("`{text}` is not a number of bytes: write for example 512M or 4G"))?;
    let bytes = number * (1u64 << shift) as f64;
    if bytes >= u64::MAX as f64 { Err(out_of_range()) } else { Ok(bytes as u64) }
}

/// Parses a number of things: `4000000`, `100M`, `2.5G`. `K`, `M`, `G` and `T` are powers of 1000.
///
/// # Errors
/// The text is no whole number with one of these units, or does not fit 64 bits; the message says
/// so.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number = number.replace('_', "");
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" | "b" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        other => return Err(format!("unknown unit `{other}` in `{text}`: use K, M, G or T, which are powers of 1000")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("`{text}` is too large"));
    }
    let wrong = || format!("`{text}` is not a whole number: write for example 4000000 or 100M");
    let count = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
    if count < u64::MAX as f64 && count.fract() == 0.0 { Ok(count as u64) } else { Err(wrong()) }
}

/// Parses a length of time: `500us`, `2ms`, `1.5s`.
///
/// # Errors
/// The text is no number with one of these units, or it is not above 0 and at most an hour; the
/// message says so.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit_s = match unit.trim() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" => return Err(format!("`{text}` has no unit: write for example 500us, 2ms, 1s or 5m")),
        other => return Err(format!("unknown unit `{other}` in `{text}`: write for example 500us, 2ms, 1s or 5m")),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{text}` is not a length of time: write for example 2ms"))?;
    let seconds = number * unit_s;
    if seconds > 0.0 && seconds <= 3600.0 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("`{text}` is not above 0 and at most an hour"))
    }
}

/// Bytes for people: three significant digits, binary units.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => format!("{bytes} B"),
        (_, v) if v < 10.0 => format!("{v:.2} {}", UNITS[unit]),
        (_, v) if v < 100.0 => format!("{v:.1} {}", UNITS[unit]),
        (_, v) => format!("{v:.0} {}", UNITS[unit]),
    }
}

/// So many of something, for people: `1 record`, `2 records`. `noun` takes an s in the plural.
pub fn format_count(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|count| format_count(count, "shard")), ["0 shards", "1 shard", "2 shards"]);
    }

    #[test]
    fn parses_numbers_of_things() {
        assert_eq!(parse_count("4000000"), Ok(4_000_000));
        assert_eq!(parse_count(" 100M "), Ok(100_000_000));
        assert_eq!(parse_count("2.5g"), Ok(2_500_000_000));
        assert_eq!(parse_count("1_000k"), Ok(1_000_000));
        for wrong in ["", "M", "1.5", "-1", "1x", "99999999999T", "1..5M"] {
            assert!(parse_count(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parses_lengths_of_time() {
        assert_eq!(parse_duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_duration(" 1.5 ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        for wrong in ["", "5", "0ms", "2h", "-1s", "9999999s", "..s", "NaNs"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn parses_what_people_write() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("4G"), Ok(4 << 30));
        assert_eq!(parse_bytes("512 MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("1.5k"), Ok(1536));
        assert!(parse_bytes("12 parsecs").unwrap_err().contains("parsecs"));
        assert!(parse_bytes("").is_err());
        assert!(parse_bytes("99999999999T").unwrap_err().contains("too large"));
    }

    #[test]
    fn formats_for_people() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(1536), "1.50 KiB");
        assert_eq!(format_bytes(5 << 30), "5.00 GiB");
        assert_eq!(format_bytes(123 << 20), "123 MiB");
    }
}
