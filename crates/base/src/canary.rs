//! Canaries: deliberate defects in the product's own code, to see that the simulator finds them.
//!
//! `if canary!("acknowledge_before_completion") || done { … }` is the whole of it: the tool that
//! runs the canaries reads their names from the sources. Without feature `canaries`, which only
//! that tool turns on, the condition is the constant `false`.

/// Whether the named canary is singing.
#[macro_export]
macro_rules! canary {
    ($name:literal) => {
        $crate::canary::sings($name)
    };
}

#[cfg(feature = "canaries")]
mod cage {
    use std::cell::RefCell;

    thread_local! {
        static SINGING: RefCell<Option<String>> = const { RefCell::new(None) };
    }

    /// Lets one canary sing in this thread, or none.
    pub fn release(name: Option<&str>) {
        SINGING.with_borrow_mut(|singing| *singing = name.map(str::to_owned));
    }

    /// See [`canary!`](crate::canary!).
    pub fn sings(name: &str) -> bool {
        SINGING.with_borrow(|singing| singing.as_deref() == Some(name))
    }
}

#[cfg(feature = "canaries")]
pub use cage::{release, sings};

/// See [`canary!`](crate::canary!).
#[cfg(not(feature = "canaries"))]
#[inline(always)]
pub const fn sings(_: &str) -> bool {
    false
}
