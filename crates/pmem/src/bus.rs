//! Words for SIGBUS: which region has lost its memory, before the process ends by it.
//!
//! The kernel sends it where a mapped page is not there any more: another program has cut the file
//! short, or memory or disk below it failed. Nothing can be done in the process, as the load or
//! store that met it has no result. Whoever owns the process asks for the words
//! ([`explain_bus_errors`]): a library takes no signal.

#![expect(unsafe_code, reason = "a signal handler")]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

/// Regions that are told of; those of more end the process without a word.
const SLOTS: usize = 64;
/// Longest path that is told whole, in bytes.
const PATH_BYTES: usize = 200;

/// Where a region is mapped, and its path. Read by a signal handler: atomics only.
struct Slot {
    /// 0: nobody's.
    base: AtomicUsize,
    len: AtomicUsize,
    path: [AtomicU8; PATH_BYTES],
    path_len: AtomicUsize,
}

static SLOT: [Slot; SLOTS] = [const {
    Slot {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        path: [const { AtomicU8::new(0) }; PATH_BYTES],
        path_len: AtomicUsize::new(0),
    }
}; SLOTS];

/// What was done at the signal before.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// A slot while a region has it.
#[derive(Debug)]
pub(crate) struct Known(Option<usize>);

/// A base that is being written down.
const TAKEN: usize = 1;

impl Known {
    /// Of the region at these addresses.
    pub(crate) fn as_region(base: usize, len: usize, path: &Path) -> Known {
        let free = |slot: &&Slot| slot.base.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let Some(at) = SLOT.iter().position(|slot| free(&slot)) else { return Known(None) };
        if let Some(slot) = SLOT.get(at) {
            let bytes = path.as_os_str().as_encoded_bytes();
            slot.path.iter().zip(bytes).for_each(|(to, byte)| to.store(*byte, Ordering::Relaxed));
            slot.path_len.store(bytes.len().min(PATH_BYTES), Ordering::Relaxed);
            slot.len.store(len, Ordering::Relaxed);
            slot.base.store(base, Ordering::Release);
        }
        Known(Some(at))
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        if let Some(slot) = self.0.and_then(|at| SLOT.get(at)) {
            slot.base.store(0, Ordering::Release);
        }
    }
}

/// From now on a SIGBUS at a mapped region is told on stderr, with the region's path, before it
/// ends the process as ever. Others are passed to who had the signal before. For programs, once.
///
/// # Errors
/// As sigaction(2).
pub fn explain_bus_errors() -> io::Result<()> {
    // SAFETY: zeros are an action without flags.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut action = before;
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = explain;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both are whole; the handler does what a handler may.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Read by the handler until the process ends.
    BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
    Ok(())
}

/// Writes what can be said, then lets the signal do what it did before: it comes again when the
/// load or store is tried again.
extern "C" fn explain(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a whole one with a SIGBUS.
    let address = unsafe { (*info).si_addr() }.addr();
    let holds = |slot: &&Slot| {
        let base = slot.base.load(Ordering::Acquire);
        base > TAKEN && (base..base + slot.len.load(Ordering::Relaxed)).contains(&address)
    };
    if let Some(slot) = SLOT.iter().find(holds) {
        let mut path = [0; PATH_BYTES];
        path.iter_mut().zip(&slot.path).for_each(|(to, byte)| *to = byte.load(Ordering::Relaxed));
        say(b"stratakv: the region ");
        say(path.get(..slot.path_len.load(Ordering::Relaxed)).unwrap_or_default());
        say(b" is gone at byte ");
        say_number(address - slot.base.load(Ordering::Relaxed));
        say(b" (SIGBUS): its file was cut short, or the memory or disk below it failed. This process ends. Look at the file and the kernel's log, then run `stratakv check`; a region that was cut short is restored from a backup\n");
    }
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: it is what sigaction gave, or the default; it stays in memory.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let next = if before.is_null() { &raw const default } else { before.cast_const() };
        libc::sigaction(libc::SIGBUS, next, std::ptr::null_mut());
    }
}

fn say(text: &[u8]) {
    // SAFETY: the bytes are there. If nobody hears them, nothing can be done about it.
    _ = unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

fn say_number(number: usize) {
    let mut digits = [0; 20];
    let mut left = number;
    let mut at = digits.len();
    loop {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + (left % 10) as u8;
        }
        left /= 10;
        if left == 0 || at == 0 {
            break;
        }
    }
    say(digits.get(at..).unwrap_or_default());
}
