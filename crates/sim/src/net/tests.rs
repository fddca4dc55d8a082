use stratakv_device::Chunk;

use super::*;

/// A connection, accepted.
fn connected(net: &mut Net, random: &mut Random) -> (Socket, Peer, Socket) {
    let listener = net.listener().unwrap();
    let peer = net.connect().unwrap();
    net.submit(0, 0, NetRequest::Accept { listener: listener.clone() });
    let Some((0, 0, Some(NetOutcome::Accept(Ok((socket, None)))))) = net.step(random) else { panic!("not accepted") };
    (socket, peer, listener)
}

fn recv(socket: &Socket) -> NetRequest {
    NetRequest::Recv { socket: socket.clone(), buffer: Vec::with_capacity(100) }
}

fn send(socket: &Socket, bytes: &[u8]) -> NetRequest {
    let (front, back) = bytes.split_at(bytes.len() / 3);
    let chunks = vec![Chunk::Bytes(front.to_vec()), Chunk::Bytes(back.to_vec())];
    NetRequest::Send { socket: socket.clone(), chunks }
}

#[test]
fn bytes_arrive_in_order_however_they_are_split() {
    let mut random = Random::new(3);
    let mut net = Net { pipe_bytes: 50, ..Net::default() };
    let (socket, peer, _listener) = connected(&mut net, &mut random);
    let all: Vec<u8> = (0..2000u32).map(|number| (number * 7) as u8).collect();
    net.submit(0, 1, send(&socket, &all));
    net.submit(0, 2, recv(&socket));
    let (mut written, mut arrived, mut read, mut splits) = (0, Vec::new(), Vec::new(), 0);
    while arrived.len() < all.len() || read.len() < all.len() {
        written += net.write(peer, &all[written..]);
        net.read(peer, 30, &mut read, &mut random);
        if let Some((0, 2, Some(NetOutcome::Recv(buffer, Ok(count))))) = net.step(&mut random) {
            assert_eq!(buffer.len(), count);
            arrived.extend(buffer);
            splits += 1;
            net.submit(0, 2, recv(&socket));
        }
    }
    assert!(arrived == all && read == all && splits > 40);
}

#[test]
fn who_is_gone_without_a_word_is_noticed_by_nobody() {
    let mut random = Random::new(3);
    let mut net = Net { pipe_bytes: 50, ..Net::default() };
    let (socket, peer, _listener) = connected(&mut net, &mut random);
    net.vanish(peer);
    net.submit(0, 1, send(&socket, &[1; 100]));
    net.submit(0, 2, recv(&socket));
    while let Some((_, _, outcome)) = net.step(&mut random) {
        assert!(outcome.is_none(), "{outcome:?}");
    }
    net.shutdown(&socket);
    let ended: Vec<_> = (0..2).map(|_| net.step(&mut random).unwrap().2.unwrap()).collect();
    assert!(ended.iter().any(|outcome| matches!(outcome, NetOutcome::Send(Err(_)))), "{ended:?}");
    assert!(ended.iter().any(|outcome| matches!(outcome, NetOutcome::Recv(_, Ok(0)))), "{ended:?}");
}

#[test]
fn a_reset_ends_what_is_in_flight_and_a_close_is_read_to_its_end() {
    let mut random = Random::new(3);
    let mut net = Net { pipe_bytes: 50, ..Net::default() };
    let (socket, peer, _listener) = connected(&mut net, &mut random);
    net.write(peer, b"half a comm");
    net.reset(peer);
    net.submit(0, 1, recv(&socket));
    let outcome = net.step(&mut random);
    assert!(matches!(&outcome, Some((_, _, Some(NetOutcome::Recv(_, Err(_)))))), "{outcome:?}");
    let (socket, peer, _listener) = connected(&mut net, &mut random);
    net.write(peer, b"x");
    net.finish(peer);
    net.submit(0, 1, recv(&socket));
    let outcome = net.step(&mut random);
    assert!(matches!(&outcome, Some((_, _, Some(NetOutcome::Recv(_, Ok(1)))))), "{outcome:?}");
    net.submit(0, 1, recv(&socket));
    let outcome = net.step(&mut random);
    assert!(matches!(&outcome, Some((_, _, Some(NetOutcome::Recv(_, Ok(0)))))), "{outcome:?}");
}

/// What a server does to its descriptor by system calls is seen by the client.
#[test]
fn a_server_that_closes_with_bytes_unread_resets() {
    let mut random = Random::new(3);
    let mut net = Net { pipe_bytes: 50, ..Net::default() };
    let (socket, peer, _listener) = connected(&mut net, &mut random);
    let mut read = Vec::new();
    assert_eq!(net.read(peer, 9, &mut read, &mut random), ClientRead::Nothing);
    socket.end_sending().unwrap();
    assert_eq!(net.read(peer, 9, &mut read, &mut random), ClientRead::End);
    net.write(peer, b"unread");
    drop(socket);
    assert_eq!(net.read(peer, 9, &mut read, &mut random), ClientRead::Reset);
}

#[test]
fn accepting_may_fail_and_loses_nobody() {
    let mut random = Random::new(3);
    let mut net = Net { accept_failures: 128, ..Net::default() };
    let listener = net.listener().unwrap();
    (0..20).for_each(|_| _ = net.connect().unwrap());
    let mut sockets = Vec::new();
    let mut failures = 0;
    while sockets.len() < 20 {
        net.submit(0, 0, NetRequest::Accept { listener: listener.clone() });
        match net.step(&mut random) {
            Some((_, _, Some(NetOutcome::Accept(Ok((socket, _)))))) => sockets.push(socket),
            Some((_, _, Some(NetOutcome::Accept(Err(_))))) => failures += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(failures > 3);
    assert_eq!(net.held(), 20);
}
