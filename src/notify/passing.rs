//! Verdicts that a claim of this host recorded in passing: of a run whose host died, or of
//! occurrences that waited. The reply to the claim does not name them, the history does.

use std::collections::{HashMap, VecDeque};

use crate::names::{HostName, JobName, RunId};
use crate::store::{Outcome, Record};
use crate::time::Timestamp;

/// How many verdicts of a job are remembered as reported.
const REMEMBERED: usize = 300;

/// What distinguishes two verdicts of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Run(RunId, Outcome),
    Occurrence(Timestamp, Outcome),
}

impl Verdict {
    fn of(record: &Record) -> Option<Self> {
        match (&record.run_id, record.scheduled_at) {
            (Some(run), _) => Some(Self::Run(run.clone(), record.outcome)),
            (None, Some(at)) => Some(Self::Occurrence(at, record.outcome)),
            (None, None) => None,
        }
    }
}

/// The verdicts that this daemon has looked at, by job.
#[derive(Debug, Default)]
pub(super) struct ReportedVerdicts(HashMap<JobName, VecDeque<Verdict>>);

impl ReportedVerdicts {
    /// Notes a verdict. Returns false if it was noted before.
    pub(super) fn note(&mut self, record: &Record) -> bool {
        let Some(verdict) = Verdict::of(record) else {
            return true;
        };
        let known = self.0.entry(record.job.clone()).or_default();
        if known.contains(&verdict) {
            return false;
        }
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back(verdict);
        true
    }
}

/// The verdicts that `host` recorded in passing since its daemon started, oldest first.
pub(super) fn recorded_in_passing<'a>(
    history: &'a [Record],
    host: &HostName,
    since: Timestamp,
) -> impl Iterator<Item = &'a Record> + use<'a> {
    let mine = move |record: &&Record| {
        let closed_by_us =
            record.outcome == Outcome::Interrupted && record.by.as_deref() == Some(host.as_str());
        // A range has a part that was reported before, perhaps by another host.
        let decided_by_us =
            record.run_id.is_none() && record.until.is_none() && record.host.as_ref() == Some(host);
        (closed_by_us || decided_by_us) && record.finished_at.is_some_and(|at| at >= since)
    };
    let host_records: Vec<&Record> = history.iter().filter(mine).collect();
    host_records.into_iter().rev()
}
