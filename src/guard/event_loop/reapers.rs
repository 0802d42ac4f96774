//! The reapers of the guard: which of them serve a run, and which are free for the next one.
//!
//! To fork a reaper for each run and to let it end afterwards takes as much processor time as a short
//! command. Where runs follow closely upon one another, those that have ended leave their reapers to
//! those that start.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::reaper::Reaper;
use crate::time::BootInstant;

/// How long a reaper may be without a run before it ends. This is longer than it takes to start some thousand commands
/// of one instant. Those that waited for the instant leave their reapers to the rest of the crowd, and a reaper that
/// ended meanwhile would use a core that the rest needs. No more reapers are free than commands have run at once, so
/// these have left as many processes to others.
const IDLE_FOR: Duration = Duration::from_secs(5);

/// How many runs one reaper serves. Each of them leaves some memory allocated.
const RUNS_MAX: u32 = 256;

/// The reapers not yet reaped.
#[derive(Debug, Default)]
pub(super) struct Reapers {
    all: BTreeMap<i32, ReaperState>,
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
    /// It has ended, and its number may be another process's. What it has sent may be unread.
    is_reaped: bool,
}

impl Reapers {
    /// Adds a new one, which has its first run to come.
    pub(super) fn add(&mut self, reaper: Reaper, socket: OwnedFd) {
        let state = ReaperState {
            socket: Some(socket),
            run: None,
            served: 0,
            is_reaped: false,
        };
        self.all.insert(reaper.pid, state);
    }

    /// Takes the one that was free last.
    pub(super) fn take_idle(&mut self) -> Option<Reaper> {
        self.idle.pop().map(|(pid, _)| Reaper { pid })
    }

    /// It was taken, and has got no order.
    pub(super) fn put_back(&mut self, reaper: Reaper, now: BootInstant) {
        self.idle.push((reaper.pid, now));
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

    /// Notes that it has the order of this run.
    pub(super) fn assign(&mut self, reaper: Reaper, serial: u64) {
        if let Some(state) = self.all.get_mut(&reaper.pid) {
            state.run = Some(serial);
            state.served += 1;
        }
    }

    /// Notes that nothing is left of its run, and keeps it for another one, or tells it to end.
    pub(super) fn release(&mut self, reaper: Reaper, reusable: bool, now: BootInstant) {
        let Some(state) = self.all.get_mut(&reaper.pid) else {
            return;
        };
        state.run = None;
        if reusable && !state.is_reaped && state.served < RUNS_MAX {
            self.idle.push((reaper.pid, now));
        } else {
            self.end(reaper);
        }
    }

    /// Tells it to end, or notes that it is gone.
    pub(super) fn close(&mut self, reaper: Reaper) {
        self.idle.retain(|(pid, _)| *pid != reaper.pid);
        self.end(reaper);
    }

    /// A reaper that a job has stopped would never see that its socket is closed.
    fn end(&mut self, reaper: Reaper) {
        if let Some(state) = self.all.get_mut(&reaper.pid) {
            state.socket = None;
            if !state.is_reaped {
                reaper.go_on();
            }
        }
    }

    /// Notes that its process was reaped: from here on nothing may be sent to it.
    pub(super) fn note_reaped(&mut self, reaper: Reaper) {
        if let Some(state) = self.all.get_mut(&reaper.pid) {
            state.is_reaped = true;
        }
    }

    pub(super) fn is_reaped(&self, reaper: Reaper) -> bool {
        self.all
            .get(&reaper.pid)
            .is_none_or(|state| state.is_reaped)
    }

    /// Continues those that were stopped, so that they see the end of the guard.
    pub(super) fn go_on(&self) {
        for pid in self.all.keys() {
            Reaper { pid: *pid }.go_on();
        }
    }

    /// Removes one that was reaped. Returns the run that it served; `None` if it was not a reaper, and `Some(None)` if it
    /// served none.
    #[expect(clippy::option_option, reason = "as the line above says")]
    pub(super) fn remove(&mut self, pid: i32) -> Option<Option<u64>> {
        let state = self.all.remove(&pid)?;
        // One that was told to end is not among them.
        if state.socket.is_some() {
            self.idle.retain(|(idle, _)| *idle != pid);
        }
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
        let retired: Vec<_> = self.idle.drain(..count).collect();
        for (pid, _) in retired {
            self.end(Reaper { pid });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::channel;
    use crate::time::seconds_after_boot as at;

    /// The process ids of the reapers begin behind this one, where no process has its own.
    const BASE: i32 = 1 << 28;

    fn reaper(number: i32) -> Reaper {
        Reaper { pid: BASE + number }
    }

    /// Reapers of these numbers that have served a run each.
    fn reapers(numbers: impl IntoIterator<Item = i32>) -> Reapers {
        let mut reapers = Reapers::default();
        for number in numbers {
            let (socket, _) = channel::pair().expect("a socket");
            reapers.add(reaper(number), socket);
            reapers.assign(reaper(number), 1);
        }
        reapers
    }

    fn taken(reapers: &mut Reapers) -> Option<i32> {
        reapers.take_idle().map(|reaper| reaper.pid - BASE)
    }

    fn has_socket(reapers: &Reapers, number: i32) -> bool {
        reapers.socket(reaper(number)).is_some()
    }

    #[test]
    fn the_one_that_was_free_last_is_taken_first_and_the_others_end() {
        let mut reapers = reapers(1..4);
        assert_eq!(reapers.due(), None);
        for (number, second) in [(1, 10), (2, 11), (3, 12)] {
            reapers.release(reaper(number), true, at(second));
        }
        assert_eq!(taken(&mut reapers), Some(3));
        reapers.assign(reaper(3), 7);
        assert_eq!(reapers.due(), Some(at(15)));
        reapers.retire(at(15));
        assert_eq!(
            [1, 2, 3].map(|number| has_socket(&reapers, number)),
            [false, true, true]
        );
        assert_eq!(reapers.due(), Some(at(16)));
        assert!(reapers.contains(BASE + 1), "its end follows");
        assert_eq!(reapers.remove(BASE + 1), Some(None));
        assert_eq!(reapers.remove(BASE + 3), Some(Some(7)));
        assert_eq!(reapers.remove(BASE + 1), None);
    }

    #[test]
    fn one_that_has_changed_or_has_served_enough_is_not_used_again() {
        let mut reapers = reapers(1..3);
        reapers.release(reaper(1), false, at(1));
        assert!(!has_socket(&reapers, 1));
        for _ in 1..RUNS_MAX {
            reapers.release(reaper(2), true, at(1));
            assert_eq!(taken(&mut reapers), Some(2));
            reapers.assign(reaper(2), 1);
        }
        reapers.release(reaper(2), true, at(1));
        assert!(!has_socket(&reapers, 2));
        assert!(reapers.take_idle().is_none());
    }

    #[test]
    fn one_that_was_taken_and_got_no_order_is_free_again() {
        let mut reapers = reapers([1]);
        reapers.release(reaper(1), true, at(1));
        assert_eq!(taken(&mut reapers), Some(1));
        assert_eq!(reapers.due(), None);
        reapers.put_back(reaper(1), at(2));
        assert_eq!(reapers.due(), Some(at(7)));
        assert_eq!(taken(&mut reapers), Some(1));
    }

    #[test]
    fn one_that_was_killed_while_it_was_free_is_not_used_again() {
        let mut reapers = reapers([1]);
        reapers.release(reaper(1), true, at(1));
        assert_eq!(reapers.remove(BASE + 1), Some(None));
        assert!(reapers.take_idle().is_none());
        assert_eq!(reapers.due(), None);
    }
}
