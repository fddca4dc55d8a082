//! One list of cases, run on every ring: what a loop may rely on. Rings of other media run them too
//! (crates/sim/tests).

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stratakv_device::{
    Block, BlockPart, Chunk, Class, Completion, DiskOutcome, DiskRequest, IoFault, NetOutcome, NetRequest, Pool, Ring,
    Socket, Volume, Wait,
};

/// Hands the names of all cases to a macro, but of those that are of files.
macro_rules! cases_of_every_ring {
    ($with:ident) => {
        $with! {
            disk_requests_do_what_they_say,
            several_parts_are_laid_back_to_back,
            a_wait_ends_with_its_time,
            a_waker_ends_a_wait,
            bytes_go_both_ways,
            a_shutdown_ends_what_waits,
            a_cancelled_accept_leaves_the_listener_to_others,
            a_dropped_ring_leaves_nothing_behind,
            looks_without_waiting_make_progress,
            a_waker_ends_a_wait_for_several,
            non_blocking_sockets_are_waited_for,
            several_accepts_wait_on_one_listener,
            a_reset_by_the_peer_is_an_error,
            a_dropped_ring_leaves_shared_sockets_open,
            many_that_wait_are_told_apart,
            a_receive_brings_no_more_than_there_is_room_for,
            a_read_longer_than_its_block_is_refused,
            a_wait_ends_while_a_watched_descriptor_is_readable,
        }
    };
}
pub(crate) use cases_of_every_ring;

const FOR_EVER: Wait = Wait::For { completions: 1, timeout: None };

/// A ring under test.
pub struct Kind {
    /// Makes one.
    pub ring: fn() -> Box<dyn Ring + Send>,
    /// Makes an empty volume for it, in a directory; of 4 MiB at least.
    pub volume: fn(&Path) -> Arc<Volume>,
}

struct Bench {
    ring: Box<dyn Ring + Send>,
    volume: Arc<Volume>,
    pool: Pool,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new(kind: &Kind) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let volume = (kind.volume)(directory.path());
        Bench { ring: (kind.ring)(), volume, pool: Pool::new(8 << 20), _directory: directory }
    }

    fn page(&self, fill: u8) -> Block {
        let mut block = self.pool.take(Class::Page).unwrap();
        block.fill(fill);
        block
    }

    fn write(&mut self, tag: u64, page: u64, fill: u8, durable: bool) {
        let parts = vec![BlockPart::whole(Arc::new(self.page(fill)))];
        self.ring.disk(tag, &self.volume, DiskRequest::Write { offset: page * 4096, parts, durable });
    }

    fn read(&mut self, tag: u64, page: u64) {
        let block = self.page(0);
        self.ring.disk(tag, &self.volume, DiskRequest::Read { offset: page * 4096, block, len: 4096 });
    }

    /// Submits and waits until `count` requests have completed.
    fn complete(&mut self, count: usize) -> Vec<Completion> {
        let mut done = Vec::new();
        while done.len() < count {
            self.ring.submit(FOR_EVER).unwrap();
            self.ring.reap(&mut done);
        }
        assert_eq!(done.len(), count);
        done
    }
}

pub fn disk_requests_do_what_they_say(kind: &Kind) {
    let mut bench = Bench::new(kind);
    (0..100).for_each(|page| bench.write(page, page, page as u8 + 1, page % 2 == 0));
    for completion in bench.complete(100) {
        assert!(matches!(completion, Completion::Disk { outcome: DiskOutcome::Write(Ok(())), .. }), "{completion:?}");
    }
    bench.ring.disk(7, &bench.volume, DiskRequest::Flush);
    assert!(matches!(bench.complete(1)[0], Completion::Disk { tag: 7, outcome: DiskOutcome::Flush(Ok(())) }));
    (0..100).for_each(|page| bench.read(page, page));
    for completion in bench.complete(100) {
        let Completion::Disk { tag, outcome: DiskOutcome::Read(block, Ok(())) } = completion else {
            panic!("{completion:?}")
        };
        assert!(block.iter().all(|byte| *byte == tag as u8 + 1), "page {tag}");
    }
    assert_eq!(bench.ring.in_flight(), 0);
}

