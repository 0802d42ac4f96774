//! The daemon's log.

mod fields;
mod filter;
mod health_file;
mod journal;
mod logging;
mod plain;
mod runlog;
mod stderr;

pub(crate) use health_file::{HEALTH_EVERY, HealthReport, HealthState, HealthWriter};
pub use logging::{LogArgs, LogFormat, LogLevel};
pub(crate) use plain::{plain, plain_line};
pub(crate) use runlog::{RunFields, run_log};
