//! What holds for any frames: run by the fuzzers (docs/fuzzing.md), and over their corpus by a
//! test.

use std::net::Ipv4Addr;
use std::sync::Arc;

use smoltcp::wire::TcpControl;

use super::buffers::BufferSizes;
use super::wire::{self, Crafted, PORT, THEIRS, segment_of, sent};
use crate::ring::{Chunk, Completion, NetOutcome, NetRequest};

const ACCEPT: u64 = u64::MAX;
const BACKLOG: usize = 4;

/// Frames to a stack with a listener: each is either bytes of the input as they are, or a segment
/// whose fields are of the input and whose checksums are right. Its server sends back what it
/// receives.
///
/// # Panics
/// A bound does not hold, or a frame has two owners.
pub fn frames(input: &[u8]) {
    let mut options = wire::options();
    (options.backlog, options.connections_max) = (BACKLOG, 8);
    options.buffers =
        BufferSizes { receive_least: 2048, receive_most: 4096, send_least: 4096, send_most: 8192, shared: 4096 };
    let (mut stack, listener) = wire::stack(options, 16, 1);
    let mut sockets = Vec::new();
    stack.request(ACCEPT, NetRequest::Accept { listener: Arc::clone(&listener) });
    let (mut now_us, mut rest) = (10, input);
    // What the stack said last to the peer: fields count from there, so that they meet windows.
    let mut last = (0, 0);
    while let Some((head, left)) = rest.split_first_chunk::<8>() {
        let [kind, flags, sequence, acknowledges, len, port, step, end] = *head;
        let (bytes, left) = left.split_at(left.len().min(usize::from(len)));
        rest = left;
        let frame = match kind % 4 {
            0 => bytes.to_vec(),
            _ => segment(flags, (last, sequence, acknowledges), port, bytes),
        };
        stack.io_mut().rings.deliver(&frame);
        // Up to ten seconds pass.
        now_us += 1 + i64::from(step) * i64::from(step) * 150;
        stack.tick(smoltcp::time::Instant::from_micros(now_us)).expect("memory does not fail");
        let mut done = Vec::new();
        stack.reap(&mut done);
        for completion in done {
            serve(&mut stack, &listener, &mut sockets, completion);
        }
        if end % 16 == 0 && !sockets.is_empty() {
            sockets.remove(usize::from(end / 16) % sockets.len());
        }
        if end % 8 != 1 {
            let frames = sent(&mut stack);
            if let Some(segment) = frames.iter().rev().find_map(|frame| segment_of(frame)) {
                last = (segment.seq_number().0, segment.ack_number().0);
            }
        }
        assert!(stack.connections() <= 8);
        assert_eq!(stack.io_mut().strange(), 0, "a frame had two owners");
    }
}

fn segment(flags: u8, (last, sequence, acknowledges): ((i32, i32), u8, u8), port: u8, payload: &[u8]) -> Vec<u8> {
    let control = match flags % 5 {
        0 => TcpControl::Syn,
        1 => TcpControl::Fin,
        2 => TcpControl::Rst,
        3 => TcpControl::Psh,
        _ => TcpControl::None,
    };
    // Small steps around the last numbers, and now and then far ones.
    let near = |number: i32, by: u8| number.wrapping_add(i32::from(by) - 64).wrapping_add(i32::from(by >= 250) << 30);
    Crafted {
        from: (Ipv4Addr::from(u32::from(THEIRS) + u32::from(port % 2) * 7), 40_000 + u16::from(port % 8)),
        to_port: PORT + u16::from(port == 255),
        control,
        sequence: near(last.1, sequence),
        acknowledges: (flags & 0x80 == 0).then(|| near(last.0, acknowledges)),
        window: if flags & 0x40 == 0 { 8192 } else { u16::from(flags & 0x3F) * 16 },
        payload,
    }
    .frame()
}

fn serve(
    stack: &mut wire::MemoryStack,
    listener: &crate::ring::Socket,
    sockets: &mut Vec<crate::ring::Socket>,
    completion: Completion,
) {
    let Completion::Net { tag, outcome } = completion else { return };
    match outcome {
        NetOutcome::Accept(accepted) => {
            if let Ok((socket, _)) = accepted {
                let buffer = Vec::with_capacity(100);
                stack.request(sockets.len() as u64, NetRequest::Recv { socket: Arc::clone(&socket), buffer });
                sockets.push(socket);
            }
            stack.request(ACCEPT, NetRequest::Accept { listener: Arc::clone(listener) });
        }
        NetOutcome::Recv(buffer, Ok(count)) if count > 0 => {
            assert!(buffer.len() <= 100.max(buffer.capacity()));
            if let Some(socket) = sockets.get(tag as usize) {
                let chunks = vec![Chunk::Bytes(buffer.repeat(20))];
                stack.request(tag, NetRequest::Send { socket: Arc::clone(socket), chunks });
            }
        }
        NetOutcome::Recv(..) => {}
        NetOutcome::Send(_) => {
            if let Some(socket) = sockets.get(tag as usize) {
                let buffer = Vec::with_capacity(100);
                stack.request(tag, NetRequest::Recv { socket: Arc::clone(socket), buffer });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/frames");
        let inputs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(inputs.len() > 1);
        inputs.iter().for_each(|path| frames(&std::fs::read(path).unwrap()));
    }

    #[test]
    fn inputs_from_seeds_hold() {
        let mut random = stratakv_base::random::Random::new(1);
        for _ in 0..2000 {
            let mut input = vec![0; random.below(600) as usize];
            random.fill(&mut input);
            frames(&input);
        }
    }
}
