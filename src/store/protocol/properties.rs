//! What must hold after any sequence of requests: copies, delays, evictions and ends of leases
//! included. Hosts are honest: they send each occurrence with the one before it, and answer a gap
//! with all that lies in it.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::time::Duration;

use proptest::prelude::ProptestConfig;
use proptest::{prop_assert, prop_assert_eq, proptest};

use super::steps::{Asked, Earlier, Earliness, Lateness, Meddling, PauseStep, Step, Wish, steps};
use super::tests::{World, job, record, token_of};
use super::{JobState, Key, LEAD, Open, Waiting};
use crate::names::{RunId, Token};
use crate::store::{
    Attempt, Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Fingerprint, Finish, GapAnswer,
    Grant, IfPaused, Kind, Late, Outcome, Pause, PauseOrder, PauseReply, PauseRequest, Range,
    Record, RenewReply, Settle,
};
use crate::time::{BootInstant, Timestamp};

const TTL_MS: i64 = 3000;
const SECOND: Duration = Duration::from_secs(1);

/// Whether a step is for one job whose lock no other program touches, on a store that loses nothing.
fn is_for_one_job(step: &Step) -> bool {
    match step {
        Step::Meddle(meddling) => *meddling == Meddling::Evict,
        Step::Register { .. } => false,
        _ => true,
    }
}

/// How long a host catches an occurrence up, or repeats it.
fn window(is_long: bool) -> Duration {
    SECOND * if is_long { 1000 } else { 2 }
}

/// How long before its instant a host claims an occurrence, also more than the store allows.
fn lead(wish: &Wish) -> Duration {
    match wish.early {
        Earliness::Not => Duration::ZERO,
        _ => Duration::from_millis(u64::from(wish.at) * 130 + 1),
    }
}

/// What a claim found.
struct Before {
    job: Option<JobState>,
    /// How many records there were.
    records: usize,
    /// Its token had ended.
    finished: bool,
    /// See [`RuleFleet::startable`].
    startable: (Option<Timestamp>, bool),
}

/// What the hosts and the fleet's historian know.
struct RuleFleet {
    world: World,
    start: Timestamp,
    sent: Vec<Claim>,
    /// Until when each granted token may believe it holds the lock.
    leases: BTreeMap<Token, i64>,
    /// Occurrences whose first attempt was granted and not returned.
    started: BTreeSet<Timestamp>,
    granted: BTreeSet<Token>,
    newest_fence: u64,
}

impl RuleFleet {
    fn new() -> Self {
        let mut world = World::new();
        let start = world.register("f1").decided_until;
        Self {
            world,
            start,
            sent: Vec::new(),
            leases: BTreeMap::new(),
            started: BTreeSet::new(),
            granted: BTreeSet::new(),
            newest_fence: 0,
        }
    }

    fn at(&self, n: u64) -> Timestamp {
        self.start
            .plus(SECOND * u32::try_from(n).unwrap_or(u32::MAX))
    }

    fn due(&self) -> u64 {
        self.world.now().since(self.start).as_secs()
    }

    fn last(&self) -> Timestamp {
        self.world.job.as_ref().map_or(self.start, |job| job.last)
    }

    fn earlier(&self, claim: Earlier) -> Option<Claim> {
        let mut newest_first = self.sent.iter().rev();
        match claim {
            Earlier::Newest(back) => newest_first.nth(back).cloned(),
            Earlier::Holder => {
                let token = self.world.lock.token.as_ref()?;
                newest_first.find(|it| it.token == *token).cloned()
            }
        }
    }

    /// The tokens of the earlier claims that a step is about.
    fn tokens_of(&self, step: &Step) -> Vec<Token> {
        let claims = match step {
            Step::Resend(claim)
            | Step::Finish { claim, .. }
            | Step::Settle(claim)
            | Step::Attempt(claim, _) => slice::from_ref(claim),
            Step::Renew(claims) => claims,
            _ => &[],
        };
        let claims = claims.iter().filter_map(|claim| self.earlier(*claim));
        claims.map(|claim| claim.token).collect()
    }

