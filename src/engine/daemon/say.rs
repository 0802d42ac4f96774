//! What the daemon says of occurrences that it did not run.

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
            "the lock is held by {by} and has no end (no TTL): a person must look at it"
        ),
        Said::Unknown => line!(
            warn,
            "not run: it was due before the store lost data, and may have run (recorded as unknown)"
        ),
        Said::TooLate => line!(warn, "missed: it was too late to start it"),
        Said::Superseded => line!(info, "skipped: a newer occurrence took its place"),
        Said::QueueFull => line!(warn, "skipped: the queue is full"),
        Said::Dropped(1) => line!(
            warn,
            "1 occurrence before this one is dropped; `history` says why"
        ),
        Said::Dropped(n) => line!(
            warn,
            "{n} occurrences before this one are dropped; `history` says why"
        ),
        Said::StoreDown => line!(
            warn,
            "skipped: the store does not answer (on_store_down: skip)"
        ),
        Said::StillRunning => line!(
            warn,
            "skipped: the run before goes on, and the store does not answer"
        ),
        Said::Full => line!(
            info,
            "waiting: this host runs as much as it may (max_running)"
        ),
    }
}
