//! The scenarios that found defects, cut down. Each is kept with the fault point that brings its
//! defect back: the scenario must pass without the fault point, and still fail with it, or it has
//! lost its meaning.

use stratakv_sim::disk::Chances;
use stratakv_sim::plan::{Condition::*, Crash, Plan, PlanStep, PlanStep::*, Regime::*, Request, Setup, What, What::*};

/// A defect that was found and mended.
pub struct MendedDefect {
    /// The fault point that brings it back; `None` where only long searches find it.
    pub fault_point: Option<&'static str>,
    /// What went wrong.
    pub what: &'static str,
    /// How it showed.
    pub plan: Plan,
}

/// All of them.
pub fn ledger() -> Vec<MendedDefect> {
    vec![
        MendedDefect {
            fault_point: Some("range_overtakes_writes"),
            what: "A delete of a range came before a write of one of its keys that had been handed over earlier, and waited.",
            plan: Plan {
                setup: Setup {
                    regime: Crashes,
                    capacity_bytes: Some(262144),
                    disk_bytes: 294912,
                    volatile_cache: false,
                    memory_bytes: 4194304,
                    depth: 32,
                    checkpoint_bytes: None,
                    record_cache: true,
                    keys: 3,
                    chances: Chances { delay: 6000, ..Chances::default() },
                },
                steps: range_overtakes_writes(),
            },
        },
        MendedDefect {
            fault_point: Some("delete_of_nothing_at_once"),
            what: "A delete of an absent key, acknowledged at power_loss, rested on a delete that was not durable: the key came back.",
            plan: Plan {
                setup: Setup {
                    regime: Crashes,
                    capacity_bytes: Some(1228800),
                    disk_bytes: 1261568,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 1,
                    checkpoint_bytes: None,
                    record_cache: true,
                    keys: 40,
                    chances: Chances { delay: 750, ..Chances::default() },
                },
                steps: delete_of_nothing_at_once(),
            },
        },
        MendedDefect {
            fault_point: Some("run_head_before_an_old_trailer"),
            what: "A cut-off run left its head before the trailer of an older image; a later cut brought the head to light as damage.",
            plan: Plan {
                setup: Setup {
                    regime: Crashes,
                    capacity_bytes: Some(524288),
                    disk_bytes: 557056,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 2,
                    checkpoint_bytes: None,
                    record_cache: true,
                    keys: 4,
                    chances: Chances::default(),
                },
                steps: run_head_before_an_old_trailer(),
            },
        },
        MendedDefect {
            fault_point: Some("space_waiters_are_not_told"),
            what: "A write waited for space for ever when an older copy could not be read.",
            plan: Plan {
                setup: Setup {
                    regime: Lies,
                    capacity_bytes: Some(98304),
                    disk_bytes: 131072,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 8,
                    checkpoint_bytes: None,
                    record_cache: true,
                    keys: 3,
                    chances: Chances { delay: 750, flip: 1500, stale: 750, misdirected: 125, ..Chances::default() },
                },
                steps: space_waiters_are_not_told(),
            },
        },
        MendedDefect {
            fault_point: Some("stale_run_passes"),
            what: "An older large value of the same key at the same place passed every check.",
            plan: Plan {
                setup: Setup {
                    regime: Lies,
                    capacity_bytes: Some(262144),
                    disk_bytes: 294912,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 32,
                    checkpoint_bytes: None,
                    record_cache: true,
                    keys: 2,
                    chances: Chances { stale: 6000, misdirected: 125, lost: 187, ..Chances::default() },
                },
                steps: stale_run_passes(),
            },
        },
        MendedDefect {
            fault_point: Some("damaged_keys_are_forgotten"),
            what: "One turned bit in a key made its record absent instead of damaged.",
            plan: Plan {
                setup: Setup {
                    regime: Crashes,
                    capacity_bytes: Some(98304),
                    disk_bytes: 131072,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 1,
                    checkpoint_bytes: None,
                    record_cache: true,
                    keys: 8,
                    chances: Chances { delay: 6000, ..Chances::default() },
                },
                steps: damaged_keys_are_forgotten(),
            },
        },
        MendedDefect {
            fault_point: Some("mixed_pages_stay"),
            what: "A page torn between two images was left so; its front half, seen alone after a later cut, was taken for damage.",
            plan: Plan {
                setup: Setup {
                    regime: Crashes,
                    capacity_bytes: Some(262144),
                    disk_bytes: 294912,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 32,
                    checkpoint_bytes: None,
                    record_cache: true,
                    keys: 3,
                    chances: Chances::default(),
                },
                steps: mixed_pages_stay(),
            },
        },
        MendedDefect {
            fault_point: Some("damage_is_rolled_back"),
            what: "A damaged record gave way to an older intact copy, silently.",
            plan: Plan {
                setup: Setup {
                    regime: Crashes,
                    capacity_bytes: Some(524288),
                    disk_bytes: 557056,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 8,
                    checkpoint_bytes: None,
                    record_cache: true,
                    keys: 4,
                    chances: Chances::default(),
                },
                steps: damage_is_rolled_back(),
            },
        },
        MendedDefect {
            fault_point: Some("damage_becomes_newer"),
            what: "A damaged record counted as new as its page, and so grew newer with each write of a neighbour than a copy put elsewhere.",
            plan: Plan {
                setup: Setup {
                    regime: Crashes,
                    capacity_bytes: Some(262144),
                    disk_bytes: 294912,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 2,
                    checkpoint_bytes: None,
                    record_cache: true,
                    keys: 4,
                    chances: Chances::default(),
                },
                steps: damage_becomes_newer(),
            },
        },
        MendedDefect {
            fault_point: None,
            what: "A volume that had failed never closed, when an older copy was to be cleared after the failure.",
            plan: Plan {
                setup: Setup {
                    regime: Errors,
                    capacity_bytes: Some(262144),
                    disk_bytes: 294912,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 1,
                    checkpoint_bytes: None,
                    record_cache: true,
                    keys: 2,
                    chances: Chances { read_error: 1500, write_error: 1000, flush_error: 312, ..Chances::default() },
                },
                steps: a_failed_volume_closes(),
            },
        },
    ]
}

