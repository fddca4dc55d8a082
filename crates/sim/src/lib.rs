//! The simulator: media that fail on command, a seeded clock, a model of what a store owes its
//! users, and scenarios drawn from seeds.
//!
//! Development only: nothing that ships depends on it. One seed gives one run, always the same.
//!
//! A scenario ([`plan`]) is data: operations, ticks, crashes. [`scenario`] runs it on a [`machine`]
//! (the real code of an engine, its [`disk`], its clock) and judges every answer by the [`model`].
//! [`search`] runs many and cuts a failure down; [`coverage`] counts what was tried.
//!
//! A disk may have the real NVMe driver in front of it, and a controller that is a program:
//! [`nvme`].
//!
//! Above single shards, [`ring`] and [`net`] carry the real runtime, store and server, with several
//! threads' worth of them turned by one; what overlapping clients saw is judged by
//! [`linearizability`].
#![forbid(unsafe_code)]

pub mod coverage;
pub mod disk;
pub mod flips;
pub mod linearizability;
pub mod machine;
pub mod model;
pub mod net;
pub mod nvme;
pub mod plan;
pub mod pmem;
pub mod ring;
pub mod scenario;
pub mod search;
