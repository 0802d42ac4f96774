//! Rule 4 of a claim: what the ledger knows about an occurrence, and which occurrences before it
//! are dropped.

use std::time::Duration;

use super::{ClaimedJob, Claiming, Judgement, waits};
use crate::store::contract::{
    ClaimReply, DroppedRange, Due, Fingerprint, GapAnswer, JobState, Outcome, RunStatus,
};
use crate::store::protocol::clock::{LEAD, LEDGER_AHEAD};
use crate::store::protocol::history::{self, append_after, dropped};
use crate::store::protocol::waiting;
use crate::time::Timestamp;

impl Claiming<'_> {
    /// Sets back a watermark that was written while the clock was wrong. Waiting occurrences beyond it
    /// are undecided again.
    pub(super) fn correct(
        &mut self,
        job: &mut JobState,
        claimed: ClaimedJob<'_>,
        scheduled_at: Timestamp,
    ) {
        let now = self.clock.utc();
        let wrong = now.plus(LEDGER_AHEAD);
        for (_, first_seen) in &mut job.fingerprints {
            if *first_seen > wrong {
                *first_seen = now;
            }
        }
        if job.last <= wrong {
            return;
        }
        let record = history::set_back(claimed.name, job.last, &self.claim.token, self.clock);
        self.effects.push(history::append(record, claimed.keep));
        job.last = now.min(scheduled_at.minus(Duration::from_millis(1)));
        job.decided_beyond.retain(|at| *at <= now);
        self.effects
            .extend(waiting::forget_future(job, self.context(claimed)));
    }

    /// Rule 4: ledger, then gap.
    pub(super) fn judge(
        &mut self,
        job: &mut JobState,
        claimed: ClaimedJob<'_>,
        due: &Due,
    ) -> Judgement {
        if due.scheduled_at <= job.last {
            return self.judge_decided(job, due.scheduled_at);
        }
        let base = job.base(&due.fingerprint);
        let gap = match &due.gap {
            Some(answer) => answer.if_last != base,
            None => due.prev.is_some_and(|prev| prev > base),
        };
        let drops = due.gap.as_ref().map_or(&[][..], |answer| &answer.drop);
        if gap || covers(drops, job) || self.is_unknowable(drops) || misses_paused(drops, job) {
            return Judgement::Answer(self.gap(job, base));
        }
        for drop in drops {
            self.drop_range(job, claimed, drop);
        }
        if job.decided_beyond(job.last).contains(&due.scheduled_at) {
            job.last = job.last.max(due.scheduled_at);
            return Judgement::Answer(ClaimReply::AlreadyClaimed(RunStatus::Decided));
        }
        Judgement::New
    }

    /// Whether a host that has not noticed a loss of data would record an occurrence as `missed` that may
    /// have run.
    fn is_unknowable(&self, drops: &[DroppedRange]) -> bool {
        let past = self.clock.past;
        let mut missed = drops.iter().filter(|drop| drop.outcome == Outcome::Missed);
        missed.any(|drop| past.is_unknowable(drop.range.from))
    }

    fn gap(&self, job: &JobState, base: Timestamp) -> ClaimReply {
        ClaimReply::Gap {
            last: base,
            horizon: self.clock.past.horizon,
            decided_beyond: job.decided_beyond(base),
            pauses: job.pauses.clone(),
        }
    }

    fn judge_decided(&self, job: &JobState, at: Timestamp) -> Judgement {
        if job.head().is_some_and(|head| head.scheduled_at == at) {
            return Judgement::Head;
        }
        if waits(job, at) {
            return Judgement::Answer(self.waits(job, true));
        }
        let open = job
            .open
            .as_ref()
            .filter(|open| open.scheduled_at == Some(at));
        if let Some(open) = open {
            return Judgement::Answer(ClaimReply::AlreadyClaimed(RunStatus::Running {
                by: open.host.clone(),
                run_id: open.run_id.clone(),
                attempt: open.attempt,
                remaining: self.lock.remaining(&open.token, self.clock),
            }));
        }
        let now = self.clock.utc();
        Judgement::Answer(if job.last > now.plus(LEAD) {
            ClaimReply::Ahead {
                by: job.last.since(now),
            }
        } else {
            ClaimReply::AlreadyClaimed(RunStatus::Decided)
        })
    }

    fn drop_range(&mut self, job: &mut JobState, claimed: ClaimedJob<'_>, drop: &DroppedRange) {
        let record = dropped(claimed.name, drop, &self.claim.token, self.clock);
        self.effects
            .push(append_after(job.last, record, claimed.keep));
        job.last = job.last.max(drop.range.until);
    }

    /// Records the ranges that policy drops, if the watermark is still the one that the host read.
    pub(super) fn drops(
        &mut self,
        job: &mut JobState,
        claimed: ClaimedJob<'_>,
        fingerprint: &Fingerprint,
        answer: &GapAnswer,
    ) -> ClaimReply {
        let base = job.base(fingerprint);
        let drops = &answer.drop;
        let is_stale = answer.if_last != base || covers(drops, job);
        if is_stale || self.is_unknowable(drops) || misses_paused(drops, job) {
            return self.gap(job, base);
        }
        let now = self.clock.utc();
        let newest = answer.drop.iter().map(|drop| drop.range.until).max();
        if let Some(newest) = newest.filter(|newest| *newest > now.plus(LEAD)) {
            return ClaimReply::Early {
                by: newest.since(now),
            };
        }
        for drop in &answer.drop {
            self.drop_range(job, claimed, drop);
        }
        ClaimReply::Dropped
    }
}

/// Whether one of these ranges covers a decided occurrence, which the host did not know.
fn covers(drops: &[DroppedRange], job: &JobState) -> bool {
    let covered = |at: &Timestamp| {
        let mut ranges = drops.iter().map(|drop| drop.range);
        ranges.any(|range| range.from <= *at && *at <= range.until)
    };
    job.decided_beyond(job.last).iter().any(covered)
}

/// Whether one of these ranges would record an occurrence as missed that may have been due during a
/// pause.
fn misses_paused(drops: &[DroppedRange], job: &JobState) -> bool {
    let mut missed = drops.iter().filter(|drop| drop.outcome == Outcome::Missed);
    missed.any(|drop| {
        let mut pauses = job.pauses.iter();
        pauses.any(|pause| pause.meets(drop.range.from, drop.range.until))
    })
}