    fn new_claim(&self, what: ClaimTarget) -> Claim {
        let name = format!("t{}", self.sent.len());
        Claim {
            lock: self.world.name_of_lock(),
            token: token_of(&name),
            run_id: RunId::from_text(&format!("run-{name}")),
            ttl: Duration::from_millis(TTL_MS.unsigned_abs()),
            what,
        }
    }

    fn pauses(&self) -> &[Pause] {
        self.world.job.as_ref().map_or(&[], |job| &job.pauses)
    }

    /// Whether the job is paused, or was when the occurrence was due.
    fn is_paused(&self, claimed: Option<Timestamp>) -> bool {
        let now = self.world.now();
        let newest = self.pauses().last();
        let due = |pause: &Pause| claimed.is_some_and(|at| pause.covers(at));
        newest.is_some_and(|it| it.is_in_force(now)) || self.pauses().iter().any(due)
    }

    fn pause(&mut self, step: &PauseStep) -> Result<(), String> {
        let ends = |n: u32| Timestamp::from_millis(self.world.ms + i64::from(n) * 100 + 1);
        let order = if step.resumes {
            PauseOrder::Resume
        } else {
            PauseOrder::Pause {
                until: step.until.map(ends),
                reason: String::new(),
            }
        };
        let before = self.world.job.clone();
        let request = PauseRequest {
            job: job(),
            lock: self.world.name_of_lock(),
            order,
            by: "alice@web1".to_owned(),
            asked_at: self.world.now(),
        };
        let clock = self.world.clock();
        let reply = super::pause(&mut self.world.job, clock, &request);
        if reply != PauseReply::Done {
            return check(
                before == self.world.job,
                "a refused request changed the ledger",
            );
        }
        let paused = self
            .pauses()
            .last()
            .is_some_and(|it| it.is_in_force(self.world.now()));
        let wanted = matches!(request.order, PauseOrder::Pause { .. });
        check(paused == wanted, "the request is not in force")
    }

    fn waiting(&self) -> &[Waiting] {
        self.world.job.as_ref().map_or(&[], |job| &job.waiting)
    }

    fn occurrence(&self, n: u64, wish: &Wish) -> ClaimTarget {
        let at = self.at(n);
        ClaimTarget::Occurrence {
            job: job(),
            kind: Kind::Schedule,
            due: Due {
                scheduled_at: at,
                not_before: at,
                deadline: at.plus(SECOND * if wish.late.is_some() { 1 } else { 1000 }),
                prev: (n > 1).then(|| self.at(n - 1)),
                fingerprint: Fingerprint("f1".into()),
                gap: None,
                late: match wish.late {
                    None | Some(Lateness::Miss) => Late::Miss,
                    Some(Lateness::Leave) => Late::Leave,
                    Some(Lateness::CatchUp { over, newer }) => Late::CatchUp {
                        until: at.plus(window(!over)),
                        newer: newer.map(|_| self.at(n + 1)),
                    },
                },
                max_reruns: wish.max_reruns,
                max_attempts: wish.max_attempts,
                rerun_window: window(wish.in_time),
                lead: lead(wish),
            },
            overlap: wish.overlap,
            keep: crate::store::Retention::of_records(100),
        }
    }

    /// Policy drops all that is due and undecided.
    fn drops(&self, right: bool) -> ClaimTarget {
        let last = self.last();
        let due: Vec<_> = (1..=self.due())
            .map(|n| self.at(n))
            .filter(|at| *at > last)
            .collect();
        let range = |(from, until): (&Timestamp, &Timestamp)| Range {
            from: *from,
            until: *until,
            count: due.len() as u64,
        };
        let drop = due.first().zip(due.last()).map(|ends| DroppedRange {
            range: range(ends),
            outcome: Outcome::Skipped,
            reason: "dropped".to_owned(),
        });
        ClaimTarget::Drops {
            job: job(),
            fingerprint: Fingerprint("f1".into()),
            answer: GapAnswer {
                if_last: if right { last } else { last.minus(SECOND) },
                drop: drop.into_iter().collect(),
            },
            keep: crate::store::Retention::of_records(100),
        }
    }

