//! Commands that wait for the same instant begin shortly one after another.
//!
//! The kernel wakes all processes that sleep until one instant before any of them runs, which takes milliseconds for a
//! thousand. If they wake one after another, the first of them runs at once. The last of them is not later for it,
//! because each needs a core for longer than the time between two of them.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::time::BootInstant;

/// About half of the time that a core needs to wake a process and to execute its command.
const WAKE_COST: Duration = Duration::from_micros(200);

/// No command begins later than this after its instant because of others.
const MOST: Duration = Duration::from_millis(250);

/// Instants that differ by less are of the same occurrences: each is computed from the reply to a claim.
const SAME_INSTANT: Duration = Duration::from_millis(5);

/// Gives each command of a crowd its turn.
#[derive(Debug)]
pub(super) struct Crowd {
    /// The time from one command to the next.
    pace: Duration,
    latest: Mutex<SharedInstant>,
}

/// The latest instant that a command was to wait for, and how many others wait for it.
#[derive(Debug, Default)]
struct SharedInstant {
    instant: Option<BootInstant>,
    others: u32,
}

impl Crowd {
    /// For the cores that this process may use.
    pub(super) fn new() -> Self {
        Self::on(thread::available_parallelism().map_or(1, usize::from))
    }

    fn on(cores: usize) -> Self {
        let cores = u32::try_from(cores).unwrap_or(u32::MAX);
        Self {
            pace: WAKE_COST / cores.max(1),
            latest: Mutex::default(),
        }
    }

    /// Returns when a command begins that waits for `instant`: never before it, and later by as much as there
    /// are others that wait for it already.
    pub(super) fn turn_at(&self, instant: BootInstant) -> BootInstant {
        // No code that holds the lock can panic.
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |other: &BootInstant| {
            let (one, other) = (instant.to_duration(), other.to_duration());
            one.abs_diff(other) < SAME_INSTANT
        };
        if latest.instant.as_ref().is_some_and(is_same) {
            latest.others = latest.others.saturating_add(1);
        } else {
            *latest = SharedInstant {
                instant: Some(instant),
                others: 0,
            };
        }
        instant.plus(self.pace.saturating_mul(latest.others).min(MOST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_a_crowd_begins_after_the_one_before_and_none_before_its_instant() {
        let crowd = Crowd::on(2);
        let instant = BootInstant::BOOT.plus(Duration::from_secs(60));
        let micros = |n| Duration::from_micros(n);
        let asked = [0, 40, 10, 900].map(|late| instant.plus(micros(late)));
        let turns = asked.map(|instant| crowd.turn_at(instant));
        let expected = [0, 140, 210, 1_200].map(|late| instant.plus(micros(late)));
        assert_eq!(turns, expected);
        let next = instant.plus(Duration::from_secs(1));
        assert_eq!(crowd.turn_at(next), next, "another crowd begins anew");
    }

    #[test]
    fn many_cores_serve_many_at_once() {
        let crowd = Crowd::on(64);
        let instant = BootInstant::BOOT.plus(Duration::from_secs(60));
        let last = (0..1_000).map(|_| crowd.turn_at(instant)).max();
        assert!(last < Some(instant.plus(Duration::from_millis(5))));
    }

    #[test]
    fn however_many_wait_none_begins_long_after_its_instant() {
        let crowd = Crowd::on(1);
        let instant = BootInstant::BOOT.plus(Duration::from_secs(60));
        let last = (0..10_000).map(|_| crowd.turn_at(instant)).max();
        assert_eq!(last, Some(instant.plus(MOST)));
    }
}
