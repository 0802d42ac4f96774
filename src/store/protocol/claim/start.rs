//! Rules 5 to 8 of a claim: whether an occurrence may start now, waits, or is decided without a run.

use std::time::Duration;

use super::{ClaimedJob, Claiming, Opening};
use crate::store::contract::{
    ClaimReply, Due, JobState, Kind, Late, Outcome, Overlap, RunStatus, RunTerms, Waiting,
};
use crate::store::protocol::history::{
    NoResult, REASON_NOT_NEWEST, REASON_OVERLAP, REASON_TOO_LATE, REASON_UNKNOWN,
    REASON_WINDOW_OVER, append_after, not_started,
};
use crate::store::protocol::lock::TokenStanding;
use crate::store::protocol::waiting;
use crate::time::Timestamp;

/// How and until when an undecided occurrence may start.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    job: ClaimedJob<'a>,
    due: &'a Due,
    kind: Kind,
    deadline: Timestamp,
    overlap: Overlap,
    yields: bool,
}

impl<'a> Candidate<'a> {
    /// An occurrence as it was claimed.
    pub(super) fn new(job: ClaimedJob<'a>, kind: Kind, due: &'a Due, overlap: Overlap) -> Self {
        Self {
            job,
            due,
            kind,
            deadline: due.deadline,
            overlap,
            yields: overlap == Overlap::Wait,
        }
    }

    fn terms(&self) -> RunTerms {
        RunTerms {
            deadline: self.deadline,
            rerun_window: self.due.rerun_window,
            max_reruns: self.due.max_reruns,
            max_attempts: self.due.max_attempts,
            reruns: 0,
            yields: self.yields,
        }
    }

    fn waiting(&self) -> Waiting {
        Waiting {
            scheduled_at: self.due.scheduled_at,
            kind: if self.kind == Kind::Schedule {
                Kind::Queue
            } else {
                self.kind
            },
            deadline: self.deadline,
            yields: self.yields,
            attempts: 0,
            reruns: 0,
            crashed: None,
        }
    }
}