    /// All that lies between the watermark and the claimed occurrence is dropped.
    fn answer_gap(&self, claim: &Claim, last: Timestamp) -> Claim {
        let mut claim = claim.clone();
        let until = self.due();
        if let ClaimTarget::Occurrence { due, .. } = &mut claim.what {
            let between: Vec<_> = (1..=until)
                .map(|n| self.at(n))
                .filter(|at| *at > last && *at < due.scheduled_at)
                .collect();
            let drop = between
                .first()
                .zip(between.last())
                .map(|(from, until)| DroppedRange {
                    range: Range {
                        from: *from,
                        until: *until,
                        count: between.len() as u64,
                    },
                    // Hosts part the range at each pause, and this one takes the whole of it.
                    outcome: if self.pauses().is_empty() {
                        Outcome::Missed
                    } else {
                        Outcome::Skipped
                    },
                    reason: "dropped".to_owned(),
                });
            due.gap = Some(GapAnswer {
                if_last: last,
                drop: drop.into_iter().collect(),
            });
        }
        claim
    }

    fn others_hold(&self, token: &Token) -> bool {
        let now = self.world.ms;
        self.leases
            .iter()
            .any(|(holder, end)| holder != token && *end > now)
    }

    /// Sends a claim and checks what its answer promises.
    fn claim(&mut self, claim: &Claim) -> Result<ClaimReply, String> {
        let before = Before {
            job: self.world.job.clone(),
            records: self.world.records.len(),
            finished: self.world.lock.ending(&claim.token).is_some(),
            startable: self.startable(),
        };
        let reply = self.world.send(claim);
        if let ClaimReply::Granted {
            fence,
            attempt,
            starts_in,
            ..
        } = reply
        {
            self.check_grant(claim, before, (fence, attempt, starts_in))?;
        } else {
            self.check_refusal(claim, &before, &reply)?;
        }
        Ok(reply)
    }

    fn check_refusal(
        &self,
        claim: &Claim,
        before: &Before,
        reply: &ClaimReply,
    ) -> Result<(), String> {
        let unchanged = before.job == self.world.job && before.records == self.world.records.len();
        let stands = before.job.as_ref().map(|job| job.last) == Some(self.last());
        let claimed = occurrence_of(claim);
        let undecided = claimed.is_some_and(|at| at > self.last());
        let mut waiting = self.waiting().iter();
        let waits = waiting.any(|entry| Some(entry.scheduled_at) == claimed);
        match reply {
            ClaimReply::Finished => check(before.finished && unchanged, "Finished without reason"),
            ClaimReply::Recovering { .. } | ClaimReply::Unknown => {
                check(false, "a store that lost nothing speaks of a loss")
            }
            ClaimReply::Moved { .. } => check(false, "the ledger moved"),
            ClaimReply::Ahead { .. } => check(false, "the ledger passed the clock"),
            ClaimReply::Early { by } => {
                check(unchanged, "an early claim changed something")?;
                let due = claimed.map(|at| at.since(self.world.now()));
                check(due == Some(*by) && !by.is_zero(), "early by something else")
            }
            ClaimReply::Gap { .. } | ClaimReply::AlreadyClaimed(_) => {
                check(stands, "a refusal moved the watermark")?;
                check(!waits, "what waits was refused")
            }
            // The answer to a gap before it may have been applied.
            ClaimReply::Stale => check(undecided, "stale, and decided"),
            ClaimReply::Waits { head, entered, .. } => {
                let first = self.waiting().first().map(Waiting::head);
                check(first == Some(*head), "another head was named")?;
                let agrees = *entered == waits;
                check(agrees, "entered, and not in the list, or the reverse")?;
                check(*entered || undecided, "not entered, but decided")
            }
            ClaimReply::Paused(pause) => {
                check(self.pauses().contains(pause), "no such pause")?;
                check(!waits && !undecided, "a pause left it undecided")
            }
            ClaimReply::QueueFull => check(!waits && !stands, "a full queue took it"),
            ClaimReply::Dropped => {
                let drops = matches!(&claim.what, ClaimTarget::Drops { .. });
                let due = self.last() <= self.world.now() || stands;
                check(drops && due, "dropped what is not due")
            }
            ClaimReply::TooLate | ClaimReply::Held { .. } | ClaimReply::Granted { .. } => Ok(()),
        }
    }