pub fn several_parts_are_laid_back_to_back(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let mut slice = bench.pool.take(Class::Slice).unwrap();
    slice.fill(9);
    let slice = Arc::new(slice);
    let page = BlockPart::whole(Arc::new(bench.page(3)));
    let half = BlockPart { block: Arc::clone(&slice), start: 4096, len: 8192 };
    let parts = vec![page.clone(), BlockPart::whole(slice), half, page];
    bench.ring.disk(0, &bench.volume, DiskRequest::Write { offset: 4096, parts, durable: false });
    bench.complete(1);
    for (page, fill) in [(1, 3), (2, 9), (17, 9), (18, 9), (19, 9), (20, 3)] {
        bench.read(page, page);
        let done = bench.complete(1);
        let Completion::Disk { outcome: DiskOutcome::Read(block, Ok(())), .. } = &done[0] else { panic!("{done:?}") };
        assert!(block.iter().all(|byte| *byte == fill), "page {page}");
    }
}

pub fn a_read_past_the_end_is_short(kind: &Kind) {
    let mut bench = Bench::new(kind);
    bench.write(0, 0, 1, false);
    bench.complete(1);
    bench.read(1, 5);
    let done = bench.complete(1);
    let Completion::Disk { outcome: DiskOutcome::Read(_, Err(IoFault::Short)), .. } = done[0] else {
        panic!("{done:?}")
    };
}

pub fn a_wait_ends_with_its_time(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let before = Instant::now();
    bench.ring.submit(Wait::For { completions: 1, timeout: Some(Duration::from_millis(20)) }).unwrap();
    assert!(before.elapsed() >= Duration::from_millis(19));
    let mut done = Vec::new();
    bench.ring.reap(&mut done);
    assert!(done.is_empty());
}

pub fn a_waker_ends_a_wait(kind: &Kind) {
    let mut bench = Bench::new(kind);
    for _ in 0..20 {
        let waker = bench.ring.waker();
        waker.announce_sleep();
        let other = thread::spawn(move || waker.wake());
        bench.ring.submit(FOR_EVER).unwrap();
        other.join().unwrap();
    }
}

fn pair(bench: &mut Bench) -> (TcpStream, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listener: Socket = Arc::new(OwnedFd::from(listener).into());
    bench.ring.net(1, NetRequest::Accept { listener });
    bench.ring.submit(Wait::None).unwrap();
    let client = TcpStream::connect(address).unwrap();
    match bench.complete(1).pop() {
        Some(Completion::Net { tag: 1, outcome: NetOutcome::Accept(Ok((socket, Some(peer)))) }) => {
            assert_eq!(peer, client.local_addr().unwrap());
            (client, socket)
        }
        other => panic!("{other:?}"),
    }
}

pub fn bytes_go_both_ways(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let (mut client, socket) = pair(&mut bench);
    bench.ring.net(2, NetRequest::Recv { socket: Arc::clone(&socket), buffer: b"kept ".to_vec() });
    bench.ring.submit(Wait::None).unwrap();
    client.write_all(b"hello").unwrap();
    match bench.complete(1).pop() {
        Some(Completion::Net { outcome: NetOutcome::Recv(buffer, Ok(5)), .. }) => assert_eq!(buffer, b"kept hello"),
        other => panic!("{other:?}"),
    }
    // Larger than any socket buffer, to a reader that starts late: sent in pieces.
    let block = Arc::new(bench.page(5));
    let mut chunks = vec![Chunk::Bytes(vec![4; 8 << 20])];
    chunks.extend((0..2000).map(|_| Chunk::Block { block: Arc::clone(&block), start: 6, len: 4000 }));
    bench.ring.net(3, NetRequest::Send { socket: Arc::clone(&socket), chunks });
    bench.ring.submit(Wait::None).unwrap();
    let reader = thread::spawn(move || {
        let mut all = vec![0; (8 << 20) + 2000 * 4000];
        client.read_exact(&mut all).unwrap();
        (client, all)
    });
    let done = bench.complete(1);
    assert!(matches!(done[0], Completion::Net { tag: 3, outcome: NetOutcome::Send(Ok(())) }), "{done:?}");
    let (client, all) = reader.join().unwrap();
    assert!(all[..8 << 20].iter().all(|byte| *byte == 4) && all[8 << 20..].iter().all(|byte| *byte == 5));
    bench.ring.net(4, NetRequest::Recv { socket, buffer: Vec::with_capacity(10) });
    client.shutdown(Shutdown::Both).unwrap();
    let done = bench.complete(1);
    assert!(matches!(done[0], Completion::Net { outcome: NetOutcome::Recv(_, Ok(0)), .. }), "{done:?}");
}

