//! Whether the store is reachable, and what the log reports about it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::Daemon;
use crate::config::OnStoreDown;
use crate::engine::core::Event;
use crate::ground::tasks::SpawnBoxed as _;
use crate::store::StoreError;
use crate::time::BootInstant;

/// The first pause before the store is probed again.
const FIRST_PROBE: Duration = Duration::from_millis(100);
/// The longest pause, for a store that replies to some requests and not to others. Jobs must continue
/// soon after its last failure, so it is probed about once a second.
const LONGEST_PROBE: Duration = Duration::from_secs(1);
/// A store that has replied for this long counts as stable.
const STEADY: Duration = Duration::from_secs(10);

/// How often an outage is logged again while it lasts.
const REPORT_AGAIN: Duration = Duration::from_secs(300);

/// A pause of the daemon that lasted this long is logged.
const NOTABLE_PAUSE: Duration = Duration::from_secs(3);

/// Whether the store replies, as far as the daemon knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Up,
    Down,
}

/// Whether the log reports a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notable {
    Yes,
    No,
}

/// What a store that cannot be used does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutageKind {
    /// It does not reply.
    Silent,
    /// It replies, and rejects requests: a full disk, missing rights. It may accept some, so one that
    /// succeeds does not show that it works again.
    Rejects,
    /// It replies, and takes no writes: no memory, missing replicas, no snapshots. It may accept those that
    /// free memory.
    TakesNoWrites,
}

impl OutageKind {
    fn of(error: &StoreError) -> Self {
        match error {
            _ if error.takes_no_writes() => Self::TakesNoWrites,
            StoreError::Unreachable(_) => Self::Silent,
            _ => Self::Rejects,
        }
    }

