//! What is said of connections that are refused.

use std::time::Duration;

use stratakv_base::Mono;

use super::after;

/// Says that connections are refused, at most once a second.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    refused: u64,
    told_at: Option<Mono>,
}

impl Refusals {
    pub(super) fn tell(&mut self, connections_max: usize, now: Mono) {
        self.refused += 1;
        if self.told_at.is_some_and(|at| now < after(at, Duration::from_secs(1))) {
            return;
        }
        self.told_at = Some(now);
        let refused = std::mem::take(&mut self.refused);
        tracing::warn!(
            refused,
            connections_max,
            "connections are refused: as many are open as may be (--connections, and the limit of open files)"
        );
    }
}
