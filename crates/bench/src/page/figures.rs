//! Numbers as they are read on a page.

use super::standing::Spread;

/// A figure: thousands are set apart, and small ones keep three digits that count.
pub fn figure(number: f64) -> String {
    let size = number.abs();
    match () {
        () if !number.is_finite() => String::new(),
        () if size >= 100.0 => grouped(number),
        () if size >= 10.0 => trimmed(format!("{number:.1}")),
        () if size >= 1.0 || size == 0.0 => trimmed(format!("{number:.2}")),
        () => trimmed(format!("{number:.4}")),
    }
}

/// A whole number, thousands set apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn grouped(number: f64) -> String {
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{}", count(number.abs().round() as u64))
}

fn trimmed(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// How many times: 1.25, 0.031.
pub fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 100.0 => figure(ratio),
        ratio if ratio >= 0.1 => format!("{ratio:.2}"),
        ratio if ratio >= 0.01 => format!("{ratio:.3}"),
        ratio if ratio >= 0.001 => format!("{ratio:.4}"),
        ratio => format!("{ratio:.5}"),
    }
}

/// A share as percent.
pub fn percent(share: f64) -> String {
    format!("{} %", figure((share * 1000.0).round() / 10.0))
}

/// The median, and of several rounds the lowest and the highest.
pub fn spread(found: Spread, unit: &str) -> String {
    let shown = |number: f64| if unit == "%" { percent(number) } else { figure(number) };
    let unit = if unit.is_empty() || unit == "%" { String::new() } else { format!(" {unit}") };
    match found.rounds {
        1 => format!("{}{unit}", shown(found.median)),
        _ => format!("{}{unit} ({} to {})", shown(found.median), shown(found.min), shown(found.max)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_tell_neighbours_apart() {
        let all = [0.0, 0.0312, 0.5, 1.0, 1.234, 12.34, 99.96, 123.4, 1234.5, 1e7, -2500.0].map(figure);
        let expected = ["0", "0.0312", "0.5", "1", "1.23", "12.3", "100", "123", "1,235", "10,000,000", "-2,500"];
        assert_eq!(all, expected);
        assert_eq!((figure(f64::NAN), figure(f64::INFINITY)), (String::new(), String::new()));
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [2.0, 0.5, 0.02, 0.0021, 1e-4, 660.0].map(times),
            ["2.00", "0.50", "0.020", "0.0021", "0.00010", "660"]
        );
        assert_eq!([0.955, 1.0, 0.0123].map(percent), ["95.5 %", "100 %", "1.2 %"]);
    }

    #[test]
    fn one_round_has_no_range() {
        let of = |rounds: &[f64]| Spread::of(rounds.iter().copied()).expect("rounds");
        assert_eq!(spread(of(&[1500.0]), "/s"), "1,500 /s");
        assert_eq!(spread(of(&[1500.0, 1400.0, 1600.0]), "/s"), "1,500 /s (1,400 to 1,600)");
        assert_eq!(spread(of(&[0.5, 0.25]), "%"), "50 % (25 % to 50 %)");
    }
}