fn submit(key: u16, what: What, power_loss: bool) -> PlanStep {
    Submit(Request { key, what, power_loss })
}

fn tick(completions: u8, seed: u32) -> PlanStep {
    Tick { completions, seed }
}

fn crash(power: bool, inside: [Option<u8>; 3], seed: u32, rot: bool) -> PlanStep {
    PlanStep::Crash(Crash { power, inside, seed, rot })
}

fn range_overtakes_writes() -> Vec<PlanStep> {
    vec![
        submit(2, Put { len: 42, expect: Any, ttl: 0 }, true),
        Drain { seed: 2568455092 },
        submit(2, Join { len: 214, front: true }, true),
        submit(2, Put { len: 12, expect: Any, ttl: 0 }, true),
        tick(0, 3773788662),
        submit(1, DeleteRange { count: 3 }, true),
        tick(4, 1098134420),
    ]
}

fn delete_of_nothing_at_once() -> Vec<PlanStep> {
    vec![
        tick(5, 2950390893),
        submit(9, Put { len: 5, expect: Any, ttl: 0 }, false),
        Pass { seconds: 105 },
        submit(17, Sync, false),
        Drain { seed: 2494172925 },
    ]
}

fn run_head_before_an_old_trailer() -> Vec<PlanStep> {
    vec![
        submit(2, Put { len: 112, expect: Any, ttl: 0 }, false),
        Close { seed: 117542277 },
        crash(true, [Some(45), None, None], 2489855667, true),
        submit(2, Put { len: 4500, expect: Any, ttl: 0 }, false),
        tick(1, 1030657277),
        crash(false, [Some(0), Some(3), None], 3073320112, false),
        crash(true, [None, None, None], 3956793075, false),
        submit(1, Put { len: 4, expect: Any, ttl: 0 }, false),
        tick(2, 2170053677),
        crash(false, [None, None, None], 4094398868, true),
        submit(2, Put { len: 6015, expect: Any, ttl: 0 }, false),
        tick(3, 3948670859),
        crash(true, [None, None, None], 3314056949, true),
        submit(2, Put { len: 6015, expect: Any, ttl: 0 }, false),
        submit(2, Get, false),
        submit(3, Put { len: 4510, expect: Any, ttl: 0 }, false),
        Settle { seed: 215037023 },
        crash(true, [Some(7), Some(3), Some(2)], 1309205100, false),
        submit(3, Put { len: 14, expect: Any, ttl: 0 }, false),
        submit(0, Put { len: 6014, expect: Any, ttl: 0 }, false),
        tick(5, 3141041558),
        tick(4, 4010110420),
    ]
}

