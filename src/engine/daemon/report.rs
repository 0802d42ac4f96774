//! The log messages about occurrences that did not run.

use std::collections::HashMap;
use std::time::Duration;

use super::Daemon;
use crate::config::show_roughly;
use crate::engine::core::{JobIx, OccurrenceNotice};
use crate::names::{HostName, JobName};
use crate::time::Timestamp;

/// What the last occurrence of each job that had to wait on this host waited for.
#[derive(Debug, Default)]
pub(super) struct LastWaits(HashMap<JobIx, (Timestamp, String)>);

impl LastWaits {
    fn note(&mut self, job: JobIx, at: Timestamp, notice: &OccurrenceNotice) {
        let why = match notice {
            OccurrenceNotice::Full => "this host had max_running runs".to_owned(),
            OccurrenceNotice::Short => "this host could not start processes".to_owned(),
            OccurrenceNotice::Waiting(by) => format!("{by} held the lock"),
            _ => return,
        };
        self.0.insert(job, (at, why));
    }

    fn take(&mut self, job: JobIx, at: Timestamp) -> Option<String> {
        self.0.get(&job).filter(|(waited, _)| *waited == at)?;
        self.0.remove(&job).map(|(_, why)| why)
    }

    /// Forgets the jobs that a new list no longer has.
    pub(super) fn keep_only(&mut self, is_listed: impl Fn(JobIx) -> bool) {
        self.0.retain(|job, _| is_listed(*job));
    }
}

impl Daemon {
    /// Logs what happened to an occurrence.
    pub(super) fn report(&mut self, place: JobIx, at: Timestamp, notice: &OccurrenceNotice) {
        let Some(job) = self.job(place) else {
            return;
        };
        let (job, delay) = (job.name.clone(), job.delay());
        self.last_waits.note(place, at, notice);
        if *notice == OccurrenceNotice::TooLate {
            let wait = self.last_waits.take(place, at);
            let seen = HostView {
                now: self.clock.now().utc,
                started_at: self.started_at,
                reachable_for: self.health.reachable_for(),
            };
            let why = wait.unwrap_or_else(|| seen.why_missed(at, delay).to_owned());
            tracing::warn!(
                %job,
                scheduled_at = %at,
                host = %self.host,
                "missed: its start deadline has passed: {why}"
            );
        } else {
            log(&job, at, &self.host, notice);
        }
    }
}

/// What this host has seen of the time after an occurrence.
#[derive(Debug, Clone, Copy)]
struct HostView {
    now: Timestamp,
    /// When this daemon started.
    started_at: Timestamp,
    /// How long ago the last outage of the store ended.
    reachable_for: Option<Duration>,
}

impl HostView {
    /// Returns why nobody claimed an occurrence that this host did not make wait, as far as this host knows.
    /// It was to start `delay` after its instant.
    fn why_missed(self, at: Timestamp, delay: Duration) -> &'static str {
        let due = at.plus(delay);
        let late = self.now.since(due);
        if due < self.started_at {
            "it was due before this daemon started, and no other host claimed it"
        } else if self.reachable_for.is_some_and(|since| since < late) {
            "the store was unreachable after it was due"
        } else {
            "no host claimed it in time"
        }
    }
}

/// Logs what happened to an occurrence. What another host does with it is logged there, so here it
/// is `debug`.
fn log(job: &JobName, at: Timestamp, host: &HostName, notice: &OccurrenceNotice) {
    macro_rules! line {
        ($level:ident, $($text:tt)+) => {
            tracing::$level!(%job, scheduled_at = %at, %host, $($text)+)
        };
    }
    match notice {
        OccurrenceNotice::LostTo(by) => line!(debug, "{by} runs it"),
        OccurrenceNotice::Decided => line!(debug, "decided before this host asked"),
        OccurrenceNotice::Skipped(by) => line!(info, "skipped: {by} holds the lock"),
        OccurrenceNotice::SkippedLate { by, late } => line!(
            info,
            "skipped: it was claimed {} after it was due, and {by} holds the lock: of the \
             occurrences that waited, the oldest runs",
            show_roughly(*late)
        ),
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
        // Logged with its cause, which only the daemon knows.
        OccurrenceNotice::TooLate => {}
        OccurrenceNotice::LedgerAhead(by) => log_ledger_ahead(job, host, *by, Some(at)),
        OccurrenceNotice::LedgerFarAhead(by) => log_ledger_ahead(job, host, *by, None),
        OccurrenceNotice::Paused(cause) => line!(info, "skipped: paused by {cause}"),
        OccurrenceNotice::QueueFull => line!(
            warn,
            "skipped: the queue is full (on_overlap: queue): runs take longer than the interval"
        ),
        OccurrenceNotice::Dropped(1) => line!(
            warn,
            "1 earlier occurrence was missed: no host could claim it in time, and catch_up leaves it \
             out; see `cronlatch history {job}`"
        ),
        OccurrenceNotice::Dropped(n) => line!(
            warn,
            "{n} earlier occurrences were missed: no host could claim them in time, and catch_up \
             leaves them out; see `cronlatch history {job}`"
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

/// Logs that the ledger of a job is ahead of the store's clock, and whether the job waits until then.
fn log_ledger_ahead(job: &JobName, host: &HostName, by: Duration, until: Option<Timestamp>) {
    let by = show_roughly(by);
    if let Some(at) = until {
        tracing::warn!(
            %job,
            %host,
            "the ledger of this job is {by} ahead of the store's clock, which was wrong earlier; the job waits \
             until the clock has caught up, at {at}"
        );
    } else {
        tracing::warn!(
            %job,
            %host,
            "the ledger of this job is {by} ahead of the store's clock, which was wrong earlier; the job \
             continues from now, and the history records the correction once"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_reported_with_what_the_occurrence_waited_for() {
        let (job, other) = (JobIx(1), JobIx(2));
        let [first, second] = [100, 200].map(Timestamp::from_secs);
        let mut waits = LastWaits::default();
        waits.note(job, first, &OccurrenceNotice::Full);
        waits.note(job, first, &OccurrenceNotice::Decided);
        assert_eq!(waits.take(other, first), None);
        let full = "this host had max_running runs".to_owned();
        assert_eq!(waits.take(job, first), Some(full));
        waits.note(job, first, &OccurrenceNotice::Waiting("web2".to_owned()));
        assert_eq!(
            waits.take(job, second),
            None,
            "it is about another occurrence"
        );
        let held = "web2 held the lock".to_owned();
        assert_eq!(waits.take(job, first), Some(held), "that one keeps it");
        waits.note(job, second, &OccurrenceNotice::Short);
        waits.keep_only(|listed| listed != job);
        assert_eq!(waits.take(job, second), None);
    }

    #[test]
    fn a_miss_that_did_not_wait_here_is_explained_by_the_start_or_the_outage() {
        let (at, delay) = (Timestamp::from_secs(400), Duration::from_secs(600));
        let why = |started: i64, reachable_for: Option<u64>| {
            let seen = HostView {
                now: Timestamp::from_secs(1_060),
                started_at: Timestamp::from_secs(started),
                reachable_for: reachable_for.map(Duration::from_secs),
            };
            seen.why_missed(at, delay)
        };
        assert!(why(1_001, Some(10)).contains("before this daemon started"));
        assert!(why(1_000, Some(59)).contains("unreachable"));
        for before in [None, Some(61)] {
            assert_eq!(why(1_000, before), "no host claimed it in time");
        }
    }
}
