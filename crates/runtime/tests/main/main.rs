//! The runtime's tests: one binary.

mod direct;
mod failures;
mod order;
mod ticks;
mod toy;
