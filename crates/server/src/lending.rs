//! How much of the store's buffers answers may hold.
//!
//! Long values are sent from the blocks they were read into. A client that does not take its answer
//! keeps them, and they are missing from the store's pool: beyond a limit over all connections
//! values are copied, so that nobody's slowness keeps others from reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stratakv_engine::Value;

/// See the module.
#[derive(Debug)]
pub(crate) struct Lending {
    lent_bytes: AtomicU64,
    max_bytes: AtomicU64,
}

/// Blocks that an answer holds; dropped when it is sent.
#[derive(Debug)]
pub(crate) struct Lease {
    lending: Arc<Lending>,
    bytes: u64,
}

impl Lending {
    /// At most so many bytes at once.
    pub(crate) fn new(max_bytes: u64) -> Arc<Lending> {
        Arc::new(Lending { lent_bytes: 0.into(), max_bytes: max_bytes.into() })
    }

    /// At most so many from now on. What is out already comes back when it is sent.
    pub(crate) fn set_max_bytes(&self, max_bytes: u64) {
        self.max_bytes.store(max_bytes, Ordering::Relaxed);
    }

    /// Counts the blocks of `value`, or copies them if too many are out.
    pub(crate) fn lend(self: &Arc<Self>, value: &mut Value) -> Option<Lease> {
        let Value::Blocks { blocks, .. } = &*value else { return None };
        let bytes = blocks.iter().map(|block| block.len() as u64).sum();
        let lease = Lease { lending: Arc::clone(self), bytes };
        if self.lent_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.max_bytes.load(Ordering::Relaxed) {
            *value = Value::Inline(value.to_bytes());
            return None;
        }
        Some(lease)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.lending.lent_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use stratakv_device::{Class, Pool};

    use super::*;

    #[test]
    fn beyond_the_limit_values_are_copied_and_what_is_given_back_counts() {
        let pool = Pool::new(2 << 20);
        let value = || Value::Blocks { blocks: vec![Arc::new(pool.take(Class::Page).unwrap())], start: 0, len: 4096 };
        let lending = Lending::new(2 * 4096);
        let (mut first, mut second, mut third) = (value(), value(), value());
        let leases = (lending.lend(&mut first), lending.lend(&mut second));
        assert!(leases.0.is_some() && leases.1.is_some());
        assert!(lending.lend(&mut third).is_none());
        assert!(matches!(third, Value::Inline(_)) && third.len() == 4096);
        drop(leases.0);
        assert!(lending.lend(&mut value()).is_some());
        lending.set_max_bytes(4096);
        assert!(lending.lend(&mut value()).is_none());
    }
}
