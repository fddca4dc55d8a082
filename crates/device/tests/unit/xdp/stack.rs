//! Directed cases: bounds, bad frames, and what a stack does at its edges.

use std::net::Ipv4Addr;
use std::sync::Arc;

use smoltcp::time::Instant;
use smoltcp::wire::TcpControl;
use stratakv_base::random::Random;

use super::wire::{
    self, Crafted, HARDWARE, MemoryStack, OURS, PORT, THEIR_HARDWARE, THEIRS, exchange, segment_of, sent,
};
use crate::ring::{Chunk, Completion, NetOutcome, NetRequest, Socket};

const ACCEPT: u64 = u64::MAX;

fn outcomes(stack: &mut MemoryStack) -> Vec<(u64, NetOutcome)> {
    let mut done = Vec::new();
    stack.reap(&mut done);
    let net = |completion| match completion {
        Completion::Net { tag, outcome } => (tag, outcome),
        Completion::Disk { .. } => panic!("no disk is there"),
    };
    done.into_iter().map(net).collect()
}

fn numbers(frame: &[u8]) -> (i32, i32) {
    let segment = segment_of(frame).expect("a segment");
    (segment.seq_number().0, segment.ack_number().0)
}

/// Opens a connection by hand; the numbers that the peer goes on with.
fn open(stack: &mut MemoryStack, from: (Ipv4Addr, u16), now_us: i64) -> (i32, i32) {
    let answers = exchange(stack, &Crafted::syn(from).frame(), now_us);
    let (sequence, next) = numbers(&answers[0]);
    let control = TcpControl::None;
    let ack = Crafted { control, sequence: next, acknowledges: Some(sequence + 1), ..Crafted::syn(from) };
    exchange(stack, &ack.frame(), now_us);
    (next, sequence + 1)
}

