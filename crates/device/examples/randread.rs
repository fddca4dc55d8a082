//! Rate of random 4 KiB reads at depth 64, submitted singly and in batches: what a ring can do on
//! this machine.
//!
//! `cargo run --release --example randread -- FILE [SECONDS]`; the file should be larger than the
//! device's cache.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stratakv_device::volume::OpenMode;
use stratakv_device::{Class, Completion, DiskOutcome, DiskRequest, Pool, Ring, RingKind, Volume, Wait, open_ring};

const DEPTH: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: randread FILE [SECONDS]")?;
    let seconds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let volume = Arc::new(Volume::open(Path::new(&path), OpenMode { create: false, read_only: true })?);
    println!("{path}: {:?}, direct: {}", volume.geometry(), volume.is_direct());
    for kind in [RingKind::IoUring, RingKind::Blocking] {
        for batch in [1, 16, 32] {
            let mut ring = open_ring(kind, DEPTH as u32)?;
            let iops = run(&mut *ring, &volume, batch, Duration::from_secs(seconds))?;
            println!("{:>8} batch {batch:>2}: {iops:>7} IOPS", ring.name());
        }
    }
    Ok(())
}

/// Keeps 64 reads in flight for `length`, going on when `batch` of them have completed. Reads per
/// second.
fn run(ring: &mut dyn Ring, volume: &Arc<Volume>, batch: u32, length: Duration) -> Result<u64, Box<dyn Error>> {
    let pages = volume.len_bytes()? / 4096;
    let pool = Pool::new(2 << 20);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next_page = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % pages
    };
    let mut free: Vec<_> = (0..DEPTH).filter_map(|_| pool.take(Class::Page)).collect();
    let (mut done, mut count, start) = (Vec::new(), 0, Instant::now());
    while start.elapsed() < length {
        for block in free.drain(..) {
            ring.disk(0, volume, DiskRequest::Read { offset: next_page() * 4096, block, len: 4096 });
        }
        // For a batch, wait in the gathering manner: with a short timeout.
        let timeout = (batch > 1).then_some(Duration::from_millis(1));
        ring.submit(Wait::For { completions: batch, timeout })?;
        ring.reap(&mut done);
        for completion in done.drain(..) {
            let Completion::Disk { outcome: DiskOutcome::Read(block, result), .. } = completion else { continue };
            result?;
            free.push(block);
            count += 1;
        }
    }
    Ok((count as f64 / start.elapsed().as_secs_f64()) as u64)
}
