//! Connections without sockets: any cut of the bytes, any order of the replies, any pace of the
//! peer.

use std::path::PathBuf;

use stratakv_base::Level;
use stratakv_base::random::Random;
use stratakv_engine::{Error, Operation, Reply};

use super::reading::HELD_BYTES_MAX;
use super::*;
use crate::bench::{Bench, NoServer, WALL};
use crate::credentials::Credentials;
use crate::details::Details;
use crate::memory_budget::MemoryBudget;
use crate::orphans::{NodeRemovals, NodeSweeps, OrphanQueue};
use crate::watch::Watches;

#[path = "../conversations/mod.rs"]
mod conversations;
use conversations::binary::BinaryConversation as Conversation;
use conversations::{conversations, matches};

#[path = "connection/given_up.rs"]
mod given_up;
#[path = "connection/refused.rs"]
mod refused_values;
#[path = "connection/resp.rs"]
mod resp_clients;

fn permit() -> MemoryPermit {
    MemoryPermit::new(&MemoryBudget::new(64 << 20))
}

#[test]
fn every_conversation_goes_as_written_whatever_the_order_of_events() {
    for conversation in conversations() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let bytes_max = [1, 7, 100_000][seed as usize % 3];
            let bench = Bench::new(conversation.sent.as_bytes()).run(&mut random, bytes_max);
            assert!(
                matches(&bench.answer, conversation.expected),
                "{} (ours alone: {}), seed {seed}:\n{}",
                conversation.name,
                conversation.ours_alone,
                bench.answer.escape_ascii()
            );
        }
    }
}

#[test]
fn every_binary_conversation_goes_as_written_whatever_the_order_of_events() {
    for conversation in conversations::binary::conversations() {
        for seed in 0..if conversation.sent.len() > 10_000 { 3 } else { 60 } {
            let mut random = Random::new(seed);
            let bytes_max = [1_000_000, 7, 1][seed as usize % 3];
            let bytes_max = if conversation.sent.len() > 10_000 { 1_000_000 } else { bytes_max };
            let bench = Bench::new(&conversation.sent).run(&mut random, bytes_max);
            let told = conversations::binary::told(&bench.answer);
            let Conversation { name, ours_alone, expected, .. } = &conversation;
            assert_eq!(told, *expected, "{name} (ours alone: {ours_alone}), seed {seed}");
        }
    }
}

fn answer_to_a_stranger(sent: &[u8]) -> String {
    let mut told = String::new();
    for seed in 0..20 {
        let mut bench = Bench::new(sent);
        bench.accounts = Some(Accounts::new(PathBuf::new(), Credentials::parse(b"user:pass").unwrap()));
        let answer = bench.run(&mut Random::new(seed), [1, 7, 1000][seed as usize % 3]).answer;
        let again = if sent.starts_with(&[0x80]) {
            conversations::binary::told(&answer)
        } else {
            answer.escape_ascii().to_string().replace("\\r\\n", "|")
        };
        assert!(seed == 0 || told == again, "{told}\n{again}");
        told = again;
    }
    told
}

/// What the schedule learns of each kind of error: they cost their client nothing.
#[test]
fn errors_are_told_to_the_schedule() {
    let errors_of = |sent: &[u8], is_strange: bool| {
        let mut bench = Bench::new(sent);
        bench.accounts = is_strange.then(|| Accounts::new(PathBuf::new(), Credentials::parse(b"user:pass").unwrap()));
        bench.run(&mut Random::new(1), 1000).connection.take_errors()
    };
    let unknown_opcode = conversations::binary::frame(0, (0x50, b"k", b"", b"v", 0));
    let sasl = conversations::binary::frame(0, (0x21, b"PLAIN", b"", b"\0user\0nope", 0));
    for (sent, is_strange, errors) in [
        (&b"get a\r\nset a 0 0 1\r\n1\r\ndelete b\r\nincr c 1\r\n"[..], false, 0),
        (b"foo bar baz\r\n", false, 1),
        (b"set a 0 0 -1\r\nget\r\n", false, 2),
        (b"get a\r\nfoo\r\nversion\r\n", true, 2),
        (b"set a 0 0 9\r\nuser nope\r\n", true, ATTEMPT_ERRORS),
        (b"set a 0 0 9\r\nuser pass\r\nget a\r\n", true, 0),
        (&unknown_opcode, false, 1),
        (&sasl, true, ATTEMPT_ERRORS),
    ] {
        assert_eq!(errors_of(sent, is_strange), errors, "{}", sent.escape_ascii());
    }
}

