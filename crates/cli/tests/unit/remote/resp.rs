use std::io::Cursor;

use super::*;

/// A peer that has said all it will, whatever it is asked.
struct Peer(Cursor<Vec<u8>>);

impl Read for Peer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn reply(said: &[u8]) -> Result<RespReply, String> {
    let mut client = RespClient::over("there:1", Peer(Cursor::new(said.to_vec())));
    client.reply().map_err(|failure| failure.message)
}

#[test]
fn replies_are_understood() {
    let bytes = |text: &[u8]| RespReply::Bytes(Some(text.to_vec()));
    assert_eq!(reply(b"+OK\r\n"), Ok(RespReply::Status(b"OK".to_vec())));
    assert_eq!(reply(b"-ERR no\r\n"), Ok(RespReply::Error("ERR no".into())));
    assert_eq!(reply(b":-7\r\n"), Ok(RespReply::Number(-7)));
    assert_eq!(reply(b"$4\r\na\r\nb\r\n"), Ok(bytes(b"a\r\nb")));
    assert_eq!((reply(b"$-1\r\n"), reply(b"*-1\r\n")), (Ok(RespReply::Bytes(None)), Ok(RespReply::Array(None))));
    let nested = RespReply::Array(Some(vec![bytes(b"0"), RespReply::Array(Some(vec![bytes(b"k")]))]));
    assert_eq!(reply(b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n"), Ok(nested));
    let mut command = Vec::new();
    write_command(&mut command, &[b"GET", b"k\r\n"]);
    assert_eq!(command, b"*2\r\n$3\r\nGET\r\n$3\r\nk\r\n\r\n");
}

#[test]
fn what_is_no_reply_is_told_and_costs_nothing() {
    for said in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        b"$9999999999999\r\nx",
        b"$-2\r\n",
        b"*-7\r\n",
        b"$1\r\nab\r\n",
        b":1x\r\n",
        b"+OK\n",
        b"\r\n",
        b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    ] {
        let why = reply(said).unwrap_err();
        assert!(why.contains("not RESP"), "{}: {why}", said.escape_ascii());
    }
    // It promises a thousand million replies and ends.
    for said in [&b"*1000000000\r\n:1\r\n"[..], b"$536870912\r\nabc", b"", b"$3\r\nab", b"+O"] {
        let why = reply(said).unwrap_err();
        assert!(why.contains("closed the connection"), "{}: {why}", said.escape_ascii());
    }
    assert!(reply(&[b'+'; 70_000]).unwrap_err().contains("not RESP"));
}

/// Also one whose parts take more in memory than on the way.
#[test]
fn a_reply_without_room_is_passed_and_the_next_one_is_understood() {
    let elements = |one: &[u8]| [b"*1000\r\n", &one.repeat(1000)[..], b"+NEXT\r\n"].concat();
    for said in [
        elements(b"$2\r\nab\r\n"),
        elements(b"$-1\r\n"),
        elements(b":1\r\n"),
        elements(b"*0\r\n"),
        elements(b"+a status of some length\r\n"),
        elements(b"-ERR an error of some length\r\n"),
        [&b"$5000\r\n"[..], &[b'x'; 5000], b"\r\n+NEXT\r\n"].concat(),
    ] {
        let mut client = RespClient::over("there:1", Peer(Cursor::new(said)));
        let reply = client.reply_within(&mut Room::of(4000)).map_err(|failure| failure.message);
        assert_eq!(reply, Ok(RespReply::TooLarge));
        assert_eq!(client.reply().map_err(|failure| failure.message), Ok(RespReply::Status(b"NEXT".to_vec())));
    }
}