pub fn a_shutdown_ends_what_waits(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let (_client, socket) = pair(&mut bench);
    let listener: Socket = Arc::new(OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap()).into());
    bench.ring.net(5, NetRequest::Recv { socket: Arc::clone(&socket), buffer: Vec::with_capacity(16) });
    bench.ring.net(6, NetRequest::Accept { listener: Arc::clone(&listener) });
    bench.ring.submit(Wait::None).unwrap();
    bench.ring.shutdown(&socket);
    bench.ring.shutdown(&listener);
    let done = bench.complete(2);
    for completion in done {
        match completion {
            Completion::Net { tag: 5, outcome: NetOutcome::Recv(_, Ok(0) | Err(_)) } => {}
            Completion::Net { tag: 6, outcome: NetOutcome::Accept(Err(_)) } => {}
            other => panic!("{other:?}"),
        }
    }
}

pub fn a_cancelled_accept_leaves_the_listener_to_others(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listener: Socket = Arc::new(OwnedFd::from(listener).into());
    for _ in 0..2 {
        bench.ring.net(6, NetRequest::Accept { listener: Arc::clone(&listener) });
        bench.ring.submit(Wait::None).unwrap();
        bench.ring.cancel(&listener);
        let done = bench.complete(1);
        assert!(matches!(done[0], Completion::Net { tag: 6, outcome: NetOutcome::Accept(Err(_)) }), "{done:?}");
        assert_eq!(bench.ring.in_flight(), 0);
    }
    let _client = TcpStream::connect(address).unwrap();
    bench.ring.net(7, NetRequest::Accept { listener });
    let done = bench.complete(1);
    assert!(matches!(done[0], Completion::Net { tag: 7, outcome: NetOutcome::Accept(Ok(_)) }), "{done:?}");
}

pub fn a_dropped_ring_leaves_nothing_behind(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let (client, socket) = pair(&mut bench);
    bench.ring.net(5, NetRequest::Recv { socket, buffer: Vec::with_capacity(16) });
    (0..20).for_each(|page| bench.write(page, page, 1, true));
    bench.ring.submit(Wait::None).unwrap();
    let Bench { ring, pool, .. } = bench;
    drop(ring);
    assert_eq!(pool.used_bytes(), 0, "every block came back");
    drop(client);
}

/// Looks without waiting, as a busy loop does, until `count` requests have completed.
fn spin(bench: &mut Bench, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    // A guard against hanging for ever, far above what it takes.
    let start = Instant::now();
    while done.len() < count && start.elapsed() < Duration::from_secs(20) {
        bench.ring.submit(Wait::None).unwrap();
        bench.ring.reap(&mut done);
        thread::yield_now();
    }
    assert_eq!(done.len(), count);
    done
}

pub fn looks_without_waiting_make_progress(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let (mut client, socket) = pair(&mut bench);
    bench.ring.net(2, NetRequest::Recv { socket, buffer: Vec::with_capacity(16) });
    (0..40).for_each(|page| bench.write(page, page, 1, true));
    bench.ring.submit(Wait::None).unwrap();
    client.write_all(b"x").unwrap();
    spin(&mut bench, 41);
    assert_eq!(bench.ring.in_flight(), 0);
}

pub fn a_waker_ends_a_wait_for_several(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let (_client, socket) = pair(&mut bench);
    bench.ring.net(2, NetRequest::Recv { socket, buffer: Vec::with_capacity(16) });
    // The receive never completes: two completions never come.
    for with_write in [false, true] {
        if with_write {
            bench.write(3, 0, 1, false);
        }
        let waker = bench.ring.waker();
        waker.announce_sleep();
        let other = thread::spawn(move || waker.wake());
        bench.ring.submit(Wait::For { completions: 2, timeout: None }).unwrap();
        other.join().unwrap();
    }
}

pub fn non_blocking_sockets_are_waited_for(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (two, _) = listener.accept().unwrap();
    two.set_nonblocking(true).unwrap();
    let socket: Socket = Arc::new(OwnedFd::from(two).into());
    let address = listener.local_addr().unwrap();
    bench.ring.net(1, NetRequest::Recv { socket: Arc::clone(&socket), buffer: Vec::with_capacity(16) });
    bench.ring.net(2, NetRequest::Accept { listener: Arc::new(OwnedFd::from(listener).into()) });
    bench.ring.net(3, NetRequest::Send { socket, chunks: vec![Chunk::Bytes(vec![1; 16 << 20])] });
    bench.ring.submit(Wait::None).unwrap();
    one.write_all(b"x").unwrap();
    let _third = TcpStream::connect(address).unwrap();
    let reader = thread::spawn(move || one.read_exact(&mut vec![0; 16 << 20]));
    for completion in bench.complete(3) {
        match completion {
            Completion::Net { tag: 1, outcome: NetOutcome::Recv(_, Ok(1)) } => {}
            Completion::Net { tag: 2, outcome: NetOutcome::Accept(Ok(_)) } => {}
            Completion::Net { tag: 3, outcome: NetOutcome::Send(Ok(())) } => {}
            other => panic!("{other:?}"),
        }
    }
    reader.join().unwrap().unwrap();
}

