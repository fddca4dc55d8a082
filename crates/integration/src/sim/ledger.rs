//! The scenarios that found defects, cut down. Each is kept with the canary that brings its defect back: the scenario must pass without
//! the canary, and still fail with it, or it has lost its meaning.

use stratakv_sim::disk::Chances;
use stratakv_sim::plan::{Condition::*, Crash, Plan, Regime::*, Request, Setup, Step, Step::*, What, What::*};

/// A defect that was found and mended.
pub struct Found {
    /// The canary that brings it back; `None` where only long searches find it.
    pub canary: Option<&'static str>,
    /// What went wrong.
    pub what: &'static str,
    /// How it showed.
    pub plan: Plan,
}

/// All of them.
pub fn ledger() -> Vec<Found> {
    vec![
        Found {
            canary: Some("delete_of_nothing_at_once"),
            what: "A delete of an absent key, acknowledged at power_loss, rested on a delete that was not durable: the key came back.",
            plan: Plan {
                setup: Setup {
                    regime: Crashes,
                    capacity_bytes: Some(1228800),
                    disk_bytes: 1261568,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 1,
                    keys: 40,
                    chances: Chances { delay: 750, ..Chances::default() },
                },
                steps: delete_of_nothing_at_once(),
            },
        },
        Found {
            canary: Some("run_head_before_an_old_trailer"),
            what: "A cut-off run left its head before the trailer of an older image; a later cut brought the head to light as damage.",
            plan: Plan {
                setup: Setup {
                    regime: Errors,
                    capacity_bytes: Some(524288),
                    disk_bytes: 557056,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 32,
                    keys: 16,
                    chances: Chances { delay: 750, read_error: 1500, error_forever: 500, ..Chances::default() },
                },
                steps: run_head_before_an_old_trailer(),
            },
        },
        Found {
            canary: Some("space_waiters_are_not_told"),
            what: "A write waited for space for ever when an older copy could not be read.",
            plan: Plan {
                setup: Setup {
                    regime: Errors,
                    capacity_bytes: Some(262144),
                    disk_bytes: 294912,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 32,
                    keys: 2,
                    chances: Chances { error_forever: 500, ..Chances::default() },
                },
                steps: space_waiters_are_not_told(),
            },
        },
        Found {
            canary: Some("stale_run_passes"),
            what: "An older large value of the same key at the same place passed every check.",
            plan: Plan {
                setup: Setup {
                    regime: Lies,
                    capacity_bytes: Some(262144),
                    disk_bytes: 294912,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 32,
                    keys: 2,
                    chances: Chances { flip: 187, lost: 187, ..Chances::default() },
                },
                steps: stale_run_passes(),
            },
        },
        Found {
            canary: Some("damaged_keys_are_forgotten"),
            what: "One turned bit in a key made its record absent instead of damaged.",
            plan: Plan {
                setup: Setup {
                    regime: Crashes,
                    capacity_bytes: Some(262144),
                    disk_bytes: 294912,
                    volatile_cache: false,
                    memory_bytes: 4194304,
                    depth: 2,
                    keys: 8,
                    chances: Chances { ..Chances::default() },
                },
                steps: damaged_keys_are_forgotten(),
            },
        },
        Found {
            canary: Some("mixed_pages_stay"),
            what: "A page torn between two images was left so; its front half, seen alone after a later cut, was taken for damage.",
            plan: Plan {
                setup: Setup {
                    regime: Errors,
                    capacity_bytes: Some(524288),
                    disk_bytes: 557056,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 2,
                    keys: 5,
                    chances: Chances { read_error: 1500, write_error: 1000, ..Chances::default() },
                },
                steps: mixed_pages_stay(),
            },
        },
        Found {
            canary: Some("damage_is_rolled_back"),
            what: "A damaged record gave way to an older intact copy, silently.",
            plan: Plan {
                setup: Setup {
                    regime: Crashes,
                    capacity_bytes: Some(262144),
                    disk_bytes: 294912,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 32,
                    keys: 2,
                    chances: Chances { ..Chances::default() },
                },
                steps: damage_is_rolled_back(),
            },
        },
        Found {
            canary: None,
            what: "A volume that had failed never closed, when an older copy was to be cleared after the failure.",
            plan: Plan {
                setup: Setup {
                    regime: Errors,
                    capacity_bytes: Some(262144),
                    disk_bytes: 294912,
                    volatile_cache: true,
                    memory_bytes: 4194304,
                    depth: 1,
                    keys: 2,
                    chances: Chances { read_error: 1500, write_error: 1000, flush_error: 312, ..Chances::default() },
                },
                steps: a_failed_volume_closes(),
            },
        },
    ]
}

