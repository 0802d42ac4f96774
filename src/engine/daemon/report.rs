//! The log messages about occurrences that did not run.

use crate::config::show_roughly;
use crate::engine::core::OccurrenceNotice;
use crate::names::{HostName, JobName};
use crate::time::Timestamp;

/// Logs what happened to an occurrence. What another host does with it is logged there, so here it
/// is `debug`.
pub(super) fn report(job: &JobName, at: Timestamp, host: &HostName, notice: &OccurrenceNotice) {
    macro_rules! line {
        ($level:ident, $($text:tt)+) => {
            tracing::$level!(%job, scheduled_at = %at, %host, $($text)+)
        };
    }
    match notice {
        OccurrenceNotice::LostTo(by) => line!(debug, "{by} runs it"),
        OccurrenceNotice::Decided => line!(debug, "decided before this host asked"),
        OccurrenceNotice::Skipped(by) => line!(info, "skipped: {by} holds the lock"),
        OccurrenceNotice::Waiting(by) => line!(debug, "waiting: {by} holds the lock"),
        OccurrenceNotice::ClockAhead(by) => line!(
            warn,
            "waiting: this host's clock is at least {by:.1?} ahead of the store's"
        ),
        OccurrenceNotice::NoEnd(by) => line!(
            warn,
            "the lock is held by {by} and never expires (no TTL): check the program that holds \
             it, or delete the key"
        ),
        OccurrenceNotice::Unknown => line!(
            warn,
            "not run: it was due before the store lost its data and may have run already \
             (recorded as unknown)"
        ),
        OccurrenceNotice::TooLate => line!(warn, "missed: its start deadline has passed"),
        OccurrenceNotice::LedgerAhead(by) => tracing::warn!(
            %job,
            %host,
            "the ledger of this job is {} ahead of the store's clock, which was wrong earlier; the job waits \
             until the clock has caught up, at {at}",
            show_roughly(*by)
        ),
        OccurrenceNotice::LedgerFarAhead(by) => tracing::warn!(
            %job,
            %host,
            "the ledger of this job is {} ahead of the store's clock, which was wrong earlier; the job \
             continues from now, and the history records the correction once",
            show_roughly(*by)
        ),
        OccurrenceNotice::Paused(cause) => line!(info, "skipped: paused by {cause}"),
        OccurrenceNotice::QueueFull => line!(
            warn,
            "skipped: the queue is full (on_overlap: queue): runs take longer than the interval"
        ),
        OccurrenceNotice::Dropped(1) => line!(
            warn,
            "1 earlier occurrence was missed: no host could claim it in time (catch_up); see \
             `cronlatch history {job}`"
        ),
        OccurrenceNotice::Dropped(n) => line!(
            warn,
            "{n} earlier occurrences were missed: no host could claim them in time (catch_up); see \
             `cronlatch history {job}`"
        ),
        OccurrenceNotice::StoreDown => line!(
            warn,
            "skipped: the store is unreachable (on_store_down: skip)"
        ),
        OccurrenceNotice::StillRunning => line!(
            warn,
            "skipped: the previous run is still in progress, and the store is unreachable"
        ),
        OccurrenceNotice::Short => line!(
            debug,
            "waiting: this host is short of the resources to start processes"
        ),
        OccurrenceNotice::Replaced => line!(
            warn,
            "not run: it was due and had not begun when a reload changed the job's schedule or \
             removed the job"
        ),
        OccurrenceNotice::Full => line!(info, "waiting: this host already has max_running runs"),
    }
}
