//! `claim`: the rules in the order that the description of [`protocol`](super) lists.
//! [`settled`](super::settled()) replies first, for the hosts that lose.

use super::clock::{Clock, LEAD, LEDGER_AHEAD};
use super::effect::Effect;
use super::lock::{LockState, TokenStanding, holder};
use std::time::Duration;

use super::history::{
    self, REASON_NOT_NEWEST, REASON_OVERLAP, REASON_TOO_LATE, REASON_UNKNOWN, REASON_WINDOW_OVER,
    append_after, closed_by, dropped, interrupt, not_started,
};
use super::settled::settled;
use super::waiting::{self, Context};
use crate::names::JobName;
use crate::store::contract::{
    Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Fingerprint, GapAnswer, IfPaused, JobState,
    Kind, Late, Open, Outcome, Overlap, Retention, RunStatus, RunTerms, Waiting,
};
use crate::time::Timestamp;

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

/// What the ledger says about an occurrence.
enum Judgement {
    Answer(ClaimReply),
    /// Undecided.
    New,
    /// The first entry of the waiting list.
    Head,
}

/// How and until when an undecided occurrence may start.
struct Candidate<'a> {
    job: &'a JobName,
    due: &'a Due,
    kind: Kind,
    deadline: Timestamp,
    overlap: Overlap,
    yields: bool,
    keep: Option<Retention>,
}

