use super::*;

/// A file of version 11 with this content, and its checksum.
fn file(content: &[u8]) -> Vec<u8> {
    let mut file = [b"REDIS0011", content, &[OPCODE_END]].concat();
    let mut crc = crc::Crc64::default();
    crc.add(&file);
    file.extend(crc.value().to_le_bytes());
    file
}

fn items(file: &[u8]) -> Result<Vec<RdbItem>, String> {
    let mut reader = RdbReader::new(file).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    loop {
        match reader.next().map_err(|error| error.to_string())? {
            RdbItem::End { checked } => {
                // Old versions may have none.
                assert_eq!(checked, !file.starts_with(b"REDIS0006"));
                return Ok(all);
            }
            item => all.push(item),
        }
    }
}

/// A string with its length in front.
fn string(bytes: &[u8]) -> Vec<u8> {
    [&[0x80][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

/// The value of a key `k` of this type.
fn value(kind: u8, content: &[u8]) -> SourceValue {
    match items(&file(&[&[kind, 1, b'k'][..], content].concat())).unwrap().as_slice() {
        [RdbItem::Record(SourceRecord { key, value, flags: 0, expiry_ms: None })] if key == b"k" => value.clone(),
        other => panic!("{other:?}"),
    }
}

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn entries(all: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    all.iter().map(|(field, value)| (field.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

/// Of `entries`: each is an encoding with its bytes, without the length of the one before.
fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
    let mut text = vec![0; 10];
    for (place, entry) in entries.iter().enumerate() {
        // The long form of that length is as good as the short one.
        text.extend_from_slice(if place % 2 == 0 { &[0] } else { &[0xFE, 9, 0, 0, 0] });
        text.extend_from_slice(entry);
    }
    [text, vec![0xFF]].concat()
}

fn listpack(entries: &[&[u8]]) -> Vec<u8> {
    let mut text = vec![0; 6];
    for entry in entries {
        text.extend_from_slice(entry);
        // Nobody reads backwards here: only how many bytes there are counts.
        text.resize(text.len() + if entry.len() < 128 { 1 } else { 2 }, 0);
    }
    [text, vec![0xFF]].concat()
}

#[test]
fn strings_have_every_form() {
    let text = |content: &[u8]| match value(0, content) {
        SourceValue::String(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(text(&[3, b'a', b'b', b'c']), "abc");
    assert_eq!(text(&[&[0x41, 0x2C][..], &[b'x'; 300]].concat()), "x".repeat(300));
    assert_eq!(text(&string(b"abc")), "abc");
    assert_eq!(text(&[&[0x81][..], &3u64.to_be_bytes(), b"abc"].concat()), "abc");
    assert_eq!((text(&[0xC0, 0x85]), text(&[0xC1, 0x39, 0x30])), ("-123".into(), "12345".into()));
    assert_eq!(text(&[0xC2, 0xFF, 0xFF, 0xFF, 0x7F]), i32::MAX.to_string());
    // Three literals, then 264 bytes from one byte before.
    assert_eq!(text(&[0xC3, 7, 0x41, 0x0B, 2, b'a', b'a', b'a', 0xE0, 255, 0]), "a".repeat(267));
    assert_eq!(text(&[0xC3, 5, 7, 1, b'a', b'b', 0x60, 1]), "abababa");
}

#[test]
fn structures_have_every_encoding() {
    assert_eq!(value(1, &[2, 1, b'b', 1, b'a']), SourceValue::List(texts(&["b", "a"])));
    assert_eq!(value(2, &[2, 1, b'b', 0xC0, 7]), SourceValue::Set(texts(&["b", "7"])));
    assert_eq!(value(4, &[1, 1, b'f', 1, b'v']), SourceValue::Hash(entries(&[("f", "v")])));
    let scores =
        |all: &[(&str, f64)]| SourceValue::SortedSet(all.iter().map(|(m, s)| (m.as_bytes().to_vec(), *s)).collect());
    let written = [&[3, 1, b'a', 3][..], b"1.5", &[1, b'b', 254, 1, b'c', 255]].concat();
    assert_eq!(value(3, &written), scores(&[("a", 1.5), ("b", f64::INFINITY), ("c", f64::NEG_INFINITY)]));
    assert_eq!(value(5, &[&[1, 1, b'a'][..], &0.25f64.to_le_bytes()].concat()), scores(&[("a", 0.25)]));
    let long = [&[0x41, 0x2C][..], &[b'x'; 300]].concat();
    let longest = [&[0x80, 0, 0, 1, 0x2C][..], &[b'y'; 300]].concat();
    let numbers: [&[u8]; 6] = [
        &[0xC0, 0xFF, 0x7F],
        &[0xD0, 0, 0, 0, 0x80],
        &[0xE0, 0, 0, 0, 0, 0, 0, 0, 0x80],
        &[0xF0, 0xFF, 0xFF, 0xFF],
        &[0xFE, 0x80],
        &[0xFD],
    ];
    let list = ziplist(&[&[&[2, b'a', b'b'][..], &long, &longest][..], &numbers].concat());
    let (x, y) = ("x".repeat(300), "y".repeat(300));
    let expected = ["ab", &x, &y, "32767", "-2147483648", "-9223372036854775808", "-1", "-128", "12"];
    assert_eq!(value(10, &string(&list)), SourceValue::List(texts(&expected)));
    assert_eq!(value(14, &[&[2][..], &string(&list), &string(&ziplist(&[&[1, b'z']]))].concat()), {
        SourceValue::List(texts(&[&expected[..], &["z"]].concat()))
    });
    let pair = string(&ziplist(&[&[1, b'f'], &[0xF2]]));
    assert_eq!(
        (value(12, &pair), value(13, &pair)),
        (scores(&[("f", 1.0)]), SourceValue::Hash(entries(&[("f", "1")])))
    );
    let intset = |width: u32, members: &[u8], count: u32| {
        value(11, &string(&[&width.to_le_bytes()[..], &count.to_le_bytes(), members].concat()))
    };
    assert_eq!(intset(2, &[1, 0, 0xFF, 0xFF], 2), SourceValue::Set(texts(&["1", "-1"])));
    assert_eq!(intset(8, &i64::MIN.to_le_bytes(), 1), SourceValue::Set(texts(&["-9223372036854775808"])));
    let zipmap = [&[2, 1, b'f', 1, 2, b'v', 0, 0, 1, b'g', 0xFE, 1, 0, 0, 0, 0, b'w', 0xFF][..]].concat();
    assert_eq!(value(9, &string(&zipmap)), SourceValue::Hash(entries(&[("f", "v"), ("g", "w")])));
}

#[test]
fn listpacks_have_every_encoding() {
    let long = [&[0xE1, 0x2C][..], &[b'x'; 300]].concat();
    let longest = [&[0xF0, 0x2C, 1, 0, 0][..], &[b'y'; 300]].concat();
    let list = listpack(&[
        &[0x7F],
        &[0x82, b'a', b'b'],
        &[0xDF, 0xFF],
        &[0xC1, 0],
        &long,
        &longest,
        &[0xF1, 0, 0x80],
        &[0xF2, 0, 0, 0x80],
        &[0xF3, 0, 0, 0, 0x80],
        &[0xF4, 0, 0, 0, 0, 0, 0, 0, 0x80],
    ]);
    let (x, y) = ("x".repeat(300), "y".repeat(300));
    let expected = ["127", "ab", "-1", "256", &x, &y, "-32768", "-8388608", "-2147483648", "-9223372036854775808"];
    assert_eq!(value(20, &string(&list)), SourceValue::Set(texts(&expected)));
    let plain = string(b"plain");
    let nodes = [&[2, 2][..], &string(&list), &[1], &plain].concat();
    assert_eq!(value(18, &nodes), SourceValue::List(texts(&[&expected[..], &["plain"]].concat())));
    let pair = string(&listpack(&[&[0x81, b'f'], &[0x83, b'1', b'.', b'5']]));
    assert_eq!(value(16, &pair), SourceValue::Hash(entries(&[("f", "1.5")])));
    assert_eq!(value(17, &pair), SourceValue::SortedSet(vec![(b"f".to_vec(), 1.5)]));
}

/// Elements whose entry had a length that Redis writes with a byte more than it needs ended the
/// import of their key.
#[test]
fn listpacks_have_entries_of_every_length() {
    // As Redis's lpEncodeBacklen has it.
    let backward = |len: usize| [128, 16_383, 2_097_151].iter().take_while(|from| len >= **from).count() + 1;
    for entry_len in [127_usize, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151, 2_097_152] {
        let text_len = entry_len - 5;
        let text = vec![b'z'; text_len];
        let head = [&[0xF0][..], &(text_len as u32).to_le_bytes()].concat();
        let list = [&[0; 6][..], &head, &text, &vec![0; backward(entry_len)], &[0x01, 1, 0xFF]].concat();
        let SourceValue::Set(members) = value(20, &string(&list)) else { panic!("a set") };
        assert!(members.len() == 2 && members[0] == text && members[1] == b"1", "{entry_len}");
    }
}

#[test]
fn expiry_databases_and_what_belongs_to_no_record_are_read() {
    let content = [
        &[OPCODE_AUXILIARY, 1, b'a', 1, b'b', OPCODE_DATABASE, 0, OPCODE_SIZES, 1, 1, OPCODE_EXPIRY_MS][..],
        &1_900_000_000_123u64.to_le_bytes(),
        &[OPCODE_FREQUENCY, 9, 0, 1, b'k', 1, b'v', OPCODE_EXPIRY_SECONDS],
        &1_900_000_000u32.to_le_bytes(),
        &[OPCODE_IDLE, 5, 0, 1, b'l', 0, OPCODE_FUNCTION, 1, b'f', OPCODE_DATABASE, 7, 0, 1, b'm', 0],
        // A stream with a group of one consumer, then a module's value and its data.
        &[21, 1, b's', 1, 1, b'n', 1, b'l'],
        &[0; 8],
        &[1, 1, b'g', 0, 0, 0, 1],
        &[0; 24],
        &[1, 1, 1, b'c'],
        &[0; 16],
        &[1],
        &[0; 16],
        &[7, 1, b'o', 5, 2, 7, 3, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 5, 1, b'x', 0],
        &[OPCODE_MODULE, 5, 2, 1, 0],
    ]
    .concat();
    let record = |key: &str, value: &str, expiry_ms| {
        let value = SourceValue::String(value.as_bytes().to_vec());
        RdbItem::Record(SourceRecord { key: key.as_bytes().to_vec(), value, flags: 0, expiry_ms })
    };
    let expected = [
        record("k", "v", Some(1_900_000_000_123)),
        record("l", "", Some(1_900_000_000_000)),
        RdbItem::Foreign("libraries of functions"),
        record("m", "", None),
        RdbItem::LeftOut { key: b"s".to_vec(), what: "values of the type stream" },
        RdbItem::LeftOut { key: b"o".to_vec(), what: "values of modules" },
        RdbItem::Foreign("data of modules"),
    ];
    assert_eq!(items(&file(&content)).unwrap(), expected);
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let why = |file: &[u8]| items(file).unwrap_err();
    assert_eq!(why(b"REDIS"), "at byte 0: the file ends here, in the middle of something");
    assert!(why(b"PK\x03\x04.......").contains("no RDB file") && why(b"REDISxxxx").contains("no RDB file"));
    assert!(why(b"REDIS0012\xFF").contains("newer than 11"));
    assert!(why(b"REDIS0011\x63\x01k").contains("at byte 10: a value is of a type that is not known"));
    let mut turned = file(&[0, 1, b'k', 1, b'v']);
    turned[13] = b'w';
    assert!(why(&turned).contains("checksum"), "{}", why(&turned));
    let cut = why(b"REDIS0011\x00\x01k\x80\xFF\xFF\xFF\xFFshort");
    assert!(cut.contains("in the value of `k`") && cut.contains("longer than any"), "{cut}");
    assert!(
        why(b"REDIS0011\x00\x01k\x80\x00\xFF\xFF\xFFshort").contains("at byte 22, in the value of `k`: the file ends")
    );
    assert!(why(b"REDIS0011\x00\x01k\xC3\x01\x43\xFFa").contains("LZF makes no 1023 bytes of 1"));
    assert!(why(b"REDIS0011\x00\x01k\xC3\x02\x05\x20\x00").contains("compressed string is damaged"));
    // Of a value whose bytes are damaged inside nothing is taken, and the next one is.
    let damaged = [&[11, 1, b'k'][..], &string(&[2, 0, 0, 0, 9, 0, 0, 0, 1]), &[0, 1, b'l', 1, b'v']].concat();
    let found = items(&file(&damaged)).unwrap();
    assert!(matches!(&found[..], [RdbItem::Damaged { .. }, RdbItem::Record(_)]), "{found:?}");
    for text in [&[0u8; 9][..], &[0; 10], &[&[0; 10][..], &[0, 0xFF]].concat()] {
        let room = &mut Room::of_value();
        assert!(packed::ziplist(text, room).is_err() && packed::listpack(text, room).is_err());
    }
}

#[test]
fn the_corpus_holds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/rdb");
    let mut whole = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read(entry.unwrap().path()).unwrap();
        holds_for_any_file(&text);
        whole += usize::from(items(&text).is_ok());
        // And cut short anywhere, or with a byte turned.
        for place in 0..text.len() {
            holds_for_any_file(&text[..place]);
            let mut turned = text.clone();
            turned[place] ^= 0x80;
            holds_for_any_file(&turned);
        }
    }
    assert!(whole > 0, "there is a file of Redis in it");
}

/// Each kind of value in 100 elements, and behind it a short string: with room for a few elements
/// only, the structure is left out and the string is there.
#[test]
fn a_value_without_room_is_passed() {
    let members: Vec<u8> = (0..100).flat_map(|at| [2, b'a' + at / 26, b'a' + at % 26]).collect();
    let numbers: Vec<&[u8]> = (0..100).map(|_| &[7u8][..]).collect();
    let scores: Vec<u8> = (0..100).flat_map(|_| [&[1, b'm'][..], &1f64.to_le_bytes()].concat()).collect();
    let intset = [&2u32.to_le_bytes()[..], &100u32.to_le_bytes(), &[7, 0].repeat(100)].concat();
    let zipmap = [&[50][..], &[1, b'f', 1, 0, b'v'].repeat(50), &[0xFF]].concat();
    let ziplist = ziplist(&[&[0xF2u8][..]; 100]);
    // LZF makes a listpack of 264 elements of some bytes, and a plain string of them.
    let values: [(u8, Vec<u8>); 13] = [
        (0, string(&vec![b'x'; VALUE_BYTES_MAX + 1])),
        (1, [&[0x40, 100][..], &members].concat()),
        (2, [&[0x40, 100][..], &members].concat()),
        (4, [&[50][..], &members].concat()),
        (5, [&[0x40, 100][..], &scores].concat()),
        (9, string(&zipmap)),
        (10, string(&ziplist)),
        (11, string(&intset)),
        (12, string(&ziplist)),
        (14, [&[1][..], &string(&ziplist)].concat()),
        (16, string(&listpack(&numbers))),
        (18, [&[1, 2][..], &string(&listpack(&numbers))].concat()),
        (20, string(&listpack(&numbers))),
    ];
    for (kind, content) in values {
        let file = file(&[&[kind, 1, b'k'][..], &content, &[0, 1, b's', 1, b'v']].concat());
        let mut reader = RdbReader::new(&file[..]).unwrap();
        reader.memory_max = 2000;
        let RdbItem::LeftOut { key, what } = reader.next().unwrap() else { panic!("kind {kind}") };
        assert_eq!((&key[..], what), (&b"k"[..], if kind == 0 { TOO_LONG } else { TOO_LARGE }), "kind {kind}");
        let RdbItem::Record(record) = reader.next().unwrap() else { panic!("kind {kind}: the next one is lost") };
        assert_eq!(record.value, SourceValue::String(b"v".to_vec()));
        assert_eq!(reader.next().unwrap(), RdbItem::End { checked: true });
    }
}
