//! What people see of a daemon: its log, its records.

mod logging;
mod runlog;
mod stderr;

pub use logging::{LogArgs, LogFormat, LogLevel};
pub(crate) use runlog::{Occurrence, RunFields, run_log};
