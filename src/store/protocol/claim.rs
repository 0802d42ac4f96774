//! `claim`: the rules in the order that the description of [`protocol`](super) lists.
//! [`settled`](super::settled()) replies first, for the hosts that lose.

mod ledger;
mod start;

use std::time::Duration;

use super::clock::Clock;
use super::effect::Effect;
use super::history::{credit_to_claimant, interrupt};
use super::lock::{LockState, TokenStanding, holder};
use super::settled::settled;
use super::usual::is_usual;
use super::waiting::{self, Context};
use crate::names::JobName;
use crate::store::contract::{
    Claim, ClaimReply, ClaimTarget, Due, IfPaused, JobState, Kind, Open, Retention, RunTerms,
};
use crate::time::Timestamp;
use start::Candidate;

/// Claims an occurrence and its lock, or returns why it does not.
///
/// `job` is the state of the job that the claim names; `None` while the store does not know the job. A
/// claim of a bare lock does not change it.
pub fn claim(
    lock: &mut LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    claim: &Claim,
) -> (ClaimReply, Vec<Effect>) {
    if let Some(reply) = settled(lock, job.as_ref(), clock, claim) {
        return (reply, Vec::new());
    }
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
    keep: Option<Retention>,
    terms: RunTerms,
}

/// The job of a claim, and what its history keeps.
#[derive(Clone, Copy)]
struct ClaimedJob<'a> {
    name: &'a JobName,
    keep: Option<Retention>,
}

