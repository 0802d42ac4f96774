//! Looking after a run of another host: when its lease is over it is run again, or closed.

use std::time::Duration;

use super::event::Action;
use super::lane::{Lane, Phase};
use super::occ::{Aim, Occ};
use super::shared::{Mode, Shared, TimerKind};
use crate::names::RunId;
use crate::store::{Kind, OpenRun, Overlap};
use crate::time::{BootInstant, Timestamp};

/// How long after the end of a lease it is asked about.
const MARGIN: Duration = Duration::from_millis(25);

/// A run that is looked after.
#[derive(Debug)]
pub(super) struct Watch {
    /// Its occurrence; `None` for a manual run, which is never run again.
    at: Option<Timestamp>,
    run_id: RunId,
    /// When its lease is over, unless renewed.
    fire: BootInstant,
    due: bool,
}

impl Lane {
    /// Looks after a run; there is at most one open run per job, so the newest word counts.
    pub(super) fn watch_run(
        &mut self,
        shared: &mut Shared,
        at: Option<Timestamp>,
        run_id: RunId,
        remaining: Duration,
    ) {
        self.unwatch(shared);
        if shared.mode == Mode::Draining {
            return;
        }
        let fire = shared.now.boot.plus(remaining + MARGIN);
        shared.arm(fire, self.job, TimerKind::Watch);
        self.watch = Some(Watch {
            at,
            run_id,
            fire,
            due: false,
        });
    }

    pub(super) fn watch_open(&mut self, shared: &mut Shared, open: OpenRun) {
        // Our own run needs no looking after.
        if self.running == 0 && self.closing == 0 {
            self.watch_run(shared, open.scheduled_at, open.run_id, open.remaining);
        }
    }

    /// A claim of this lane's was refused, and the refusal names no run of the job: one that was
    /// granted for an occurrence that this lane passed by would be watched by nobody.
    pub(super) fn look(&mut self, shared: &mut Shared) {
        let busy = self.running > 0 || self.closing > 0 || shared.mode == Mode::Draining;
        if self.blind && self.watch.is_none() && !busy {
            shared.act(Action::Look { job: self.job });
        }
    }

    pub(super) fn found(&mut self, shared: &mut Shared, open: Option<OpenRun>) {
        if let Some(open) = open.filter(|_| self.watch.is_none()) {
            self.watch_open(shared, open);
        }
    }

    pub(super) fn watch_again(&mut self, shared: &mut Shared, after: Duration) {
        if let Some(watch) = self.watch.take() {
            self.watch_run(shared, watch.at, watch.run_id, after);
        }
    }

    pub(super) fn unwatch(&mut self, shared: &mut Shared) {
        if let Some(watch) = self.watch.take() {
            shared.disarm(watch.fire, self.job, TimerKind::Watch);
        }
    }

    pub(super) fn watch_due(&mut self, shared: &mut Shared) {
        let Some(watch) = self.watch.as_mut() else {
            return;
        };
        if watch.fire > shared.now.boot {
            return;
        }
        if watch.at.is_none() {
            let run_id = watch.run_id.clone();
            self.watch = None;
            shared.act(Action::Settle {
                job: self.job,
                run_id,
            });
            return;
        }
        watch.due = true;
        // The crashed run goes before the one that waits for it: taking the lock for a newer
        // occurrence would close it as interrupted.
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Waiting { occ, .. } => self.resume(shared, occ),
            other => {
                self.phase = other;
                self.advance(shared);
            }
        }
    }

    /// Whose claim was given back just now, after this lane had passed its occurrence by: only the
    /// ledger knows.
    pub(super) fn not_settled(&mut self, shared: &mut Shared) {
        self.hole = true;
        self.advance(shared);
    }

    /// The claim that asks for a run whose lease is over.
    pub(super) fn due_rerun(&mut self) -> Option<Occ> {
        let watch = self.watch.as_mut().filter(|watch| watch.due)?;
        watch.due = false;
        let at = watch.at?;
        Some(Occ {
            at,
            kind: Kind::Rerun,
            deadline: self.policy.deadline(at),
            overlap: Overlap::Wait,
            aim: Aim::Run,
            gap: None,
            hole: false,
        })
    }
}
