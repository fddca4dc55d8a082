//! Limits every engine and protocol keeps.

/// Longest key, in bytes. A key has at least one byte.
pub const KEY_BYTES_MAX: usize = 65_535;

/// Longest value: 64 MiB.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// The unit of block I/O: every offset and length given to a device is a multiple of it.
pub const PAGE_BYTES: usize = 4096;

/// Large values are checked and sent in slices of this size.
pub const SLICE_BYTES: usize = 64 << 10;

/// Most shards in one store.
pub const SHARDS_MAX: usize = 1024;

const _: () = assert!(SLICE_BYTES.is_multiple_of(PAGE_BYTES));
const _: () = assert!(VALUE_BYTES_MAX.is_multiple_of(SLICE_BYTES));
