//! Fault points: deliberate defects in the product's own code, to see that the simulator finds
//! them.
//!
//! `if fault_point!("acknowledge_before_completion") || done { … }` is the whole of it: the tool
//! that runs the fault points reads their names from the sources. Without feature `canaries`, which
//! only that tool turns on, the condition is the constant `false`.

/// Whether the named fault point is singing.
#[macro_export]
macro_rules! fault_point {
    ($name:literal) => {
        $crate::fault_point::sings($name)
    };
}

#[cfg(feature = "canaries")]
mod cage {
    use std::cell::RefCell;

    thread_local! {
        static SINGING: RefCell<Option<String>> = const { RefCell::new(None) };
    }

    /// Lets one fault point sing in this thread, or none.
    pub fn release(name: Option<&str>) {
        SINGING.with_borrow_mut(|singing| *singing = name.map(str::to_owned));
    }

    /// See [`fault_point!`](crate::fault point!).
    pub fn sings(name: &str) -> bool {
        SINGING.with_borrow(|singing| singing.as_deref() == Some(name))
    }
}

#[cfg(feature = "canaries")]
pub use cage::{release, sings};

/// See [`fault_point!`](crate::fault point!).
#[cfg(not(feature = "canaries"))]
#[inline(always)]
pub const fn sings(_: &str) -> bool {
    false
}
