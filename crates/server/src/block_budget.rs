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
pub(crate) struct BlockBudget {
    permitted_bytes: AtomicU64,
    max_bytes: AtomicU64,
}

/// Blocks that an answer holds; dropped when it is sent.
#[derive(Debug)]
pub(crate) struct BlockPermit {
    block_budget: Arc<BlockBudget>,
    bytes: u64,
}

impl BlockBudget {
    /// At most so many bytes at once.
    pub(crate) fn new(max_bytes: u64) -> Arc<BlockBudget> {
        Arc::new(BlockBudget { permitted_bytes: 0.into(), max_bytes: max_bytes.into() })
    }

    /// At most so many from now on. What is out already comes back when it is sent.
    pub(crate) fn set_max_bytes(&self, max_bytes: u64) {
        self.max_bytes.store(max_bytes, Ordering::Relaxed);
    }

    /// Counts the blocks of `value`, or copies them if too many are out.
    pub(crate) fn permit(self: &Arc<Self>, value: &mut Value) -> Option<BlockPermit> {
        let Value::Blocks { blocks, .. } = &*value else { return None };
        let bytes = blocks.iter().map(|block| block.len() as u64).sum();
        let block_permit = BlockPermit { block_budget: Arc::clone(self), bytes };
        if self.permitted_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.max_bytes.load(Ordering::Relaxed) {
            *value = Value::Inline(value.to_bytes());
            return None;
        }
        Some(block_permit)
    }
}

impl Drop for BlockPermit {
    fn drop(&mut self) {
        self.block_budget.permitted_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
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
        let block_budget = BlockBudget::new(2 * 4096);
        let (mut first, mut second, mut third) = (value(), value(), value());
        let block_permits = (block_budget.permit(&mut first), block_budget.permit(&mut second));
        assert!(block_permits.0.is_some() && block_permits.1.is_some());
        assert!(block_budget.permit(&mut third).is_none());
        assert!(matches!(third, Value::Inline(_)) && third.len() == 4096);
        drop(block_permits.0);
        assert!(block_budget.permit(&mut value()).is_some());
        block_budget.set_max_bytes(4096);
        assert!(block_budget.permit(&mut value()).is_none());
    }
}
