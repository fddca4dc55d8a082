//! The conformance suite: one set of cases, run on Operation → Reply by every engine, by
//! capability.
//!
//! A case gets a fresh [`Subject`] and panics where the contract is broken. [`cases!`] names all of
//! them, so that each can be a test of its own; [`run`] runs them all. [`ShardSubject`] makes a
//! subject of any [`Shard`](stratakv_engine::Shard) over a disk in memory; [`Oracle`] is the
//! contract as a map, the measure of the random case. The suite itself is tested: the oracle
//! passes, and oracles with one deliberate defect each do not.
#![forbid(unsafe_code)]

mod ask;
pub mod concurrent;
pub mod conditions;
mod disk;
pub mod expiry;
pub mod listing;
pub mod loads;
mod oracle;
pub mod pages;
pub mod random;
pub mod records;
pub mod sizes;
mod subject;
pub mod unsupported;
pub mod updates;

pub use disk::{Disk, Ending};
pub use oracle::Oracle;
pub use subject::{Opening, ShardSubject};

use stratakv_base::Wall;
use stratakv_engine::{Capabilities, Operation, Reply};

/// Something that answers operations: an engine under test, or the oracle.
pub trait Subject {
    /// What it can do; cases that need more are not asked of it.
    fn capabilities(&self) -> Capabilities;

    /// Does one operation to its terminal reply.
    fn execute(&mut self, operation: Operation) -> Reply;

    /// Does several at once, as one tick would take them; replies in the order of the operations.
    fn execute_all(&mut self, operations: Vec<Operation>) -> Vec<Reply> {
        operations.into_iter().map(|operation| self.execute(operation)).collect()
    }

    /// The same, while those who asked for some leave after the first tick: their gets and pages
    /// may be answered with [`Error::Cancelled`](stratakv_engine::Error::Cancelled).
    fn execute_leaving(&mut self, operations: Vec<Operation>, leaves: &dyn Fn(usize) -> bool) -> Vec<Reply> {
        let _ = leaves;
        self.execute_all(operations)
    }

    /// Ends it (in whatever way this subject stands for) and opens what is on the medium.
    fn reopen(&mut self);

    /// Its wall clock.
    fn wall(&self) -> Wall;

    /// Lets wall-clock time pass.
    fn advance_wall(&mut self, millis: u64);
}

/// A named case.
pub type Case = (&'static str, fn(&mut dyn Subject));

/// Calls a macro with every case as `module::name, ...`.
///
/// ```ignore
/// macro_rules! tests {
///     ($($module:ident :: $name:ident),* $(,)?) => {
///         $(#[test] fn $name() { stratakv_conformance::$module::$name(&mut my_subject()); })*
///     };
/// }
/// stratakv_conformance::cases!(tests);
/// ```
#[macro_export]
macro_rules! cases {
    ($callback:ident) => {
        $callback! {
            records::an_absent_key_is_none,
            records::put_get_delete,
            records::overwriting_keeps_only_the_newest,
            records::flags_are_kept,
            records::keys_are_any_bytes,
            records::keys_have_limits,
            records::keys_with_long_common_prefixes_are_different,
            records::collections_are_apart,
            records::versions_only_grow,
            records::deleted_keys_stay_deleted,
            records::parts_of_a_value,
            records::sync_answers_done,
            conditions::absent,
            conditions::present,
            conditions::version,
            conditions::on_deletes,
            conditions::checks_change_nothing,
            conditions::checks_of_a_batch_hold_or_nothing_is_done,
            updates::append_and_prepend,
            updates::increment_and_decrement,
            updates::what_begins_with_a_number_is_counted,
            updates::only_numbers_are_counted,
            updates::touch,
            updates::edits,
            updates::edits_make_records,
            updates::of_an_absent_key,
            updates::growing_past_the_limit_changes_nothing,
            expiry::at_its_millisecond_a_record_is_gone,
            expiry::an_expired_key_is_absent_to_conditions,
            expiry::survives_reopening,
            expiry::pages_leave_out_expired_records,
            pages::empty_and_single,
            pages::all_bounds_both_directions,
            pages::follow_each_other,
            pages::keys_only,
            pages::bytes_max_ends_a_page,
            pages::prefixes_are_in_byte_order,
            pages::after_changes_and_reopening,
            pages::delete_range,
            listing::every_record_is_listed_once,
            listing::what_stays_is_listed_once_while_others_come_and_go,
            unsupported::answers_say_so,
            unsupported::batches_are_atomic_or_refused,
            loads::loads_are_whole_or_refused,
            concurrent::increments_of_one_key_all_count,
            concurrent::one_absent_put_wins,
            concurrent::many_keys_in_one_tick,
            concurrent::reads_see_old_or_new,
            concurrent::reads_of_those_who_left_are_given_up,
            random::against_the_oracle,
            random::against_the_oracle_with_large_values,
            sizes::every_size_of_small_values,
            sizes::around_the_edges_of_classes,
            sizes::growing_and_shrinking_one_key,
            sizes::space_of_deleted_values_is_used_again,
            sizes::the_largest_value_and_one_byte_more,
        }
    };
}

macro_rules! table {
    ($($module:ident :: $name:ident),* $(,)?) => {
        /// Every case, cheap ones first.
        pub const CASES: &[Case] = &[$((stringify!($name), $module::$name)),*];
    };
}
cases!(table);

/// Runs every case on a fresh subject.
///
/// # Panics
/// A case found the contract broken.
pub fn run(make: &mut dyn FnMut() -> Box<dyn Subject>) {
    for (name, case) in CASES {
        if let Some(message) = failure(*case, make) {
            panic!("{name}: {message}");
        }
    }
}

/// What `case` says against a fresh subject, if anything.
pub fn failure(case: fn(&mut dyn Subject), make: &mut dyn FnMut() -> Box<dyn Subject>) -> Option<String> {
    let mut subject = make();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&mut *subject)));
    outcome.err().map(|panic| match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast_ref::<&str>().map_or_else(|| "panicked".to_owned(), |text| (*text).to_owned()),
    })
}

#[cfg(test)]
#[path = "../tests/unit/mod.rs"]
mod tests;
