//! The log messages about occurrences that did not run.

use crate::config::show_roughly;
use crate::engine::core::Said;
use crate::names::{HostName, JobName};
use crate::time::Timestamp;

/// Logs what became of an occurrence. What another host has in hand is its business: `debug`.
pub(super) fn say(job: &JobName, at: Timestamp, host: &HostName, said: &Said) {
    macro_rules! line {
        ($level:ident, $($text:tt)+) => {
            tracing::$level!(%job, occurrence = %at, %host, $($text)+)
        };
    }
    match said {
        Said::LostTo(by) => line!(debug, "{by} runs it"),
        Said::Decided => line!(debug, "decided before this host asked"),
        Said::Skipped(by) => line!(info, "skipped: {by} holds the lock"),
        Said::Waiting(by) => line!(debug, "waiting: {by} holds the lock"),
        Said::ClockAhead(by) => line!(
            warn,
            "waiting: this host's clock is at least {by:.1?} ahead of the store's"
        ),
        Said::NoEnd(by) => line!(
            warn,
            "the lock is held by {by} and never expires (no TTL): check the program that holds \
             it, or delete the key"
        ),
        Said::Unknown => line!(
            warn,
            "not run: it was due before the store lost its data and may have run already \
             (recorded as unknown)"
        ),
        Said::TooLate => line!(warn, "missed: its start deadline has passed"),
        Said::LedgerAhead(by) => tracing::warn!(
            %job,
            %host,
            "its ledger is {} ahead of the store's clock, which was wrong earlier; the job waits \
             until the clock has caught up, at {at}",
            show_roughly(*by)
        ),
        Said::LedgerFarAhead(by) => tracing::warn!(
            %job,
            %host,
            "its ledger is {} ahead of the store's clock, which was wrong earlier; the job \
             continues from now, and the history records the correction once",
            show_roughly(*by)
        ),
        Said::Paused(cause) => line!(info, "skipped: paused by {cause}"),
        Said::QueueFull => line!(warn, "skipped: the queue is full"),
        Said::Dropped(1) => line!(
            warn,
            "1 earlier occurrence was dropped; see `cronlatch history`"
        ),
        Said::Dropped(n) => line!(
            warn,
            "{n} earlier occurrences were dropped; see `cronlatch history`"
        ),
        Said::StoreDown => line!(
            warn,
            "skipped: the store is unreachable (on_store_down: skip)"
        ),
        Said::StillRunning => line!(
            warn,
            "skipped: the previous run is still in progress, and the store is unreachable"
        ),
        Said::Short => line!(
            debug,
            "waiting: this host is short of the resources to start processes"
        ),
        Said::Replaced => line!(
            warn,
            "not run: it was due and had not begun when a reload changed the job's schedule or \
             removed the job"
        ),
        Said::Full => line!(info, "waiting: this host already has max_running runs"),
    }
}