fn submit(key: u16, what: What, power_loss: bool) -> Step {
    Submit(Request { key, what, power_loss })
}

fn turn(completions: u8, seed: u32) -> Step {
    Turn { completions, seed }
}

fn crash(power: bool, inside: [Option<u8>; 3], seed: u32, rot: bool) -> Step {
    Step::Crash(Crash { power, inside, seed, rot })
}

fn delete_of_nothing_at_once() -> Vec<Step> {
    vec![
        submit(0, Put { len: 162, expect: Any, ttl: 0 }, false),
        turn(0, 1521372556),
        turn(1, 3675503223),
        submit(11, Sync, false),
        turn(1, 1458673152),
    ]
}

fn run_head_before_an_old_trailer() -> Vec<Step> {
    vec![
        submit(8, Put { len: 6002, expect: Any, ttl: 0 }, false),
        submit(8, Put { len: 52, expect: Any, ttl: 0 }, false),
        submit(12, Put { len: 1293, expect: Any, ttl: 0 }, false),
        turn(3, 28998166),
        turn(6, 3646824102),
        submit(3, Put { len: 7, expect: Any, ttl: 0 }, false),
        submit(3, Put { len: 6002, expect: Any, ttl: 0 }, true),
        submit(12, Put { len: 6013, expect: Any, ttl: 0 }, false),
        submit(8, Put { len: 6014, expect: Any, ttl: 0 }, false),
        turn(4, 4188002360),
        turn(6, 4026130618),
        submit(4, Put { len: 6000, expect: Any, ttl: 0 }, false),
        turn(6, 3907076933),
        submit(8, Put { len: 6001, expect: Any, ttl: 0 }, false),
        submit(3, Put { len: 113, expect: Any, ttl: 0 }, false),
        turn(3, 2207165600),
        crash(true, [Some(12), None, None], 2824745744, true),
        submit(12, Put { len: 6002, expect: Any, ttl: 0 }, false),
        turn(3, 142090369),
        submit(12, Put { len: 6006, expect: Any, ttl: 0 }, false),
        submit(1, Scan { reverse: false, keys_only: false, items: 18 }, false),
        submit(2, Put { len: 6002, expect: Any, ttl: 0 }, false),
        submit(1, Scan { reverse: false, keys_only: false, items: 24 }, false),
        turn(2, 3061697242),
        submit(0, Put { len: 6005, expect: Any, ttl: 0 }, false),
        turn(3, 2488322229),
        crash(true, [None, None, None], 1904720159, false),
        submit(7, Put { len: 6005, expect: Any, ttl: 0 }, false),
        submit(12, Join { len: 98, front: false }, false),
        turn(3, 2933563706),
        turn(2, 180920791),
        submit(0, Put { len: 6010, expect: Any, ttl: 0 }, false),
        turn(0, 2347975732),
        crash(true, [None, None, None], 759456195, false),
    ]
}

fn space_waiters_are_not_told() -> Vec<Step> {
    vec![
        submit(0, Put { len: 1260, expect: Any, ttl: 0 }, true),
        submit(0, Put { len: 8727, expect: Any, ttl: 0 }, true),
        turn(1, 1136017921),
        submit(0, Put { len: 8237, expect: Any, ttl: 0 }, true),
        submit(1, Put { len: 12, expect: Any, ttl: 0 }, true),
        submit(1, Put { len: 3364, expect: Any, ttl: 0 }, false),
        turn(5, 1525308048),
        turn(2, 2671103854),
        submit(1, Delete(Any), true),
        submit(0, Put { len: 6273, expect: Any, ttl: 0 }, true),
        turn(1, 1419547379),
        turn(4, 2633927347),
        submit(1, Put { len: 16, expect: Any, ttl: 0 }, true),
        submit(1, Put { len: 1304, expect: Any, ttl: 0 }, false),
        submit(1, Put { len: 121, expect: Any, ttl: 0 }, true),
        turn(5, 1128867214),
        submit(1, Put { len: 5413, expect: Any, ttl: 0 }, true),
        submit(0, Put { len: 5329, expect: Any, ttl: 0 }, false),
        turn(5, 1254236048),
        submit(1, Put { len: 3, expect: Any, ttl: 0 }, false),
        submit(1, Delete(Any), true),
        submit(1, Delete(Any), false),
        Pass { seconds: 188 },
    ]
}

