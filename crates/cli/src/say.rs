//! Lines for people, on stderr. A stderr that cannot be written (a full disk, a reader that is
//! gone) stops nothing: the line is lost, the work goes on and the exit code tells.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::OnceLock;

use serde_json::json;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::logging::LogFormat;

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Says a line: as text with the program's name in front, or as an object like those of the log.
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::say::line("INFO", format_args!($($argument)*))
    };
}
pub(crate) use say;

/// How lines look from now on; the first call counts.
pub(crate) fn begin(format: LogFormat) {
    FORMAT.get_or_init(|| format);
}

/// See [`say!`].
pub(crate) fn line(level: &str, message: Arguments<'_>) {
    let line = match FORMAT.get() {
        Some(LogFormat::Json) => as_json(level, message),
        Some(LogFormat::Text) | None => format!("stratakv: {message}\n"),
    };
    // One write, so that lines of several threads do not mix. There is nowhere to tell of its
    // failure.
    let told = std::io::stderr().write_all(line.as_bytes());
    drop(told);
}

fn as_json(level: &str, message: Arguments<'_>) -> String {
    let mut timestamp = String::new();
    if SystemTime.format_time(&mut Writer::new(&mut timestamp)).is_err() {
        timestamp.clear();
    }
    let message = message.to_string();
    format!("{}\n", json!({ "timestamp": timestamp, "level": level, "message": message, "target": "stratakv" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_has_what_those_of_the_log_have() {
        let line = as_json("INFO", format_args!("closed in {}", "order"));
        let value: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
        assert_eq!((&value["level"], &value["message"]), (&json!("INFO"), &json!("closed in order")));
        assert!(value["timestamp"].as_str().is_some_and(|text| text.contains('T')), "{line}");
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
    }
}
