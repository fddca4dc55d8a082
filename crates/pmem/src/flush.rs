//! Instructions that move lines out of the caches.

#![expect(unsafe_code, reason = "instructions without a safe wrapper")]

pub(crate) use instructions::Flush;

#[cfg(target_arch = "x86_64")]
mod instructions {
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;

    use crate::{LINE_BYTES, words};

    const LINE: usize = LINE_BYTES as usize;

    /// Shorter stores stay in the cache and are flushed. Past the cache is faster from one line on
    /// (memory, with the fence: 100 against 165 ns for 64 bytes, 130 against 250 for 1024, 290
    /// against 430 for 4096), but the next load of the line pays for it.
    const NON_TEMPORAL_BYTES: usize = 256;

    /// The best instruction of this processor.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Flush {
        /// Writes the line back and may keep it.
        Clwb,
        /// Writes the line back and drops it.
        Clflushopt,
        /// As before, one line after the other.
        Clflush,
    }

    impl Flush {
        /// By CPUID; `None` if it has none.
        pub(crate) fn detect() -> Option<Flush> {
            let highest_leaf = __cpuid_count(0, 0).eax;
            let extended = if highest_leaf >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
            match (extended >> 24 & 1, extended >> 23 & 1, __cpuid_count(1, 0).edx >> 19 & 1) {
                (1, ..) => Some(Flush::Clwb),
                (_, 1, _) => Some(Flush::Clflushopt),
                (.., 1) => Some(Flush::Clflush),
                _ => None,
            }
        }

        /// As the processor's manual calls it.
        pub(crate) fn name(self) -> &'static str {
            match self {
                Flush::Clwb => "clwb",
                Flush::Clflushopt => "clflushopt",
                Flush::Clflush => "clflush",
            }
        }

        /// Starts writing back the lines that hold `len` bytes from `start` on.
        ///
        /// # Safety
        /// They are mapped.
        pub(crate) unsafe fn lines(self, start: *const u8, len: usize) {
            if len == 0 {
                return;
            }
            let mut line = start.wrapping_sub(start.addr() % LINE);
            let end = start.addr() + len;
            while line.addr() < end {
                // SAFETY: the line is mapped; the processor has the instruction, and it changes
                // nothing a program can see.
                unsafe {
                    match self {
                        Flush::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                        Flush::Clflushopt => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
                        Flush::Clflush => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
                    }
                }
                line = line.wrapping_add(LINE);
            }
        }

        /// Waits until the lines flushed by this thread, and its stores past the cache, arrived.
        pub(crate) fn fence(self) {
            // SAFETY: it only orders.
            unsafe { asm!("sfence", options(nostack, preserves_flags)) };
        }

        /// Stores past the cache: durable after the next fence, visible to all threads on return.
        ///
        /// # Safety
        /// As [`words::store`].
        pub(crate) unsafe fn store_past_cache(self, to: *mut u8, bytes: &[u8]) {
            let head_len = to.align_offset(LINE).min(bytes.len());
            let (head, rest) = bytes.split_at(head_len);
            let (lines, tail) = rest.as_chunks::<LINE>();
            if bytes.len() < NON_TEMPORAL_BYTES {
                // SAFETY: the caller's promise.
                unsafe { self.store_and_flush(to, bytes) };
                return;
            }
            let middle = to.wrapping_add(head_len);
            // SAFETY: the three parts are what the caller vouches for.
            unsafe {
                self.store_and_flush(to, head);
                self.store_and_flush(middle.wrapping_add(lines.len() * LINE), tail);
                for (at, line) in lines.iter().enumerate() {
                    store_line(middle.wrapping_add(at * LINE), line);
                }
            }
            // Without it a later store, even with release, overtakes these. The fence after it
            // finds nothing to wait for (measured: no cost).
            self.fence();
        }

        /// # Safety
        /// As [`words::store`].
        unsafe fn store_and_flush(self, to: *mut u8, bytes: &[u8]) {
            // SAFETY: the caller's promise.
            unsafe {
                words::store(to, bytes);
                self.lines(to, bytes.len());
            }
        }
    }

    /// # Safety
    /// As [`words::store`]; `to` is aligned to a line.
    unsafe fn store_line(to: *mut u8, line: &[u8; LINE]) {
        // SAFETY: the caller's promise. A processor writes each half of an aligned register at
        // once, as two relaxed atomic stores would.
        unsafe {
            asm!(
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movntdq [{to}], {a}",
                "movntdq [{to} + 16], {b}",
                "movntdq [{to} + 32], {c}",
                "movntdq [{to} + 48], {d}",
                from = in(reg) line.as_ptr(),
                to = in(reg) to,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod instructions {
    use std::arch::asm;

    use crate::words;

    /// `dc cvap`: cleans a line to the point of persistence.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Flush {
        line_bytes: usize,
    }

    impl Flush {
        /// `None` if the system does not name the instruction.
        pub(crate) fn detect() -> Option<Flush> {
            if !std::arch::is_aarch64_feature_detected!("dpb") {
                return None;
            }
            let cache_type: u64;
            // SAFETY: CTR_EL0 is readable by programs under Linux.
            unsafe { asm!("mrs {}, ctr_el0", out(reg) cache_type, options(nomem, nostack, preserves_flags)) };
            // DminLine: the binary logarithm of the smallest data line in words of 4 bytes.
            Some(Flush { line_bytes: 4 << (cache_type >> 16 & 0xF) })
        }

        /// As the processor's manual calls it.
        pub(crate) fn name(self) -> &'static str {
            "dc cvap"
        }

        /// Starts writing back the lines that hold `len` bytes from `start` on.
        ///
        /// # Safety
        /// They are mapped.
        pub(crate) unsafe fn lines(self, start: *const u8, len: usize) {
            if len == 0 {
                return;
            }
            let mut line = start.wrapping_sub(start.addr() % self.line_bytes);
            let end = start.addr() + len;
            while line.addr() < end {
                // SAFETY: the line is mapped; the processor has the instruction (by its encoding
                // `dc cvap`, which needs no feature to assemble), and it changes nothing a program
                // can see.
                unsafe { asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags)) };
                line = line.wrapping_add(self.line_bytes);
            }
        }

        /// Waits until the lines flushed by this thread arrived.
        pub(crate) fn fence(self) {
            // SAFETY: it only orders.
            unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
        }

        /// Stores and flushes: durable after the next fence.
        ///
        /// # Safety
        /// As [`words::store`].
        pub(crate) unsafe fn store_past_cache(self, to: *mut u8, bytes: &[u8]) {
            // SAFETY: the caller's promise.
            unsafe {
                words::store(to, bytes);
                self.lines(to, bytes.len());
            }
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod instructions {
    /// Nothing is known of this processor.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Flush {}

    impl Flush {
        pub(crate) fn detect() -> Option<Flush> {
            None
        }

        pub(crate) fn name(self) -> &'static str {
            match self {}
        }

        /// # Safety
        /// Never called.
        pub(crate) unsafe fn lines(self, _start: *const u8, _len: usize) {
            match self {}
        }

        pub(crate) fn fence(self) {
            match self {}
        }

        /// # Safety
        /// Never called.
        pub(crate) unsafe fn store_past_cache(self, _to: *mut u8, _bytes: &[u8]) {
            match self {}
        }
    }
}