/// As memcached's `-Y`, but for the words after a wrong password: memcached says nothing.
#[test]
fn a_stranger_may_say_who_it_is_and_no_more() {
    let unknown = "CLIENT_ERROR unauthenticated|";
    let cases = [
        ("get a", unknown.to_owned()),
        ("foo", unknown.to_owned()),
        ("mn", unknown.to_owned()),
        ("set a", unknown.to_owned()),
        ("set a 0 0 -1", unknown.to_owned()),
        ("add a 0 0 9\r\nuser pass", unknown.repeat(2)),
        ("ms a 9\r\nuser pass", unknown.repeat(2)),
        ("set a 0 0 9\r\nuser pass\r\nget a", "STORED|END|".to_owned()),
        ("set a 0 0 9 noreply\r\nuser pass\r\nget a", "STORED|END|".to_owned()),
        ("set a 0 0 9\r\nuser Pass\r\nget a", format!("CLIENT_ERROR authentication failure|{unknown}")),
        ("set a 0 0 9\r\nuser:pass\r\nget a", format!("CLIENT_ERROR authentication failure|{unknown}")),
        (
            "set a 0 0 10\r\nuser passX\r\nset a 0 0 9\r\nuser pass\r\nget a",
            "CLIENT_ERROR authentication failure|STORED|END|".to_owned(),
        ),
        ("set a 0 0 9\r\nuser pass\r\nset a 0 0 1\r\n1\r\nget a", "STORED|STORED|VALUE a 0 1|1|END|".to_owned()),
        ("version\r\nquit\r\nmn", "VERSION 1.0|".to_owned()),
        ("shutdown\r\nflush_all\r\nstats", unknown.repeat(3)),
    ];
    for (sent, expected) in cases {
        assert_eq!(answer_to_a_stranger(format!("{sent}\r\n").as_bytes()), expected, "{sent}");
    }
    let long = format!("set a 0 0 3000\r\n{}\r\n", "x".repeat(1500));
    assert!(answer_to_a_stranger(long.as_bytes()).starts_with(unknown));
}

#[test]
fn a_stranger_in_binary_may_say_who_it_is_and_no_more() {
    use conversations::binary::frame;
    let get = |number| frame(number, (0x00, b"a", b"", b"", 0));
    let auth = |opcode, mechanism, data: &'static [u8]| frame(0, (opcode, mechanism, b"", data, 0));
    let plain = |data| auth(0x21, b"PLAIN", data);
    let cases = [
        (get(0), "#0 00 32 v:Auth failure.\n"),
        (frame(0, (0x0A, b"", b"", b"", 0)), "#0 0a 32 v:Auth failure.\n"),
        (frame(0, (0x01, b"a", &[0; 8], b"get a\r\n", 0)), "#0 01 32 v:Auth failure.\n"),
        (frame(0, (0x0B, b"", b"", b"", 0)), "#0 0b 0 v:1.0\n"),
        (frame(0, (0x20, b"", b"", b"", 0)), "#0 20 0 v:PLAIN\n"),
        (plain(b"\0user\0pass"), "#0 21 0 v:Authenticated\n#1 00 1 v:Not found\n"),
        (plain(b"\0user\0Pass"), "#0 21 32 v:Auth failure.\n#1 00 32 v:Auth failure.\n"),
        (plain(b""), "#0 21 33\n#1 00 32 v:Auth failure.\n"),
        (auth(0x21, b"CRAM-MD5", b"\0user\0pass"), "#0 21 32 v:Auth failure.\n#1 00 32 v:Auth failure.\n"),
        (auth(0x22, b"PLAIN", b"\0user\0Pass"), "#0 22 32 v:Auth failure.\n#1 00 32 v:Auth failure.\n"),
        // A step alone admitted its client.
        (auth(0x22, b"PLAIN", b"\0user\0pass"), "#0 22 32 v:Auth failure.\n#1 00 32 v:Auth failure.\n"),
        (
            [plain(b""), auth(0x22, b"PLAIN", b"\0user\0pass")].concat(),
            "#0 21 33\n#0 22 0 v:Authenticated\n#1 00 1 v:Not found\n",
        ),
        ([plain(b""), get(2), auth(0x22, b"PLAIN", b"\0user\0pass")].concat(), "#0 21 33\n#2 00 32 v:Auth failure.\n"),
        (auth(0x21, &[b'P'; 33], b"x"), "#0 21 4 v:Invalid arguments\n#1 00 32 v:Auth failure.\n"),
        (auth(0x21, &[b'P'; 32], b"x"), "#0 21 32 v:Auth failure.\n#1 00 32 v:Auth failure.\n"),
    ];
    for (sent, expected) in cases {
        let follows = if matches!(sent[1], 0x21 | 0x22) { get(1) } else { Vec::new() };
        assert_eq!(answer_to_a_stranger(&[sent, follows].concat()), expected);
    }
}

/// A second attempt that failed left the first account's client admitted.
#[test]
fn who_fails_to_be_another_is_nobody() {
    use conversations::binary::frame;
    let auth = |opcode, mechanism, data: &'static [u8]| frame(0, (opcode, mechanism, b"", data, 0));
    let get = frame(1, (0x00, b"a", b"", b"", 0));
    let (good, failed) =
        ("#0 21 0 v:Authenticated\n#1 00 1 v:Not found\n", "v:Auth failure.\n#1 00 32 v:Auth failure.\n");
    let attempts: [(u8, &[u8], &[u8]); 3] =
        [(0x21, b"PLAIN", b"\0user\0Pass"), (0x21, b"CRAM-MD5", b"\0user\0pass"), (0x22, b"PLAIN", b"\0other\0pass")];
    for (opcode, mechanism, data) in attempts {
        let first = [auth(0x21, b"PLAIN", b"\0user\0pass"), get.clone()].concat();
        let second = [auth(opcode, mechanism, data), get.clone()].concat();
        assert_eq!(answer_to_a_stranger(&[first, second].concat()), format!("{good}#0 {opcode:02x} 32 {failed}"));
    }
}