    fn check_grant(
        &mut self,
        claim: &Claim,
        before: Before,
        (fence, attempt, starts_in): (u64, u32, Duration),
    ) -> Result<(), String> {
        let claimed = occurrence_of(claim);
        let wait = claimed.map_or(Duration::ZERO, |at| at.since(self.world.now()));
        check(starts_in == wait, "it may start at another instant")?;
        check(wait <= lead_of(claim), "granted further ahead than asked")?;
        check(!before.finished, "a finished token was granted")?;
        check(!self.others_hold(&claim.token), "two hold the lock")?;
        let is_new = !self.granted.contains(&claim.token) && claim.what.job().is_some();
        let last = before.job.as_ref().map_or(self.start, |job| job.last);
        let new = claimed.filter(|at| *at > last);
        check(!(is_new && self.is_paused(new)), "a paused job started")?;
        if self.granted.insert(claim.token.clone()) {
            check(fence > self.newest_fence, "the fence did not rise")?;
            if let Some(at) = claimed {
                let first = self.started.insert(at);
                check(first != (attempt > 1), "an occurrence started twice")?;
                let (head, stays) = before.startable;
                let new = before.job.is_none_or(|job| at > job.last);
                let may = if new { !stays } else { head == Some(at) };
                check(may, "it was granted, and is not the head")?;
            }
        }
        check(fence >= self.newest_fence, "the fence fell")?;
        self.newest_fence = fence;
        let end = self.world.ms + TTL_MS;
        self.leases.insert(claim.token.clone(), end);
        Ok(())
    }

    /// What a claim finds at the head of the list, and whether anything in it stays when a newer
    /// occurrence is claimed.
    fn startable(&self) -> (Option<Timestamp>, bool) {
        let Some(job) = &self.world.job else {
            return (None, false);
        };
        let now = self.world.now();
        let list = job.waiting.iter().filter(|entry| entry.deadline >= now);
        let first = list.clone().next().map(|entry| entry.scheduled_at);
        let stays = |entry: &Waiting| !(entry.kind == Kind::CatchUp && entry.yields);
        let rerun = job.open.as_ref().filter(|open| self.is_to_be_rerun(open));
        let rerun = rerun.and_then(|open| open.scheduled_at);
        (rerun.or(first), rerun.is_some() || list.clone().any(stays))
    }

    fn is_to_be_rerun(&self, open: &Open) -> bool {
        let (terms, lock) = (&open.terms, &self.world.lock);
        let attempts = terms.max_attempts == 0 || open.attempt < terms.max_attempts;
        let lease = self.leases.get(&open.token);
        let lives = lease.is_some_and(|end| *end > self.world.ms);
        let since = if lock.is_granted_to(&open.token) {
            self.world.clock().lease.saturating_sub(lock.lease_end)
        } else {
            0
        };
        let in_time = Duration::from_millis(since) <= terms.rerun_window;
        terms.reruns < terms.max_reruns && attempts && !lives && in_time
    }

