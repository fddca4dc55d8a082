//! Memory that the allocator keeps for later, given back to the system.
#![expect(unsafe_code, reason = "one call without arguments that point anywhere")]

/// Gives back what is free in whole pages, of all threads. Takes time in proportion to what was
/// freed; nothing where the allocator has no such call.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: it takes the allocator's own locks and touches free memory only.
    let _given = unsafe { libc::malloc_trim(0) };
}