/// In text a set is a set once somebody is admitted, whatever it says.
#[test]
fn an_account_is_said_once_in_text() {
    let account = |password: &str| format!("set a 0 0 9\r\nuser {password}\r\n");
    let sent = [account("pass"), account("Pass"), "get a\r\n".into()].concat();
    assert_eq!(answer_to_a_stranger(sent.as_bytes()), "STORED|STORED|VALUE a 0 9|user Pass|END|");
}

/// Its client takes nothing: no more pages are asked for than its output holds.
#[test]
fn a_listing_does_not_run_ahead_of_its_client() {
    let sets: String = (0..8000).map(|number| format!("set {number:0240} 0 0 1 noreply\r\n1\r\n")).collect();
    let mut bench = Bench::new((sets + "lru_crawler metadump all\r\n").as_bytes());
    let mut random = Random::new(11);
    let mut sending = None;
    for _ in 0..60_000 {
        bench.advance();
        if let Some(buffer) = bench.connection.next_recv() {
            bench.receive(buffer, 100_000);
        }
        sending = sending.or_else(|| bench.connection.next_send());
        if bench.model.waiting() > 0 {
            let (sequence, reply) = bench.model.answer(&mut random);
            bench.connection.replied(sequence, reply);
        }
    }
    let held = held_bytes(&bench.connection);
    // What was sent first, and is not taken, may be so long.
    assert!((OUTPUT_BYTES_MAX..OUTPUT_BYTES_MAX + CORK_BYTES + 10_000).contains(&held), "{held} bytes");
}

/// Values are not read for a list, and a record that cannot be read ends it with its error,
/// whatever was asked for behind it.
#[test]
fn a_listing_reads_no_values_and_ends_with_the_first_error() {
    let sets: String = (0..100).map(|number| format!("set k{number} 0 0 1 noreply\r\n1\r\n")).collect();
    let mut bench = Bench::new((sets + "lru_crawler metadump all\r\nmn\r\n").as_bytes());
    let (mut random, mut records) = (Random::new(5), 0);
    for _ in 0..10_000 {
        bench.advance();
        if let Some(buffer) = bench.connection.next_recv() {
            bench.receive(buffer, 100_000);
        }
        if let Some((chunks, _)) = bench.connection.next_send() {
            bench.take_sent(chunks);
            bench.connection.sent(true);
        }
        if bench.model.waiting() > 0 {
            let (sequence, mut reply) = bench.model.answer(&mut random);
            if let Reply::Record(Some(record)) = &reply {
                assert!(record.value.is_empty(), "a value was read");
                records += 1;
                if records == 60 {
                    reply = Reply::Failed(Error::Busy);
                }
            }
            bench.connection.replied(sequence, reply);
        }
    }
    let said = String::from_utf8_lossy(&bench.answer).into_owned();
    let (list, rest) = said.split_once("SERVER_ERROR ").expect("an error");
    let lines = list.lines().filter(|line| line.starts_with("key=k")).count();
    assert!((48..100).contains(&lines) && lines == list.lines().count(), "{said}");
    assert_eq!(rest, "too many operations are waiting; try again\r\nMN\r\n");
}

/// So that what a client had written before it asked for a backup is in it.
#[test]
fn a_backup_waits_for_the_commands_before_it() {
    let mut bench = Bench::new(b"set a 0 0 1\r\n1\r\nbackup b\r\n");
    bench.advance();
    let buffer = bench.connection.next_recv().unwrap();
    bench.receive(buffer, 100);
    bench.advance();
    assert!(matches!(bench.connection.unfinished.held, Some(ParsedCommand::Backup(_))) && bench.model.waiting() == 1);
    let (sequence, reply) = bench.model.answer(&mut Random::new(0));
    bench.connection.replied(sequence, reply);
    bench.advance();
    assert!(bench.connection.unfinished.held.is_none());
    let (chunks, _) = bench.connection.next_send().unwrap();
    bench.take_sent(chunks);
    assert_eq!(bench.answer.escape_ascii().to_string(), r"STORED\r\nCLIENT_ERROR no backup b\r\n");
}

#[test]
fn many_commands_are_in_progress_at_once_and_answered_in_order() {
    let sent: String = (0..1000).map(|number| format!("set k{number} 0 0 1\r\n{}\r\n", number % 10)).collect();
    let gets: String = (0..1000).map(|number| format!("get k{number}\r\n")).collect();
    let expected: String = "STORED\r\n".repeat(1000)
        + &(0..1000).map(|number| format!("VALUE k{number} 0 1\r\n{}\r\nEND\r\n", number % 10)).collect::<String>();
    let bench = Bench::new((sent + &gets).as_bytes()).run(&mut Random::new(1), 100_000);
    assert_eq!(bench.submitted, 2000);
    assert!((32..=PENDING_MAX).contains(&bench.most_waiting), "{}", bench.most_waiting);
    assert!(bench.answer == expected.as_bytes());
}

