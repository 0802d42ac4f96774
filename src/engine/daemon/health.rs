//! What the daemon knows of the store's health, and what it says of it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::Daemon;
use crate::engine::core::Event;
use crate::store::StoreError;
use crate::time::BootInstant;

/// The first wait before the store is asked whether it is back.
const FIRST_PROBE: Duration = Duration::from_millis(100);
/// The longest, for a store that answers one question and not the next. Jobs must go on soon after
/// its last failure, so this is little more than a question each second.
const LONGEST_PROBE: Duration = Duration::from_secs(1);
/// A store that has answered for so long is believed to go on.
const STEADY: Duration = Duration::from_secs(10);

/// How often an outage is logged again while it lasts.
const REPORT_AGAIN: Duration = Duration::from_secs(300);

/// A pause of the daemon that lasted this long is logged.
const NOTABLE_PAUSE: Duration = Duration::from_secs(3);

/// Whether the store answers, as far as the daemon knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Up,
    Down,
}

/// Whether people are to be told of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tell {
    Yes,
    No,
}

#[derive(Debug, Clone, Copy)]
struct CurrentOutage {
    since: Instant,
    reported: Instant,
}

/// The store's health, for the tasks that wait for it, and what people were told of it.
#[derive(Debug)]
pub(super) struct StoreHealth {
    now: watch::Sender<Health>,
    /// Since when it answers again; `None` before its first failure.
    up_since: Option<Instant>,
    /// People believe that it answers.
    said_up: bool,
    /// When the present outage began, and when it was last logged.
    outage: Option<CurrentOutage>,
    /// It failed soon after people had been told that it answers: they are not told again before
    /// it has done so for a while.
    wavers: bool,
    probe_delay: Duration,
}

