//! Fault points: deliberate defects in the product's own code, to see that the simulator finds
//! them.
//!
//! `if fault_point!("acknowledge_before_completion") || done { … }` is the whole of it: the tool
//! that runs the fault points reads their names from the sources. Without feature `canaries`, which
//! only that tool turns on, the condition is the constant `false`.

/// Whether the named fault point is on.
#[macro_export]
macro_rules! fault_point {
    ($name:literal) => {
        $crate::fault_point::is_on($name)
    };
}

#[cfg(feature = "canaries")]
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

#[cfg(feature = "canaries")]
pub use switches::{is_on, release};

/// See [`fault_point!`](crate::fault_point!).
#[cfg(not(feature = "canaries"))]
#[inline(always)]
pub const fn is_on(_: &str) -> bool {
    false
}