fn stale_run_passes() -> Vec<Step> {
    vec![
        submit(1, Put { len: 6007, expect: Any, ttl: 0 }, false),
        turn(0, 146903477),
        submit(0, Put { len: 6009, expect: Any, ttl: 0 }, false),
        turn(1, 2897337592),
        submit(1, Touch(1), false),
        turn(5, 3030644143),
        turn(6, 113566273),
        submit(1, Put { len: 6003, expect: Any, ttl: 60 }, false),
        submit(0, Sync, false),
        turn(6, 2816181475),
        turn(4, 4062260224),
        turn(3, 3032345909),
        submit(0, Put { len: 6010, expect: Any, ttl: 0 }, false),
        submit(0, Delete(Any), false),
        turn(4, 3983154685),
        turn(2, 1813924939),
        submit(1, Put { len: 6001, expect: Any, ttl: 0 }, false),
        turn(2, 2015129162),
        turn(6, 1453256530),
        turn(6, 3877378598),
        submit(1, Put { len: 7657, expect: Any, ttl: 0 }, false),
        turn(4, 3663598276),
        submit(1, Put { len: 6012, expect: Any, ttl: 0 }, false),
        submit(0, Put { len: 6003, expect: Any, ttl: 0 }, false),
        turn(2, 2476312925),
        submit(0, Put { len: 6000, expect: Any, ttl: 0 }, false),
        turn(2, 2796114217),
        submit(0, Put { len: 6013, expect: Any, ttl: 0 }, false),
        turn(2, 881321372),
        submit(0, Put { len: 6012, expect: Any, ttl: 0 }, false),
        turn(2, 2093476784),
        turn(6, 2953839996),
        turn(1, 3856671685),
        submit(0, Put { len: 194, expect: Any, ttl: 0 }, false),
        turn(5, 1028853532),
        turn(4, 3922869691),
        turn(5, 785925029),
        submit(0, Put { len: 6014, expect: Any, ttl: 0 }, false),
        turn(4, 975209808),
        turn(4, 2945678837),
        submit(0, Put { len: 6000, expect: Any, ttl: 0 }, false),
        turn(5, 1458349936),
        turn(3, 3468611299),
        turn(5, 1222796117),
        turn(3, 2839311124),
        submit(0, Get, false),
        turn(2, 2590450464),
        turn(6, 1456357319),
    ]
}

fn damaged_keys_are_forgotten() -> Vec<Step> {
    vec![
        submit(3, Put { len: 4, expect: Any, ttl: 0 }, true),
        submit(7, Put { len: 52, expect: Any, ttl: 0 }, true),
        submit(7, Put { len: 13, expect: Any, ttl: 0 }, true),
        submit(1, Put { len: 3479, expect: Any, ttl: 1 }, true),
        submit(0, Put { len: 8651, expect: OtherVersion, ttl: 0 }, true),
        submit(0, Put { len: 1, expect: Any, ttl: 0 }, true),
        submit(6, Put { len: 13, expect: Any, ttl: 1 }, true),
        submit(1, Put { len: 547, expect: Any, ttl: 0 }, true),
        submit(2, Put { len: 4540, expect: Any, ttl: 0 }, true),
        submit(2, Put { len: 12, expect: Any, ttl: 0 }, true),
        turn(0, 3117139365),
        submit(3, Put { len: 3, expect: Any, ttl: 0 }, true),
        submit(7, Put { len: 5, expect: Any, ttl: 0 }, true),
        turn(4, 2685506487),
        turn(4, 2257315493),
        submit(3, Put { len: 16, expect: Any, ttl: 0 }, true),
        submit(7, Put { len: 116, expect: Any, ttl: 0 }, true),
        submit(3, Put { len: 7949, expect: Any, ttl: 0 }, true),
        submit(0, Put { len: 13, expect: Any, ttl: 0 }, true),
        submit(2, Put { len: 1667, expect: Any, ttl: 0 }, true),
        submit(2, Put { len: 5528, expect: Any, ttl: 0 }, true),
        submit(1, Put { len: 5322, expect: Any, ttl: 0 }, true),
        Drain { seed: 2183319670 },
        submit(2, Put { len: 990, expect: Any, ttl: 0 }, true),
        submit(2, Put { len: 98, expect: Any, ttl: 1000 }, true),
        turn(2, 454311064),
        submit(1, Put { len: 4520, expect: Any, ttl: 1 }, true),
        submit(5, Put { len: 148, expect: Absent, ttl: 0 }, true),
        submit(1, Put { len: 99, expect: Any, ttl: 0 }, true),
        submit(5, Put { len: 472, expect: Any, ttl: 0 }, true),
        turn(4, 2821608585),
        submit(0, Put { len: 127, expect: Any, ttl: 0 }, true),
        submit(7, Put { len: 7, expect: Any, ttl: 1000 }, true),
        turn(3, 4109836104),
        submit(1, Put { len: 2, expect: Any, ttl: 0 }, true),
        submit(7, Put { len: 4, expect: Any, ttl: 0 }, true),
        turn(5, 2625506262),
        turn(4, 3152251632),
        submit(7, Put { len: 8, expect: Any, ttl: 0 }, true),
        Close { seed: 3258717049 },
        crash(true, [None, None, None], 862345170, true),
    ]
}