    /// What the store has been while it lasts.
    fn state(self) -> &'static str {
        match self {
            Self::Silent => "been unreachable",
            Self::Rejects => "been unusable",
            // With full memory it still accepts renewals and results.
            Self::TakesNoWrites => "taken no claims",
        }
    }

    /// The message at its end.
    fn end(self) -> &'static str {
        match self {
            Self::Silent => "the store is reachable again",
            Self::Rejects => "the store can be used again",
            Self::TakesNoWrites => "the store takes writes again",
        }
    }

    /// The message at its end, if the store is reported only once it is stable.
    fn stable_end(self) -> &'static str {
        match self {
            Self::Silent => "the store is reachable again, and stable",
            Self::Rejects | Self::TakesNoWrites => self.end(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct CurrentOutage {
    since: Instant,
    reported: Instant,
}

/// The store's health, for the tasks that wait for it, and what the log has reported.
#[derive(Debug)]
pub(super) struct StoreHealth {
    now: watch::Sender<Health>,
    /// Since when the store replies again; `None` before its first failure.
    up_since: Option<Instant>,
    /// The last report was that the store is reachable.
    reported_up: bool,
    /// When the present outage began, and when it was last logged.
    outage: Option<CurrentOutage>,
    /// It rejects requests, or failed soon after it was reported as reachable. It is reported again only
    /// once it is stable.
    flaps: bool,
    /// What the reported outage was.
    kind: OutageKind,
    probe_delay: Duration,
}

impl StoreHealth {
    /// The health of a store that has not failed yet.
    pub(super) fn new() -> Self {
        Self {
            now: watch::channel(Health::Up).0,
            up_since: None,
            reported_up: true,
            outage: None,
            flaps: false,
            kind: OutageKind::Silent,
            probe_delay: FIRST_PROBE,
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<Health> {
        self.now.subscribe()
    }

    /// Returns how long ago the last outage ended; `None` before the first one, and during one.
    pub(super) fn reachable_for(&self) -> Option<Duration> {
        let up_since = self.up_since.filter(|_| self.is_up())?;
        Some(up_since.elapsed())
    }

    pub(super) fn is_up(&self) -> bool {
        *self.now.borrow() == Health::Up
    }

    fn failed(&mut self, now: Instant, kind: OutageKind) -> Notable {
        let soon = self.up_since.is_some_and(|since| now - since < STEADY);
        // A store that replies to some requests is not probed ten times a second.
        self.probe_delay = if soon {
            (self.probe_delay * 2).min(LONGEST_PROBE)
        } else {
            FIRST_PROBE
        };
        let replies = kind != OutageKind::Silent;
        self.flaps |= soon || replies;
        if self.reported_up || replies {
            self.kind = kind;
        }
        self.now.send_replace(Health::Down);
        self.outage.get_or_insert(CurrentOutage {
            since: now,
            reported: now,
        });
        report_if(std::mem::replace(&mut self.reported_up, false))
    }

    /// Returns how long the store has been unreachable, if it is time to log the outage again.
    fn still_away(&mut self, now: Instant) -> Option<Duration> {
        let outage = self.outage.as_mut()?;
        if now - outage.reported < REPORT_AGAIN {
            return None;
        }
        outage.reported = now;
        Some(now - outage.since)
    }

    fn answers(&mut self, now: Instant) -> Notable {
        self.up_since = Some(now);
        self.outage = None;
        self.now.send_replace(Health::Up);
        self.reported_up |= !self.flaps;
        report_if(self.reported_up)
    }

    /// Whether a store that was flapping has become stable.
    fn believed(&mut self, now: Instant) -> Notable {
        let steady = self.is_up() && self.up_since.is_some_and(|since| now - since >= STEADY);
        let news = steady && !self.reported_up;
        if news {
            self.reported_up = true;
            self.flaps = false;
        }
        report_if(news)
    }
}

fn report_if(news: bool) -> Notable {
    if news { Notable::Yes } else { Notable::No }
}

impl Daemon {
    pub(super) fn store_failed(&mut self, error: &StoreError) {
        tracing::debug!("{error}");
        // The rest of the store continues; the link of that part reports the outage once.
        let in_part = matches!(error, StoreError::PartUnreachable(_) | StoreError::Key(_));
        if in_part || !self.health.is_up() {
            return;
        }
        if matches!(error, StoreError::Unreachable(_)) && self.link.last_answer.is_recent() {
            // It replies to other requests. This one is retried; if the store is down, the next claim
            // shows it.
            return;
        }
        if self.health.failed(Instant::now(), OutageKind::of(error)) == Notable::Yes {
            tracing::error!("{error}; retrying. {}", self.affected());
        }
        let (word, measure) = (self.word(), self.clock.measure());
        let probe = (self.link.clone()).probe(word, measure, self.health.probe_delay);
        self.announcements.spawn_boxed(probe);
        if self.agreement.allows_runs_alone() {
            self.feed(Event::StoreDown);
        }
        self.status();
    }

    fn affected(&self) -> String {
        let jobs = DueJobs::of(self.jobs.values().map(|job| job.policies.on_store_down));
        affected(self.runs.len(), jobs)
    }

    pub(super) fn store_answers(&mut self) {
        if self.health.answers(Instant::now()) == Notable::Yes {
            tracing::info!("{}", self.health.kind.end());
        }
        self.finisher.retry_now();
        self.was_absent();
        self.feed(Event::StoreUp);
        self.registry.doubt();
        self.look_after_registry();
        self.flush_registrations();
        self.status();
    }

    /// Reports a pause of the daemon, so that the fault is not sought in the store.
    pub(super) fn look_at_pauses(&mut self) {
        let now = BootInstant::now();
        let before = self.last_seen.replace(now);
        let pause = before.map_or(Duration::ZERO, |before| now.since(before));
        if pause >= NOTABLE_PAUSE {
            tracing::warn!(
                "the daemon did not run for {:.1} s: it was stopped (SIGSTOP), the host was \
                 suspended, or the host is short of CPU time; jobs that came due meanwhile start \
                 late",
                pause.as_secs_f64()
            );
            self.feed(Event::Awake);
            if self.health.is_up() {
                self.was_absent();
            }
        }
    }

    /// Registers each job again before anything is claimed. Other hosts may have considered this one
    /// dead and moved its jobs to other locks, and a loss of data may hide that a ledger has moved.
    pub(super) fn was_absent(&mut self) {
        self.registry.leave_all();
        self.feed(Event::Absent { job: None });
    }

    /// Reports a store that is stable again, and repeats the report of a long outage.
    pub(super) fn look_at_health(&mut self) {
        if let Some(away) = self.health.still_away(Instant::now()) {
            tracing::error!(
                "the store has {} for {} minutes; retrying. {}",
                self.health.kind.state(),
                away.as_secs() / 60,
                self.affected()
            );
        }
        if self.health.believed(Instant::now()) == Notable::Yes {
            tracing::info!("{}", self.health.kind.stable_end());
        }
    }
}

/// Returns what an outage of the store means for the runs and the jobs of this host.
fn affected(runs: usize, jobs: DueJobs) -> String {
    let runs = match runs {
        0 => "No run is in progress on this host".to_owned(),
        1 => {
            "1 run on this host continues; without on_lost: continue it is killed before its lease \
              expires"
                .to_owned()
        }
        n => format!(
            "{n} runs on this host continue; those without on_lost: continue are killed before \
             their leases expire"
        ),
    };
    let when_due = [
        of_policy(
            jobs.wait,
            ("waits", "wait"),
            "for the store (start_deadline, then catch_up)",
        ),
        of_policy(
            jobs.run,
            ("runs", "run"),
            "without a lock (on_store_down: run)",
        ),
        of_policy(jobs.skip, ("is", "are"), "skipped (on_store_down: skip)"),
    ];
    let when_due: Vec<String> = when_due.into_iter().flatten().collect();
    if when_due.is_empty() {
        return runs;
    }
    format!("{runs}; when due, {}", when_due.join(", "))
}

/// How many jobs have each `on_store_down`.
#[derive(Debug, Clone, Copy, Default)]
struct DueJobs {
    wait: usize,
    run: usize,
    skip: usize,
}

impl DueJobs {
    fn of(policies: impl Iterator<Item = OnStoreDown>) -> Self {
        let mut jobs = Self::default();
        for policy in policies {
            match policy {
                OnStoreDown::Wait => jobs.wait += 1,
                OnStoreDown::Run => jobs.run += 1,
                OnStoreDown::Skip => jobs.skip += 1,
            }
        }
        jobs
    }
}

/// Returns what happens to `n` jobs when they are due; `None` without any.
fn of_policy(n: usize, (one, many): (&str, &str), what: &str) -> Option<String> {
    match n {
        0 => None,
        1 => Some(format!("1 job {one} {what}")),
        n => Some(format!("{n} jobs {many} {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        DueJobs, Duration, Instant, Notable, OnStoreDown, OutageKind, REPORT_AGAIN, STEADY,
        StoreHealth, affected,
    };

    #[test]
    fn a_long_outage_is_reported_every_five_minutes_until_it_ends() {
        let mut health = StoreHealth::new();
        let began = Instant::now();
        assert_eq!(health.still_away(began), None);
        health.failed(began, OutageKind::Silent);
        // A probe that fails later is the same outage.
        health.failed(began + Duration::from_secs(200), OutageKind::Silent);
        let almost = Duration::from_secs(299);
        assert_eq!(health.still_away(began + almost), None);
        assert_eq!(health.still_away(began + REPORT_AGAIN), Some(REPORT_AGAIN));
        assert_eq!(health.still_away(began + REPORT_AGAIN + almost), None);
        let twice = REPORT_AGAIN * 2;
        assert_eq!(health.still_away(began + twice), Some(twice));
        health.answers(began + twice);
        assert_eq!(health.still_away(began + twice * 2), None);
    }

    #[test]
    fn a_store_that_flaps_is_reported_when_it_begins_and_when_it_ends() {
        let mut health = StoreHealth::new();
        let mut now = Instant::now();
        let mut later = |millis| {
            now += Duration::from_millis(millis);
            now
        };
        assert_eq!(health.failed(later(10), OutageKind::Silent), Notable::Yes);
        assert_eq!(health.answers(later(100)), Notable::Yes);
        // A new outage, but so soon that the next reply does not end it.
        assert_eq!(
            health.failed(later(9_000), OutageKind::Silent),
            Notable::Yes
        );
        for _ in 0..5 {
            assert_eq!(health.answers(later(1_000)), Notable::No);
            assert_eq!(health.believed(later(9_000)), Notable::No);
            assert_eq!(health.failed(later(500), OutageKind::Silent), Notable::No);
            assert_eq!(health.believed(later(20_000)), Notable::No, "it is down");
        }
        assert_eq!(
            health.probe_delay,
            Duration::from_secs(1),
            "jobs continue soon after it"
        );
        assert_eq!(health.answers(later(1_000)), Notable::No);
        assert_eq!(health.believed(later(10_000)), Notable::Yes);
        assert_eq!(health.believed(later(10_000)), Notable::No, "once");
        // Long afterwards everything is as at the first time.
        assert_eq!(
            health.failed(later(60_000), OutageKind::Silent),
            Notable::Yes
        );
        assert_eq!(health.answers(later(100)), Notable::Yes);
        assert!(STEADY > health.probe_delay);
    }

    /// On a full disk small writes succeed and others fail: no reply ends the outage by itself.
    #[test]
    fn a_store_that_rejects_requests_is_reported_as_usable_once_it_is_stable() {
        let mut health = StoreHealth::new();
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        let rejects = OutageKind::Rejects;
        assert_eq!(health.failed(at(0), rejects), Notable::Yes);
        assert_eq!(health.answers(at(100)), Notable::No);
        assert_eq!(health.failed(at(102), rejects), Notable::No);
        assert_eq!(health.answers(at(1_000)), Notable::No);
        assert_eq!(health.believed(at(10_999)), Notable::No);
        assert_eq!(health.believed(at(11_000)), Notable::Yes);
        assert_eq!(health.kind.end(), "the store can be used again");
        // The next outage is one of the network.
        assert_eq!(health.failed(at(60_000), OutageKind::Silent), Notable::Yes);
        assert_eq!(health.answers(at(60_100)), Notable::Yes);
        assert_eq!(health.kind.end(), "the store is reachable again");
    }

    #[test]
    fn a_store_that_takes_no_writes_is_reported_as_one_that_takes_them_again() {
        let mut health = StoreHealth::new();
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        // Before it was known what is wrong.
        assert_eq!(health.failed(at(0), OutageKind::Silent), Notable::Yes);
        health.failed(at(10), OutageKind::TakesNoWrites);
        assert_eq!(health.kind.state(), "taken no claims");
        assert_eq!(health.answers(at(1_000)), Notable::No);
        assert_eq!(health.believed(at(11_000)), Notable::Yes);
        assert_eq!(health.kind.stable_end(), "the store takes writes again");
    }

    #[test]
    fn an_outage_names_the_runs_and_the_jobs_that_it_affects() {
        use OnStoreDown::{Run, Skip, Wait};
        let affected =
            |runs, jobs: &[OnStoreDown]| affected(runs, DueJobs::of(jobs.iter().copied()));
        let none = "No run is in progress on this host; when due, 1 job waits for the store \
                    (start_deadline, then catch_up)";
        assert_eq!(affected(0, &[Wait]), none);
        let one = "1 run on this host continues; without on_lost: continue it is killed before its \
                   lease expires; when due, 2 jobs wait for the store (start_deadline, then catch_up), 1 job runs \
                   without a lock (on_store_down: run), 2 jobs are skipped (on_store_down: skip)";
        assert_eq!(affected(1, &[Wait, Run, Skip, Wait, Skip]), one);
        let many = "3 runs on this host continue; those without on_lost: continue are killed before \
                    their leases expire";
        assert_eq!(affected(3, &[]), many);
    }
}
