//! The claim.

use std::time::Duration;

use super::history::{
    REASON_OVERLAP, REASON_TOO_LATE, REASON_UNKNOWN, append_after, dropped, interrupt, not_started,
};
use super::state::{Clock, Effect, JobState, LockState, Open, Standing, holder};
use crate::names::JobName;
use crate::store::{Claim, ClaimReply, Due, Kind, Outcome, Overlap, RunStatus, What};
use crate::time::Timestamp;

/// Takes an occurrence and its lock, or says why not. The rules are in the module's description.
///
/// `job` is the state of the job that the claim names; `None` while the store does not know it,
/// and left alone for a bare lock.
pub fn claim(
    lock: &mut LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    claim: &Claim,
) -> (ClaimReply, Vec<Effect>) {
    let mut effects = Vec::new();
    let reply = Claiming {
        lock,
        clock,
        claim,
        effects: &mut effects,
    }
    .answer(job);
    (reply, effects)
}

/// What a grant will open.
struct Opening<'a> {
    job: &'a JobName,
    kind: Kind,
    scheduled_at: Option<Timestamp>,
    attempt: u32,
    keep: Option<u32>,
}

/// What the ledger says of an occurrence.
enum Judgement {
    Answer(ClaimReply),
    New,
    /// The open run is for this occurrence, over, and may be run again as this attempt.
    Rerun(u32),
}

struct Claiming<'a> {
    lock: &'a mut LockState,
    clock: Clock,
    claim: &'a Claim,
    effects: &'a mut Vec<Effect>,
}

