//! [`prefetch`]: memory that will be needed, asked for before it is.

#![expect(unsafe_code, reason = "the processor's instruction for it")]

use crate::LINE_BYTES;

/// Asks the processor for the cache lines of a value, and goes on: what is asked for together comes
/// together. Pays off where several values that lie anywhere are needed soon, and the wait for one
/// would otherwise begin when that for another has ended. A hint: where a processor has no such
/// instruction nothing happens.
pub fn prefetch<T: ?Sized>(value: &T) {
    lines(std::ptr::from_ref(value).cast(), size_of_val(value));
}

/// The same, of so many bytes. Nothing has to be there.
pub(crate) fn lines(start: *const u8, len_bytes: usize) {
    let skew = start.addr() % LINE_BYTES as usize;
    for at in (0..skew + len_bytes).step_by(LINE_BYTES as usize) {
        line(start.wrapping_sub(skew).wrapping_add(at));
    }
}

#[cfg(target_arch = "x86_64")]
fn line(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: it accesses nothing that a program can see, and never fails, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

#[cfg(target_arch = "aarch64")]
fn line(at: *const u8) {
    // SAFETY: as on x86-64.
    unsafe { std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn line(_: *const u8) {}