#[test]
fn a_large_value_comes_back_whole_and_its_memory_follows_what_came() {
    let value = "x".repeat(1 << 20);
    let sent = format!("set a 0 0 {}\r\n{value}\r\nget a\r\nset a 0 0 {}\r\n", value.len(), value.len());
    let bench = Bench::new(sent.as_bytes()).run(&mut Random::new(2), 1 << 20);
    let expected = format!("STORED\r\nVALUE a 0 {}\r\n{value}\r\nEND\r\n", value.len());
    assert!(bench.answer == expected.as_bytes());
    // The second set never got its value: nothing was set aside for it.
    let mut bench = Bench::new(format!("set a 0 0 {}\r\n", value.len()).as_bytes());
    let buffer = bench.connection.next_recv().unwrap();
    bench.receive(buffer, 100);
    bench.advance();
    assert!(bench.connection.next_recv().unwrap().capacity() <= 64 << 10);
}

/// A peer that sends for ever and takes nothing.
#[test]
fn a_peer_that_does_not_read_stops_being_read() {
    let mut bench = Bench::new(format!("set a 0 0 30000\r\n{}\r\n", "x".repeat(30_000)).as_bytes());
    let mut random = Random::new(4);
    let mut received = 0;
    for _ in 0..100_000 {
        bench.advance();
        if bench.unsent.is_empty() {
            bench.unsent = b"get a\r\n".repeat(100);
        }
        if let Some(buffer) = bench.connection.next_recv() {
            bench.receive(buffer, 1000);
            received += 1;
        }
        // Its first answer is being sent for ever.
        let _ = bench.connection.next_send();
        if bench.model.waiting() > 0 {
            let (sequence, reply) = bench.model.answer(&mut random);
            bench.connection.replied(sequence, reply);
        }
    }
    let held = held_bytes(&bench.connection);
    assert!(held <= HELD_BYTES_MAX, "{held} bytes");
    assert!(bench.submitted < 200 && received < 100, "{} operations, {received} receives", bench.submitted);
}

/// Bytes of answers that the connection has.
fn held_bytes(connection: &Connection) -> u64 {
    let read = connection.answers.pending.iter().map(|pending| match &pending.reply {
        Some(Reply::Record(Some(record))) => record.value.len(),
        _ => 0,
    });
    read.sum::<u64>() + connection.sending.output.bytes() + connection.sending.bytes
}

/// 64 gets of a megabyte were once all read at once for a connection that had only seen short
/// values, and kept while its peer did not read.
#[test]
fn pipelined_gets_of_long_values_hold_few_of_their_bytes() {
    let value = "x".repeat(1_000_000);
    for (command, tells_longer) in
        [("get a", false), ("gats 0 a", false), ("get a a", false), ("get a", true), ("get a a", true)]
    {
        let mut bench = Bench::new(format!("set a 0 0 {}\r\n{value}\r\nget b\r\n", value.len()).as_bytes());
        bench.unsent.extend(format!("{command}\r\n").repeat(64).as_bytes());
        bench.model.tells_longer = tells_longer;
        let mut random = Random::new(9);
        let mut sending = None;
        for reading in [false, true] {
            for _ in 0..50_000 {
                bench.advance();
                let held = held_bytes(&bench.connection);
                // What is being read in words or being sent is a value over what it may begin.
                assert!(held <= HELD_BYTES_MAX + 1000, "{command}: {held} bytes");
                let being_read: u64 =
                    bench.connection.answers.pending.iter().map(|pending| pending.reading_bytes).sum();
                assert!(being_read <= HELD_BYTES_MAX, "{command}: {being_read} bytes are being read");
                if let Some(buffer) = bench.connection.next_recv() {
                    bench.receive(buffer, 100_000);
                }
                sending = sending.or_else(|| bench.connection.next_send());
                if bench.model.waiting() > 0 {
                    let (sequence, reply) = bench.model.answer(&mut random);
                    bench.connection.replied(sequence, reply);
                }
                if let Some((chunks, _)) = sending.take_if(|_| reading) {
                    bench.take_sent(chunks);
                    bench.connection.sent(true);
                }
            }
        }
        let keys = command.matches(" a").count() * 64;
        assert!(bench.answer.len() > keys * value.len(), "{command}: {} bytes", bench.answer.len());
        let values = String::from_utf8(bench.answer).unwrap();
        assert_eq!((values.matches(&value).count(), values.matches("END\r\n").count()), (keys, 65), "{command}");
        let read = bench.model.read_bytes / value.len() as u64;
        assert!(!tells_longer || read == keys as u64, "{command}: read {read} times");
    }
}

