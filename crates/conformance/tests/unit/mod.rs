//! The suite under test: the oracle passes; an oracle with one defect does not.

mod log_shard;

use std::ops::Bound;

use stratakv_base::{Expiry, Wall};
use stratakv_engine::{ChangeKind, Expect, RecordPart, Unmet, Update, Value};

use log_shard::{Defect, LogOpener, LogShard};

use super::*;

const START: Wall = Wall(1_700_000_000_000);

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        mod the_oracle_passes {
            use super::*;
            $(#[test] fn $name() { $module::$name(&mut Oracle::at(START)); })*
        }
        mod a_log_passes_without_power {
            use super::*;
            $(#[test] fn $name() { $module::$name(&mut log(Defect::None, Ending::PowerCut)); })*
        }
    };
}
cases!(tests);

fn log(defect: Defect, ending: Ending) -> ShardSubject<LogShard, impl FnMut(Opening) -> LogOpener> {
    ShardSubject::new(1 << 30, 256 << 20, ending, 5, move |opening| LogOpener::new(opening, defect))
}

#[test]
fn a_missing_flush_shows_at_a_power_cut_only() {
    let caught = |defect, ending| {
        let make: &mut dyn FnMut() -> Box<dyn Subject> = &mut || Box::new(log(defect, ending));
        failure(records::deleted_keys_stay_deleted, make).is_some()
    };
    assert!(caught(Defect::NoFlush, Ending::PowerCut));
    assert!(!caught(Defect::NoFlush, Ending::Kill), "what was handed to the disk survives the process");
    assert!(caught(Defect::Early, Ending::Kill), "a write that is answered before it is handed over");
    assert!(!caught(Defect::Early, Ending::Orderly));
}

/// An oracle whose operations and replies pass through a defect.
struct Mutant {
    oracle: Oracle,
    on_operation: fn(&mut Operation),
    on_reply: fn(&Operation, &mut Reply),
    on_reopen: fn(&mut Oracle),
    on_advance: fn(u64) -> u64,
}

impl Mutant {
    fn healthy() -> Mutant {
        Mutant {
            oracle: Oracle::at(START),
            on_operation: |_| {},
            on_reply: |_, _| {},
            on_reopen: |_| {},
            on_advance: |seconds| seconds,
        }
    }
}

impl Subject for Mutant {
    fn capabilities(&self) -> Capabilities {
        self.oracle.capabilities()
    }
    fn execute(&mut self, mut operation: Operation) -> Reply {
        (self.on_operation)(&mut operation);
        let mut reply = self.oracle.execute(operation.clone());
        (self.on_reply)(&operation, &mut reply);
        reply
    }
    fn reopen(&mut self) {
        (self.on_reopen)(&mut self.oracle);
    }
    fn wall(&self) -> Wall {
        self.oracle.wall()
    }
    fn advance_wall(&mut self, millis: u64) {
        self.oracle.advance_wall((self.on_advance)(millis));
    }
}

/// The names of the cases that fail on a mutant; large values are left out for speed.
fn caught_by(make: fn() -> Mutant) -> Vec<&'static str> {
    let cases = CASES.iter().filter(|(name, _)| !name.contains("largest") && !name.contains("limit"));
    let caught = cases.filter(|(_, case)| failure(*case, &mut || Box::new(make())).is_some());
    caught.map(|(name, _)| *name).collect()
}

#[test]
fn a_healthy_mutant_is_not_caught() {
    assert_eq!(caught_by(Mutant::healthy), [] as [&str; 0]);
}