impl Claiming<'_> {
    /// Rules 5 to 8 for an undecided occurrence.
    pub(super) fn begin(&mut self, job: &mut JobState, candidate: Candidate<'_>) -> ClaimReply {
        match self.startable(job, candidate) {
            Ok(candidate) => self.start(job, &candidate),
            Err(reply) => reply,
        }
    }

    /// Rules 5 and 6: whether, how and until when an undecided occurrence may start at all.
    fn startable<'b>(
        &mut self,
        job: &mut JobState,
        candidate: Candidate<'b>,
    ) -> Result<Candidate<'b>, ClaimReply> {
        let now = self.clock.utc();
        let due = candidate.due;
        if self.clock.past.is_unknowable(due.scheduled_at) {
            let why = NoResult::new(Outcome::Unknown, REASON_UNKNOWN);
            self.decide_unstarted(job, &candidate, why, None);
            return Err(ClaimReply::Unknown);
        }
        let is_late = now > due.deadline;
        let start = due.not_before.max(now);
        if let Some(pause) = job.pause_of(due.scheduled_at, start).cloned()
            && !(is_late && due.late == Late::Leave)
        {
            let reason = pause.verdict();
            self.decide_unstarted(job, &candidate, NoResult::skipped(&reason), None);
            return Err(ClaimReply::Paused(pause));
        }
        if is_late {
            self.decide_late(job, candidate)
        } else {
            Ok(candidate)
        }
    }

    /// Decides an occurrence whose deadline has passed, as the claim's [`Late`] says.
    fn decide_late<'b>(
        &mut self,
        job: &mut JobState,
        candidate: Candidate<'b>,
    ) -> Result<Candidate<'b>, ClaimReply> {
        let now = self.clock.utc();
        let (kind, reason) = match candidate.due.late {
            Late::Leave => return Err(ClaimReply::Stale),
            Late::Miss => (candidate.kind, REASON_TOO_LATE),
            Late::CatchUp { newer, .. } if newer.is_some_and(|newer| newer <= now) => {
                (Kind::CatchUp, REASON_NOT_NEWEST)
            }
            Late::CatchUp { until, .. } if until < now => (Kind::CatchUp, REASON_WINDOW_OVER),
            Late::CatchUp { until, newer } => {
                return Ok(Candidate {
                    kind: Kind::CatchUp,
                    deadline: until,
                    overlap: if newer.is_some() {
                        Overlap::Wait
                    } else {
                        Overlap::Queue { limit: u32::MAX }
                    },
                    yields: newer.is_some(),
                    ..candidate
                });
            }
        };
        let late = Candidate { kind, ..candidate };
        self.decide_unstarted(job, &late, NoResult::missed(reason), None);
        Err(ClaimReply::TooLate)
    }

    /// Rules 7 and 8 for an undecided occurrence.
    fn start(&mut self, job: &mut JobState, candidate: &Candidate<'_>) -> ClaimReply {
        let standing = self.standing();
        if let TokenStanding::Other { holder, remaining } = &standing
            && candidate.overlap == Overlap::Skip
        {
            let why = NoResult::skipped(REASON_OVERLAP);
            self.decide_unstarted(job, candidate, why, Some(holder));
            return ClaimReply::Held {
                by: holder.clone(),
                remaining: *remaining,
            };
        }
        let is_free = !matches!(standing, TokenStanding::Other { .. });
        let context = self.context(candidate.job);
        let mut effects = if is_free {
            waiting::outdate(job, context)
        } else {
            Vec::new()
        };
        if is_free && job.waiting.is_empty() {
            self.effects.append(&mut effects);
            return self.open(
                job,
                &Opening {
                    job: candidate.job.name,
                    kind: candidate.kind,
                    scheduled_at: Some(candidate.due.scheduled_at),
                    attempt: 1,
                    keep: candidate.job.keep,
                    terms: candidate.terms(),
                },
            );
        }
        let reply = match candidate.overlap {
            Overlap::Queue { limit } => {
                match waiting::enqueue(job, candidate.waiting(), limit, context) {
                    Ok(()) => self.waits(job, true),
                    Err(record) => {
                        effects.push(record);
                        ClaimReply::QueueFull
                    }
                }
            }
            Overlap::Wait if !is_free => {
                effects.extend(waiting::supersede(job, candidate.waiting(), context));
                self.waits(job, true)
            }
            // The head must start first, and this claim must not drop it.
            Overlap::Wait | Overlap::Skip => self.waits(job, false),
        };
        self.effects.append(&mut effects);
        reply
    }

    /// Rules 7 and 8 for the first entry of the waiting list.
    pub(super) fn head(
        &mut self,
        job: &mut JobState,
        claimed: ClaimedJob<'_>,
        due: &Due,
    ) -> ClaimReply {
        if matches!(self.standing(), TokenStanding::Other { .. }) || job.waiting.is_empty() {
            return self.waits(job, true);
        }
        let entry = job.waiting.remove(0);
        let repeated = self.context(claimed).repeated(&entry);
        self.effects.extend(repeated);
        let asked = RunTerms {
            rerun_window: due.rerun_window,
            max_reruns: due.max_reruns,
            max_attempts: due.max_attempts,
            ..RunTerms::NONE
        };
        self.open(
            job,
            &Opening {
                job: claimed.name,
                kind: entry.kind,
                scheduled_at: Some(entry.scheduled_at),
                attempt: entry.attempts + 1,
                keep: claimed.keep,
                terms: waiting::terms_of(&entry, asked),
            },
        )
    }

    /// Returns the reply that names the head of the waiting list.
    pub(super) fn waits(&self, job: &JobState, entered: bool) -> ClaimReply {
        let Some(head) = job.head() else {
            return ClaimReply::AlreadyClaimed(RunStatus::Decided);
        };
        let (by, remaining) = match self.standing() {
            TokenStanding::Other { holder, remaining } => (Some(holder), remaining),
            TokenStanding::Ours | TokenStanding::Free => (None, Some(Duration::ZERO)),
        };
        ClaimReply::Waits {
            head,
            entered,
            by,
            remaining,
        }
    }

    /// Records an occurrence that is not started and moves the watermark over it.
    fn decide_unstarted(
        &mut self,
        job: &mut JobState,
        candidate: &Candidate<'_>,
        why: NoResult<'_>,
        by: Option<&str>,
    ) {
        let (of, at) = (candidate.job, candidate.due.scheduled_at);
        let token = &self.claim.token;
        let mut record = not_started((of.name, candidate.kind), at, why, token, self.clock);
        record.by = by.map(str::to_owned);
        self.effects.push(append_after(job.last, record, of.keep));
        job.last = job.last.max(at);
    }
}