fn mixed_pages_stay() -> Vec<Step> {
    vec![
        submit(0, Put { len: 3150, expect: Any, ttl: 0 }, false),
        turn(1, 1070063533),
        submit(1, Put { len: 2085, expect: Any, ttl: 0 }, false),
        submit(4, Put { len: 6142, expect: Any, ttl: 0 }, false),
        turn(1, 235394994),
        crash(false, [Some(3), None, None], 4186817032, true),
        submit(1, Delete(Any), false),
        submit(0, Put { len: 10, expect: Any, ttl: 0 }, false),
        turn(0, 4125282021),
        turn(2, 988741244),
        crash(true, [None, None, None], 2628837226, true),
        submit(4, Put { len: 6, expect: Any, ttl: 0 }, false),
        submit(3, Put { len: 90, expect: Any, ttl: 0 }, false),
        turn(1, 1587221550),
        crash(true, [None, None, None], 1526170916, true),
        submit(0, Put { len: 65, expect: Any, ttl: 0 }, false),
        submit(1, Put { len: 6, expect: Any, ttl: 0 }, false),
        submit(3, Put { len: 131, expect: Any, ttl: 0 }, false),
        turn(2, 1812782683),
        submit(2, Put { len: 73, expect: Any, ttl: 0 }, false),
        submit(1, Put { len: 8, expect: Any, ttl: 0 }, false),
        submit(3, Put { len: 138, expect: Any, ttl: 0 }, false),
        turn(1, 3866765925),
        turn(2, 1131670560),
        crash(true, [Some(1), None, None], 3593048810, false),
        submit(4, Delete(Present), false),
        submit(2, Put { len: 8882, expect: Any, ttl: 0 }, false),
        turn(1, 495812502),
        crash(true, [Some(4), None, None], 678454816, true),
    ]
}

fn damage_is_rolled_back() -> Vec<Step> {
    vec![
        submit(1, Put { len: 39, expect: Any, ttl: 0 }, false),
        turn(2, 2518751182),
        submit(1, Put { len: 8, expect: Any, ttl: 0 }, false),
        turn(1, 259873239),
        submit(1, Delete(Any), false),
        turn(2, 2872947059),
        turn(6, 3940887390),
        turn(4, 1324814586),
        crash(true, [None, None, None], 647257590, false),
        submit(1, Put { len: 97, expect: Any, ttl: 0 }, false),
        turn(6, 3248787656),
        turn(3, 4240157675),
        submit(1, Put { len: 44, expect: SameVersion, ttl: 1000 }, false),
        Close { seed: 1709778360 },
        crash(true, [None, None, None], 2509456453, true),
    ]
}

fn a_failed_volume_closes() -> Vec<Step> {
    vec![
        submit(0, Put { len: 955, expect: Any, ttl: 0 }, false),
        submit(1, Put { len: 1074, expect: Any, ttl: 0 }, false),
        turn(0, 1335342973),
        submit(1, Put { len: 15, expect: Any, ttl: 0 }, false),
        submit(0, Put { len: 167, expect: Any, ttl: 1 }, false),
        turn(1, 1921596695),
        submit(1, Put { len: 147, expect: Any, ttl: 0 }, false),
        turn(1, 4001978057),
        turn(1, 2952041142),
        turn(1, 2637317102),
        crash(true, [Some(6), Some(1), Some(5)], 3008591219, true),
        turn(2, 3763137133),
        Close { seed: 3958478218 },
    ]
}
