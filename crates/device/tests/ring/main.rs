//! What every ring does: each case on each ring, as its own test.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use stratakv_device::nvme::IDENTIFY_BYTES;
use stratakv_device::passthrough::{EmulatedData, EmulatedNamespace, EmulatedTarget};
use stratakv_device::volume::OpenMode;
use stratakv_device::{PassthroughRing, RawDevice, Ring, RingKind, Volume, Wait, open_ring};

mod cases;
#[path = "../unit/passthrough/image.rs"]
#[expect(dead_code, reason = "other tests make it fail, and look at it")]
mod image;

fn file(directory: &Path) -> Arc<Volume> {
    Arc::new(Volume::open(&directory.join("v"), OpenMode { create: true, read_only: false }).unwrap())
}

fn uring() -> Box<dyn Ring + Send> {
    open_ring(RingKind::IoUring, 32).unwrap()
}

fn threads() -> Box<dyn Ring + Send> {
    open_ring(RingKind::Blocking, 32).unwrap()
}

/// A namespace that takes commands, whose kernel is a program: they end in any order.
fn commanded(_directory: &Path) -> Arc<Volume> {
    let device = Arc::new(Mutex::new(image::Image::new(1024, 1, image::Quirks { retry: 50, ..Default::default() })));
    let namespace = EmulatedTarget::open(&device).unwrap();
    let raw = RawDevice::of_passthrough(Path::new("/dev/ng0n1"), &namespace);
    Arc::new(raw.range(0, raw.len_bytes()).unwrap())
}

fn passthrough() -> Box<dyn Ring + Send> {
    Box::new(PassthroughRing::new(uring()))
}

fn passthrough_on_threads() -> Box<dyn Ring + Send> {
    Box::new(PassthroughRing::new(threads()))
}

macro_rules! on_every_ring {
    ($($case:ident),* $(,)?) => {
        mod passthrough {
            use super::*;
            $(#[test] fn $case() { cases::$case(&cases::Kind { ring: super::passthrough, volume: commanded }); })*
        }
        mod passthrough_on_threads {
            use super::*;
            $(#[test] fn $case() {
                cases::$case(&cases::Kind { ring: super::passthrough_on_threads, volume: commanded });
            })*
        }
        mod io_uring {
            use super::*;
            $(#[test] fn $case() { cases::$case(&cases::Kind { ring: uring, volume: file }); })*
        }
        mod blocking {
            use super::*;
            $(#[test] fn $case() { cases::$case(&cases::Kind { ring: threads, volume: file }); })*
        }
    };
}

/// Volumes that are cut, and end.
macro_rules! on_files {
    ($($case:ident),* $(,)?) => {
        mod files_by_io_uring {
            use super::*;
            $(#[test] fn $case() { cases::$case(&cases::Kind { ring: uring, volume: file }); })*
        }
        mod files_by_threads {
            use super::*;
            $(#[test] fn $case() { cases::$case(&cases::Kind { ring: threads, volume: file }); })*
        }
    };
}

cases::cases_of_every_ring!(on_every_ring);
on_files!(a_read_past_the_end_is_short, a_volume_cut_within_a_page_is_short);

#[test]
fn an_io_uring_refuses_a_second_thread_and_says_why() {
    let mut ring = open_ring(RingKind::IoUring, 8).unwrap();
    let wait = Wait::For { completions: 1, timeout: Some(Duration::from_millis(1)) };
    ring.submit(wait).unwrap();
    // The drop at the other thread's end must not hang either.
    let refusal = thread::spawn(move || ring.submit(wait).unwrap_err()).join().unwrap();
    assert!(refusal.to_string().contains("another thread"), "{refusal}");
}

#[test]
fn the_second_opener_of_a_volume_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("v");
    let first = Volume::open(&path, OpenMode { create: true, read_only: false }).unwrap();
    let second = Volume::open(&path, OpenMode::default()).unwrap_err();
    assert_eq!(second.kind(), std::io::ErrorKind::WouldBlock);
    drop(first);
    Volume::open(&path, OpenMode::default()).unwrap();
}
