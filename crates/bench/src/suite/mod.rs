//! Suites: what the papers behind the engines measured, over the engines side by side.

mod kvdk;
pub mod matrixkv;
mod microbenchmark;
mod report;
mod subject;

pub use kvdk::{KvdkOptions, run_kvdk};
pub use matrixkv::{MatrixkvOptions, run_matrixkv};
pub use report::{SuiteReport, write_table};
pub use subject::Subject;
