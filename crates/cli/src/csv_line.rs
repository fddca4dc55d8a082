//! One record as a line of CSV: what `dump --format csv` writes, and `import` reads back.

use std::io::{self, Write};

use csv::WriterBuilder;

use crate::json_line::Line;

/// The columns, as the fields of a line of JSON are called.
pub(crate) const COLUMNS: [&str; 10] =
    ["key", "value", "flags", "expiry", "expiry_ms", "key_base64", "value_base64", "collection", "list", "order"];

/// Room for a line that is written.
const LINE_BYTES: usize = 1 << 10;

/// Writes the names of the columns.
pub(crate) fn write_columns(output: &mut impl Write) -> io::Result<()> {
    write_fields(output, COLUMNS)
}

/// Writes a record. What it lacks stands as an empty field.
pub(crate) fn write_line(output: &mut impl Write, line: &Line) -> io::Result<()> {
    let number = |number: u32| if number == 0 { String::new() } else { number.to_string() };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    write_fields(
        output,
        [
            text(&line.key),
            text(&line.value),
            number(line.flags),
            number(line.expiry),
            line.expiry_ms.map_or(String::new(), |millis| millis.to_string()),
            text(&line.key_base64),
            text(&line.value_base64),
            text(&line.collection),
            text(&line.list),
            text(&line.order),
        ],
    )
}

fn write_fields<const N: usize>(output: &mut impl Write, fields: [impl AsRef<[u8]>; N]) -> io::Result<()> {
    let mut writer = WriterBuilder::new().buffer_capacity(LINE_BYTES).from_writer(output);
    writer.write_record(fields).map_err(io::Error::from)?;
    writer.flush()
}