pub fn several_accepts_wait_on_one_listener(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listener: Socket = Arc::new(OwnedFd::from(listener).into());
    (0..3).for_each(|tag| bench.ring.net(tag, NetRequest::Accept { listener: Arc::clone(&listener) }));
    bench.ring.submit(Wait::None).unwrap();
    let clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    let done = bench.complete(3);
    assert!(
        done.iter().all(|one| matches!(one, Completion::Net { outcome: NetOutcome::Accept(Ok(_)), .. })),
        "{done:?}"
    );
    assert_eq!((clients.len(), bench.ring.in_flight()), (3, 0));
}

pub fn a_reset_by_the_peer_is_an_error(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let (client, socket) = pair(&mut bench);
    bench.ring.net(2, NetRequest::Recv { socket: Arc::clone(&socket), buffer: Vec::with_capacity(16) });
    bench.ring.net(3, NetRequest::Send { socket, chunks: vec![Chunk::Bytes(vec![1; 64 << 20])] });
    bench.ring.submit(Wait::None).unwrap();
    // Unread bytes at close make the kernel send a reset.
    client.peek(&mut [0]).unwrap();
    drop(client);
    for completion in bench.complete(2) {
        match completion {
            Completion::Net { tag: 2, outcome: NetOutcome::Recv(buffer, Err(_) | Ok(0)) } => assert!(buffer.is_empty()),
            Completion::Net { tag: 3, outcome: NetOutcome::Send(Err(_)) } => {}
            other => panic!("{other:?}"),
        }
    }
}

pub fn a_dropped_ring_leaves_shared_sockets_open(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listener: Socket = Arc::new(OwnedFd::from(listener).into());
    let (_client, socket) = pair(&mut bench);
    bench.ring.net(1, NetRequest::Accept { listener: Arc::clone(&listener) });
    // Nobody reads: this send is under way when the ring goes.
    bench.ring.net(2, NetRequest::Send { socket, chunks: vec![Chunk::Bytes(vec![1; 64 << 20])] });
    bench.ring.submit(Wait::None).unwrap();
    drop(bench.ring);
    bench.ring = (kind.ring)();
    bench.ring.net(3, NetRequest::Accept { listener });
    bench.ring.submit(Wait::None).unwrap();
    let _client = TcpStream::connect(address).unwrap();
    let done = bench.complete(1);
    assert!(matches!(done[0], Completion::Net { tag: 3, outcome: NetOutcome::Accept(Ok(_)) }), "{done:?}");
}

/// More connections than the kernel is given buffers, all heard at once, twice; then the ends.
pub fn many_that_wait_are_told_apart(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let pairs: Vec<_> = (0..600).map(|_| std::os::unix::net::UnixStream::pair().unwrap()).collect();
    let (mut peers, sockets): (Vec<_>, Vec<Socket>) =
        pairs.into_iter().map(|(peer, socket)| (peer, Arc::new(OwnedFd::from(socket).into()))).unzip();
    let mut buffers: Vec<_> = (0..600).map(|number| Vec::with_capacity(2048 + number * 4)).collect();
    for round in 0..3_u32 {
        for (tag, buffer) in (0..).zip(buffers.drain(..)) {
            bench.ring.net(tag, NetRequest::Recv { socket: Arc::clone(&sockets[tag as usize]), buffer });
        }
        bench.ring.submit(Wait::None).unwrap();
        for (number, peer) in (0..).zip(&mut peers) {
            match round {
                2 => peer.shutdown(Shutdown::Both).unwrap(),
                _ => peer.write_all(&u32::to_le_bytes(number << 2 | round)).unwrap(),
            }
        }
        buffers = vec![Vec::new(); 600];
        let mut done = Vec::new();
        while done.len() < 600 {
            // All in one go: the ring has no time to give the kernel others.
            let wait = Wait::For { completions: 600, timeout: Some(Duration::from_millis(1)) };
            bench.ring.submit(wait).unwrap();
            bench.ring.reap(&mut done);
        }
        for one in done {
            let Completion::Net { tag, outcome: NetOutcome::Recv(mut buffer, Ok(bytes)) } = one else {
                panic!("{one:?}");
            };
            let due = u32::to_le_bytes((tag as u32) << 2 | round);
            assert_eq!((&buffer[..], bytes), if round == 2 { (&[][..], 0) } else { (&due[..], 4) });
            buffer.clear();
            buffers[tag as usize] = buffer;
        }
    }
}

