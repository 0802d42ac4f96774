//! The daemon's log.

mod logging;
mod plain;
mod runlog;
mod stderr;

pub use logging::{LogArgs, LogFormat, LogLevel};
pub(crate) use plain::{plain, plain_line};
pub(crate) use runlog::{OccurrenceField, RunFields, run_log};