    fn finish(&mut self, claim: &Claim, with_record: bool, give_back: bool) {
        let scheduled_at = occurrence_of(claim);
        let bare = matches!(claim.what, ClaimTarget::Lock | ClaimTarget::Drops { .. });
        let finish = Finish {
            lock: claim.lock.clone(),
            token: claim.token.clone(),
            record: (with_record && !bare && self.granted.contains(&claim.token)).then(|| Record {
                run_id: Some(claim.run_id.clone()),
                ..record(scheduled_at, Outcome::Succeeded)
            }),
            job: (!bare).then(job),
            give_back,
            keep: crate::store::Retention::of_records(100),
        };
        let clock = self.world.clock();
        let (_, effects) = super::finish(&mut self.world.lock, &mut self.world.job, clock, &finish);
        self.world.take_effects(effects);
        self.leases.remove(&claim.token);
        let again = self
            .waiting()
            .iter()
            .filter(|entry| entry.attempts == 0)
            .map(|entry| entry.scheduled_at)
            .collect::<BTreeSet<_>>();
        self.started.retain(|at| !again.contains(at));
    }

    fn run(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Claim(asked) => self.ask(asked),
            Step::Resend(claim)
            | Step::Finish { claim, .. }
            | Step::Settle(claim)
            | Step::Attempt(claim, _) => match self.earlier(*claim) {
                Some(claim) => self.follow_up(&claim, step),
                None => Ok(()),
            },
            Step::Renew(claims) => claims.iter().try_for_each(|claim| {
                let claim = self.earlier(*claim);
                claim.map_or(Ok(()), |claim| self.renew(&claim))
            }),
            Step::Pause(pause) => self.pause(pause),
            Step::Meddle(_) => {
                self.world.lock.key = Key::Absent;
                Ok(())
            }
            Step::Pass(ms) => {
                self.world.pass(i64::from(*ms));
                Ok(())
            }
            Step::Register { .. } => Ok(()),
        }
    }

    fn ask(&mut self, asked: &Asked) -> Result<(), String> {
        match asked {
            Asked::Lock => self.send_new(ClaimTarget::Lock).map(drop),
            Asked::Manual(_) => {
                let what = ClaimTarget::Manual {
                    job: job(),
                    if_paused: IfPaused::Refuse,
                };
                self.send_new(what).map(drop)
            }
            Asked::Occurrence(wish) => self.claim_newest(wish),
            Asked::Head(wish) => match self.waiting().first() {
                Some(head) => {
                    let n = head.scheduled_at.since(self.start).as_secs();
                    self.send_new(self.occurrence(n, wish)).map(drop)
                }
                None => Ok(()),
            },
            Asked::Drops(wish) => {
                let right = wish.gap.as_ref().is_none_or(|gap| gap.right);
                let claim = self.new_claim(self.drops(right));
                let dropped = matches!(self.claim(&claim)?, ClaimReply::Dropped);
                check(dropped == right, "dropped from another watermark, or not")
            }
        }
    }

    fn send_new(&mut self, what: ClaimTarget) -> Result<(Claim, ClaimReply), String> {
        let claim = self.new_claim(what);
        self.sent.push(claim.clone());
        let reply = self.claim(&claim)?;
        Ok((claim, reply))
    }

    /// Claims the newest due occurrence or one a little before, and ahead of its instant the next one.
    fn claim_newest(&mut self, wish: &Wish) -> Result<(), String> {
        let next = u64::from(!lead(wish).is_zero());
        let back = u64::from(wish.at % 3);
        let n = (self.due() + next).saturating_sub(back).max(1);
        let (claim, reply) = self.send_new(self.occurrence(n, wish))?;
        if let ClaimReply::Gap { last, .. } = reply
            && wish.gap.is_some()
        {
            let answer = self.answer_gap(&claim, last);
            self.sent.push(answer.clone());
            let again = self.claim(&answer)?;
            let gap = matches!(again, ClaimReply::Gap { .. });
            check(!gap, "an answered gap is still one")?;
        }
        Ok(())
    }

    fn follow_up(&mut self, claim: &Claim, step: &Step) -> Result<(), String> {
        match step {
            Step::Finish {
                record, give_back, ..
            } => {
                let is_unused = *give_back || !self.granted.contains(&claim.token);
                self.finish(claim, record.is_some() && !give_back, is_unused);
                Ok(())
            }
            Step::Settle(_) => self.settle(claim),
            Step::Attempt(..) => self.start_attempt(claim),
            _ => self.claim(claim).map(drop),
        }
    }

    fn start_attempt(&mut self, claim: &Claim) -> Result<(), String> {
        let open = |job: &Option<JobState>| job.as_ref().and_then(|job| job.open.clone());
        let before = open(&self.world.job);
        let next = before.as_ref().map_or(1, |open| open.attempt + 1);
        let attempt = Attempt {
            lock: claim.lock.clone(),
            token: claim.token.clone(),
            job: job(),
            attempt: next,
        };
        let noted = super::note_attempt(&mut self.world.job, &attempt);
        let after = open(&self.world.job);
        let ours = before
            .as_ref()
            .is_some_and(|open| open.token == claim.token);
        check(
            noted == ours,
            "an attempt of another run was noted, or none",
        )?;
        let raised = after.is_some_and(|open| open.attempt == next);
        check(raised || !noted, "the attempt was not noted")
    }

    fn renew(&mut self, claim: &Claim) -> Result<(), String> {
        let renewal = Grant::of(claim, 0, BootInstant::BOOT).renewal();
        let lived = self
            .leases
            .get(&claim.token)
            .is_some_and(|end| *end > self.world.ms);
        let clock = self.world.clock();
        let (reply, _) = super::renew(&mut self.world.lock, &mut self.world.job, clock, &renewal);
        if reply == RenewReply::Renewed {
            check(lived, "a lease that was over was renewed")?;
            let end = self.world.ms + TTL_MS;
            self.leases.insert(claim.token.clone(), end);
        }
        check(
            reply == RenewReply::Renewed || !lived,
            "a living lease was not renewed",
        )
    }

    fn settle(&mut self, claim: &Claim) -> Result<(), String> {
        let settle = Settle {
            lock: claim.lock.clone(),
            job: job(),
            run_id: claim.run_id.clone(),
            keep: crate::store::Retention::of_records(100),
        };
        let lived = self
            .leases
            .get(&claim.token)
            .is_some_and(|end| *end > self.world.ms);
        let clock = self.world.clock();
        let (done, effects) =
            super::settle(&mut self.world.lock, &mut self.world.job, clock, &settle);
        self.world.take_effects(effects);
        check(!(done && lived), "a living run was settled")
    }

    /// G7: whatever is decided has a record, or a run that is open, or it waits. What was not
    /// started has one verdict and no run; each run has one.
    fn each_decided_occurrence_has_its_verdict(&self) -> Result<(), String> {
        let open = self.world.job.as_ref().and_then(|job| job.open.as_ref());
        for at in (1..=self.due() + 1)
            .map(|n| self.at(n))
            .filter(|at| *at <= self.last())
        {
            let told: Vec<&Record> = self
                .world
                .records
                .iter()
                .filter(|record| {
                    let until = record.until.or(record.scheduled_at);
                    record.scheduled_at.is_some_and(|from| from <= at) && until >= Some(at)
                })
                .collect();
            let runs: Vec<_> = told.iter().filter_map(|r| r.run_id.as_ref()).collect();
            let running = open.is_some_and(|open| open.scheduled_at == Some(at));
            let waiting = self.waiting().iter().any(|e| e.scheduled_at == at);
            let has_one = !told.is_empty() || running || waiting;
            check(has_one, &format!("{at} has no verdict"))?;
            check(!(running && waiting), &format!("{at} runs and waits"))?;
            let unstarted = told.len() - runs.len();
            let alone = runs.is_empty() && !running && !waiting && unstarted == 1;
            check(unstarted == 0 || alone, &format!("{at} has two verdicts"))?;
            let distinct: BTreeSet<_> = runs.iter().map(|run| run.as_str()).collect();
            check(
                distinct.len() == runs.len(),
                &format!("a run of {at} has two verdicts"),
            )?;
        }
        Ok(())
    }

    /// All that waits was decided to, once each; reruns stand before the others, and these in the
    /// order of their instants.
    fn the_waiting_list_is_in_order(&self) -> Result<(), String> {
        let waiting = self.waiting();
        let last = self.last();
        check(
            waiting.iter().all(|entry| entry.scheduled_at <= last),
            "what waits is undecided",
        )?;
        let reruns = waiting.iter().take_while(|e| e.kind == Kind::Rerun).count();
        let others: Vec<_> = waiting[reruns..].iter().map(|e| e.scheduled_at).collect();
        check(
            waiting[reruns..].iter().all(|e| e.kind != Kind::Rerun),
            "a rerun stands behind others",
        )?;
        check(
            others.is_sorted_by(|a, b| a < b),
            "the queue is out of order",
        )?;
        let distinct: BTreeSet<_> = waiting.iter().map(|e| e.scheduled_at).collect();
        check(distinct.len() == waiting.len(), "one waits twice")?;
        let latest = self.world.now().plus(LEAD);
        check(last <= latest, "the ledger is ahead of the clock")
    }
}

