//! Many seeds, and what to do with one that fails: it is run again, and cut down.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::machine::Engine;
use crate::plan::{Generator, Plan, PlanStep};
use crate::scenario::{self, Statistics};

/// A scenario that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What went wrong.
    pub why: String,
    /// The scenario, as drawn or as cut down.
    pub plan: Plan,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// From now on, panics of this process are kept for [`run_seed`] instead of printed.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        PANIC.with_borrow_mut(|kept| *kept = Some(info.to_string()));
    }));
}

/// From now on, panics are counted, by thread, before they are told as they were told before: what
/// catches its own panics cannot hide them.
pub fn watch_panics() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            tell(info);
        }));
    });
}

/// Panics of this thread since [`watch_panics`].
pub fn panics() -> u64 {
    PANICS.get()
}

/// Runs it; a panic is a failure like any other.
///
/// # Errors
/// What went wrong.
pub fn run_guarded<R>(run: impl FnOnce() -> Result<R, String>) -> Result<R, String> {
    let result = catch_unwind(AssertUnwindSafe(run));
    result.unwrap_or_else(|_| {
        let message = PANIC.with_borrow_mut(Option::take);
        Err(message.unwrap_or_else(|| "a panic".into()))
    })
}

/// Runs a plan; a panic is a failure like any other.
///
/// # Errors
/// What went wrong.
pub fn run_plan<E: Engine>(engine: &E, plan: &Plan) -> Result<Statistics, String> {
    run_guarded(|| scenario::run(engine, plan))
}

/// Runs the scenario of a seed.
///
/// # Errors
/// The failed scenario, as drawn.
pub fn run_seed<E: Engine>(engine: &E, seed: u64) -> Result<Statistics, Box<Failure>> {
    let plan = Generator::plan(seed);
    let plan = if engine.takes_loads() { plan.with_loads(seed) } else { plan };
    let plan = if engine.opens_snapshots() { plan.with_snapshots(seed) } else { plan };
    run_plan(engine, &plan).map_err(|why| Box::new(Failure { seed, why, plan }))
}

/// Cuts a failed scenario down: leaves out ever smaller pieces as long as it still fails, in
/// whatever way (delta debugging, Zeller and Hildebrandt 2002). Takes at most `runs_max` runs.
pub fn shrink<E: Engine>(engine: &E, failure: &Failure, runs_max: u32) -> Failure {
    let mut smallest = failure.clone();
    let mut runs = 0;
    let mut piece = smallest.plan.steps.len().div_ceil(2);
    loop {
        let mut at = 0;
        let mut removed = false;
        while at < smallest.plan.steps.len() && runs < runs_max {
            runs += 1;
            let mut plan = smallest.plan.clone();
            plan.steps.drain(at..(at + piece).min(plan.steps.len()));
            match run_plan(engine, &plan) {
                Err(why) => {
                    smallest = Failure { why, plan, ..smallest };
                    removed = true;
                }
                Ok(_) => at += piece,
            }
        }
        if (piece == 1 && !removed) || runs >= runs_max {
            return smallest;
        }
        piece = if removed { piece } else { piece.div_ceil(2) }.min(smallest.plan.steps.len().max(1));
    }
}

impl Failure {
    /// The scenario as the body of a test.
    pub fn script(&self) -> String {
        let mut text = format!(
            "// seed {}: {}\nPlan {{\n    setup: {:?},\n    steps: vec![\n",
            self.seed, self.why, self.plan.setup
        );
        for step in &self.plan.steps {
            let name = match step {
                PlanStep::Submit(request) => format!("Submit({request:?})"),
                other => format!("{other:?}"),
            };
            text += &format!("        {name},\n");
        }
        text + "    ],\n}"
    }
}
