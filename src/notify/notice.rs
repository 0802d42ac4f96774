//! An event of a job, for those who are notified.

use crate::config::JobEvent;
use crate::names::{HostName, JobName, RunId};
use crate::store::Record;
use crate::time::Timestamp;

/// One event of a job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Notice {
    /// What happened.
    pub(crate) event: JobEvent,
    /// The job.
    pub(crate) job: JobName,
    /// The host that sends.
    pub(crate) host: HostName,
    /// When it was noticed.
    pub(crate) at: Timestamp,
    /// The run, if there is one.
    pub(crate) run_id: Option<RunId>,
    /// The occurrence, if there is one.
    pub(crate) scheduled_at: Option<Timestamp>,
    /// How many verdicts of this kind there were in a row; for `recovered`: before the success.
    pub(crate) in_a_row: u64,
    /// The verdict, if there is one.
    pub(crate) record: Option<Record>,
    /// What the event adds, for events without a verdict.
    pub(crate) detail: Option<String>,
    /// Whether this is the sample of `notify-test`.
    pub(crate) kind: NoticeKind,
}

/// Whether something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoticeKind {
    /// It did.
    Real,
    /// It did not: `notify-test`.
    Sample,
}

impl Notice {
    /// A name that no other message has: a receiver can drop what it gets twice.
    pub(crate) fn id(&self) -> String {
        let run = self.run_id.as_ref().map(RunId::as_str);
        let what = match (run, self.scheduled_at) {
            (Some(run), _) => run.to_owned(),
            (None, Some(at)) => at.to_string(),
            (None, None) => self.at.to_string(),
        };
        format!("{}/{what}/{}", self.job, self.event.word())
    }

    /// How many occurrences it stands for.
    pub(crate) fn count(&self) -> u64 {
        let of_record = self.record.as_ref().and_then(|record| record.count);
        of_record.unwrap_or(1)
    }

    /// Whether the job is well again.
    pub(crate) fn is_good(&self) -> bool {
        matches!(self.event, JobEvent::Succeeded | JobEvent::Recovered)
    }
}