pub fn a_receive_brings_no_more_than_there_is_room_for(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let (mut peer, socket) = pair(&mut bench);
    let sent: Vec<u8> = (0..20_000_u32).map(|at| at as u8).collect();
    peer.write_all(&sent).unwrap();
    let mut came = Vec::new();
    // Sizes at which rings may use buffers of theirs, and others.
    for room in [2048, 4096, 100, 3000, 5000].into_iter().cycle() {
        if came.len() == sent.len() {
            break;
        }
        bench.ring.net(2, NetRequest::Recv { socket: Arc::clone(&socket), buffer: Vec::with_capacity(room) });
        match bench.complete(1).pop() {
            Some(Completion::Net { outcome: NetOutcome::Recv(buffer, Ok(bytes)), .. }) => {
                assert!((1..=room).contains(&bytes) && bytes == buffer.len(), "{bytes} of {room}, {}", buffer.len());
                came.extend(buffer);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(came, sent);
}

pub fn a_volume_cut_within_a_page_is_short(kind: &Kind) {
    let mut bench = Bench::new(kind);
    bench.write(0, 0, 1, false);
    bench.write(1, 1, 1, false);
    bench.complete(2);
    let file = std::fs::OpenOptions::new().write(true).open(bench.volume.path()).unwrap();
    file.set_len(5000).unwrap();
    bench.read(2, 1);
    let done = bench.complete(1);
    assert!(matches!(done[0], Completion::Disk { outcome: DiskOutcome::Read(_, Err(IoFault::Short)), .. }), "{done:?}");
    let request = DiskRequest::Read { offset: 4096, block: bench.page(0), len: 4096 };
    let outcome = stratakv_device::sync::execute(&bench.volume, request);
    assert!(matches!(outcome, DiskOutcome::Read(_, Err(IoFault::Short))), "{outcome:?}");
}

pub fn a_read_longer_than_its_block_is_refused(kind: &Kind) {
    let mut bench = Bench::new(kind);
    let block = bench.page(0);
    bench.ring.disk(0, &bench.volume, DiskRequest::Read { offset: 0, block, len: 8192 });
    let done = bench.complete(1);
    assert!(matches!(done[0], Completion::Disk { outcome: DiskOutcome::Read(_, Err(IoFault::Os(_))), .. }), "{done:?}");
}

/// Each wait, again and again until it is read; then waits last as long as they may.
pub fn a_wait_ends_while_a_watched_descriptor_is_readable(kind: &Kind) {
    use std::os::fd::AsFd;
    let mut bench = Bench::new(kind);
    let (mut writer, mut watched) = std::os::unix::net::UnixStream::pair().unwrap();
    bench.ring.watch(watched.as_fd()).unwrap();
    for round in 0..3 {
        let waits = thread::spawn({
            let mut writer = writer.try_clone().unwrap();
            move || {
                thread::sleep(Duration::from_millis(20 * round));
                writer.write_all(b"x").unwrap();
            }
        });
        bench.ring.submit(FOR_EVER).unwrap();
        bench.ring.submit(FOR_EVER).unwrap();
        watched.read_exact(&mut [0]).unwrap();
        waits.join().unwrap();
        // What was readable when it was last asked may end one more wait.
        bench.ring.submit(Wait::For { completions: 1, timeout: Some(Duration::from_millis(5)) }).unwrap();
    }
    let started = Instant::now();
    bench.ring.submit(Wait::For { completions: 1, timeout: Some(Duration::from_millis(50)) }).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(45), "nothing was readable");
    let mut completions = Vec::new();
    bench.ring.reap(&mut completions);
    assert!(completions.is_empty() && bench.ring.in_flight() == 0);
    writer.write_all(b"x").unwrap();
    bench.ring.submit(FOR_EVER).unwrap();
}
