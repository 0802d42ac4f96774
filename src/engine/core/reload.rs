//! Replaces the job list of the core while the daemon runs.
//!
//! A lane whose job has the same instants and the same ledger goes on, with all that it has in hand,
//! under the new policies. Every other lane of the old list ends as in a drain: it cancels its claim,
//! and what it has not begun is left to the ledger. A lane of the new list begins as at the start of a
//! daemon, with a registration. What still runs of the old definition of its job counts as its own.

use std::collections::BTreeMap;

use super::Core;
use super::event::{Action, JobIx, LaneChange, ListedJob, NewList, Said};
use super::lane::{Lane, Phase};
use super::occurrence::{Notes, Origin};
use super::policy::Policy;
use super::shared::Shared;

/// What is left of a lane that another list has ended: its runs, until their results are delivered.
#[derive(Debug)]
pub(super) struct RetiredLane {
    /// Runs whose processes live.
    running: usize,
    /// Runs that ended, with a result that the store has not got yet.
    closing: usize,
    /// Runs among them that could not be started: their occurrences go back to the store.
    returned: usize,
    /// The newest place of the job. If it has a lane, that counts these runs as its own.
    newest: JobIx,
    /// Why the lane let occurrences go, for a lane that a later list begins.
    notes: Notes,
}

/// The lanes that other lists have ended, by their old places.
#[derive(Debug, Default)]
pub(super) struct RetiredLanes(BTreeMap<JobIx, RetiredLane>);

impl RetiredLanes {
    /// Keeps what a lane still runs, but for what it has itself taken over from earlier ones.
    fn add(&mut self, lane: &mut Lane) {
        let (running, closing) = self.taken_over_by(lane.job);
        let retired = RetiredLane {
            running: lane.running.saturating_sub(running),
            closing: lane.closing.saturating_sub(closing),
            returned: 0,
            newest: lane.job,
            notes: std::mem::take(&mut lane.notes),
        };
        if retired.running + retired.closing > 0 {
            self.0.insert(lane.job, retired);
        }
    }

    /// The runs that the lane at this place counts as its own: those that go on, and those that end.
    fn taken_over_by(&self, newest: JobIx) -> (usize, usize) {
        let of_job = self.0.values().filter(|retired| retired.newest == newest);
        of_job.fold((0, 0), |(running, closing), retired| {
            (running + retired.running, closing + retired.closing)
        })
    }

    /// The lane at the place `job` takes over what is left of the one at `before`.
    fn hand_over(&mut self, before: JobIx, lane: &mut Lane) {
        for retired in self.0.values_mut() {
            if retired.newest == before {
                retired.newest = lane.job;
                lane.notes.take_over(std::mem::take(&mut retired.notes));
            }
        }
        (lane.running, lane.closing) = self.taken_over_by(lane.job);
    }
}

impl Core {
    /// Replaces the job list.
    pub(super) fn reload(&mut self, list: NewList) {
        self.shared.set_max_running(list.max_running);
        let mut old = std::mem::take(&mut self.lanes);
        let mut begun = Vec::new();
        for listed in list.jobs {
            let ListedJob {
                job,
                policy,
                change,
            } = listed;
            match change {
                LaneChange::Kept => {
                    if let Some(mut lane) = old.remove(&job) {
                        lane.policy = policy;
                        self.lanes.insert(job, lane);
                    }
                }
                LaneChange::Moved { before } => {
                    if let Some(mut lane) = old.remove(&before) {
                        lane.leave_lock(&mut self.shared);
                        let moved = lane.moved_to(job, policy);
                        self.retired.add(&mut lane);
                        begun.push((Some(before), moved));
                    }
                }
                LaneChange::New { before } => {
                    let lane = Lane::new(job, policy, self.shared.now.boot);
                    begun.push((before, lane));
                }
            }
        }
        for lane in old.values_mut() {
            lane.retire(&mut self.shared);
            self.retired.add(lane);
        }
        for (before, mut lane) in begun {
            if let Some(before) = before {
                if let Some(old) = old.get_mut(&before) {
                    lane.notes.take_over(std::mem::take(&mut old.notes));
                }
                self.retired.hand_over(before, &mut lane);
            }
            self.shared.act(Action::Register { job: lane.job });
            self.lanes.insert(lane.job, lane);
        }
        for lane in self.lanes.values_mut() {
            lane.advance(&mut self.shared);
        }
    }

