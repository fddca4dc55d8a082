//! The matrix container: what it holds, what cuts leave of it, what damage does to it.

#[cfg(feature = "canaries")]
mod canaries;
mod cuts;
mod damage;
mod model;
mod world;