impl StoreHealth {
    /// That of a store which has not failed yet.
    pub(super) fn new() -> Self {
        Self {
            now: watch::channel(Health::Up).0,
            up_since: None,
            said_up: true,
            outage: None,
            wavers: false,
            probe_delay: FIRST_PROBE,
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<Health> {
        self.now.subscribe()
    }

    pub(super) fn is_up(&self) -> bool {
        *self.now.borrow() == Health::Up
    }

    fn failed(&mut self, now: Instant) -> Tell {
        let soon = self.up_since.is_some_and(|since| now - since < STEADY);
        // One that answers one question and not the next is not asked ten times a second.
        self.probe_delay = if soon {
            (self.probe_delay * 2).min(LONGEST_PROBE)
        } else {
            FIRST_PROBE
        };
        self.wavers |= soon;
        self.now.send_replace(Health::Down);
        self.outage.get_or_insert(CurrentOutage {
            since: now,
            reported: now,
        });
        tell(std::mem::replace(&mut self.said_up, false))
    }

    /// How long the store has been away, when it is time to log the outage again.
    fn still_away(&mut self, now: Instant) -> Option<Duration> {
        let outage = self.outage.as_mut()?;
        if now - outage.reported < REPORT_AGAIN {
            return None;
        }
        outage.reported = now;
        Some(now - outage.since)
    }

    fn answers(&mut self, now: Instant) -> Tell {
        self.up_since = Some(now);
        self.outage = None;
        self.now.send_replace(Health::Up);
        self.said_up |= !self.wavers;
        tell(self.said_up)
    }

    /// One that wavered is believed again once it has answered for a while.
    fn believed(&mut self, now: Instant) -> Tell {
        let steady = self.is_up() && self.up_since.is_some_and(|since| now - since >= STEADY);
        let news = steady && !self.said_up;
        if news {
            self.said_up = true;
            self.wavers = false;
        }
        tell(news)
    }
}

fn tell(news: bool) -> Tell {
    if news { Tell::Yes } else { Tell::No }
}

impl Daemon {
    pub(super) fn store_failed(&mut self, error: &StoreError) {
        tracing::debug!("{error}");
        // The rest of the store goes on; its own link says once that the part is away.
        let in_part = matches!(error, StoreError::PartUnreachable(_) | StoreError::Key(_));
        if in_part || !self.health.is_up() {
            return;
        }
        if matches!(error, StoreError::Unreachable(_)) && self.link.last_answer.is_recent() {
            // It answers others. Whoever asked asks again; if it is down, the next claim finds out.
            return;
        }
        if self.health.failed(Instant::now()) == Tell::Yes {
            tracing::error!("{error}; retrying. {}", self.affected());
        }
        let (word, measure) = (self.word(), self.clock.measure());
        let probe = (self.link.clone()).probe(word, measure, self.health.probe_delay);
        self.announcements.spawn(probe);
        if self.agreement.allows_runs_alone() {
            self.feed(Event::StoreDown);
        }
        self.status();
    }

    /// What an outage of the store means for this host's runs and jobs.
    fn affected(&self) -> String {
        let runs = match self.runs.len() {
            0 => "No run is in progress on this host".to_owned(),
            1 => "1 run on this host continues until its lease expires".to_owned(),
            n => format!("{n} runs on this host continue until their leases expire"),
        };
        let jobs = match self.jobs.len() {
            1 => "1 job waits".to_owned(),
            n => format!("{n} jobs wait"),
        };
        format!("{runs}; {jobs} for the store when due")
    }

    pub(super) fn store_answers(&mut self) {
        if self.health.answers(Instant::now()) == Tell::Yes {
            tracing::info!("the store is reachable again");
        }
        self.finisher.retry_now();
        self.was_absent();
        self.feed(Event::StoreUp);
        self.registry.doubt();
        self.look_after_registry();
        self.flush_registrations();
        self.status();
    }

    /// Reports that this host held the daemon up, so that nobody looks for the fault in the store.
    pub(super) fn look_at_pauses(&mut self) {
        let now = BootInstant::now();
        let before = self.last_seen.replace(now);
        let pause = before.map_or(Duration::ZERO, |before| now.since(before));
        if pause >= NOTABLE_PAUSE {
            tracing::warn!(
                "the daemon was paused for {:.1} s: it was stopped, the host was suspended, or \
                 the host is short of CPU time; jobs that came due during the pause start late",
                pause.as_secs_f64()
            );
            if self.health.is_up() {
                self.was_absent();
            }
        }
    }

    /// Other hosts may have believed this one dead. They may have taken its jobs to other locks, and a
    /// loss of data may hide that a ledger has moved: each job is entered once more before anything
    /// is claimed.
    pub(super) fn was_absent(&mut self) {
        self.registry.leave_all();
        self.feed(Event::Absent { job: None });
    }

    /// Checks whether a store that wavered is stable again, and logs a long outage again.
    pub(super) fn look_at_health(&mut self) {
        if let Some(away) = self.health.still_away(Instant::now()) {
            tracing::error!(
                "the store has been unreachable for {} minutes; retrying. {}",
                away.as_secs() / 60,
                self.affected()
            );
        }
        if self.health.believed(Instant::now()) == Tell::Yes {
            tracing::info!("the store is reachable again, and stable");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, REPORT_AGAIN, STEADY, StoreHealth, Tell};

    #[test]
    fn a_long_outage_is_reported_every_five_minutes_until_it_ends() {
        let mut health = StoreHealth::new();
        let began = Instant::now();
        assert_eq!(health.still_away(began), None);
        health.failed(began);
        // A probe that fails later is the same outage.
        health.failed(began + Duration::from_secs(200));
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
    fn a_store_that_wavers_is_told_of_when_it_begins_and_when_it_ends() {
        let mut health = StoreHealth::new();
        let mut now = Instant::now();
        let mut later = |millis| {
            now += Duration::from_millis(millis);
            now
        };
        assert_eq!(health.failed(later(10)), Tell::Yes);
        assert_eq!(health.answers(later(100)), Tell::Yes);
        // A new outage, but so soon that the next answer is not believed.
        assert_eq!(health.failed(later(9_000)), Tell::Yes);
        for _ in 0..5 {
            assert_eq!(health.answers(later(1_000)), Tell::No);
            assert_eq!(health.believed(later(9_000)), Tell::No);
            assert_eq!(health.failed(later(500)), Tell::No);
            assert_eq!(health.believed(later(20_000)), Tell::No, "it is down");
        }
        assert_eq!(
            health.probe_delay,
            Duration::from_secs(1),
            "jobs go on soon after it"
        );
        assert_eq!(health.answers(later(1_000)), Tell::No);
        assert_eq!(health.believed(later(10_000)), Tell::Yes);
        assert_eq!(health.believed(later(10_000)), Tell::No, "once");
        // Long afterwards everything is as at the first time.
        assert_eq!(health.failed(later(60_000)), Tell::Yes);
        assert_eq!(health.answers(later(100)), Tell::Yes);
        assert!(STEADY > health.probe_delay);
    }
}