/// A touch's reply has the whole record: 64 of them were once held for a client that wanted none of
/// their bytes.
#[test]
fn touches_of_long_values_hold_none_of_their_bytes() {
    let value = "x".repeat(1_000_000);
    for command in ["touch a 0", "mg a T0 t", "mg a T0 s N5"] {
        let mut bench = Bench::new(format!("set a 0 0 {}\r\n{value}\r\nget b\r\nget b\r\n", value.len()).as_bytes());
        bench.unsent.extend(format!("{command}\r\n").repeat(64).as_bytes());
        let mut random = Random::new(12);
        let mut most = 0;
        for _ in 0..5_000 {
            bench.advance();
            if let Some(buffer) = bench.connection.next_recv() {
                bench.receive(buffer, 100_000);
            }
            if bench.model.waiting() > 0 {
                let (sequence, reply) = bench.model.answer(&mut random);
                bench.connection.replied(sequence, reply);
            }
            let held = |pending: &PendingAnswer| match &pending.reply {
                Some(Reply::Record(Some(record))) => record.value.len(),
                _ => 0,
            };
            most = most.max(bench.connection.answers.pending.iter().map(held).sum::<u64>());
        }
        assert!(bench.submitted >= 64 && most == 0, "{command}: {most} bytes, {} operations", bench.submitted);
    }
}

#[test]
fn a_value_asked_for_again_is_not_overtaken_by_a_later_write_of_its_connection() {
    let value = "x".repeat(100_000);
    let sent = format!("set a 0 0 {}\r\n{value}\r\nget a\r\nset a 0 0 1\r\n1\r\nget a\r\n", value.len());
    for seed in 0..20 {
        let bench = Bench::new(sent.as_bytes()).run(&mut Random::new(seed), 100_000);
        let expected =
            format!("STORED\r\nVALUE a 0 {}\r\n{value}\r\nEND\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n", value.len());
        assert!(bench.answer == expected.as_bytes(), "seed {seed}: {} bytes", bench.answer.len());
    }
}

/// Of values over 1 MiB a part was asked for first each time, and then the whole.
#[test]
fn a_connection_that_has_read_a_very_long_value_asks_for_the_next_one_at_once() {
    let mut connection = Connection::new(16 << 20, BlockBudget::new(0), permit());
    connection.reading.value_bytes = 16 << 20;
    assert_eq!(connection.first_bytes(), 16 << 20);
}

/// Found by the metamorphic test: the long value was asked for again after its touch had ended it.
#[test]
fn a_touch_into_the_past_still_answers_a_long_value() {
    let value = "x".repeat(100_000);
    let sent = format!("set a 3 0 {}\r\n{value}\r\ngat -1 a\r\nget a\r\n", value.len());
    let bench = Bench::new(sent.as_bytes()).run(&mut Random::new(10), 100_000);
    let expected = format!("STORED\r\nVALUE a 3 {}\r\n{value}\r\nEND\r\nEND\r\n", value.len());
    assert!(bench.answer == expected.as_bytes(), "{} bytes", bench.answer.len());
}

#[test]
fn a_failed_send_ends_it_and_late_replies_do_no_harm() {
    let mut bench = Bench::new(b"version\r\nget a\r\nget b\r\n");
    let buffer = bench.connection.next_recv().unwrap();
    bench.receive(buffer, 100);
    bench.advance();
    assert!(bench.connection.next_send().is_some());
    bench.connection.sent(false);
    assert!(bench.connection.is_finished());
    while bench.model.waiting() > 0 {
        let (sequence, reply) = bench.model.answer(&mut Random::new(0));
        bench.connection.replied(sequence, reply);
    }
    bench.advance();
    bench.connection.replied(77, Reply::Record(None));
    assert!(bench.connection.next_send().is_none() && bench.connection.next_recv().is_none());
}

