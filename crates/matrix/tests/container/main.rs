//! The matrix container: what it holds, what cuts leave of it, what damage does to it.

mod cuts;
mod damage;
mod failing;
#[cfg(feature = "fault_points")]
mod fault_points;
mod model;
mod world;
