//! Why a schedule is rejected.

use std::fmt;
use std::ops::Range;

/// Why cron text is rejected: what is wrong, where, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronError {
    /// What is wrong, as a lower-case fragment.
    pub what: String,
    /// The offending characters of the text, counted from 0; never empty unless the text is.
    pub columns: Range<usize>,
    /// What to write instead.
    pub hint: String,
}

impl CronError {
    pub(super) fn new(
        columns: Range<usize>,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            columns,
            hint: hint.into(),
        }
    }
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (column {}); {}",
            self.what,
            self.columns.start + 1,
            self.hint
        )
    }
}

impl std::error::Error for CronError {}

/// Why a period cannot be the interval of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IntervalError {
    /// Shorter than a second.
    #[error("an interval must be at least 1s")]
    TooShort,
    /// Finer than a millisecond.
    #[error("an interval must be whole milliseconds")]
    TooFine,
    /// Beyond what the calendar can count.
    #[error("an interval must be shorter than 1000 years")]
    TooLong,
}