/// What the ledger says about an occurrence.
enum Judgement {
    Answer(ClaimReply),
    /// Undecided.
    New,
    /// The first entry of the waiting list.
    Head,
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
        let moved = |job: &JobState| job.moved_from(&self.claim.lock).cloned();
        if let Some(to) = job.as_ref().and_then(moved) {
            return ClaimReply::Moved { to };
        }
        if let Some(reply) = self.own(job.as_mut()) {
            return reply;
        }
        if let Some(remaining) = self.clock.past.recovering(self.clock, self.claim.ttl) {
            return ClaimReply::Recovering { remaining };
        }
        match &self.claim.what {
            ClaimTarget::Lock => self.bare(),
            ClaimTarget::Manual {
                job: name,
                if_paused,
            } => self.manual(name, *if_paused, job),
            ClaimTarget::Drops {
                job: name,
                fingerprint,
                answer,
                keep,
            } => {
                let beginning = self.clock.past.beginning(self.clock);
                let state = job.get_or_insert_with(|| JobState::starting_after(answer.if_last));
                state.note(fingerprint, beginning);
                let keep = Some(*keep);
                self.drops(state, ClaimedJob { name, keep }, fingerprint, answer)
            }
            ClaimTarget::Occurrence { due, .. }
                if due.not_before > self.clock.utc()
                    && !is_usual((self.lock, job.as_ref()), self.clock, self.claim, due) =>
            {
                ClaimReply::Early {
                    by: due.not_before.since(self.clock.utc()),
                }
            }
            ClaimTarget::Occurrence { due, .. } => {
                let beginning = self.clock.past.beginning(self.clock);
                let state =
                    job.get_or_insert_with(|| JobState::starting_after(self.before_first(due)));
                state.note(&due.fingerprint, beginning);
                self.occurrence(state)
            }
        }
    }

    /// Returns where a ledger begins that this occurrence creates.
    ///
    /// After a loss another host may hold the preceding occurrence, which is `unknown` then. The ledger
    /// must not advance past it.
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
            .filter(|_| !matches!(claim.what, ClaimTarget::Lock))
            .and_then(|job| job.open.as_mut())
            .filter(|open| open.token == *token);
        let granted = self.lock.is_granted_to(token);
        if !granted && open.is_none() && !(exclusive && self.lock.key_holds(token)) {
            return None;
        }
        let standing = self.lock.standing(exclusive, token, self.clock);
        if let TokenStanding::Other { holder, remaining } = standing {
            return Some(ClaimReply::Held {
                by: holder,
                remaining,
            });
        }
        // Old data may name a holder whose lease has ended, and not know the next holder.
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
        Some(self.granted(attempt))
    }

    fn bare(&mut self) -> ClaimReply {
        match self.standing() {
            TokenStanding::Other { holder, remaining } => ClaimReply::Held {
                by: holder,
                remaining,
            },
            TokenStanding::Ours | TokenStanding::Free => self.grant(1),
        }
    }

    fn manual(
        &mut self,
        name: &JobName,
        if_paused: IfPaused,
        job: &mut Option<JobState>,
    ) -> ClaimReply {
        let now = self.clock.utc();
        let pause = job.as_ref().and_then(|state| state.paused_at(now));
        if let Some(pause) = pause.filter(|_| if_paused == IfPaused::Refuse) {
            return ClaimReply::Paused(pause.clone());
        }
        match self.standing() {
            TokenStanding::Other { holder, remaining } => ClaimReply::Held {
                by: holder,
                remaining,
            },
            TokenStanding::Ours | TokenStanding::Free => {
                let beginning = self.clock.past.beginning(self.clock);
                let state = job.get_or_insert_with(|| JobState::starting_after(beginning));
                waiting::await_rerun(state, self.lock, self.clock);
                self.open(
                    state,
                    &Opening {
                        job: name,
                        kind: Kind::Manual,
                        scheduled_at: None,
                        attempt: 1,
                        keep: None,
                        terms: RunTerms::NONE,
                    },
                )
            }
        }
    }

    fn occurrence(&mut self, job: &mut JobState) -> ClaimReply {
        let ClaimTarget::Occurrence {
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
        let claimed = ClaimedJob { name, keep };
        waiting::await_rerun(job, self.lock, self.clock);
        self.correct(job, claimed, due.scheduled_at);
        let waited = waits(job, due.scheduled_at);
        self.effects
            .extend(waiting::expire(job, self.context(claimed)));
        if waited && !waits(job, due.scheduled_at) {
            return if self.clock.past.is_unknowable(due.scheduled_at) {
                ClaimReply::Unknown
            } else {
                ClaimReply::TooLate
            };
        }
        if let Some(pause) = job.paused_at(self.clock.utc()).cloned() {
            let skipped = waiting::skip_all(job, &pause, self.context(claimed));
            self.effects.extend(skipped);
            if waited {
                return ClaimReply::Paused(pause);
            }
        }
        match self.judge(job, claimed, due) {
            Judgement::Answer(reply) => reply,
            Judgement::Head => self.head(job, claimed, due),
            Judgement::New => self.begin(job, Candidate::new(claimed, *kind, due, *overlap)),
        }
    }

    fn context<'b>(&'b self, claimed: ClaimedJob<'b>) -> Context<'b> {
        Context {
            job: claimed.name,
            token: &self.claim.token,
            keep: claimed.keep,
            clock: self.clock,
        }
    }

    fn standing(&self) -> TokenStanding {
        let exclusive = self.claim.lock.exclusive;
        self.lock.standing(exclusive, &self.claim.token, self.clock)
    }

    /// Rule 8 for the lock.
    fn grant(&mut self, attempt: u32) -> ClaimReply {
        let claim = self.claim;
        self.lock.fence = self.lock.next_fence(self.clock);
        self.lock.run_id = Some(claim.run_id.clone());
        let end = self.clock.after(claim.ttl);
        self.lock.take(claim.lock.exclusive, &claim.token, end);
        self.granted(attempt)
    }

    fn granted(&self, attempt: u32) -> ClaimReply {
        let not_before = match &self.claim.what {
            ClaimTarget::Occurrence { due, .. } => due.not_before,
            _ => Timestamp::EPOCH,
        };
        ClaimReply::Granted {
            fence: self.lock.fence,
            attempt,
            at: self.clock.utc(),
            starts_in: self.clock.until_utc(not_before),
        }
    }

    /// Returns when a run that is opened now starts: not before its instant.
    fn starts_at(&self) -> Timestamp {
        match &self.claim.what {
            ClaimTarget::Occurrence { due, .. } => self.clock.utc().max(due.not_before),
            _ => self.clock.utc(),
        }
    }

    /// Rule 8 for the run.
    fn open(&mut self, job: &mut JobState, opening: &Opening<'_>) -> ClaimReply {
        let interrupted = interrupt((opening.job, job), self.lock, opening.keep, self.clock);
        let token = &self.claim.token;
        (self.effects).extend(interrupted.map(|effect| credit_to_claimant(effect, token)));
        let reply = self.grant(opening.attempt);
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
            started_at: self.starts_at(),
            host: holder(self.claim.token.as_str()),
            terms: opening.terms,
        });
        reply
    }
}

fn waits(job: &JobState, at: Timestamp) -> bool {
    job.waiting.iter().any(|entry| entry.scheduled_at == at)
}