impl Claiming<'_> {
    fn answer(&mut self, job: &mut Option<JobState>) -> ClaimReply {
        if self.lock.ending(&self.claim.token).is_some() {
            return ClaimReply::Finished;
        }
        if let Some(reply) = self.own(job.as_mut()) {
            return reply;
        }
        if let Some(remaining) = self.clock.past.recovering(self.clock, self.claim.ttl) {
            return ClaimReply::Recovering { remaining };
        }
        match &self.claim.what {
            What::Lock => self.bare(),
            What::Manual { job: name } => self.manual(name, job),
            What::Occurrence { due, .. } if due.not_before > self.clock.utc() => {
                ClaimReply::Early {
                    by: due.not_before.since(self.clock.utc()),
                }
            }
            What::Occurrence { due, .. } => {
                let beginning = self.clock.past.beginning(self.clock);
                let state =
                    job.get_or_insert_with(|| JobState::starting_after(self.before_first(due)));
                state.note(&due.fingerprint, beginning);
                self.occurrence(state)
            }
        }
    }

    /// Where a ledger begins that an occurrence is the first to ask for.
    ///
    /// After a loss another host may have the occurrence before it in hand, which is `unknown`
    /// then: the ledger does not close over it.
    fn before_first(&self, due: &Due) -> Timestamp {
        let millisecond = Duration::from_millis(1);
        let last = due.prev.unwrap_or(due.scheduled_at.minus(millisecond));
        match self.clock.past.forgot(self.clock) {
            None => last,
            Some(lost_at) if last > lost_at || self.clock.past.is_unknowable(due.scheduled_at) => {
                last.min(lost_at)
            }
            Some(_) => due.prev.map_or(last, |prev| prev.minus(millisecond)),
        }
    }

    /// Rule 2: the same claim again.
    fn own(&mut self, job: Option<&mut JobState>) -> Option<ClaimReply> {
        let claim = self.claim;
        let token = &claim.token;
        let exclusive = claim.lock.exclusive;
        let open = job
            .filter(|_| !matches!(claim.what, What::Lock))
            .and_then(|job| job.open.as_mut())
            .filter(|open| open.token == *token);
        let granted = self.lock.is_granted_to(token);
        if !granted && open.is_none() && !(exclusive && self.lock.key_holds(token)) {
            return None;
        }
        if let Standing::Other { by, remaining } = self.lock.standing(exclusive, token, self.clock)
        {
            return Some(ClaimReply::Held { by, remaining });
        }
        // Old data may name a holder whose lease has ended since, and know nothing of the next.
        let lasts = self.lock.key_holds(token) || granted && self.lock.lease_end > self.clock.lease;
        if !lasts && self.clock.past.recovering(self.clock, claim.ttl).is_some() {
            return None;
        }
        if !granted {
            self.lock.fence = self.lock.next_fence(self.clock);
            self.lock.run_id = Some(claim.run_id.clone());
        }
        self.lock
            .take(exclusive, token, self.clock.after(claim.ttl));
        let attempt = open.map_or(1, |open| {
            open.fence = self.lock.fence;
            open.attempt
        });
        Some(ClaimReply::Granted {
            fence: self.lock.fence,
            attempt,
            at: self.clock.utc(),
        })
    }

    fn bare(&mut self) -> ClaimReply {
        match self.standing() {
            Standing::Other { by, remaining } => ClaimReply::Held { by, remaining },
            Standing::Ours | Standing::Free => self.grant(1),
        }
    }

    fn manual(&mut self, name: &JobName, job: &mut Option<JobState>) -> ClaimReply {
        match self.standing() {
            Standing::Other { by, remaining } => ClaimReply::Held { by, remaining },
            Standing::Ours | Standing::Free => {
                let beginning = self.clock.past.beginning(self.clock);
                let state = job.get_or_insert_with(|| JobState::starting_after(beginning));
                self.open(
                    state,
                    &Opening {
                        job: name,
                        kind: Kind::Manual,
                        scheduled_at: None,
                        attempt: 1,
                        keep: None,
                    },
                )
            }
        }
    }

    fn occurrence(&mut self, job: &mut JobState) -> ClaimReply {
        let What::Occurrence {
            job: name,
            kind,
            due,
            overlap,
            keep,
        } = &self.claim.what
        else {
            return ClaimReply::Finished;
        };
        let keep = Some(*keep);
        let (attempt, kind) = match self.judge(job, (name, keep), due) {
            Judgement::Answer(reply) => return reply,
            Judgement::New => (1, *kind),
            Judgement::Rerun(attempt) => (attempt, Kind::Rerun),
        };
        let rerun = attempt > 1;
        if !rerun && self.clock.past.is_unknowable(due.scheduled_at) {
            let why = (Outcome::Unknown, REASON_UNKNOWN);
            self.decide_unstarted(job, (name, kind, keep), due, why, None);
            return ClaimReply::Unknown;
        }
        if !rerun && self.clock.utc() > due.deadline {
            let why = (Outcome::Missed, REASON_TOO_LATE);
            self.decide_unstarted(job, (name, kind, keep), due, why, None);
            return ClaimReply::TooLate;
        }
        if let Standing::Other { by, remaining } = self.standing() {
            if !rerun && *overlap == Overlap::Skip {
                let why = (Outcome::Skipped, REASON_OVERLAP);
                self.decide_unstarted(job, (name, kind, keep), due, why, Some(&by));
            }
            return ClaimReply::Held { by, remaining };
        }
        self.open(
            job,
            &Opening {
                job: name,
                kind,
                scheduled_at: Some(due.scheduled_at),
                attempt,
                keep,
            },
        )
    }

    /// Rule 4: ledger, then gap.
    fn judge(
        &mut self,
        job: &mut JobState,
        (name, keep): (&JobName, Option<u32>),
        due: &Due,
    ) -> Judgement {
        if due.scheduled_at <= job.last {
            return self.judge_decided(job, due);
        }
        let base = job.base(&due.fingerprint);
        let gap = match &due.gap {
            Some(answer) => answer.if_last != base,
            None => due.prev.is_some_and(|prev| prev > base),
        };
        if gap {
            return Judgement::Answer(ClaimReply::Gap {
                last: base,
                horizon: self.clock.past.horizon,
            });
        }
        for drop in due.gap.iter().flat_map(|answer| &answer.drop) {
            let record = dropped(name, drop, &self.claim.token, self.clock);
            self.effects.push(append_after(job.last, record, keep));
            job.last = job.last.max(drop.range.until);
        }
        Judgement::New
    }

    fn judge_decided(&self, job: &JobState, due: &Due) -> Judgement {
        let Some(open) = job
            .open
            .as_ref()
            .filter(|open| open.scheduled_at == Some(due.scheduled_at))
        else {
            return Judgement::Answer(ClaimReply::AlreadyClaimed(RunStatus::Decided));
        };
        let remaining = self.lock.remaining(&open.token, self.clock);
        if remaining.is_zero() && open.attempt <= due.max_reruns {
            return Judgement::Rerun(open.attempt + 1);
        }
        Judgement::Answer(ClaimReply::AlreadyClaimed(RunStatus::Running {
            by: open.host.clone(),
            run_id: open.run_id.clone(),
            attempt: open.attempt,
            remaining,
        }))
    }

    /// Records an occurrence that is not started and moves the watermark over it.
    fn decide_unstarted(
        &mut self,
        job: &mut JobState,
        (name, kind, keep): (&JobName, Kind, Option<u32>),
        due: &Due,
        why: (Outcome, &str),
        by: Option<&str>,
    ) {
        let token = &self.claim.token;
        let mut record = not_started((name, kind), due.scheduled_at, why, token, self.clock);
        record.by = by.map(str::to_owned);
        self.effects.push(append_after(job.last, record, keep));
        job.last = due.scheduled_at;
    }

    fn standing(&self) -> Standing {
        let exclusive = self.claim.lock.exclusive;
        self.lock.standing(exclusive, &self.claim.token, self.clock)
    }

    /// Rule 7, the lock's half.
    fn grant(&mut self, attempt: u32) -> ClaimReply {
        let claim = self.claim;
        self.lock.fence = self.lock.next_fence(self.clock);
        self.lock.run_id = Some(claim.run_id.clone());
        let end = self.clock.after(claim.ttl);
        self.lock.take(claim.lock.exclusive, &claim.token, end);
        ClaimReply::Granted {
            fence: self.lock.fence,
            attempt,
            at: self.clock.utc(),
        }
    }

    /// Rule 7.
    fn open(&mut self, job: &mut JobState, opening: &Opening<'_>) -> ClaimReply {
        let interrupted = interrupt((opening.job, job), self.lock, opening.keep, self.clock);
        self.effects.extend(interrupted);
        let reply = self.grant(opening.attempt);
        let prev_last = job.last;
        if let Some(scheduled_at) = opening.scheduled_at {
            job.last = job.last.max(scheduled_at);
        }
        job.open = Some(Open {
            scheduled_at: opening.scheduled_at,
            run_id: self.claim.run_id.clone(),
            token: self.claim.token.clone(),
            attempt: opening.attempt,
            kind: opening.kind,
            fence: self.lock.fence,
            started_at: self.clock.utc(),
            host: holder(self.claim.token.as_str()),
            prev_last,
        });
        reply
    }
}
