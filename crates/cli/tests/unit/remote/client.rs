use std::io::Cursor;

use super::*;

/// A peer that has said all it will, whatever it is asked.
struct Peer {
    said: Cursor<Vec<u8>>,
    heard: Vec<u8>,
}

impl Read for Peer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.said.read(buffer)
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.heard.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn client(said: &[u8]) -> Client<Peer> {
    Client::over("there:1", Peer { said: Cursor::new(said.to_vec()), heard: Vec::new() })
}

fn heard(client: &Client<Peer>) -> String {
    client.stream.get_ref().heard.escape_ascii().to_string()
}

#[test]
fn commands_are_worded_and_answers_understood() {
    let mut there = client(b"VALUE k 7 4 99\r\na\r\nb\r\nEND\r\nEND\r\n");
    let fetched = Fetched { flags: 7, version: 99, value: b"a\r\nb".to_vec() };
    assert_eq!(there.get(b"k").unwrap(), Some(fetched));
    assert_eq!(there.get(b"k").unwrap(), None);
    assert_eq!(heard(&there), r"gets k\r\ngets k\r\n");

    let mut there = client(b"STORED\r\nNOT_STORED\r\nEXISTS\r\nNOT_FOUND\r\n");
    let conditions = [Expect::Any, Expect::Absent, Expect::Version(5), Expect::Version(6)].map(Condition::Expect);
    let ended = conditions.map(|condition| there.store(condition, b"k", b"v", 3, Duration::from_secs(60)).unwrap());
    assert_eq!(ended, [Stored::Yes, Stored::No, Stored::AnotherVersion, Stored::Absent]);
    assert_eq!(
        heard(&there),
        r"set k 3 60 1\r\nv\r\nadd k 3 60 1\r\nv\r\ncas k 3 60 1 5\r\nv\r\ncas k 3 60 1 6\r\nv\r\n"
    );

    let mut there = client(b"DELETED\r\nNOT_FOUND\r\n12\r\nNOT_FOUND\r\nTOUCHED\r\nSTAT a 1\r\nSTAT b x y\r\nEND\r\n");
    assert!(there.delete(b"k").unwrap() && !there.delete(b"k").unwrap());
    assert_eq!((there.count(false, b"k", 5).unwrap(), there.count(true, b"k", 5).unwrap()), (Some(12), None));
    assert!(there.touch(b"k", Duration::ZERO).unwrap());
    assert_eq!(there.statistics("").unwrap(), [("a".into(), "1".into()), ("b".into(), "x y".into())]);
    assert_eq!(heard(&there), r"delete k\r\ndelete k\r\nincr k 5\r\ndecr k 5\r\ntouch k 0\r\nstats\r\n");
}

#[test]
fn a_peer_that_talks_nonsense_is_an_error() {
    let endless = vec![b'x'; 10_000];
    let http: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    let peers: [&[u8]; 19] = [
        b"",
        b"\r\n",
        b"\n",
        http,
        &endless,
        b"EN",
        b"\x00\xff\xfe\x80\r\n",
        b"VALUE\r\n",
        b"VALUE k\r\n",
        b"VALUE k 0 1\r\nv\r\nEND\r\n",
        b"VALUE other 0 1 1\r\nv\r\nEND\r\n",
        b"VALUE k 0 +1 1\r\nv\r\nEND\r\n",
        b"VALUE k 0 3 1\r\nv\r\nEND\r\n",
        b"VALUE k 0 1 1\r\nvv\r\nEND\r\n",
        b"VALUE k 0 18446744073709551615 1\r\nv\r\nEND\r\n",
        b"VALUE k 0 67108864 1\r\nv\r\nEND\r\n",
        b"VALUE k 4294967296 1 1\r\nv\r\nEND\r\n",
        b"VALUE k 0 1 1\r\nv\r\nVALUE k 0 1 1\r\nv\r\nEND\r\n",
        b"STAT a\r\nEND\r\n",
    ];
    for said in peers {
        let shown = said[..said.len().min(60)].escape_ascii();
        let failures = [
            client(said).get(b"k").map(drop),
            client(said).store(Condition::Append, b"k", b"v", 0, Duration::ZERO).map(drop),
            client(said).delete(b"k").map(drop),
            client(said).count(false, b"k", 1).map(drop),
            client(said).touch(b"k", Duration::from_secs(1)).map(drop),
            client(said).statistics("").map(drop),
            client(said).begin_backup("monday"),
        ];
        for (number, failure) in failures.into_iter().enumerate() {
            let failure = failure.expect_err(&format!("command {number} took `{shown}`"));
            assert!(failure.exit == Exit::Failed && failure.message.contains("there:1"), "{shown}: {failure:?}");
        }
    }
}

#[test]
fn a_value_beyond_any_length_is_not_waited_for() {
    let said = client(b"VALUE k 0 67108865 1\r\n").get(b"k").unwrap_err();
    assert!(said.message.contains("67108865"), "{said:?}");
}

#[test]
fn a_refusal_keeps_the_reason() {
    let set = |said| client(said).store(Condition::Expect(Expect::Any), b"k", b"vv", 0, Duration::ZERO).unwrap_err();
    let full = set(b"SERVER_ERROR out of memory storing object: the store is full\r\n");
    assert!(full.exit == Exit::Failed && full.message.contains("the store is full"), "{full:?}");
    let large = set(b"SERVER_ERROR object too large for cache\r\n");
    assert!(large.exit == Exit::Usage && large.message.contains("--item-bytes-max"), "{large:?}");
    assert_eq!(set(b"ERROR Too many open connections\r\n").exit, Exit::Busy);
    assert_eq!(set(b"ERROR\r\n").exit, Exit::Unsupported);
    assert!(set(b"CLIENT_ERROR a server's word\r\n").message.contains("a server's word"));
    // What a terminal would obey is not passed on.
    assert!(!set(b"SERVER_ERROR \x1b[2J\r\n").message.contains('\x1b'));
}

#[test]
fn keys_that_the_protocol_cannot_carry_are_not_sent() {
    for key in [&b""[..], b"a b", b"a\r", b"a\nget b", b"a\0", &[b'k'; 251]] {
        let mut there = client(b"STORED\r\nDELETED\r\n");
        let refused = there.delete(key).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage, "{refused:?}");
        assert!(there.store(Condition::Append, key, b"", 0, Duration::ZERO).is_err() && there.get(key).is_err());
        assert_eq!(heard(&there), "");
    }
    let mut there = client(b"DELETED\r\n");
    assert!(there.delete(&[b'k'; 250]).unwrap());
}

#[test]
fn long_times_to_live_are_sent_as_instants() {
    let sent = |seconds| exptime(Duration::from_secs(seconds)).unwrap();
    assert_eq!((sent(0), sent(2_592_000)), (0, 2_592_000));
    assert!(sent(2_592_001) > 1_700_000_000 + 2_592_001);
    let told = format!("{:?}", exptime(Duration::from_millis(1500)).unwrap_err());
    assert!(told.contains("whole seconds"), "{told}");
}