fn accept(stack: &mut MemoryStack, listener: &Socket) -> Socket {
    stack.request(ACCEPT, NetRequest::Accept { listener: Arc::clone(listener) });
    match outcomes(stack).pop() {
        Some((ACCEPT, NetOutcome::Accept(Ok((socket, Some(_)))))) => socket,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_is_accepted_receives_sends_and_ends() {
    let (mut stack, listener) = wire::stack(wire::options(), 64, 1);
    let from = (THEIRS, 40_000);
    let (sequence, acknowledges) = open(&mut stack, from, 10);
    let socket = accept(&mut stack, &listener);
    assert!(outcomes(&mut stack).is_empty());
    stack.request(1, NetRequest::Recv { socket: Arc::clone(&socket), buffer: Vec::with_capacity(3) });
    let says = |control, sequence, acknowledges, payload| Crafted {
        control,
        sequence,
        acknowledges: Some(acknowledges),
        payload,
        ..Crafted::syn(from)
    };
    exchange(&mut stack, &says(TcpControl::Psh, sequence, acknowledges, b"hello").frame(), 20);
    stack.request(2, NetRequest::Recv { socket: Arc::clone(&socket), buffer: Vec::with_capacity(9) });
    let received = outcomes(&mut stack);
    assert!(
        matches!(&received[..], [(1, NetOutcome::Recv(a, Ok(3))), (2, NetOutcome::Recv(b, Ok(2)))] if a == b"hel" && b == b"lo"),
        "{received:?}"
    );
    stack.request(
        3,
        NetRequest::Send {
            socket: Arc::clone(&socket),
            chunks: vec![Chunk::Bytes(b"wor".to_vec()), Chunk::Bytes(b"ld".to_vec())],
        },
    );
    assert!(matches!(&outcomes(&mut stack)[..], [(3, NetOutcome::Send(Ok(())))]));
    assert_eq!(crate::socket::untaken_bytes(&socket), Some(5));
    stack.tick(Instant::from_micros(30)).unwrap();
    let frames = sent(&mut stack);
    assert_eq!(segment_of(&frames[0]).unwrap().payload(), b"world");
    assert_eq!((&frames[0][..6], &frames[0][6..12]), (&THEIR_HARDWARE.0[..], &HARDWARE.0[..]));
    // The end of the stream, and ours.
    exchange(&mut stack, &says(TcpControl::Fin, sequence + 5, acknowledges + 5, b"").frame(), 40);
    assert_eq!(crate::socket::untaken_bytes(&socket), Some(0));
    stack.request(4, NetRequest::Recv { socket: Arc::clone(&socket), buffer: Vec::with_capacity(9) });
    assert!(matches!(&outcomes(&mut stack)[..], [(4, NetOutcome::Recv(_, Ok(0)))]));
    drop(socket);
    stack.tick(Instant::from_micros(50)).unwrap();
    let frames = sent(&mut stack);
    assert!(frames.iter().any(|frame| segment_of(frame).unwrap().fin()));
    exchange(&mut stack, &says(TcpControl::None, sequence + 6, acknowledges + 6, b"").frame(), 60);
    assert_eq!(stack.connections(), 0);
}

#[test]
fn a_flood_of_syns_holds_bounded_memory_and_others_are_served() {
    let options = wire::options();
    let backlog = options.backlog;
    let (mut stack, listener) = wire::stack(options, 64, 2);
    for number in 0..5000u32 {
        let from = (Ipv4Addr::from(0x0A01_0000 + number), 1 + number as u16);
        exchange(&mut stack, &Crafted::syn(from).frame(), 10 + i64::from(number));
        assert!(stack.connections() <= backlog);
    }
    assert_eq!(stack.counters().evicted, 5000 - backlog as u64);
    open(&mut stack, (THEIRS, 40_000), 6000);
    accept(&mut stack, &listener);
    // Those that never answer are given up.
    stack.tick(Instant::from_millis(5000)).unwrap();
    for seconds in 0..120 {
        stack.tick(Instant::from_millis(6000 + 1000 * seconds)).unwrap();
        sent(&mut stack);
    }
    assert_eq!(
        stack.connections(),
        0,
        "the accepted one was dropped, and its peer took no notice; the others never answered"
    );
}

#[test]
fn no_more_connections_wait_to_be_accepted_than_may() {
    let mut options = wire::options();
    options.backlog = 4;
    let (mut stack, listener) = wire::stack(options, 64, 3);
    (0..10).for_each(|number| _ = open(&mut stack, (THEIRS, 40_000 + number), 10 + i64::from(number)));
    let accepted: Vec<Socket> = (0..4).map(|_| accept(&mut stack, &listener)).collect();
    stack.request(ACCEPT, NetRequest::Accept { listener });
    assert!(outcomes(&mut stack).is_empty());
    assert_eq!((accepted.len(), stack.connections()), (4, 4));
}

#[test]
fn as_many_connections_are_open_as_may_be() {
    let mut options = wire::options();
    options.connections_max = 3;
    let (mut stack, listener) = wire::stack(options, 64, 4);
    let open_ones: Vec<Socket> = (0..3)
        .map(|number| {
            open(&mut stack, (THEIRS, 40_000 + number), 10);
            accept(&mut stack, &listener)
        })
        .collect();
    assert!(exchange(&mut stack, &Crafted::syn((THEIRS, 50_000)).frame(), 20).is_empty());
    assert_eq!(stack.counters().refused, 1);
    // One that is in closing makes room.
    drop(open_ones.into_iter().next());
    stack.tick(Instant::from_micros(30)).unwrap();
    sent(&mut stack);
    assert_eq!(exchange(&mut stack, &Crafted::syn((THEIRS, 50_000)).frame(), 40).len(), 1);
}

#[test]
fn who_asks_where_nobody_listens_is_told_so() {
    let (mut stack, _listener) = wire::stack(wire::options(), 64, 5);
    let elsewhere = Crafted { to_port: PORT + 1, ..Crafted::syn((THEIRS, 40_000)) };
    let answers = exchange(&mut stack, &elsewhere.frame(), 10);
    assert!(segment_of(&answers[0]).is_some_and(|segment| segment.rst()));
    let reset = Crafted { control: TcpControl::Rst, ..elsewhere };
    assert!(exchange(&mut stack, &reset.frame(), 20).is_empty(), "a reset is not answered");
    let stray = Crafted { control: TcpControl::None, acknowledges: Some(7), ..Crafted::syn((THEIRS, 40_000)) };
    assert!(segment_of(&exchange(&mut stack, &stray.frame(), 30)[0]).is_some_and(|segment| segment.rst()));
    assert_eq!(stack.connections(), 0);
}

#[test]
fn a_listener_that_is_shut_down_accepts_nobody() {
    let (mut stack, listener) = wire::stack(wire::options(), 64, 6);
    stack.request(1, NetRequest::Accept { listener: Arc::clone(&listener) });
    stack.cancel(&listener);
    assert!(matches!(&outcomes(&mut stack)[..], [(1, NetOutcome::Accept(Err(_)))]));
    open(&mut stack, (THEIRS, 40_000), 10);
    stack.shutdown(&listener);
    stack.request(2, NetRequest::Accept { listener: Arc::clone(&listener) });
    assert!(matches!(&outcomes(&mut stack)[..], [(2, NetOutcome::Accept(Err(_)))]));
    stack.tick(Instant::from_micros(20)).unwrap();
    assert!(sent(&mut stack).iter().any(|frame| segment_of(frame).unwrap().rst()), "who waited is reset");
    assert!(segment_of(&exchange(&mut stack, &Crafted::syn((THEIRS, 41_000)).frame(), 30)[0]).unwrap().rst());
}

#[test]
fn a_peer_that_acknowledges_nothing_is_given_up_and_holds_bounded_memory() {
    let options = wire::options();
    let (bound, timeout) = (options.buffers.send_most as u64, options.peer_timeout);
    let (mut stack, listener) = wire::stack(options, 64, 7);
    open(&mut stack, (THEIRS, 40_000), 10);
    let socket = accept(&mut stack, &listener);
    let chunks = vec![Chunk::Bytes(vec![7; 1 << 20])];
    stack.request(1, NetRequest::Send { socket: Arc::clone(&socket), chunks });
    stack.request(2, NetRequest::Recv { socket: Arc::clone(&socket), buffer: Vec::new() });
    let mut frames = 0;
    for seconds in 1..=timeout.as_secs() as i64 + 2 {
        stack.tick(Instant::from_millis(1000 * seconds)).unwrap();
        frames += sent(&mut stack).len();
    }
    let ended = outcomes(&mut stack);
    assert!(matches!(&ended[..], [(2, NetOutcome::Recv(_, Err(_))), (1, NetOutcome::Send(Err(_)))]), "{ended:?}");
    assert!(frames as u64 <= 20 * bound / 1000, "{frames} frames");
    drop(socket);
    stack.tick(Instant::from_millis(200_000)).unwrap();
    assert_eq!(stack.connections(), 0);
}

/// The library stops its probes where a retransmission falls due.
#[test]
fn a_peer_whose_word_that_it_has_room_was_lost_is_asked_for_it() {
    let (mut stack, listener) = wire::stack(wire::options(), 64, 16);
    let from = (THEIRS, 40_000);
    let (sequence, acknowledges) = open(&mut stack, from, 10);
    let socket = accept(&mut stack, &listener);
    let chunks = vec![Chunk::Bytes(vec![7; 3000])];
    stack.request(1, NetRequest::Send { socket: Arc::clone(&socket), chunks });
    stack.tick(Instant::from_micros(20)).unwrap();
    assert!(!sent(&mut stack).is_empty());
    let (control, acknowledges) = (TcpControl::None, Some(acknowledges));
    let closed = Crafted { control, sequence, acknowledges, window: 0, ..Crafted::syn(from) };
    exchange(&mut stack, &closed.frame(), 30);
    let mut asked = 0;
    for step in 1..100 {
        stack.tick(Instant::from_millis(100 * step)).unwrap();
        asked += sent(&mut stack).len();
    }
    assert!((4..40).contains(&asked), "{asked} times in ten seconds");
    // It has room after all.
    let frames = exchange(&mut stack, &Crafted { window: 8192, ..closed }.frame(), 10_000_000);
    let bytes: usize = frames.iter().map(|frame| segment_of(frame).unwrap().payload().len()).sum();
    assert!(bytes > 1000, "{bytes}");
}

#[test]
fn a_peer_that_is_silent_is_asked_and_then_given_up() {
    let (mut stack, listener) = wire::stack(wire::options(), 64, 8);
    let (sequence, acknowledges) = open(&mut stack, (THEIRS, 40_000), 10);
    let socket = accept(&mut stack, &listener);
    stack.request(1, NetRequest::Recv { socket, buffer: Vec::new() });
    let mut probes = 0;
    for second in 0..300 {
        stack.tick(Instant::from_millis(1000 * second)).unwrap();
        for _ in sent(&mut stack) {
            probes += 1;
            // It answers for the first four minutes.
            if second < 240 {
                let control = TcpControl::None;
                let alive =
                    Crafted { control, sequence, acknowledges: Some(acknowledges), ..Crafted::syn((THEIRS, 40_000)) };
                exchange(&mut stack, &alive.frame(), 1_000_000 * second);
            }
        }
        assert!(second > 280 || stack.connections() == 1, "second {second}");
    }
    assert!((8..20).contains(&probes), "{probes} probes");
    for second in 300..330 {
        stack.tick(Instant::from_millis(1000 * second)).unwrap();
    }
    assert!(matches!(&outcomes(&mut stack)[..], [(1, NetOutcome::Recv(_, Err(_)))]));
}

#[test]
fn without_free_frames_some_are_lost_and_then_it_goes_on() {
    let (mut stack, listener) = wire::stack(wire::options(), 8, 9);
    let (sequence, acknowledges) = open(&mut stack, (THEIRS, 40_000), 10);
    let socket = accept(&mut stack, &listener);
    // Nothing leaves the card, and more arrives than there is room for.
    let says = Crafted {
        control: TcpControl::Psh,
        sequence,
        acknowledges: Some(acknowledges),
        payload: b"x",
        ..Crafted::syn((THEIRS, 40_000))
    };
    (0..100).for_each(|_| stack.io_mut().rings.deliver(&says.frame()));
    assert!(stack.io_mut().rings.dropped >= 90);
    stack.request(1, NetRequest::Send { socket: Arc::clone(&socket), chunks: vec![Chunk::Bytes(vec![5; 20_000])] });
    for micros in 20..40 {
        stack.tick(Instant::from_micros(micros)).unwrap();
    }
    let sent_first = sent(&mut stack).len();
    assert!(sent_first <= 8, "{sent_first}");
    // The card works again.
    let mut bytes = 0;
    for step in 1..500 {
        stack.tick(Instant::from_millis(10 * step)).unwrap();
        for frame in sent(&mut stack) {
            let segment = segment_of(&frame).unwrap();
            bytes += segment.payload().len();
            let next = segment.seq_number().0.wrapping_add(segment.payload().len() as i32);
            let ack = Crafted {
                control: TcpControl::None,
                sequence: sequence + 1,
                acknowledges: Some(next),
                payload: b"",
                ..says
            };
            stack.io_mut().rings.deliver(&ack.frame());
        }
    }
    assert!(bytes > 10_000, "{bytes}");
    assert_eq!(stack.io_mut().strange(), 0);
}

#[test]
fn frames_of_any_bytes_are_survived() {
    let mut random = Random::new(11);
    let (mut stack, listener) = wire::stack(wire::options(), 64, 10);
    let (sequence, acknowledges) = open(&mut stack, (THEIRS, 40_000), 10);
    let socket = accept(&mut stack, &listener);
    stack.request(1, NetRequest::Recv { socket, buffer: Vec::with_capacity(1 << 20) });
    let whole = Crafted {
        control: TcpControl::Psh,
        sequence,
        acknowledges: Some(acknowledges),
        payload: b"abc",
        ..Crafted::syn((THEIRS, 40_000))
    };
    for round in 0..20_000 {
        let mut frame = whole.frame();
        match random.below(3) {
            0 => frame.truncate(random.below(frame.len() as u64) as usize),
            1 => (0..1 + random.below(8)).for_each(|_| {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] = random.next_u64() as u8;
            }),
            _ => {
                frame = vec![0; random.below(1600) as usize];
                random.fill(&mut frame);
            }
        }
        exchange(&mut stack, &frame, 20 + round);
    }
    assert!(stack.counters().damaged > 5000 && stack.io_mut().strange() == 0);
    assert!(stack.connections() <= 1 + wire::options().backlog);
}

#[test]
fn segments_with_wrong_checksums_and_fragments_are_dropped() {
    let (mut stack, _listener) = wire::stack(wire::options(), 64, 12);
    let frame = Crafted::syn((THEIRS, 40_000)).frame();
    for at in 14..frame.len() {
        let mut damaged = frame.clone();
        damaged[at] ^= 0x10;
        assert!(exchange(&mut stack, &damaged, 10 + at as i64).is_empty(), "byte {at}");
    }
    assert_eq!(stack.connections(), 0);
    let mut vlan = frame.clone();
    vlan.splice(12..12, [0x81, 0, 0, 5]);
    assert!(exchange(&mut stack, &vlan, 90).is_empty());
    assert!(!exchange(&mut stack, &frame, 99).is_empty(), "the whole one is answered");
}

#[test]
fn packets_are_as_long_as_the_mtu_lets_them() {
    for (mtu, longest) in [(1500, 1460), (1280, 1240)] {
        let options = super::StackOptions { mtu, ..wire::options() };
        let (mut stack, _listener) = wire::stack(options, 64, 13);
        let answers = exchange(&mut stack, &Crafted::syn((THEIRS, 40_000)).frame(), 10);
        let segment = segment_of(&answers[0]).unwrap();
        let mss = [2, 4].into_iter().chain(u16::to_be_bytes(longest)).collect::<Vec<u8>>();
        assert!(segment.options().windows(4).any(|option| option == mss), "{:?}", segment.options());
    }
}

/// Who has the address, and whether it is there.
#[test]
fn neighbours_and_echo_requests_are_answered() {
    let (mut stack, _listener) = wire::stack(wire::options(), 64, 14);
    let mut question = [&[0xFF; 6][..], &THEIR_HARDWARE.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &THEIR_HARDWARE.0].concat();
    question.extend([&THEIRS.octets()[..], &[0; 6], &OURS.octets()].concat());
    let answers = exchange(&mut stack, &question, 10);
    assert_eq!(answers[0][20..28], [&[0, 2][..], &HARDWARE.0].concat()[..]);
    let mut echo = vec![8, 0, 0, 0, 1, 2, 0, 1, b'h', b'i'];
    let sum = !(0x0800u32 + 0x0102 + 0x0001 + 0x6869) as u16;
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut header = [0x45, 0, 0, 30, 0, 1, 0, 0, 64, 1, 0, 0].to_vec();
    header.extend([THEIRS.octets(), OURS.octets()].concat());
    smoltcp::wire::Ipv4Packet::new_unchecked(&mut header[..]).fill_checksum();
    let frame = [&HARDWARE.0[..], &THEIR_HARDWARE.0, &[8, 0], &header, &echo].concat();
    let answers = exchange(&mut stack, &frame, 20);
    assert_eq!((answers[0][34], &answers[0][42..44]), (0, &b"hi"[..]));
}

#[test]
fn a_segment_from_where_a_closed_connection_was_opens_another() {
    let (mut stack, listener) = wire::stack(wire::options(), 64, 15);
    let from = (THEIRS, 40_000);
    let (sequence, acknowledges) = open(&mut stack, from, 10);
    let socket = accept(&mut stack, &listener);
    let reset = Crafted { control: TcpControl::Rst, sequence, acknowledges: Some(acknowledges), ..Crafted::syn(from) };
    exchange(&mut stack, &reset.frame(), 20);
    stack.request(1, NetRequest::Recv { socket: Arc::clone(&socket), buffer: Vec::new() });
    assert!(matches!(&outcomes(&mut stack)[..], [(1, NetOutcome::Recv(_, Err(_)))]));
    // The old one's handle is still there.
    open(&mut stack, from, 30);
    let another = accept(&mut stack, &listener);
    assert_eq!(stack.connections(), 2);
    drop(socket);
    stack.tick(Instant::from_micros(40)).unwrap();
    assert_eq!(stack.connections(), 1);
    drop(another);
}