#[test]
fn a_command_received_before_the_end_is_answered() {
    let bench = Bench::new(b"set a 0 0 1\r\n1\r\nget a\r\nget b").run(&mut Random::new(5), 1000);
    assert_eq!(bench.answer, b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn a_server_that_stops_still_answers_what_had_to_wait() {
    let mut bench = Bench::new(b"set a 0 0 1\r\n1\r\nget a\r\n");
    let buffer = bench.connection.next_recv().unwrap();
    bench.receive(buffer, 1000);
    bench.advance();
    assert_eq!(bench.model.waiting(), 1, "the get waits for the set");
    bench.connection.end();
    bench.advance();
    let bench = bench.run(&mut Random::new(7), 1000);
    assert_eq!(bench.answer, b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn a_receive_may_reach_beyond_the_data_block() {
    let mut bench = Bench::new(format!("set a 0 0 8000\r\n{}\r\nget b\r\n", "x".repeat(8000)).as_bytes());
    let buffer = bench.connection.next_recv().unwrap();
    bench.receive(buffer, 16);
    bench.advance();
    let mut buffer = bench.connection.next_recv().unwrap();
    buffer.reserve(20_000);
    bench.receive(buffer, 20_000);
    assert!(bench.unsent.is_empty());
    let bench = bench.run(&mut Random::new(8), 1000);
    assert_eq!(bench.answer, b"STORED\r\nEND\r\n");
}

#[test]
fn flush_all_reaches_every_shard_and_waits_for_what_came_before() {
    let mut bench = Bench::new(b"set a 0 0 1\r\n1\r\nflush_all\r\nset a 0 0 1\r\n2\r\n");
    let buffer = bench.connection.next_recv().unwrap();
    bench.receive(buffer, 1000);
    bench.advance();
    assert_eq!(bench.model.waiting(), 1, "the set alone");
    let mut random = Random::new(6);
    let (sequence, reply) = bench.model.answer(&mut random);
    bench.connection.replied(sequence, reply);
    bench.advance();
    assert_eq!(bench.model.waiting(), bench.model.shards, "the flush_all alone, on every shard");
}

/// A get of a long value that comes slice by slice: its connection, with the front on its way.
fn streaming(sent: &str, len: usize) -> Bench {
    let value = "x".repeat(len);
    let mut bench = Bench::new(format!("set a 5 0 {len}\r\n{value}\r\n{sent}").as_bytes());
    bench.connection.client.item_bytes_max = 16 << 20;
    bench.model.front_bytes = Some(60_000);
    bench
}

#[test]
fn values_that_come_slice_by_slice_are_whole_and_in_order() {
    let (len, short) = (1_300_000, "VALUE b 0 1\r\n1\r\n");
    let value = "x".repeat(len);
    for seed in 0..20 {
        let bench = streaming("set b 0 0 1\r\n1\r\nget a b a\r\nget a\r\nset a 0 0 1\r\n2\r\nget a\r\n", len);
        let bench = bench.run(&mut Random::new(seed), 400_000);
        let long = format!("VALUE a 5 {len}\r\n{value}\r\n");
        let expected =
            format!("STORED\r\nSTORED\r\n{long}{short}{long}END\r\n{long}END\r\nSTORED\r\nVALUE a 0 1\r\n2\r\nEND\r\n");
        assert!(bench.answer == expected.as_bytes(), "seed {seed}: {} bytes", bench.answer.len());
    }
}

/// On a fresh connection 16 KiB were asked for, and then all of a longer value again, though all of
/// it had been read.
#[test]
fn what_came_whole_is_not_asked_for_again() {
    let len = 50_000;
    let value = format!("VALUE a 5 {len}\r\n{}\r\nEND\r\n", "x".repeat(len));
    for (front_bytes, gets, asked) in [(Some(60_000), 1, 1), (None, 1, 2), (Some(60_000), 200, 200)] {
        let mut bench = streaming(&"get a\r\n".repeat(gets), len);
        bench.model.front_bytes = front_bytes;
        let bench = bench.run(&mut Random::new(1), 400_000);
        assert!(bench.answer == format!("STORED\r\n{}", value.repeat(gets)).as_bytes(), "{gets} gets");
        // Of many at once some have no room, and are asked for again.
        assert!(bench.model.gets >= asked && bench.model.gets <= asked * 5 / 4, "{} for {gets}", bench.model.gets);
    }
}

/// Values that are longer than expected are asked for again in order, as many at once as there is
/// room for; nothing behind them is asked for before them.
#[test]
fn values_longer_than_expected_are_asked_for_in_order_and_read_once() {
    let len = 300_000;
    let value = "x".repeat(len);
    let mut bench = Bench::new(format!("set a 0 0 {len}\r\n{value}\r\nset b 0 0 1\r\n1\r\n").as_bytes());
    bench.connection.client.item_bytes_max = 16 << 20;
    bench.model.tells_longer = true;
    run_until_idle(&mut bench, true);
    bench.answer.clear();
    bench.unsent.extend(format!("get{}\r\n", " a b".repeat(20)).as_bytes());
    let buffer = bench.connection.next_recv().expect("room");
    bench.receive(buffer, 100_000);
    bench.advance();
    let asked = bench.model.waiting();
    (0..asked).for_each(|_| {
        let (sequence, reply) = bench.model.answer(&mut Random::new(1));
        bench.connection.replied(sequence, reply);
    });
    bench.advance();
    let (again, most) = (bench.model.waiting(), HELD_BYTES_MAX as usize / len);
    assert!((3..=most).contains(&again), "{again} of {asked} at once");
    run_until_idle(&mut bench, true);
    let answer = format!("VALUE a 0 {len}\r\n{value}\r\nVALUE b 0 1\r\n1\r\n").repeat(20) + "END\r\n";
    assert!(bench.answer == answer.as_bytes(), "{} bytes", bench.answer.len());
    assert_eq!(bench.model.read_bytes, 20 * (len as u64 + 1), "each once");
}

/// Whoever asks, in whatever dialect, gets the same bytes as of a value that comes whole.
#[test]
fn every_dialect_takes_values_slice_by_slice() {
    use conversations::binary::frame;
    let value = "x".repeat(1_300_000);
    let meta = format!(
        "ms a {} F5\r\n{value}\r\nms b 1\r\n1\r\nmg a v f s k Oq\r\nmg b v\r\nmg YQ== b k v q\r\nmd a I T60\r\nmg a v f h\r\n\
         mg a v\r\nmg a s\r\nmg a v N30\r\nmg a v t T90\r\nms a 1\r\n2\r\nmg a v\r\nmn\r\n",
        value.len()
    );
    let binary = [
        (0x01, &b"a"[..], &[0, 0, 0, 5, 0, 0, 0, 0][..], value.as_bytes(), 0),
        (0x00, b"a", b"", b"", 0),
        (0x0D, b"a", b"", b"", 0),
        (0x09, b"none", b"", b"", 0),
        (0x0C, b"a", b"", b"", 0),
        (0x1D, b"a", &[0, 0, 0, 60], b"", 0),
        (0x01, b"a", &[0; 8], b"1", 0),
        (0x00, b"a", b"", b"", 0),
        (0x0A, b"", b"", b"", 0),
    ];
    let binary: Vec<u8> = (0..).zip(binary).flat_map(|(number, request)| frame(number, request)).collect();
    for sent in [meta.as_bytes(), &binary] {
        let answer = |seed, front_bytes| {
            let mut bench = Bench::new(sent);
            bench.connection.client.item_bytes_max = 16 << 20;
            bench.model.front_bytes = front_bytes;
            let bench = bench.run(&mut Random::new(seed), 400_000);
            (bench.answer, bench.submitted)
        };
        let (whole, few) = answer(0, None);
        assert!(whole.len() > 3 * value.len(), "{} bytes", whole.len());
        for seed in 0..10 {
            let (sliced, many) = answer(seed, Some(60_000));
            assert!(sliced == whole, "seed {seed}: {} bytes of {}", sliced.len(), whole.len());
            assert!(many > few + 10, "{many} operations, {few} for whole values");
        }
    }
}

/// Lets everything happen but sends.
fn run_without_sends(bench: &mut Bench) {
    for _ in 0..1000 {
        bench.advance();
        if bench.model.waiting() > 0 {
            let (sequence, reply) = bench.model.answer(&mut Random::new(1));
            bench.connection.replied(sequence, reply);
        } else if let Some(buffer) = bench.connection.next_recv() {
            if bench.unsent.is_empty() {
                break;
            }
            bench.receive(buffer, 100_000);
        }
    }
}

#[test]
fn a_client_that_does_not_read_a_long_value_holds_a_window_of_it() {
    let mut bench = streaming("get a\r\n", 8 << 20);
    run_without_sends(&mut bench);
    let held = bench.connection.sending.output.bytes() + bench.connection.reading.bytes;
    assert!((500_000..1_000_000).contains(&held), "{held} bytes");
    // With what is taken the next is asked for.
    let before = bench.submitted;
    let (chunks, _) = bench.connection.next_send().unwrap();
    bench.take_sent(chunks);
    bench.connection.sent(true);
    run_without_sends(&mut bench);
    assert!(bench.submitted > before);
}

#[test]
fn a_slice_that_cannot_be_read_ends_the_connection() {
    let error = Reply::Failed(stratakv_engine::Error::Busy);
    for reply in [Reply::Record(None), error] {
        let mut bench = streaming("get a\r\nget a\r\n", 8 << 20);
        run_without_sends(&mut bench);
        let (chunks, _) = bench.connection.next_send().unwrap();
        bench.take_sent(chunks);
        bench.connection.sent(true);
        bench.advance();
        assert!(bench.model.waiting() > 0, "the next slices are asked for");
        let (sequence, _) = bench.model.answer(&mut Random::new(1));
        bench.connection.replied(sequence, reply);
        bench.advance();
        assert!(bench.connection.is_finished() && bench.connection.next_send().is_none());
        assert!(bench.connection.answers.pending.iter().all(|pending| pending.stream.is_none()), "nothing is held");
    }
}

#[test]
fn operations_ask_for_the_servers_level() {
    let mut submissions = Vec::new();
    let mut connection = Connection::new(100, BlockBudget::new(0), permit());
    let mut buffer = connection.next_recv().unwrap();
    buffer.extend_from_slice(b"set a 0 0 1\r\n1\r\nincr b 1\r\ndelete c\r\n");
    let bytes = buffer.len();
    connection.received(buffer, bytes);
    connection.advance(&mut Context {
        wall: WALL,
        level: Level::ProcessCrash,
        shards: 1,
        counters: &Counters::default(),
        marks: &Marks::default(),
        recency: &Recency::default(),
        nodes: NodeRemovals { queue: &OrphanQueue::default(), sweeps: &NodeSweeps::default() },
        log: Log { watches: &Watches::default(), details: &Details::default(), wall: WALL, cfd: 7 },
        accounts: None,
        server: &NoServer,
        resp: &RespShared::new(Level::ProcessCrash, None, None),
        is_cache: false,
        submissions: &mut submissions,
    });
    let levels: Vec<Level> = submissions
        .iter()
        .map(|submission| match submission.operation {
            Operation::Write { level, .. } | Operation::Update { level, .. } => level,
            _ => panic!("a read"),
        })
        .collect();
    assert_eq!(levels, [Level::ProcessCrash; 3]);
}

/// Everything sent, received and answered, for as long as something happens.
fn run_until_idle(bench: &mut Bench, peer_reads: bool) {
    let mut random = Random::new(13);
    for _ in 0..2000 {
        bench.advance();
        if !bench.unsent.is_empty()
            && let Some(buffer) = bench.connection.next_recv()
        {
            bench.receive(buffer, 100_000);
        }
        if bench.model.waiting() > 0 {
            let (sequence, reply) = bench.model.answer(&mut random);
            bench.connection.replied(sequence, reply);
        }
        if peer_reads && let Some((chunks, _)) = bench.connection.next_send() {
            bench.take_sent(chunks);
            bench.connection.sent(true);
        }
    }
}

/// What was read for the keys behind it left no room for the long value, and they could not leave
/// before it: it hung.
#[test]
fn a_long_value_is_asked_for_again_although_those_behind_it_hold_all_the_room() {
    let set = |key: &str, bytes: usize| format!("set {key} 0 0 {bytes} noreply\r\n{}\r\n", "x".repeat(bytes));
    let keys: Vec<String> = (1..32).map(|number| format!("k{number}")).collect();
    let sets: String = keys.iter().map(|key| set(key, 60_000)).collect();
    let mut bench = Bench::new((sets + &set("big", 240_000)).as_bytes());
    run_until_idle(&mut bench, true);
    // It has seen a value of this length, so it asks for 64 KiB of each of the next.
    bench.unsent.extend(b"get k1\r\n");
    run_until_idle(&mut bench, true);
    bench.answer.clear();
    bench.unsent.extend(format!("get big {}\r\n", keys.join(" ")).as_bytes());
    run_until_idle(&mut bench, true);
    let values = bench.answer.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"VALUE ")).count();
    assert!(values == 32 && bench.answer.ends_with(b"\r\nEND\r\n"), "{values} values");
}

/// Who was not admitted could once make the server keep a line of a megabyte.
#[test]
fn a_stranger_may_not_send_a_long_line() {
    let told = String::new();
    let line = |bytes: usize| format!("{:<bytes$}", "get a").into_bytes();
    let ended = |mut line: Vec<u8>| {
        line.extend(b"\r\nmn\r\n");
        line
    };
    assert_eq!(answer_to_a_stranger(&ended(line(2047))), "CLIENT_ERROR unauthenticated|".repeat(2));
    assert_eq!(answer_to_a_stranger(&ended(line(2048))), told);
    assert_eq!(answer_to_a_stranger(&line(2049)), told);
    // Its peer sends for ever, of either protocol.
    for (start, bytes_max) in [(&b"get "[..], 4096), (&b"\x80\x21\x00\x05\0\0\0\0\0\0\x10\x05"[..], 4400)] {
        let mut bench = Bench::new(start);
        bench.accounts = Some(Accounts::new(PathBuf::new(), Credentials::parse(b"user:pass").unwrap()));
        bench.unsent.extend(vec![b'a'; 1 << 20]);
        let mut most = 0;
        while let Some(buffer) = bench.connection.next_recv() {
            bench.receive(buffer, 1000);
            bench.advance();
            most = most.max(bench.connection.input.received.fresh().len());
        }
        assert!(bench.connection.ending.closing && most <= bytes_max, "{most} bytes");
    }
}

/// Once all replies had come, a write no longer waited for a read of its key that could not be
/// worded yet, and took its mark.
#[test]
fn a_write_waits_for_the_words_of_a_read_that_tells_of_marks() {
    let mut bench = Bench::new(b"set k 0 0 1\r\n1\r\nmd k I\r\n");
    bench.unsent.extend(format!("set a 0 0 60000\r\n{}\r\nget a\r\n", "x".repeat(60_000)).as_bytes());
    run_until_idle(&mut bench, true);
    bench.answer.clear();
    bench.unsent.extend(b"get a\r\n".repeat(18));
    bench.unsent.extend(b"mg k s\r\nmd k I\r\n");
    run_until_idle(&mut bench, false);
    assert!(bench.connection.sending.output.bytes() >= OUTPUT_BYTES_MAX && bench.model.waiting() == 0);
    run_until_idle(&mut bench, true);
    let end = bench.answer.rsplit(|byte| *byte == b'x').next().unwrap();
    assert_eq!(end.escape_ascii().to_string(), r"\r\nEND\r\nHD s1 X W\r\nHD\r\n");
}

/// Marks of records that end were once kept for ever.
#[test]
fn a_given_version_ends_with_its_record() {
    let key = Key::new(CollectionId::default(), b"k").unwrap();
    let expiry_after = |sent: &str| {
        let bench = Bench::new(sent.as_bytes()).run(&mut Random::new(14), 1000);
        bench.marks.of(&key, bench.marks.meant(&key, 50)).map(|mark| mark.expiry)
    };
    let ten = Some(stratakv_base::Expiry(WALL.0 + 10_000));
    assert_eq!(expiry_after("ms k 1 E50 T10\r\n1\r\n"), ten);
    assert_eq!(expiry_after("ms k 1 E50\r\n1\r\n"), Some(stratakv_base::Expiry::NEVER));
    assert_eq!(expiry_after("ms k 1 E50 MA N10\r\n1\r\n"), ten, "an append that makes it");
    assert_eq!(expiry_after("ma k E50 N10\r\n"), ten);
    assert_eq!(expiry_after("set k 0 10 1\r\n1\r\nma k E50 t\r\n"), ten);
    let never = Some(stratakv_base::Expiry::NEVER);
    assert_eq!(expiry_after("set k 0 10 1\r\n1\r\nmd k x E50\r\n"), never, "without its value it is a new record");
    assert_eq!(expiry_after("set k 0 0 1\r\n1\r\nmd k x E50 T10\r\n"), ten);
    assert_eq!(expiry_after("set k 0 0 1\r\n1\r\nmd k E50\r\n"), None, "there is no record");
}
