//! How much of a job's history a store keeps.

use std::time::Duration;

/// How much of a job's history a store keeps. Failures are also counted apart, so that a job that runs
/// every minute does not displace its failure of yesterday.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Retention {
    /// The newest records, however they ended.
    pub records: u32,
    /// The newest failures.
    pub failures: u32,
    /// What is older is removed at the next run; on Redis, the successes of a frequent job do so only once an hour,
    /// or once in a 24th of this.
    pub age: Duration,
}

impl Retention {
    /// What a job list keeps that does not say.
    pub const DEFAULT: Self = Self::of_records(100);

    /// Keeps this many records, and as many failures and for as long as lists do that do not say.
    pub const fn of_records(records: u32) -> Self {
        Self {
            records,
            failures: 50,
            age: Duration::from_secs(90 * 86_400),
        }
    }

    /// Returns the most records that this leaves in a history.
    pub fn most(&self) -> usize {
        self.records as usize + self.failures as usize
    }
}
