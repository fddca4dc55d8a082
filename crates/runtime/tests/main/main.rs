//! The runtime's tests: one binary.

mod direct;
mod events;
mod failures;
mod order;
mod ticks;
mod toy;
