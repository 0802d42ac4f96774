//! `pause`: how the ledger of a job keeps pauses, and which occurrences they cover.

use super::clock::Clock;
use crate::store::contract::{JobState, PAUSES_KEPT, Pause, PauseOrder, PauseReply, PauseRequest};
use crate::time::Timestamp;
use std::time::Duration;

/// Pauses or resumes a job. Of several requests the newest counts, so that a late copy of an earlier one
/// changes nothing.
///
/// A request for a job that is paused already replaces the pause, which keeps its beginning. A pause
/// that has ended stays until the watermark has passed it, because occurrences that were due during it
/// may still be undecided.
pub fn pause(job: &mut Option<JobState>, clock: Clock, request: &PauseRequest) -> PauseReply {
    let Some(state) = job else {
        return match clock.past.recovering(clock, Duration::ZERO) {
            Some(remaining) => PauseReply::Recovering { remaining },
            None => PauseReply::Unknown,
        };
    };
    if let Some(to) = state.moved_from(&request.lock) {
        return PauseReply::Moved { to: to.clone() };
    }
    let asked_at = request.asked_at;
    if let Some(newest) = state.pauses.last().filter(|it| asked_at <= it.asked_at) {
        return if newest.results_from(request) {
            PauseReply::Done
        } else {
            PauseReply::Superseded
        };
    }
    let in_force = state.pauses.pop_if(|it| it.is_in_force(asked_at));
    let paused = match (&request.order, in_force) {
        (PauseOrder::Resume, None) => return PauseReply::NotPaused,
        (PauseOrder::Resume, Some(paused)) => Pause {
            asked_at,
            until: Some(asked_at),
            resumed_by: Some(request.by.clone()),
            ..paused
        },
        (PauseOrder::Pause { until, reason }, in_force) => Pause {
            asked_at,
            since: in_force.map_or(asked_at, |paused| paused.since),
            until: *until,
            by: request.by.clone(),
            resumed_by: None,
            reason: reason.clone(),
        },
    };
    let last = state.last;
    state.pauses.retain(|it| it.is_in_force(last));
    state.pauses.push(paused);
    let surplus = state.pauses.len().saturating_sub(PAUSES_KEPT);
    state.pauses.drain(..surplus);
    PauseReply::Done
}

impl Pause {
    /// Whether this is what the ledger keeps of a request.
    fn results_from(&self, request: &PauseRequest) -> bool {
        self.asked_at == request.asked_at
            && match &request.order {
                PauseOrder::Resume => self.resumed_by.as_ref() == Some(&request.by),
                PauseOrder::Pause { until, reason } => {
                    self.resumed_by.is_none()
                        && (&self.until, &self.by, &self.reason) == (until, &request.by, reason)
                }
            }
    }
}

impl JobState {
    /// Returns the pause because of which nothing of the job starts at `now`.
    pub fn paused_at(&self, now: Timestamp) -> Option<&Pause> {
        self.pauses.last().filter(|it| it.is_in_force(now))
    }

    /// Returns the pause because of which an occurrence is skipped: one during which it was due, or one
    /// that is in force when it would start.
    pub(super) fn pause_of(&self, scheduled_at: Timestamp, start: Timestamp) -> Option<&Pause> {
        let in_force = self.paused_at(start);
        in_force.or_else(|| self.pauses.iter().find(|it| it.covers(scheduled_at)))
    }
}
