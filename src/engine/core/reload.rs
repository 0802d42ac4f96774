//! Replaces the job list of the core while the daemon runs.
//!
//! A lane continues under the new policies if its job has the same instants and the same ledger.
//! Every other lane of the old list ends as in a drain: it cancels its claim, and leaves what it
//! has not begun to the ledger. A new lane begins with a registration, as at the start of a daemon.
//! Runs that an old definition of the job still has count as runs of the new lane.

use std::collections::BTreeMap;

use super::Core;
use super::event::{Action, JobIx, LaneChange, ListedJob, NewList, OccurrenceNotice};
use super::lane::{Lane, Phase};
use super::occurrence::{Notes, Origin};
use super::policy::Policy;
use super::shared::Shared;
use crate::store::Kind;
use crate::time::Timestamp;

/// The runs of a lane that a reload has ended, until their results are delivered.
#[derive(Debug)]
pub(super) struct RetiredLane {
    /// Runs whose processes have not ended.
    running: u32,
    /// Runs that have ended, but whose result has not reached the store.
    closing: u32,
    /// Runs among them that could not be started; their occurrences return to the store.
    returned: usize,
    /// The newest place of the job; its lane counts these runs as its own.
    newest: JobIx,
    /// The lane's notes, for a lane of the same job that a later reload begins.
    notes: Notes,
}

/// How many runs a lane took over from earlier lanes of its job.
struct TakenOver {
    /// Runs whose processes have not ended.
    running: u32,
    /// Runs whose result has not reached the store.
    closing: u32,
}

/// The lanes that reloads have ended, by their old places.
#[derive(Debug, Default)]
pub(super) struct RetiredLanes(BTreeMap<JobIx, RetiredLane>);

impl RetiredLanes {
    /// Adds the runs of a lane, except those that it took over from earlier lanes. A lane without
    /// runs of its own keeps its notes.
    fn add(&mut self, lane: &mut Lane) {
        let earlier = self.taken_over_by(lane.job);
        let running = lane.running.saturating_sub(earlier.running);
        let closing = lane.closing.saturating_sub(earlier.closing);
        if running + closing > 0 {
            let retired = RetiredLane {
                running,
                closing,
                returned: 0,
                newest: lane.job,
                notes: std::mem::take(&mut lane.notes),
            };
            self.0.insert(lane.job, retired);
        }
    }

    /// Returns how many runs the lane at this place took over.
    fn taken_over_by(&self, newest: JobIx) -> TakenOver {
        let of_job = || self.0.values().filter(|retired| retired.newest == newest);
        TakenOver {
            running: of_job().map(|retired| retired.running).sum(),
            closing: of_job().map(|retired| retired.closing).sum(),
        }
    }

    /// Gives `lane` the runs and notes of the retired lane at `before`.
    fn hand_over(&mut self, before: JobIx, lane: &mut Lane) {
        for retired in self.0.values_mut() {
            if retired.newest == before {
                retired.newest = lane.job;
                lane.notes.take_over(std::mem::take(&mut retired.notes));
            }
        }
        let runs = self.taken_over_by(lane.job);
        (lane.running, lane.closing) = (runs.running, runs.closing);
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
                mut policy,
                change,
            } = listed;
            self.policies.share(&mut policy);
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
        self.each_lane(Lane::advance);
        drop(old);
        self.policies.forget_unused();
    }

    /// The processes of a run have ended.
    pub(super) fn run_ended(&mut self, job: JobIx) {
        let Some(retired) = self.retired.0.get_mut(&job) else {
            return self.lane(job, Lane::run_ended);
        };
        retired.running = retired.running.saturating_sub(1);
        retired.closing += 1;
        let newest = retired.newest;
        if self.lanes.contains_key(&newest) {
            self.lane(newest, Lane::run_ended);
        } else {
            self.shared.free_place();
        }
    }

    /// A run could not be started.
    pub(super) fn run_not_started(&mut self, job: JobIx, at: Timestamp, kind: Kind) {
        if !self.retired_run_not_started(job) {
            self.lane(job, |lane, shared| lane.run_not_started(shared, at, kind));
        }
    }

    /// A run could not be started. Returns whether it belonged to a definition that is no longer in
    /// the list; its occurrence is in the ledger of that definition, where the new lane finds it.
    fn retired_run_not_started(&mut self, job: JobIx) -> bool {
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
        self.lane(newest, |lane, shared| {
            lane.run_closed(shared);
            if is_returned {
                // The reply names the head of the waiting list.
                shared.act(Action::Register { job: newest });
            }
        });
    }
}

impl Lane {
    /// Ends the lane of a job that was removed or has other instants. What it has not begun is left
    /// to the ledger.
    fn retire(&mut self, shared: &mut Shared) {
        let parked = match &self.phase {
            Phase::Early { occ, .. } | Phase::Parked { occ, .. } => Some(&**occ),
            Phase::Idle | Phase::Claiming { .. } | Phase::Dropping { .. } => None,
        };
        let left = parked.into_iter().chain(&self.pending);
        for occ in left.filter(|occ| occ.origin == Origin::Lane) {
            self.report(shared, occ.at, OccurrenceNotice::Replaced);
        }
        shared.forget_parked(self.job);
        self.drain(shared);
    }

    /// Ends the lane of a job that has another lock. Occurrences that it has not claimed under the
    /// old lock wait for the new one; its claim is cancelled and returns to the ledger.
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
                self.pending.push_front(*occ);
            }
            _ => {}
        }
        for occ in &mut self.pending {
            occ.blocked = false;
        }
    }

    /// Returns the lane with which the job continues at its new place, under its new lock.
    fn moved_to(&mut self, job: JobIx, policy: Policy) -> Self {
        Self {
            pending: std::mem::take(&mut self.pending),
            notes: std::mem::take(&mut self.notes),
            may_have_missed_run: self.may_have_missed_run,
            registration: self.registration,
            needs_ledger_sync: self.needs_ledger_sync,
            seen_until: self.seen_until,
            ..Self::new(job, policy, self.began_at)
        }
    }
}
