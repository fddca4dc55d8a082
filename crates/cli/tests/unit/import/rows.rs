use super::*;

/// Numbers of lines, and what is in them.
type NumberedRows = Vec<(u64, Result<Parsed, String>)>;

#[derive(clap::Parser)]
struct CsvOptions {
    #[command(flatten)]
    csv: CsvArguments,
}

fn csv(arguments: &[&str]) -> CsvArguments {
    <CsvOptions as clap::Parser>::try_parse_from([&["import"], arguments].concat()).unwrap().csv
}

fn rows(text: &'static str, arguments: &[&str]) -> Result<NumberedRows, String> {
    let mut rows =
        CsvRows::new(Box::new(text.as_bytes()), "file", &csv(arguments)).map_err(|failure| failure.message)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(|failure| failure.message)? {
        all.push((row.line, row.parsed));
    }
    Ok(all)
}

fn parsed(key: &str, value: &[u8]) -> Parsed {
    Parsed { collection: None, key: key.into(), value: value.to_vec(), flags: 0, expiry: Expiry::NEVER }
}

#[test]
fn rows_are_records() {
    let read = rows("key,value\na,1\n\"b\nc\",\"x,\"\"y\"\nd,\n", &[]).unwrap();
    let expected = [(2, Ok(parsed("a", b"1"))), (3, Ok(parsed("b\nc", b"x,\"y"))), (5, Ok(parsed("d", b"")))];
    assert_eq!(read, expected);
    let read = rows("id,name,age\n7,Ada,36\n", &["--key-column", "id", "--rows", "json"]).unwrap();
    assert_eq!(read, [(2, Ok(parsed("7", br#"{"age":"36","name":"Ada"}"#)))]);
    let read = rows("id,name,age\n7,Ada,36\n", &["--key-column", "id", "--rows", "hash"]).unwrap();
    let Ok(hash) = &read[0].1 else { panic!("{read:?}") };
    assert_eq!(stratakv_structures::Hash::parse(&hash.value).unwrap().get(b"name"), Some(&b"Ada"[..]));
    let all = "key,value,flags,expiry,expiry_ms,key_base64,value_base64,collection,list,order\n\
               k,v,7,3,2500,,,,,\n,,0,0,,/wA=,gIGC,c,,\nk,,,9,,,,,l,\n";
    let read = rows(all, &[]).unwrap();
    let of = |place: usize| read[place].1.as_ref().unwrap();
    assert_eq!((of(0).flags, of(0).expiry, of(2).expiry), (7, Expiry(2500), Expiry(9000)));
    assert_eq!((&of(1).key[..], &of(1).value[..]), (&b"\xFF\0"[..], &b"\x80\x81\x82"[..]));
    assert_eq!(of(1).collection.as_ref().map(|named| (named.name.as_str(), named.kind)), Some(("c", Kind::KeyValue)));
    assert_eq!(of(2).collection.as_ref().map(|named| named.kind), Some(Kind::List));
}

#[test]
fn bad_rows_are_told_with_their_lines() {
    let read =
        rows("key,value,flags,ttl,expiry\na,1,,,\nb,1\n,1,,,\nc,1,x,,\nd,1,,soon,\ne,1,,1,1\nf,1,,60,\n", &[]).unwrap();
    let why = |place: usize| (read[place].0, read[place].1.as_ref().map_err(String::as_str).unwrap_err());
    assert!(read[0].1.is_ok() && read[6].1.as_ref().is_ok_and(|row| row.expiry != Expiry::NEVER));
    assert_eq!(why(1), (3, "it has 2 fields, and the first line names 5"));
    assert!(why(2).0 == 4 && why(2).1.contains("empty"), "{:?}", why(2));
    assert_eq!(why(3), (5, "`flags` is no number: x"));
    assert!(why(4).1.contains("`ttl`") && why(5).1.contains("both"), "{read:?}");
}

#[test]
fn columns_that_lack_or_would_be_lost_are_told() {
    for (text, why) in [
        ("id,value\n", "--key-column"),
        ("key,name\n", "--rows json"),
        ("key,value,colour\n", "`colour` would be left out"),
        ("", "--key-column"),
        ("key,value,value\n", "two columns `value`"),
        ("key,value,key\n", "two columns `key`"),
    ] {
        let told = rows(text, &[]).unwrap_err();
        assert!(told.contains(why) && told.contains("its columns are"), "{text}: {told}");
    }
}

#[test]
fn a_quote_left_open_at_the_end_is_told() {
    let why =
        rows("id,name\n7,Ada\n8,\"Bob\n9,Cy\n10,Dee\n", &["--key-column", "id", "--value-column", "name"]).unwrap_err();
    assert!(why.contains("line 3") && why.contains("left open"), "{why}");
    assert!(rows("key,value\na,\"say \"\"b\"\"\"\n", &[]).is_ok());
}

#[test]
fn a_quote_left_open_does_not_take_the_rest_of_the_file() {
    let endless = io::Read::chain(&b"key,value\na,1\nb,\"2\nc"[..], io::repeat(b'x'));
    let mut rows = CsvRows::new(Box::new(io::BufReader::new(endless)), "file", &csv(&[])).map_err(|_| ()).unwrap();
    rows.row_bytes_max = 100_000;
    assert!(rows.next().unwrap().unwrap().parsed.is_ok());
    let why = rows.next().map(drop).unwrap_err().message;
    assert!(why.contains("line 3") && why.contains("is a quote left open"), "{why}");
}

#[test]
fn fields_may_be_kept_apart_otherwise() {
    let read = rows("key\tvalue\na\t1,2\n", &["--separator", "tab"]).unwrap();
    assert_eq!(read, [(2, Ok(parsed("a", b"1,2")))]);
    assert_eq!(rows("key;value\na;1\n", &["--separator", ";"]).unwrap(), [(2, Ok(parsed("a", b"1")))]);
    for wrong in ["", "ab", "\"", "é"] {
        assert!(parse_separator(wrong).unwrap_err().contains("one character"), "{wrong}");
    }
}

/// From the place behind any row the rest is what it is in one go, lines too.
#[test]
fn a_file_is_resumed_behind_any_row() {
    let quoted = "key,value\na,1\n\"b\nc\",\"x,\"\"y\"\n\nd,\ne,2,3\nf,\"last\n\"\n";
    for text in [quoted.to_owned(), quoted.replace('\n', "\r\n"), quoted.trim_end().to_owned()] {
        let new = |text: &str| -> Box<dyn BufRead> { Box::new(std::io::Cursor::new(text.as_bytes().to_vec())) };
        let csv = csv(&[]);
        let mut all = CsvRows::new(new(&text), "file", &csv).unwrap();
        let (mut whole, mut places) = (Vec::new(), Vec::new());
        while let Some(row) = all.next().unwrap() {
            whole.push((row.line, row.parsed));
            places.push(all.position());
        }
        assert!(whole.len() == 5 && whole[3].1.is_err(), "{whole:?}");
        for (count, place) in places.iter().enumerate() {
            let rest = new(text.get(usize::try_from(place.offset).unwrap()..).unwrap());
            let mut rest = CsvRows::new(new(&text), "file", &csv).unwrap().resumed(place, &csv, rest);
            let mut read = Vec::new();
            while let Some(row) = rest.next().unwrap() {
                read.push((row.line, row.parsed));
                assert_eq!(rest.position(), places[count + read.len()]);
            }
            assert_eq!(read, whole[count + 1..], "behind row {count} of {text:?}");
        }
    }
}