#[test]
fn every_mutant_is_caught() {
    // What is wrong, a case that finds it, and the mutant.
    type Planted = (&'static str, &'static str, fn() -> Mutant);
    let mutants: &[Planted] = &[
        ("flags are lost", "flags_are_kept", || Mutant {
            on_operation: |operation| with_put(operation, |_, flags, _| *flags = 0),
            ..Mutant::healthy()
        }),
        ("values of one page lose their last byte", "every_size_of_small_values", || Mutant {
            on_operation: |operation| {
                with_put(operation, |value, _, _| {
                    if value.len() == 4096 {
                        value.truncate(4095);
                    }
                });
            },
            ..Mutant::healthy()
        }),
        ("conditions on versions are not checked", "version", || Mutant {
            on_operation: |operation| {
                if let Operation::Write { changes, .. } = operation
                    && let Some(change) = changes.first_mut()
                    && let Expect::Version(_) = change.expect
                {
                    change.expect = Expect::Present;
                }
            },
            ..Mutant::healthy()
        }),
        ("a delete does not last", "deleted_keys_stay_deleted", || Mutant {
            on_reopen: |oracle| {
                let restored = ask::put_of(&ask::key("key3"), "resurrected");
                oracle.execute(restored);
            },
            ..Mutant::healthy()
        }),
        ("expiry one second late", "at_its_millisecond_a_record_is_gone", || Mutant {
            on_operation: |operation| {
                with_put(operation, |_, _, expiry| {
                    if *expiry != Expiry::NEVER {
                        expiry.0 += 1;
                    }
                });
            },
            ..Mutant::healthy()
        }),
        ("versions start again after reopening", "versions_only_grow", || Mutant {
            on_reopen: |oracle| *oracle = Oracle::at(oracle.wall()),
            ..Mutant::healthy()
        }),
        ("an excluded bound is included", "all_bounds_both_directions", || Mutant {
            on_operation: |operation| {
                if let Operation::Page(request) = operation
                    && let Bound::Excluded(key) = request.to.clone()
                {
                    request.to = Bound::Included(key);
                }
            },
            ..Mutant::healthy()
        }),
        ("reverse pages come forwards", "follow_each_other", || Mutant {
            on_operation: |operation| {
                if let Operation::Page(request) = operation {
                    request.reverse = false;
                }
            },
            ..Mutant::healthy()
        }),
        ("the last page says there is more", "empty_and_single", || Mutant {
            on_reply: |_, reply| {
                if let Reply::Page { next: next @ None, .. } = reply {
                    *next = Some(Bound::Unbounded);
                }
            },
            ..Mutant::healthy()
        }),
        ("a list repeats its first record", "every_record_is_listed_once", || Mutant {
            on_operation: |operation| {
                if let Operation::List(request) = operation {
                    request.cursor = request.cursor.saturating_sub(1 << 60);
                }
            },
            ..Mutant::healthy()
        }),
        ("a list leaves out a record of each page", "what_stays_is_listed_once_while_others_come_and_go", || Mutant {
            on_reply: |_, reply| {
                if let Reply::Listed { items, .. } = reply {
                    items.pop();
                }
            },
            ..Mutant::healthy()
        }),
        ("ranges start at 0", "parts_of_a_value", || Mutant {
            on_operation: |operation| {
                if let Operation::Get { part: RecordPart::Range { start, .. }, .. } = operation {
                    *start = 0;
                }
            },
            ..Mutant::healthy()
        }),
        ("an increment too much", "increments_of_one_key_all_count", || Mutant {
            on_operation: |operation| {
                if let Operation::Update { update: Update::Increment(by), .. } = operation {
                    *by += 1;
                }
            },
            ..Mutant::healthy()
        }),
        ("prepend appends", "append_and_prepend", || Mutant {
            on_operation: |operation| {
                if let Operation::Update { update, .. } = operation
                    && let Update::Prepend(bytes) = update.clone()
                {
                    *update = Update::Append(bytes);
                }
            },
            ..Mutant::healthy()
        }),
        ("a batch stops at its first change", "batches_are_atomic_or_refused", || Mutant {
            on_operation: |operation| {
                if let Operation::Write { changes, .. } = operation {
                    changes.truncate(1);
                }
            },
            ..Mutant::healthy()
        }),
        ("existed is always true", "put_get_delete", || Mutant {
            on_reply: |_, reply| {
                if let Reply::Done { existed, .. } = reply {
                    *existed = true;
                }
            },
            ..Mutant::healthy()
        }),
        ("one bit of a large value is wrong", "around_the_edges_of_classes", || Mutant {
            on_reply: |_, reply| {
                if let Reply::Record(Some(record)) = reply
                    && record.value.len() > 100_000
                {
                    let mut bytes = record.value.to_bytes().to_vec();
                    bytes[70_000] ^= 1;
                    record.value = Value::Inline(bytes.into());
                }
            },
            ..Mutant::healthy()
        }),
        ("snapshots are silently the latest state", "answers_say_so", || Mutant {
            on_operation: |operation| {
                if let Operation::Page(request) = operation {
                    request.at = None;
                }
            },
            ..Mutant::healthy()
        }),
        ("time stands still", "survives_reopening", || Mutant { on_advance: |_| 0, ..Mutant::healthy() }),
        ("checks make versions", "checks_change_nothing", || Mutant {
            on_reply: |operation, reply| {
                if let Operation::Write { changes, .. } = operation
                    && changes.iter().all(|change| matches!(change.kind, ChangeKind::Check))
                    && let Reply::Done { version, .. } = reply
                {
                    *version += 1;
                }
            },
            ..Mutant::healthy()
        }),
        ("checks always hold", "checks_of_a_batch_hold_or_nothing_is_done", || Mutant {
            on_operation: |operation| {
                if let Operation::Write { changes, .. } = operation {
                    let checks = changes.iter_mut().filter(|change| matches!(change.kind, ChangeKind::Check));
                    checks.for_each(|check| check.expect = Expect::Any);
                }
            },
            ..Mutant::healthy()
        }),
        ("unmet conditions say absent", "one_absent_put_wins", || Mutant {
            on_reply: |_, reply| {
                if let Reply::Unmet(unmet) = reply {
                    *unmet = Unmet::Absent;
                }
            },
            ..Mutant::healthy()
        }),
    ];
    for (defect, case, make) in mutants {
        let caught = caught_by(*make);
        assert!(caught.contains(case), "`{defect}` should be caught by {case}; it was by {caught:?}");
    }
}

fn with_put(operation: &mut Operation, change: impl FnOnce(&mut bytes::Bytes, &mut u32, &mut Expiry)) {
    if let Operation::Write { changes, .. } = operation
        && let Some(first) = changes.first_mut()
        && let ChangeKind::Put { value, flags, expiry } = &mut first.kind
    {
        change(value, flags, expiry);
    }
}
