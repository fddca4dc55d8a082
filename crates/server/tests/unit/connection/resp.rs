//! Redis clients without sockets: any cut of the bytes, any order of the replies.

use super::*;

#[path = "../../conversations/resp.rs"]
mod conversations;
use conversations::{RespConversation, conversations, is_told, of_words, request, told};

/// What is heard of these requests; the same however they come.
fn heard(sent: &[u8], seeds: u64, change: impl Fn(&mut Bench)) -> Vec<String> {
    let mut first = None;
    for seed in 0..seeds {
        let mut bench = Bench::of_resp(sent);
        change(&mut bench);
        let bytes_max = [100_000, 7, 1][seed as usize % 3];
        let bench = bench.run(&mut Random::new(seed), bytes_max);
        let replies = told(&bench.answer);
        let first = first.get_or_insert_with(|| replies.clone());
        assert_eq!(*first, replies, "seed {seed}");
    }
    first.unwrap_or_default()
}

#[test]
fn every_conversation_of_redis_clients_goes_as_written_whatever_the_order_of_events() {
    let mut wrong = Vec::new();
    for conversation in conversations() {
        let sent: Vec<u8> = conversation.lines.iter().flat_map(|(line, _)| of_words(line)).collect();
        let replies = heard(&sent, 30, |_| {});
        assert_eq!(replies.len(), conversation.lines.len(), "{}: {replies:?}", conversation.name);
        for (reply, (line, expected)) in replies.iter().zip(conversation.lines) {
            let RespConversation { name, ours, .. } = conversation;
            if !is_told(reply, expected) {
                wrong.push(format!("{name} (ours alone: {ours}), {line}: {reply}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_large_request_leaves_nothing_behind() {
    let words = [vec![b"EXISTS".to_vec()], vec![b"1".to_vec(); 5000]].concat();
    let mut bench = Bench::of_resp(&request(&words)).run(&mut Random::new(1), 100_000);
    assert_eq!(told(&bench.answer), ["(0)"]);
    let held_bytes = bench.connection.true_up(0);
    assert!(held_bytes < 40_000, "{held_bytes} bytes are held by a connection at rest");
}

#[test]
fn inline_commands_are_understood_beside_others() {
    let sent = b"PING\r\n*1\r\n$4\r\nPING\r\nset a \"b c\"\n\r\nget a\r\nset a \"\r\nPING\r\n";
    let replies = heard(sent, 12, |_| {});
    assert_eq!(replies, ["PONG", "PONG", "OK", "\"b c\"", "-ERR Protocol error: unbalanced quotes in request"]);
}

#[test]
fn what_is_no_request_is_told_once_and_ends_the_connection() {
    for (sent, said) in [
        (&b"*1\r\n$1073741824\r\nabc"[..], "invalid bulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*2\r\n*1\r\n$4\r\nPING\r\n$4\r\nPING\r\n", "expected \\'$\\', got \\'*\\'"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*1\r\n$3\r\nabcd\r\n", "expected a line end behind an argument"),
    ] {
        let sent = [b"*1\r\n$4\r\nPING\r\n", sent, b"*1\r\n$4\r\nPING\r\n"].concat();
        assert_eq!(heard(&sent, 6, |_| {}), ["PONG".to_owned(), format!("-ERR Protocol error: {said}")]);
    }
    let long = [&b"*2\r\n$4\r\nECHO\r\n$2000\r\n"[..], &[b'x'; 2000], b"yy"].concat();
    assert_eq!(heard(&long, 6, |_| {}), ["-ERR Protocol error: expected a line end behind an argument"]);
}

#[test]
fn long_values_and_many_arguments_come_whole_or_are_refused() {
    let set = |bytes: usize| request(&[b"SET".to_vec(), b"a".to_vec(), vec![b'x'; bytes]]);
    let strlen = request(&[b"STRLEN".to_vec(), b"a".to_vec()]);
    for bytes in [1023, 1024, 70_000, 1 << 20] {
        let replies = heard(&[set(bytes), strlen.clone()].concat(), 2, |_| {});
        assert_eq!(replies, ["OK".to_owned(), format!("({bytes})")]);
    }
    let sent = [set(3), set((1 << 20) + 1), strlen.clone()].concat();
    let replies = heard(&sent, 2, |_| {});
    let refused = "-ERR an argument has 1048577 bytes, and clients may store 1048576: raise --item-bytes-max, or store it in parts";
    assert_eq!(replies, ["OK", refused, "(3)"], "the old value stays");
    let keys: Vec<Vec<u8>> = (0..5000).map(|number| format!("key{number}").into_bytes()).collect();
    let command = |name: &str| request(&[vec![name.as_bytes().to_vec()], keys.clone()].concat());
    let pairs: Vec<Vec<u8>> = keys.iter().flat_map(|key| [key.clone(), b"v".to_vec()]).collect();
    let mset = request(&[vec![b"MSET".to_vec()], pairs].concat());
    let sent = [mset, command("EXISTS"), command("DEL"), command("EXISTS"), command("MGET")].concat();
    let replies = heard(&sent, 2, |_| {});
    assert_eq!(replies[..4], ["OK", "(5000)", "(5000)", "(0)"]);
    assert_eq!(replies[4].matches("nil").count(), 5000);
}

#[test]
fn a_stranger_is_told_to_log_in_and_may_not_send_much() {
    let strange = |bench: &mut Bench| {
        bench.accounts = Some(Accounts::new(PathBuf::new(), Credentials::parse(b"user:pass\ndefault:word").unwrap()));
    };
    let no_auth = "-NOAUTH Authentication required.";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    for (lines, expected) in [
        (&["GET a", "PING", "FOO", "COMMAND"][..], &[no_auth; 4][..]),
        (&["AUTH user pass", "GET a"], &["OK", "nil"]),
        (&["AUTH word", "GET a"], &["OK", "nil"]),
        (&["AUTH pass", "GET a"], &[wrong, no_auth]),
        (&["AUTH user word", "AUTH user pass", "GET a"], &[wrong, "OK", "nil"]),
        (&["AUTH user pass", "AUTH user no", "GET a"], &["OK", wrong, "nil"]),
        (&["AUTH user pass", "RESET", "GET a"], &["OK", "RESET", no_auth]),
        (
            &["HELLO 3 AUTH user no", "HELLO 3 AUTH", "GET a"],
            &[wrong, "-ERR Syntax error in HELLO option \\'AUTH\\'", no_auth],
        ),
        (&["QUIT", "GET a"], &["OK"]),
    ] {
        let sent: Vec<u8> = lines.iter().flat_map(|line| of_words(line)).collect();
        assert_eq!(heard(&sent, 6, strange), expected, "{lines:?}");
    }
    let sent = [of_words("HELLO 3 AUTH user pass"), of_words("GET a")].concat();
    let replies = heard(&sent, 6, strange);
    assert!(replies[0].starts_with("{\"server\"") && replies[1] == "nil", "{replies:?}");
    let replies = heard(&of_words("HELLO 3"), 6, strange);
    assert!(replies[0].starts_with("-NOAUTH HELLO must be called"), "{replies:?}");
    let many = heard(&request(&vec![b"GET".to_vec(); 11]), 6, strange);
    assert_eq!(many, ["-ERR Protocol error: invalid multibulk length"]);
    let sent = [request(&[b"SET".to_vec(), b"a".to_vec(), vec![b'x'; 1025]]), of_words("AUTH user pass")].concat();
    assert_eq!(heard(&sent, 6, strange), [no_auth, "OK"]);
}

/// Both see one record, its flags and its expiry.
#[test]
fn memcache_clients_see_the_same_records() {
    let mut bench = Bench::new(b"set a 7 1000 2\r\n10\r\nset b 3 0 1\r\nx\r\n").run(&mut Random::new(1), 1000);
    let resp = [of_words("INCRBY a 5"), of_words("APPEND b y"), of_words("TTL a"), of_words("SET c 1")].concat();
    let mut next = Bench::of_resp(&resp);
    next.model = bench.model;
    bench = next.run(&mut Random::new(2), 1000);
    assert_eq!(told(&bench.answer), ["(15)", "(2)", "(1000)", "OK"]);
    let mut next = Bench::new(b"get a b c\r\n");
    next.model = bench.model;
    let bench = next.run(&mut Random::new(3), 1000);
    let expected = b"VALUE a 7 2\r\n15\r\nVALUE b 3 2\r\nxy\r\nVALUE c 0 1\r\n1\r\nEND\r\n";
    assert_eq!(bench.answer.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

/// Values that come slice by slice are told with their whole length first.
#[test]
fn long_values_are_read_slice_by_slice() {
    let value = vec![b'v'; 300_000];
    let sent = [
        request(&[b"SET".to_vec(), b"a".to_vec(), value.clone()]),
        of_words("MGET a none a"),
        of_words("GETRANGE a 299999 -1"),
        of_words("GETEX a EX 100"),
    ];
    for front_bytes in [None, Some(65_536)] {
        let replies = heard(&sent.concat(), 3, |bench| {
            bench.model.front_bytes = front_bytes;
            bench.model.tells_longer = front_bytes.is_some();
        });
        let shown = format!("\"{}\"", value.escape_ascii());
        assert_eq!(replies[0], "OK");
        assert!(replies[1] == format!("[{shown}, nil, {shown}]") && replies[3] == shown);
        assert_eq!(replies[2], "\"v\"");
    }
}

#[test]
fn an_operation_that_fails_is_an_error_of_its_command_alone() {
    let sent: Vec<u8> =
        ["SET a 1", "GET a", "INCR a", "MSET a 1 b 2", "MGET a b", "DEL a b", "SCAN 0", "KEYS *", "GETRANGE a 0 -1"]
            .iter()
            .flat_map(|line| of_words(line))
            .collect();
    for seed in 0..300 {
        let mut bench = Bench::of_resp(&sent);
        bench.model.failures_percent = [100, 30][seed as usize % 2];
        let replies = told(&bench.run(&mut Random::new(seed), 1000).answer);
        assert_eq!(replies.len(), 9, "seed {seed}: {replies:?}");
        if seed.is_multiple_of(2) {
            assert!(replies.iter().all(|reply| reply.contains("-ERR ") || reply.contains("-OOM ")), "{replies:?}");
        }
    }
}

/// Another thread publishes between the moment in which a listener looks for messages and the one
/// in which it carries out its next command.
#[test]
fn a_listener_that_has_lost_messages_is_closed_when_it_ends_its_last_subscription() {
    let mut bench = Bench::of_resp(b"");
    bench.in_context(|connection, context| _ = connection.resp(&of_words("SUBSCRIBE a"), context));
    for _ in 0..2 {
        bench.resp.pubsub.publish(crate::resp::ListenKind::Channel, b"a", &vec![0; 2 << 20]);
    }
    assert!(!bench.connection.is_broken());
    bench.in_context(|connection, context| _ = connection.resp(&of_words("UNSUBSCRIBE"), context));
    assert!(bench.connection.is_broken());
    assert_eq!(bench.counters.pubsub_kicks.get(), 1);
}
