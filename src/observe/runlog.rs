//! Lines about a run: each carries job, run, occurrence and host.

use crate::names::{HostName, JobName, RunId};
use crate::time::Timestamp;

/// The fields of every line about a run.
#[derive(Debug, Clone)]
pub(crate) struct RunFields {
    /// The job.
    pub(crate) job: JobName,
    /// The run.
    pub(crate) run: RunId,
    /// The occurrence; `None` for a manual run.
    pub(crate) scheduled_at: Option<Timestamp>,
    /// This host.
    pub(crate) host: HostName,
}

/// Logs about a run at a level of tracing: `run_log!(info, fields, "started", pid = 7)`.
///
/// With a name, `run_log!(info as "run_started", fields, …)`, the journal gives the event a `MESSAGE_ID`.
macro_rules! run_log {
    ($level:ident as $name:literal, $fields:expr, $($rest:tt)+) => {{
        let fields = &$fields;
        tracing::$level!(
            name: $name,
            job = %fields.job,
            run_id = %fields.run,
            scheduled_at = fields.scheduled_at.map(tracing::field::display),
            host = %fields.host,
            $($rest)+
        )
    }};
    ($level:ident, $fields:expr, $($rest:tt)+) => {{
        let fields = &$fields;
        tracing::$level!(
            job = %fields.job,
            run_id = %fields.run,
            scheduled_at = fields.scheduled_at.map(tracing::field::display),
            host = %fields.host,
            $($rest)+
        )
    }};
}

pub(crate) use run_log;
