//! Fault points: deliberate defects in the product's own code, to see that the simulator finds
//! them.
//!
//! A fault point is a statement of its own, at the beginning of a line. The product reads on
//! without it: skip the line, or fold it.
//!
//! ```
//! # use stratakv_base::fault_point;
//! # fn f(submitted: bool, completed: bool) -> bool {
//! let mut done = submitted && completed;
//! fault_point!("acknowledge_before_completion", done = true);
//! # done
//! # }
//! ```
//!
//! The statement is the defect: an assignment, a call, a block, or `return`, `continue` and `break`
//! with a value that is wrong. A condition before it says when the defect strikes:
//! `fault_point!("name", condition, statement)`. The condition is asked only while the fault point
//! is on.
//!
//! - Product code computes nothing for a fault point's sake, and clones nothing.
//! - A step that a fault point leaves out is a function of its own, if nothing else serves. The
//!   function begins with `fault_point!("name", return …)`.
//! - `cargo xtask tidy` refuses a fault point that does not begin its line.
//!
//! The tool that runs the fault points reads their names from the sources. Only that tool turns
//! feature `fault_points` on. Without the feature [`is_on`] is the constant `false`, so a release
//! has none of the statements.

/// Plants a defect: `fault_point!("name", statement)`, or `fault_point!("name", condition,
/// statement)`. See [the module](mod@crate::fault_point).
#[macro_export]
macro_rules! fault_point {
    ($name:literal, $defect:expr $(,)?) => {
        if $crate::fault_point::is_on($name) {
            $defect;
        }
    };
    ($name:literal, $when:expr, $defect:expr $(,)?) => {
        if $crate::fault_point::is_on($name) && $when {
            $defect;
        }
    };
}

#[cfg(feature = "fault_points")]
mod switches {
    use std::cell::RefCell;

    thread_local! {
        static ON: RefCell<Option<String>> = const { RefCell::new(None) };
    }

    /// Turns one fault point on in this thread, or none.
    pub fn release(name: Option<&str>) {
        ON.with_borrow_mut(|on| *on = name.map(str::to_owned));
    }

    /// See [`fault_point!`](crate::fault_point!).
    pub fn is_on(name: &str) -> bool {
        ON.with_borrow(|on| on.as_deref() == Some(name))
    }
}

#[cfg(feature = "fault_points")]
pub use switches::{is_on, release};

/// See [`fault_point!`](crate::fault_point!).
#[cfg(not(feature = "fault_points"))]
#[inline(always)]
pub const fn is_on(_: &str) -> bool {
    false
}
