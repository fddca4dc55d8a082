//! The runtime's tests: one binary.

mod direct;
mod failures;
mod toy;
mod turns;