fn occurrence_of(claim: &Claim) -> Option<Timestamp> {
    match &claim.what {
        ClaimTarget::Occurrence { due, .. } => Some(due.scheduled_at),
        ClaimTarget::Lock | ClaimTarget::Manual { .. } | ClaimTarget::Drops { .. } => None,
    }
}

fn lead_of(claim: &Claim) -> Duration {
    match &claim.what {
        ClaimTarget::Occurrence { due, .. } => due.lead.min(LEAD),
        ClaimTarget::Lock | ClaimTarget::Manual { .. } | ClaimTarget::Drops { .. } => {
            Duration::ZERO
        }
    }
}

fn check(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(otherwise.to_owned())
    }
}

fn key_holder(key: &Key) -> Option<&str> {
    match key {
        Key::Value { text, .. } => Some(text),
        Key::Absent | Key::OtherType { .. } => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_guarantees_hold(steps in steps(100, is_for_one_job)) {
        let mut fleet = RuleFleet::new();
        fleet.world.pass(3500);
        for step in steps {
            let last = fleet.last();
            let fence = fleet.world.lock.fence;
            let done = fleet.run(&step);
            prop_assert_eq!(done, Ok(()), "{:?}", step);
            prop_assert!(fleet.world.lock.fence >= fence);
            prop_assert!(fleet.last() >= last, "last fell at {:?}", step);
            prop_assert_eq!(fleet.each_decided_occurrence_has_its_verdict(), Ok(()), "{:?}", step);
            prop_assert_eq!(fleet.the_waiting_list_is_in_order(), Ok(()), "{:?}", step);
        }
    }

    #[test]
    fn no_request_changes_a_key_that_is_anothers(steps in steps(75, is_for_one_job)) {
        let mut fleet = RuleFleet::new();
        fleet.world.pass(3500);
        for step in steps {
            let before = fleet.world.lock.key.clone();
            let (mut askers, newest) = (fleet.tokens_of(&step), fleet.sent.len());
            prop_assert_eq!(fleet.run(&step), Ok(()));
            // Time and evictions are no requests: they may change any key.
            if matches!(step, Step::Meddle(_) | Step::Pass(_)) {
                continue;
            }
            askers.extend(fleet.sent[newest..].iter().map(|claim| claim.token.clone()));
            if let Some(holder) = key_holder(&before)
                && askers.iter().all(|asker| asker.as_str() != holder)
            {
                prop_assert_eq!(&fleet.world.lock.key, &before, "{:?}", step);
            }
        }
    }
}