    /// The processes of a run are gone.
    pub(super) fn run_ended(&mut self, job: JobIx) {
        let Some(retired) = self.retired.0.get_mut(&job) else {
            return self.lane(job, Lane::run_ended);
        };
        retired.running = retired.running.saturating_sub(1);
        retired.closing += 1;
        match self.lanes.get_mut(&retired.newest) {
            Some(lane) => lane.run_ended(&mut self.shared),
            None => self.shared.free_place(),
        }
    }

    /// A run of a definition that is no longer in the list could not be started. Returns whether it
    /// was one. Its occurrence is in the ledger of that definition, where the new lane finds it.
    pub(super) fn retired_run_not_started(&mut self, job: JobIx) -> bool {
        if let Some(retired) = self.retired.0.get_mut(&job) {
            retired.returned += 1;
            self.run_ended(job);
            return true;
        }
        false
    }

    /// The result of a run has been delivered.
    pub(super) fn run_closed(&mut self, job: JobIx) {
        let Some(retired) = self.retired.0.get_mut(&job) else {
            return self.lane(job, Lane::run_closed);
        };
        retired.closing = retired.closing.saturating_sub(1);
        let newest = retired.newest;
        let is_returned = retired.returned > 0;
        retired.returned = 0;
        if retired.running + retired.closing == 0 {
            self.retired.0.remove(&job);
        }
        if let Some(lane) = self.lanes.get_mut(&newest) {
            lane.run_closed(&mut self.shared);
            if is_returned {
                // Its reply names what waits.
                self.shared.act(Action::Register { job: newest });
            }
        }
    }
}

impl Lane {
    /// The list has the job no more, or at other instants. What this lane has not begun is left to the
    /// ledger.
    fn retire(&mut self, shared: &mut Shared) {
        let parked = match &self.phase {
            Phase::Early { occ, .. } | Phase::Parked { occ, .. } => Some(occ),
            Phase::Idle | Phase::Claiming { .. } | Phase::Dropping { .. } => None,
        };
        let left = parked.into_iter().chain(&self.pending);
        for occ in left.filter(|occ| occ.origin == Origin::Lane) {
            self.say(shared, occ.at, Said::Replaced);
        }
        shared.forget_parked(self.job);
        self.drain(shared);
    }

    /// The list gives the job another lock. What this lane has not claimed under the old one waits for
    /// the new one; the claim that is out goes back to the ledger.
    fn leave_lock(&mut self, shared: &mut Shared) {
        shared.forget_parked(self.job);
        self.unwatch(shared);
        self.wait = None;
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Claiming { claim, placed, .. } => {
                self.cancel(shared, claim, placed);
                self.require_sync_before_pending();
            }
            Phase::Early { occ, .. } | Phase::Parked { occ, .. } if occ.origin == Origin::Lane => {
                self.pending.push_front(occ);
            }
            _ => {}
        }
        for occ in &mut self.pending {
            occ.blocked = false;
        }
    }

    /// The lane with which the job goes on at its new place, under its new lock.
    fn moved_to(&mut self, job: JobIx, policy: Policy) -> Self {
        Self {
            pending: std::mem::take(&mut self.pending),
            notes: std::mem::take(&mut self.notes),
            may_have_missed_run: self.may_have_missed_run,
            acquaintance: self.acquaintance,
            needs_ledger_sync: self.needs_ledger_sync,
            seen_until: self.seen_until,
            ..Self::new(job, policy, self.began_at)
        }
    }
}
