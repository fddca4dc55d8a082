//! The matrix container: what it holds, what cuts leave of it, what damage does to it.

mod cuts;
mod world;