fn space_waiters_are_not_told() -> Vec<PlanStep> {
    vec![
        submit(0, PutNumber(937), true),
        tick(0, 3816396170),
        submit(0, Delete(Any), true),
        submit(2, Put { len: 16, expect: Any, ttl: 0 }, true),
        submit(0, Put { len: 38, expect: Any, ttl: 0 }, true),
        tick(2, 3155314772),
        Settle { seed: 830045145 },
        crash(true, [None, None, None], 2153357960, false),
        submit(2, Put { len: 34, expect: Any, ttl: 0 }, true),
        tick(5, 2230311019),
        tick(5, 2334369015),
        crash(true, [None, None, None], 3372073608, false),
        submit(0, Delete(Any), false),
        Close { seed: 2180464218 },
    ]
}

fn stale_run_passes() -> Vec<PlanStep> {
    vec![
        submit(1, Put { len: 10814, expect: Any, ttl: 0 }, true),
        Pass { seconds: 10 },
        submit(1, Delete(Any), false),
        tick(0, 2493414332),
        tick(1, 2174030952),
        crash(true, [Some(40), Some(4), None], 2102714301, false),
        submit(1, Put { len: 10971, expect: Any, ttl: 0 }, true),
        tick(0, 3117391198),
        tick(1, 36297506),
        submit(1, Get, false),
        Drain { seed: 2647500194 },
    ]
}

fn damaged_keys_are_forgotten() -> Vec<PlanStep> {
    vec![
        submit(1, Put { len: 146, expect: Any, ttl: 0 }, true),
        Close { seed: 13605871 },
        crash(true, [Some(15), Some(13), Some(4)], 2745426250, true),
    ]
}

fn mixed_pages_stay() -> Vec<PlanStep> {
    vec![
        submit(0, PutNumber(1723), false),
        submit(1, Put { len: 4503, expect: Any, ttl: 0 }, false),
        submit(1, Delete(Any), false),
        submit(0, Put { len: 702, expect: Any, ttl: 0 }, false),
        Settle { seed: 1922443562 },
        crash(false, [Some(12), Some(2), None], 1432894466, false),
        submit(2, Put { len: 77, expect: Any, ttl: 0 }, false),
        submit(0, Delete(Any), false),
        tick(3, 470326675),
        crash(true, [Some(15), Some(9), Some(8)], 1723789890, false),
        submit(2, Put { len: 4505, expect: Any, ttl: 0 }, false),
        Settle { seed: 949536825 },
        crash(true, [None, None, None], 1419133509, true),
    ]
}

fn damage_is_rolled_back() -> Vec<PlanStep> {
    vec![
        crash(true, [Some(31), Some(23), Some(2)], 1201109339, false),
        submit(2, Put { len: 242, expect: Any, ttl: 0 }, true),
        submit(2, Put { len: 3511, expect: Any, ttl: 0 }, false),
        Close { seed: 3061075010 },
        crash(true, [Some(36), Some(9), Some(2)], 974087161, true),
    ]
}

fn a_failed_volume_closes() -> Vec<PlanStep> {
    vec![
        submit(0, Put { len: 955, expect: Any, ttl: 0 }, false),
        submit(1, Put { len: 1074, expect: Any, ttl: 0 }, false),
        tick(0, 1335342973),
        submit(1, Put { len: 15, expect: Any, ttl: 0 }, false),
        submit(0, Put { len: 167, expect: Any, ttl: 1 }, false),
        tick(1, 1921596695),
        submit(1, Put { len: 147, expect: Any, ttl: 0 }, false),
        tick(1, 4001978057),
        tick(1, 2952041142),
        tick(1, 2637317102),
        crash(true, [Some(6), Some(1), Some(5)], 3008591219, true),
        tick(2, 3763137133),
        Close { seed: 3958478218 },
    ]
}

fn damage_becomes_newer() -> Vec<PlanStep> {
    vec![
        submit(0, Put { len: 14, expect: Any, ttl: 0 }, true),
        tick(1, 3779586191),
        submit(1, Put { len: 12, expect: Any, ttl: 0 }, true),
        tick(1, 3681256830),
        tick(1, 1838409648),
        crash(true, [Some(12), None, None], 4078697028, true),
        submit(0, Put { len: 0, expect: Present, ttl: 1 }, true),
        Pass { seconds: 153 },
        tick(1, 2752552650),
        tick(3, 4063096874),
        crash(true, [Some(2), None, None], 2443482060, true),
        Close { seed: 4231956197 },
        crash(true, [Some(10), Some(3), Some(4)], 1415387481, true),
        submit(1, Put { len: 173, expect: Any, ttl: 0 }, false),
        tick(3, 2804519999),
        submit(2, Put { len: 8, expect: Any, ttl: 0 }, false),
        tick(3, 2782699234),
        crash(false, [None, None, None], 4226546499, false),
    ]
}
