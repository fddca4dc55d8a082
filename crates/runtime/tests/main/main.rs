//! The runtime's tests: one binary.

mod failures;
mod toy;
mod turns;
