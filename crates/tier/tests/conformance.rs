//! The engines' common suite, with an orderly end between lives: all that fits on the volume, or in
//! memory where that is saved, is there again.

use stratakv_conformance::{self as conformance, Ending, Opening, ShardSubject};
use stratakv_tier::{Tier, TierConfig, TierOpener};

/// `memory_bytes` decides how much of a case reaches the volume before its end.
fn subject(
    memory_bytes: u64,
    segment_bytes: u32,
    saves_at_shutdown: bool,
) -> ShardSubject<Tier, impl FnMut(Opening) -> TierOpener> {
    ShardSubject::new(1 << 30, memory_bytes as usize, Ending::Orderly, 1, move |opening: Opening| {
        let config = TierConfig {
            uuid: [9; 16],
            shard: 0,
            shards: 1,
            memory_bytes,
            depth: 32,
            capacity_bytes: (!saves_at_shutdown).then_some(opening.capacity_bytes),
            segment_bytes,
            collected_percent: 66,
            saves_at_shutdown,
            boot: Some([1; 16]),
            begins_empty: false,
            read_only: false,
        };
        if opening.create { TierOpener::create(config) } else { TierOpener::recover(config) }
    })
}

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        $(#[test] fn $name() {
            conformance::$module::$name(&mut subject(512 << 20, 1 << 20, false));
            conformance::$module::$name(&mut subject(512 << 20, 1 << 20, true));
            let is_large = stringify!($name).contains("largest") || stringify!($name).contains("limit");
            if !is_large {
                conformance::$module::$name(&mut subject(8 << 20, 64 << 10, false));
            }
        })*
    };
}
stratakv_conformance::cases!(tests);

#[test]
fn nothing_more_is_read_for_those_who_have_left() {
    let mut subject = subject(8 << 20, 64 << 10, false);
    conformance::concurrent::reads_of_those_who_left_are_given_up(&mut subject);
    assert!(subject.given_up() >= 10, "{} of 50", subject.given_up());
}
