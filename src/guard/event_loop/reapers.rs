//! The reapers of the guard: which of them serve a run, and which are free for the next one.
//!
//! To fork a reaper for each run and to let it end afterwards takes as much processor time as a short
//! command. Where runs follow closely upon one another, those that have ended leave their reapers to
//! those that start.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::reaper::Reaper;
use crate::time::BootInstant;

/// How long a reaper may be without a run before it ends.
const IDLE_FOR: Duration = Duration::from_secs(1);

/// How many runs one reaper serves. Each of them leaves some memory allocated.
const RUNS_MAX: u32 = 256;

/// The reapers not yet reaped.
#[derive(Debug, Default)]
pub(super) struct Reapers {
    all: HashMap<i32, ReaperState>,
    /// Those that serve no run and since when, the latest last.
    idle: Vec<(i32, BootInstant)>,
}

#[derive(Debug)]
struct ReaperState {
    /// `None` once it was told to end, or is gone.
    socket: Option<OwnedFd>,
    /// The run that it serves. It serves one with survivors (processes that the guard may not kill)
    /// longer than the guard does.
    run: Option<u64>,
    /// How many runs it has served.
    served: u32,
}

impl Reapers {
    /// Adds a new one, which has its first run to come.
    pub(super) fn add(&mut self, reaper: Reaper, socket: OwnedFd) {
        let state = ReaperState {
            socket: Some(socket),
            run: None,
            served: 0,
        };
        self.all.insert(reaper.pid, state);
    }

    /// Takes the one that was free last.
    pub(super) fn take_idle(&mut self) -> Option<Reaper> {
        self.idle.pop().map(|(pid, _)| Reaper { pid })
    }

    pub(super) fn socket(&self, reaper: Reaper) -> Option<&OwnedFd> {
        self.all.get(&reaper.pid)?.socket.as_ref()
    }

    pub(super) fn contains(&self, pid: i32) -> bool {
        self.all.contains_key(&pid)
    }

    /// The run that it serves.
    pub(super) fn run(&self, reaper: Reaper) -> Option<u64> {
        self.all.get(&reaper.pid)?.run
    }

    /// It has an order of this run.
    pub(super) fn serves(&mut self, reaper: Reaper, serial: u64) {
        if let Some(state) = self.all.get_mut(&reaper.pid) {
            state.run = Some(serial);
            state.served += 1;
        }
    }

    /// Nothing is left of its run.
    pub(super) fn is_free(&mut self, reaper: Reaper, reusable: bool, now: BootInstant) {
        let Some(state) = self.all.get_mut(&reaper.pid) else {
            return;
        };
        state.run = None;
        if reusable && state.served < RUNS_MAX {
            self.idle.push((reaper.pid, now));
        } else {
            state.socket = None;
        }
    }

    /// Tells it to end, or notes that it is gone.
    pub(super) fn close(&mut self, reaper: Reaper) {
        self.idle.retain(|(pid, _)| *pid != reaper.pid);
        if let Some(state) = self.all.get_mut(&reaper.pid) {
            state.socket = None;
        }
    }

    /// It was reaped. Returns the run that it served; `None` if it was not a reaper, and `Some(None)` if it
    /// served none.
    #[expect(clippy::option_option, reason = "as the line above says")]
    pub(super) fn remove(&mut self, pid: i32) -> Option<Option<u64>> {
        let state = self.all.remove(&pid)?;
        self.idle.retain(|(idle, _)| *idle != pid);
        Some(state.run)
    }

    /// When [`Reapers::retire`] has something to do next.
    pub(super) fn due(&self) -> Option<BootInstant> {
        self.idle.first().map(|(_, since)| since.plus(IDLE_FOR))
    }

    /// Tells those to end that were free for a while.
    pub(super) fn retire(&mut self, now: BootInstant) {
        let count = self
            .idle
            .partition_point(|(_, since)| since.plus(IDLE_FOR) <= now);
        for (pid, _) in self.idle.drain(..count) {
            if let Some(state) = self.all.get_mut(&pid) {
                state.socket = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::channel;
    use crate::time::seconds_after_boot as at;

    /// Reapers of these numbers that have served a run each.
    fn reapers(pids: &[i32]) -> Reapers {
        let mut reapers = Reapers::default();
        for pid in pids {
            let (socket, _) = channel::pair().expect("a socket");
            reapers.add(Reaper { pid: *pid }, socket);
            reapers.serves(Reaper { pid: *pid }, 1);
        }
        reapers
    }

    fn has_socket(reapers: &Reapers, pid: i32) -> bool {
        reapers.socket(Reaper { pid }).is_some()
    }

    #[test]
    fn the_one_that_was_free_last_is_taken_first_and_the_others_end() {
        let mut reapers = reapers(&[1, 2, 3]);
        assert_eq!(reapers.due(), None);
        for (pid, second) in [(1, 10), (2, 11), (3, 12)] {
            reapers.is_free(Reaper { pid }, true, at(second));
        }
        assert_eq!(reapers.take_idle().map(|reaper| reaper.pid), Some(3));
        reapers.serves(Reaper { pid: 3 }, 7);
        assert_eq!(reapers.due(), Some(at(11)));
        reapers.retire(at(11));
        assert_eq!(
            [1, 2, 3].map(|pid| has_socket(&reapers, pid)),
            [false, true, true]
        );
        assert_eq!(reapers.due(), Some(at(12)));
        assert!(reapers.contains(1), "its end follows");
        assert_eq!(reapers.remove(1), Some(None));
        assert_eq!(reapers.remove(3), Some(Some(7)));
        assert_eq!(reapers.remove(1), None);
    }

    #[test]
    fn one_that_has_changed_or_has_served_enough_is_not_used_again() {
        let mut reapers = reapers(&[1, 2]);
        reapers.is_free(Reaper { pid: 1 }, false, at(1));
        assert!(!has_socket(&reapers, 1));
        for _ in 1..RUNS_MAX {
            reapers.is_free(Reaper { pid: 2 }, true, at(1));
            assert_eq!(reapers.take_idle().map(|reaper| reaper.pid), Some(2));
            reapers.serves(Reaper { pid: 2 }, 1);
        }
        reapers.is_free(Reaper { pid: 2 }, true, at(1));
        assert!(!has_socket(&reapers, 2));
        assert!(reapers.take_idle().is_none());
    }

    #[test]
    fn one_that_was_killed_while_it_was_free_is_not_used_again() {
        let mut reapers = reapers(&[1]);
        reapers.is_free(Reaper { pid: 1 }, true, at(1));
        assert_eq!(reapers.remove(1), Some(None));
        assert!(reapers.take_idle().is_none());
        assert_eq!(reapers.due(), None);
    }
}
