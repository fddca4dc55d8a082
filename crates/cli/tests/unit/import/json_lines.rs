use super::*;

fn fields(key: &str, value: Option<&str>) -> JsonArguments {
    JsonArguments { key_field: Some(key.into()), value_field: value.map(str::to_owned) }
}

fn lines(text: &str) -> JsonLines {
    JsonLines::new(Box::new(std::io::Cursor::new(text.as_bytes().to_vec())), "stdin".into())
}

/// Keys and values of all rows that are good.
fn records(rows: &mut JsonLines) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let mut all = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let parsed = row.parsed.unwrap();
        all.push((text(parsed.key), text(parsed.value)));
    }
    all
}

#[test]
fn a_field_is_the_key_of_lines_of_others() {
    let text = "{\"id\": 7, \"name\":\"Ada\", \"tags\":[1, 2.50]}\n";
    let record = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
    let read = |key, value| records(&mut lines(text).with_fields(&fields(key, value)));
    // As it is: nothing is lost of its numbers or its order.
    assert_eq!(read("id", None), record("7", text.trim()));
    assert_eq!(read("name", Some("id")), record("Ada", "7"));
    assert_eq!(read("id", Some("name")), record("7", "Ada"));
    assert_eq!(read("id", Some("tags")), record("7", "[1, 2.50]"));
    let long = "{\"id\":1,\"n\":123456789012345678901234567890,\"t\":\"a\\u00e9\"}";
    let value = |name| fields("id", Some(name)).parse(long.as_bytes()).unwrap().value;
    assert_eq!(value("n"), b"123456789012345678901234567890");
    assert_eq!(value("t"), "aé".as_bytes());
    let why = |line: &str, key, value| fields(key, value).parse(line.as_bytes()).unwrap_err();
    assert!(why(text, "age", None).contains("no field `age`") && why(text, "id", Some("age")).contains("`age`"));
    assert!(why(text, "tags", None).contains("no text and no whole number"));
    assert!(why("{\"id\":1.5}", "id", None).contains("no text and no whole number"));
    assert!(why("[1]", "id", None).contains("no object of JSON"));
}

/// Rows of `{"key":"kN","value":"v"}`.
fn numbered(range: std::ops::Range<u32>) -> String {
    range.map(|number| format!("{{\"key\":\"k{number}\",\"value\":\"v\"}}\n")).collect()
}

/// What `export --resume` writes, with this last line.
fn exported(key: &str, range: std::ops::Range<u32>, last: &str) -> String {
    format!("{{\"continues_behind_base64\":\"{}\"}}\n{}{last}", STANDARD.encode(key), numbered(range))
}

/// Where an import of these lines stands after so many of them.
fn after(text: &str, rows: usize) -> Position {
    let mut lines = lines(text).pass(None).unwrap();
    (0..rows).for_each(|_| assert!(lines.next().unwrap().is_some()));
    lines.position()
}

#[test]
fn a_stream_is_passed_up_to_where_the_run_before_stood() {
    let text = numbered(0..9);
    for rows in 0..=9 {
        let position = after(&text, rows);
        let mut rest = lines(&text).pass(Some(&position)).unwrap();
        let keys: Vec<String> = records(&mut rest).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, (rows..9).map(|number| format!("k{number}")).collect::<Vec<_>>());
        assert_eq!(rest.position(), after(&text, 9), "after {rows}");
    }
}

#[test]
fn another_stream_is_refused() {
    let text = numbered(0..9);
    let position = after(&text, 5);
    let why = |text: &str, position: &Position| lines(text).pass(Some(position)).err().map(|why| why.message);
    assert!(why(&text.replace("k3", "k4"), &position).unwrap().contains("its bytes are others"));
    assert!(why(&numbered(0..4), &position).unwrap().contains("it ends sooner"));
    // A line is longer, so none ends where the run before stood.
    assert!(why(&text.replace("k3", "k33"), &position).unwrap().contains("its bytes are others"));
    assert_eq!(why(&text, &position), None);
}

#[test]
fn a_stream_may_go_on_behind_the_last_key() {
    let position = after(&numbered(0..9), 5);
    let behind = |key: &str| exported(key, 5..9, "{\"ends_after\":4}\n");
    let mut rest = lines(&behind("k4")).pass(Some(&position)).unwrap();
    assert_eq!(records(&mut rest).len(), 4);
    // Its hash is not that of the whole stream, so the next one has to go on in the same way.
    let second = rest.position();
    assert!(second.xxh3.is_none() && second.offset > position.offset && second.line == 10, "{second:?}");
    let why = |text: &str, position: &Position| lines(text).pass(Some(position)).err().unwrap().message;
    assert!(why(&behind("k3"), &position).contains("behind another key"));
    assert!(why(&numbered(0..99), &second).contains("export --resume"));
    // Without a checkpoint such a stream is not the whole of anything.
    assert!(lines(&behind("k4")).next().unwrap().unwrap().parsed.unwrap_err().contains("continues_behind_base64"));
}

#[test]
fn an_end_is_certain_only_behind_the_promised_line() {
    let ended = |text: &str, begun_at: Option<&Position>| {
        let mut lines = lines(text).pass(begun_at)?;
        while lines.next()?.is_some() {}
        Ok::<bool, Failure>(lines.is_end_certain())
    };
    let why = |text: &str| ended(text, None).unwrap_err().message;
    let last = "{\"ends_after\":9}\n";
    // Others' lines, even with such a one among them, promise nothing.
    assert_eq!(ended(&numbered(0..9), None).ok(), Some(false));
    assert_eq!(ended(&exported("", 0..9, last), None).ok(), Some(true));
    assert!(why(&exported("", 0..9, "")).contains("without the last line"));
    assert!(why(&exported("", 0..8, last)).contains("has 8 records, and its last line says 9"));
    assert!(why(&exported("", 0..9, &[last, "{}\n"].concat())).contains("goes on behind its last line"));
    assert!(why(&exported("k4", 5..9, last)).contains("there is no checkpoint"));
    let position = after(&numbered(0..9), 5);
    assert_eq!(ended(&exported("k4", 5..9, "{\"ends_after\":4}\n"), Some(&position)).ok(), Some(true));
    assert!(ended(&exported("k4", 5..9, ""), Some(&position)).is_err());
    // A file has its end, whatever stands in it.
    assert!(lines(&numbered(0..9)).is_end_certain());
}
