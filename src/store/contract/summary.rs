//! What a ledger keeps about how a job has been doing: enough for `status`, so that it reads no
//! histories.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::record::{Outcome, Record};
use crate::names::RunId;

/// How many of the newest outcomes a ledger keeps.
pub const RECENT_KEPT: usize = 30;

/// How many of the newest failures a ledger keeps at most. It needs more than one only while the newest
/// are provisional.
pub const FAILURES_NOTED: usize = 4;

/// The newest verdicts of a job. The records are without output.
///
/// It decides nothing: no claim, result or move depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The newest outcomes, oldest first, at most [`RECENT_KEPT`]. A range counts once for each of its
    /// occurrences.
    pub recent: Vec<RecentOutcome>,
    /// The newest record.
    pub newest: Option<Record>,
    /// The last run that succeeded.
    pub last_success: Option<Record>,
    /// The last runs that failed, newest first, up to the first one that is not provisional.
    pub failures: Vec<Record>,
}

/// One of the newest outcomes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentOutcome {
    /// How it ended.
    pub outcome: Outcome,
    /// The run, if its host may still report another outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisional: Option<RunId>,
}

impl Summary {
    /// Returns the last run that failed.
    pub fn last_failure(&self) -> Option<&Record> {
        self.failures.first()
    }

    /// Returns what two ledgers of one job know together. Their outcomes cannot be put in order, so
    /// those of the ledger with the newer record count.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let at = |record: Option<&Record>| record.and_then(|record| record.finished_at);
        let is_older = |one: Option<&Record>, two: Option<&Record>| at(one) < at(two);
        let other_is_newer = is_older(self.newest.as_ref(), other.newest.as_ref());
        let other_succeeded = is_older(self.last_success.as_ref(), other.last_success.as_ref());
        let other_failed = is_older(self.last_failure(), other.last_failure());
        let (recent, newest) = if other_is_newer {
            (other.recent, other.newest)
        } else {
            (self.recent, self.newest)
        };
        Self {
            recent,
            newest,
            last_success: if other_succeeded {
                other.last_success
            } else {
                self.last_success
            },
            failures: if other_failed {
                other.failures
            } else {
                self.failures
            },
        }
    }
}

/// States that differ in nothing else behave alike, so the models need not tell them apart.
impl Hash for Summary {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
