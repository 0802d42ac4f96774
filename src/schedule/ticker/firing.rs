//! The jobs that the ticker fires, and its firings.

use std::time::Duration;

use crate::names::JobName;
use crate::schedule::{Schedule, Spread};
use crate::time::Timestamp;

/// The maximum number of occurrences of one job that are delivered after the clock is stepped
/// forward.
pub const MOST_AT_ONCE: usize = 1000;

/// How much earlier hosts claim the occurrences of jobs that are claimed ahead. It differs from occurrence to
/// occurrence: otherwise the host that needs the most time, and so begins first, would win them all. Hosts whose
/// claims take about as long share the occurrences.
pub const HEAD_STARTS: Duration = Duration::from_millis(21);

/// How early a job fires that is claimed ahead of its instants: by as much as
/// [`Board::set_ahead`](super::board::Board::set_ahead) says, and by what this adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimsAhead {
    /// This host's head starts at the occurrences, each below [`HEAD_STARTS`].
    pub head_starts: Spread,
    /// Whether it fires still earlier if other jobs share its instant, so that their processes are prepared one
    /// after the other before it.
    pub earlier_in_a_crowd: bool,
}

/// A job to be fired.
#[derive(Debug, Clone)]
pub struct TickerJob {
    /// Its name, which every firing carries.
    pub name: JobName,
    /// When it is due.
    pub schedule: Schedule,
    /// How long after its instant it fires (`jitter:`).
    pub delay: Duration,
    /// Set if it fires ahead of its instant, because it is claimed ahead.
    pub claims_ahead: Option<ClaimsAhead>,
    /// The first occurrence fired is the first strictly after this instant.
    pub from: Timestamp,
}

/// An occurrence has come due, or will in a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    /// The job.
    pub job: JobName,
    /// The occurrence.
    pub scheduled_at: Timestamp,
    /// The instant to act on it: `scheduled_at` and the job's delay. It has come, unless the job fires
    /// ahead of it.
    pub due_at: Timestamp,
    /// What was passed over right before this occurrence and will not be delivered.
    pub skipped: Option<Skipped>,
}

/// A range of occurrences that were passed over when the clock was stepped forward, too many to
/// deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
}
