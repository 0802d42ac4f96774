//! All runs under the guard's care, and which of them need attention.
//!
//! The guard wakes several times for each run, so a wake-up must not look at every run: with
//! thousands of them that took longer than starting them. A change of a run goes through
//! [`StartedRuns::get_mut`], which remembers to look at that run again.

use std::collections::{BTreeMap, BTreeSet};

use super::run::{KillStep, Main, StartedRun};
use crate::time::BootInstant;

#[derive(Debug, Default)]
pub(super) struct StartedRuns {
    all: BTreeMap<u64, StartedRun>,
    /// Those that may have changed since the last [`StartedRuns::note_changes`].
    changed: Vec<u64>,
    /// No run is due before this instant. A run that was extended or has ended leaves it too early,
    /// until the next [`StartedRuns::advance`].
    due: Option<BootInstant>,
    /// Those whose main process has ended.
    ended: BTreeSet<u64>,
    /// Those whose processes can become children of the guard.
    leaky: BTreeSet<u64>,
}

impl StartedRuns {
    pub(super) fn insert(&mut self, run: StartedRun) {
        self.changed.push(run.serial);
        self.all.insert(run.serial, run);
    }

    pub(super) fn remove(&mut self, serial: u64) -> Option<StartedRun> {
        self.ended.remove(&serial);
        self.leaky.remove(&serial);
        self.all.remove(&serial)
    }

    pub(super) fn get(&self, serial: u64) -> Option<&StartedRun> {
        self.all.get(&serial)
    }

    pub(super) fn get_mut(&mut self, serial: u64) -> Option<&mut StartedRun> {
        let run = self.all.get_mut(&serial)?;
        self.changed.push(serial);
        Some(run)
    }

    pub(super) fn contains(&self, serial: u64) -> bool {
        self.all.contains_key(&serial)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &StartedRun> {
        self.all.values()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut StartedRun> {
        self.changed.extend(self.all.keys());
        self.all.values_mut()
    }

    /// When [`StartedRuns::advance`] may have something to do next.
    pub(super) fn due(&mut self) -> Option<BootInstant> {
        self.note_changes();
        self.due
    }

    /// Lets every run do what the clock asks for; returns what is to be sent to which tree.
    pub(super) fn advance(&mut self, now: BootInstant) -> Vec<(u64, KillStep)> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let mut steps = Vec::new();
        self.due = None;
        for run in self.all.values_mut() {
            if let Some(step) = run.advance(now) {
                steps.push((run.serial, step));
            }
            self.due = earlier(self.due, run.due());
        }
        steps
    }

    /// The runs whose main process has ended.
    pub(super) fn ended(&mut self) -> Vec<u64> {
        self.note_changes();
        self.ended.iter().copied().collect()
    }

    /// Whether processes of any run can become children of the guard.
    pub(super) fn any_is_leaky(&mut self) -> bool {
        self.note_changes();
        !self.leaky.is_empty()
    }

    fn note_changes(&mut self) {
        for serial in self.changed.drain(..) {
            let Some(run) = self.all.get(&serial) else {
                continue;
            };
            self.due = earlier(self.due, run.due());
            if matches!(run.main, Main::Ended(_)) {
                self.ended.insert(serial);
            }
            if run.place.lets_strays_out() {
                self.leaky.insert(serial);
            } else {
                self.leaky.remove(&serial);
            }
        }
    }
}

/// The earlier of two instants, where `None` never comes.
fn earlier(one: Option<BootInstant>, other: Option<BootInstant>) -> Option<BootInstant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::guard::Status;
    use crate::guard::event_loop::run::{Containment, Group};
    use crate::guard::wire::StartRequest;
    use crate::time::seconds_after_boot as at;

    /// Runs with a grace of five seconds, and these deadlines.
    fn runs(deadlines: &[Option<u64>]) -> StartedRuns {
        let mut runs = StartedRuns::default();
        for (serial, deadline) in (1..).zip(deadlines) {
            let order = StartRequest::until(serial, deadline.map(at));
            let place = Containment::Empty;
            runs.insert(StartedRun::new(&order, Main::Alive(2), Group::Own, place));
        }
        runs
    }

    #[test]
    fn the_earliest_deadline_of_all_counts() {
        let mut runs = runs(&[None, Some(200), Some(100)]);
        assert_eq!(runs.due(), Some(at(95)));
        assert_eq!(runs.advance(at(94)), []);
        assert_eq!(runs.advance(at(95)), [(3, KillStep::First)]);
        assert_eq!(runs.due(), Some(at(100)));
        assert_eq!(runs.advance(at(100)), [(3, KillStep::Kill)]);
        runs.remove(3);
        assert_eq!(runs.advance(at(101)), []);
        assert_eq!(runs.due(), Some(at(195)));
    }

    #[test]
    fn a_run_that_a_change_makes_due_earlier_is_not_overlooked() {
        let mut runs = runs(&[Some(200), Some(100)]);
        assert_eq!(runs.due(), Some(at(95)));
        let run = runs.get_mut(1).expect("it is there");
        assert_eq!(run.end(at(10), Duration::MAX), Some(KillStep::First));
        assert_eq!(runs.due(), Some(at(15)));
        assert_eq!(runs.advance(at(15)), [(1, KillStep::Kill)]);
        for run in runs.values_mut() {
            run.end(at(20), Duration::ZERO);
        }
        assert_eq!(runs.advance(at(20)).len(), 2);
    }

    #[test]
    fn an_extension_moves_the_next_look_back_once_the_old_deadline_has_come() {
        let mut runs = runs(&[Some(100)]);
        assert_eq!(runs.due(), Some(at(95)));
        for run in runs.values_mut() {
            run.extend(at(50), at(130));
        }
        assert_eq!(runs.advance(at(96)), []);
        assert_eq!(runs.due(), Some(at(125)));
    }

    #[test]
    fn runs_are_found_by_what_became_of_them() {
        let mut runs = runs(&[None, None]);
        assert!(runs.ended().is_empty());
        assert!(!runs.any_is_leaky());
        let run = runs.get_mut(2).expect("it is there");
        run.main_ended(at(1), Status::Code(0));
        run.place = Containment::Nowhere;
        assert_eq!(runs.ended(), [2]);
        assert!(runs.any_is_leaky());
        runs.get_mut(2).expect("it is there").place = Containment::Empty;
        assert!(!runs.any_is_leaky());
        runs.remove(2);
        assert!(runs.ended().is_empty());
    }
}
