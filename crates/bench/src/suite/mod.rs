//! Suites: what the papers behind the engines measured, over the engines side by side.

mod kvdk;
pub mod kvell;
pub mod matrixkv;
mod microbenchmark;
mod report;
mod subject;
pub mod ukv;

pub use kvdk::{KvdkOptions, run_kvdk};
pub use kvell::{KvellOptions, run_kvell};
pub use matrixkv::{MatrixkvOptions, run_matrixkv};
pub use report::{SuiteReport, write_table};
pub use subject::Subject;
pub use ukv::{UkvOptions, run_ukv};
