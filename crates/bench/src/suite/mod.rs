//! Suites: what the papers behind the engines measured, over the engines side by side.

mod kvdk;
mod microbenchmark;
mod report;
mod subject;

pub use kvdk::{KvdkOptions, run_kvdk};
pub use report::{SuiteReport, write_table};
pub use subject::Subject;
