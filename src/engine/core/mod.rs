//! Decides what to do about each occurrence, as a pure state machine.
//!
//! [`Core::handle`] takes an event and the time, and returns actions. It does no I/O and reads no
//! clock, so every policy is tested without processes, stores and waiting. The driver
//! (`engine::daemon`) sends claims and executes runs.

mod answers;
mod catch_up;
mod clock;
mod due;
mod event;
mod gap;
mod lane;
mod occurrence;
mod open_run;
mod outage;
mod parked;
mod policy;
mod reload;
mod rivals;
mod shared;
mod waiting;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

pub use event::{
    Action, ClaimId, ClaimSpec, DropSpec, Event, JobIx, LaneChange, ListedJob, NewList, Now,
    OccurrenceNotice,
};
use policy::SharedPolicies;
pub use policy::{ClaimContext, Policy};

use crate::time::BootInstant;
use answers::GrantedClaim;
use lane::Lane;
use reload::RetiredLanes;
use shared::{Mode, Shared, StoreState};
use watch::QueriedLedger;

/// The state of all jobs of a daemon.
#[derive(Debug)]
pub struct Core {
    lanes: BTreeMap<JobIx, Lane>,
    /// How many lanes [listen for returned occurrences](Lane::listens).
    listening: usize,
    policies: SharedPolicies,
    retired: RetiredLanes,
    shared: Shared,
}

impl Core {
    /// Returns a core for jobs that the driver is about to register; job `i` is `JobIx(i)`.
    pub fn new(
        jobs: impl IntoIterator<Item = Policy>,
        max_running: Option<NonZeroUsize>,
        now: Now,
    ) -> Self {
        let mut policies = SharedPolicies::default();
        let lanes: BTreeMap<_, _> = (0..)
            .zip(jobs)
            .map(|(ix, mut policy)| {
                policies.share(&mut policy);
                (JobIx(ix), Lane::new(JobIx(ix), policy, now.boot))
            })
            .collect();
        Self {
            // Each of them awaits the reply to its registration.
            listening: lanes.len(),
            lanes,
            policies,
            retired: RetiredLanes::default(),
            shared: Shared::new(max_running, now),
        }
    }

    /// Handles an event and returns the actions that follow from it, in order.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        self.shared.now = now;
        self.dispatch(event);
        while let Some(job) = self.shared.unpark() {
            self.lane(job, Lane::unparked);
        }
        std::mem::take(&mut self.shared.out)
    }

    /// Returns when the next [`Event::Timer`] is due.
    pub fn next_timer(&self) -> Option<BootInstant> {
        self.shared.next_timer()
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Due { job, at } => self.lane(job, |lane, shared| lane.due(shared, at)),
            Event::Granted {
                job,
                claim,
                grant,
                attempt,
            } => {
                let granted = GrantedClaim {
                    claim,
                    grant,
                    attempt,
                };
                self.lane(job, |lane, shared| lane.granted(shared, granted));
            }
            Event::Replied { job, claim, reply } => {
                self.lane(job, |lane, shared| lane.replied(shared, claim, reply));
            }
            Event::NoReply { job, claim } => {
                self.shared.store = StoreState::Down;
                self.lane(job, |lane, shared| lane.no_reply(shared, claim));
            }
            Event::NoReplyForLock { job, claim } => {
                self.lane(job, |lane, shared| lane.no_reply(shared, claim));
            }
            Event::KeysUnusable { job, claim } => {
                self.lane(job, |lane, shared| lane.keys_unusable(shared, claim));
            }
            Event::Woken { job, claim } => self.lane(job, |lane, shared| lane.woken(shared, claim)),
            Event::Registered { job, reply } => {
                self.lane(job, |lane, shared| lane.registered(shared, reply));
            }
            Event::LedgerQueried {
                job,
                open,
                head,
                behind,
            } => {
                let queried = QueriedLedger { open, head, behind };
                self.lane(job, |lane, shared| lane.ledger_queried(shared, queried));
            }
            Event::RunEnded { job } => self.run_ended(job),
            Event::RunNotStarted {
                job,
                at,
                kind,
                until,
            } => {
                if let Some(until) = until {
                    self.shared.run_short_until(until, job);
                }
                self.run_not_started(job, at, kind);
            }
            Event::ResourcesBack => self.shared.resources_back(),
            Event::RunClosed { job } => self.run_closed(job),
            Event::NotSettled { job } => self.lane(job, Lane::not_settled),
            Event::ClockSet => self.each_lane(Lane::clock_set),
            Event::Returned { job: Some(job) } => self.lane(job, Lane::returned_elsewhere),
            Event::Returned { job: None } => self.returned_elsewhere(),
            Event::StartedAnew => self.each_lane(Lane::claims_allowed),
            Event::Absent { .. } | Event::Reload(_) if self.shared.mode == Mode::Draining => {}
            Event::Absent { job: Some(job) } => self.lane(job, Lane::absent),
            Event::Absent { job: None } => self.each_lane(Lane::absent),
            Event::Reload(list) => self.reload(list),
            Event::ClockWrong => self.shared.clock_wrong = true,
            Event::ClockRight => self.clock_right(),
            Event::Awake => self.shared.awoke(),
            Event::StoreDown => self.store(StoreState::Down),
            Event::StoreUp => self.store(StoreState::Up),
            Event::Drain => self.drain(),
            Event::Timer => self.timers(),
        }
    }

    fn lane(&mut self, job: JobIx, act: impl FnOnce(&mut Lane, &mut Shared)) {
        if let Some(lane) = self.lanes.get_mut(&job) {
            let listened = lane.listens();
            act(lane, &mut self.shared);
            self.listening += usize::from(lane.listens());
            self.listening -= usize::from(listened);
        }
    }

    fn each_lane(&mut self, mut act: impl FnMut(&mut Lane, &mut Shared)) {
        self.listening = 0;
        for lane in self.lanes.values_mut() {
            act(lane, &mut self.shared);
            self.listening += usize::from(lane.listens());
        }
    }

    /// Some stores only say that there may be something, and mostly no lane listens.
    fn returned_elsewhere(&mut self) {
        let listening = self.lanes.values().filter(|lane| lane.listens());
        debug_assert_eq!(self.listening, listening.count());
        if self.listening > 0 {
            self.each_lane(Lane::returned_elsewhere);
        }
    }

    fn store(&mut self, state: StoreState) {
        if self.shared.store == state {
            return;
        }
        self.shared.store = state;
        self.each_lane(|lane, shared| {
            if state == StoreState::Down {
                lane.store_unreachable();
            }
            lane.advance(shared);
        });
    }

    /// The host's clock is correct again, so claims continue.
    fn clock_right(&mut self) {
        if std::mem::take(&mut self.shared.clock_wrong) {
            self.each_lane(Lane::clock_right);
        }
    }

    fn drain(&mut self) {
        self.shared.mode = Mode::Draining;
        self.shared.clear_timers();
        self.each_lane(Lane::drain);
    }

    fn timers(&mut self) {
        while let Some((job, kind)) = self.shared.due_timer() {
            self.lane(job, |lane, shared| lane.timer(shared, kind));
        }
    }
}
