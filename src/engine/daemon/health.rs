//! What the daemon knows of the store's health, and what it says of it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::Daemon;
use crate::engine::core::Event;
use crate::store::StoreError;

/// The first wait before the store is asked whether it is back.
const FIRST_PROBE: Duration = Duration::from_millis(100);
/// The longest, for a store that answers one question and not the next.
const LONGEST_PROBE: Duration = Duration::from_secs(5);
/// A store that has answered for so long is believed to go on.
const STEADY: Duration = Duration::from_secs(10);

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

/// The store's health, for the tasks that wait for it, and what people were told of it.
#[derive(Debug)]
pub(super) struct StoreHealth {
    now: watch::Sender<Health>,
    /// Since when it answers again; `None` before its first failure.
    up_since: Option<Instant>,
    /// People believe that it answers.
    said_up: bool,
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
        tell(std::mem::replace(&mut self.said_up, false))
    }

    fn answers(&mut self, now: Instant) -> Tell {
        self.up_since = Some(now);
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
        let in_part = matches!(error, StoreError::PartUnreachable(_));
        if in_part || !self.health.is_up() {
            return;
        }
        if self.health.failed(Instant::now()) == Tell::Yes {
            tracing::warn!("{error}; waiting for it, and leases run on until their deadlines");
        }
        let probe = (self.link.clone()).probe(self.word(), self.health.probe_delay);
        self.announcements.spawn(probe);
        self.feed(Event::StoreDown);
        self.status();
    }

    pub(super) fn store_answers(&mut self) {
        if self.health.answers(Instant::now()) == Tell::Yes {
            tracing::info!("the store answers");
        }
        self.finisher.retry_now();
        self.feed(Event::StoreUp);
        self.flush_registrations();
        self.status();
    }

    /// Looks whether a store that wavered can be believed again.
    pub(super) fn look_at_health(&mut self) {
        if self.health.believed(Instant::now()) == Tell::Yes {
            tracing::info!("the store answers, steadily again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, STEADY, StoreHealth, Tell};

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
        assert_eq!(health.probe_delay, Duration::from_secs(5));
        assert_eq!(health.answers(later(1_000)), Tell::No);
        assert_eq!(health.believed(later(10_000)), Tell::Yes);
        assert_eq!(health.believed(later(10_000)), Tell::No, "once");
        // Long afterwards everything is as at the first time.
        assert_eq!(health.failed(later(60_000)), Tell::Yes);
        assert_eq!(health.answers(later(100)), Tell::Yes);
        assert!(STEADY > health.probe_delay);
    }
}