impl Candidate<'_> {
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
                self.drops(state, (name, Some(*keep)), fingerprint, answer)
            }
            ClaimTarget::Occurrence { due, .. } if due.not_before > self.clock.utc() => {
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
        if let TokenStanding::Other { by, remaining } =
            self.lock.standing(exclusive, token, self.clock)
        {
            return Some(ClaimReply::Held { by, remaining });
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
        Some(ClaimReply::Granted {
            fence: self.lock.fence,
            attempt,
            at: self.clock.utc(),
        })
    }

    fn bare(&mut self) -> ClaimReply {
        match self.standing() {
            TokenStanding::Other { by, remaining } => ClaimReply::Held { by, remaining },
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
            TokenStanding::Other { by, remaining } => ClaimReply::Held { by, remaining },
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
        waiting::await_rerun(job, self.lock, self.clock);
        self.correct(job, (name, keep), due.scheduled_at);
        let waited = waits(job, due.scheduled_at);
        self.effects
            .extend(waiting::expire(job, self.context(name, keep)));
        if waited && !waits(job, due.scheduled_at) {
            return if self.clock.past.is_unknowable(due.scheduled_at) {
                ClaimReply::Unknown
            } else {
                ClaimReply::TooLate
            };
        }
        if let Some(pause) = job.paused_at(self.clock.utc()).cloned() {
            let skipped = waiting::skip_all(job, &pause, self.context(name, keep));
            self.effects.extend(skipped);
            if waited {
                return ClaimReply::Paused(pause);
            }
        }
        match self.judge(job, (name, keep), due) {
            Judgement::Answer(reply) => reply,
            Judgement::Head => self.head(job, (name, keep), due),
            Judgement::New => match self.candidate(job, (name, *kind, keep), (due, *overlap)) {
                Ok(candidate) => self.start(job, &candidate),
                Err(reply) => reply,
            },
        }
    }

    fn context<'b>(&'b self, job: &'b JobName, keep: Option<Retention>) -> Context<'b> {
        Context {
            job,
            token: &self.claim.token,
            keep,
            clock: self.clock,
        }
    }

    /// Sets back a watermark that was written while the clock was wrong. Waiting occurrences beyond it
    /// are undecided again.
    fn correct(
        &mut self,
        job: &mut JobState,
        at: (&JobName, Option<Retention>),
        claimed: Timestamp,
    ) {
        let (name, keep) = at;
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
        let record = history::set_back(name, job.last, &self.claim.token, self.clock);
        self.effects.push(history::append(record, keep));
        job.last = now.min(claimed.minus(Duration::from_millis(1)));
        job.beyond.retain(|at| *at <= now);
        self.effects
            .extend(waiting::forget_future(job, self.context(name, keep)));
    }

    /// Rule 4: ledger, then gap.
    fn judge(
        &mut self,
        job: &mut JobState,
        at: (&JobName, Option<Retention>),
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
            self.drop_range(job, at, drop);
        }
        if job.beyond(job.last).contains(&due.scheduled_at) {
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
            beyond: job.beyond(base),
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

    fn drop_range(
        &mut self,
        job: &mut JobState,
        at: (&JobName, Option<Retention>),
        drop: &DroppedRange,
    ) {
        let (name, keep) = at;
        let record = dropped(name, drop, &self.claim.token, self.clock);
        self.effects.push(append_after(job.last, record, keep));
        job.last = job.last.max(drop.range.until);
    }

    /// Records the ranges that policy drops, if the watermark is still the one that the host read.
    fn drops(
        &mut self,
        job: &mut JobState,
        at: (&JobName, Option<Retention>),
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
            self.drop_range(job, at, drop);
        }
        ClaimReply::Dropped
    }

    /// Rules 5 and 6: whether an undecided occurrence may start at all.
    fn candidate<'b>(
        &mut self,
        job: &mut JobState,
        (name, kind, keep): (&'b JobName, Kind, Option<Retention>),
        (due, overlap): (&'b Due, Overlap),
    ) -> Result<Candidate<'b>, ClaimReply> {
        let now = self.clock.utc();
        let unknowable = self.clock.past.is_unknowable(due.scheduled_at);
        if unknowable {
            let why = (Outcome::Unknown, REASON_UNKNOWN);
            self.decide_unstarted(job, (name, kind, keep), due, why, None);
            return Err(ClaimReply::Unknown);
        }
        let is_late = now > due.deadline;
        let start = due.not_before.max(now);
        if let Some(pause) = job.pause_of(due.scheduled_at, start).cloned()
            && !(is_late && due.late == Late::Leave)
        {
            let reason = pause.verdict();
            let at = (name, kind, keep);
            self.decide_unstarted(job, at, due, (Outcome::Skipped, &reason), None);
            return Err(ClaimReply::Paused(pause));
        }
        let mut unstarted = |kind, why| {
            self.decide_unstarted(job, (name, kind, keep), due, why, None);
        };
        let candidate = Candidate {
            job: name,
            due,
            kind,
            deadline: due.deadline,
            overlap,
            yields: overlap == Overlap::Wait,
            keep,
        };
        if !is_late {
            return Ok(candidate);
        }
        match due.late {
            Late::Leave => Err(ClaimReply::Stale),
            Late::Miss => {
                unstarted(kind, (Outcome::Missed, REASON_TOO_LATE));
                Err(ClaimReply::TooLate)
            }
            Late::CatchUp { newer, .. } if newer.is_some_and(|newer| newer <= now) => {
                unstarted(Kind::CatchUp, (Outcome::Missed, REASON_NOT_NEWEST));
                Err(ClaimReply::TooLate)
            }
            Late::CatchUp { until, .. } if until < now => {
                unstarted(Kind::CatchUp, (Outcome::Missed, REASON_WINDOW_OVER));
                Err(ClaimReply::TooLate)
            }
            Late::CatchUp { until, newer } => Ok(Candidate {
                kind: Kind::CatchUp,
                deadline: until,
                overlap: if newer.is_some() {
                    Overlap::Wait
                } else {
                    Overlap::Queue { limit: u32::MAX }
                },
                yields: newer.is_some(),
                ..candidate
            }),
        }
    }

    /// Rules 7 and 8 for an undecided occurrence.
    fn start(&mut self, job: &mut JobState, candidate: &Candidate<'_>) -> ClaimReply {
        let (name, keep) = (candidate.job, candidate.keep);
        let standing = self.standing();
        if let TokenStanding::Other { by, remaining } = &standing
            && candidate.overlap == Overlap::Skip
        {
            let why = (Outcome::Skipped, REASON_OVERLAP);
            let at = (name, candidate.kind, keep);
            self.decide_unstarted(job, at, candidate.due, why, Some(by));
            return ClaimReply::Held {
                by: by.clone(),
                remaining: *remaining,
            };
        }
        let is_free = !matches!(standing, TokenStanding::Other { .. });
        let context = self.context(name, keep);
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
                    job: name,
                    kind: candidate.kind,
                    scheduled_at: Some(candidate.due.scheduled_at),
                    attempt: 1,
                    keep,
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
    fn head(
        &mut self,
        job: &mut JobState,
        (name, keep): (&JobName, Option<Retention>),
        due: &Due,
    ) -> ClaimReply {
        if matches!(self.standing(), TokenStanding::Other { .. }) || job.waiting.is_empty() {
            return self.waits(job, true);
        }
        let entry = job.waiting.remove(0);
        let repeated = self.context(name, keep).repeated(&entry);
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
                job: name,
                kind: entry.kind,
                scheduled_at: Some(entry.scheduled_at),
                attempt: entry.attempts + 1,
                keep,
                terms: waiting::terms_of(&entry, asked),
            },
        )
    }

    /// Returns the reply that names the head of the waiting list.
    fn waits(&self, job: &JobState, entered: bool) -> ClaimReply {
        let Some(head) = job.head() else {
            return ClaimReply::AlreadyClaimed(RunStatus::Decided);
        };
        let (by, remaining) = match self.standing() {
            TokenStanding::Other { by, remaining } => (Some(by), remaining),
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
        (name, kind, keep): (&JobName, Kind, Option<Retention>),
        due: &Due,
        why: (Outcome, &str),
        by: Option<&str>,
    ) {
        let token = &self.claim.token;
        let mut record = not_started((name, kind), due.scheduled_at, why, token, self.clock);
        record.by = by.map(str::to_owned);
        self.effects.push(append_after(job.last, record, keep));
        job.last = job.last.max(due.scheduled_at);
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
        ClaimReply::Granted {
            fence: self.lock.fence,
            attempt,
            at: self.clock.utc(),
        }
    }

    /// Rule 8 for the run.
    fn open(&mut self, job: &mut JobState, opening: &Opening<'_>) -> ClaimReply {
        let interrupted = interrupt((opening.job, job), self.lock, opening.keep, self.clock);
        let token = &self.claim.token;
        (self.effects).extend(interrupted.map(|effect| closed_by(effect, token)));
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
            started_at: self.clock.utc(),
            host: holder(self.claim.token.as_str()),
            terms: opening.terms,
        });
        reply
    }
}

/// Whether one of these ranges covers a decided occurrence, which the host did not know.
fn covers(drops: &[DroppedRange], job: &JobState) -> bool {
    let covered = |at: &Timestamp| {
        let mut ranges = drops.iter().map(|drop| drop.range);
        ranges.any(|range| range.from <= *at && *at <= range.until)
    };
    job.beyond(job.last).iter().any(covered)
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

fn waits(job: &JobState, at: Timestamp) -> bool {
    job.waiting.iter().any(|entry| entry.scheduled_at == at)
}
