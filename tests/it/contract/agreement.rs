//! The store against the protocol's transition function, call by call, over random sequences of
//! requests: copies, delays, evictions and ends of leases included.

use std::time::Duration;

use cronlatch::names::{JobName, LockName};
use cronlatch::store::protocol::{self, Clock, Effect, JobState, Key, LockState, Past};
use cronlatch::store::{
    Attempt, Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Fingerprint, Finish, GapAnswer,
    Grant, Head, IfPaused, JobReport, Kind, Late, Lock, Outcome, Overlap, PauseOrder, PauseRequest,
    Range, Record, Registration, RunStatus, Settle, Store, Summary,
};
use cronlatch::time::{BootInstant, Timestamp};
use proptest::prelude::Strategy;
use proptest::test_runner::{Config, TestError, TestRunner};

use super::{BACK, LONG, Subject, run_id, token};
use crate::support::claims::record;
use crate::support::test_cases;

const CASES: u32 = 60;
const CLAIMANTS: u8 = 5;

/// One thing that happens. Claimants resend what they sent first, whenever they send.
#[derive(Clone, Debug)]
enum Step {
    Claim(u8, Wish),
    Resend(u8),
    Renew(u8),
    Finish(u8, How),
    Settle(u8),
    Attempt(u8, u32),
    Evict,
    Expire,
    Register(u8, u8),
    Pause(u8, Asked),
}

/// A request to pause or to resume.
#[derive(Clone, Debug)]
struct Asked {
    /// How many seconds after the newest request, or before it.
    after: i8,
    /// How many seconds later the pause ends by itself.
    until: Option<u64>,
    resumes: bool,
}

/// What a claimant wants.
#[derive(Clone, Debug)]
struct Wish {
    job: u8,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Bare,
    Manual,
    Occurrence {
        n: u64,
        prev: bool,
        /// The watermark a gap answer names: the model's, or a stale one.
        gap: Option<bool>,
        late: Option<Lateness>,
        early: Earliness,
        overlap: Overlap,
        schedule: u8,
        reruns: Reruns,
    },
    /// From the model's watermark, or a stale one, up to the `n`th occurrence, or further.
    Drops {
        n: u64,
        right: bool,
        far: bool,
        schedule: u8,
    },
}

/// How long before its instant an occurrence is claimed that is near.
const NEAR: Duration = Duration::from_millis(900);

/// The instant of a claim came while it was sent, so nobody knows on which side of it the store replied.
const AT_ITS_INSTANT: &str = "the instant came meanwhile";

/// When an occurrence may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Earliness {
    Not,
    /// Far beyond any lead.
    Far,
    /// Within the lead of its claim.
    Near,
}

/// How a claim that comes too late is to be judged.
#[derive(Clone, Copy, Debug)]
enum Lateness {
    Miss,
    Leave,
    CatchUp { over: bool, newer: Option<bool> },
}

#[derive(Clone, Copy, Debug)]
struct Reruns {
    most: u32,
    attempts: u32,
}

#[derive(Clone, Copy, Debug)]
enum How {
    WithRecord,
    GiveBack,
    Plain,
}

fn form() -> impl Strategy<Value = Form> {
    use proptest::prelude::{Just, any};
    use proptest::prop_oneof;
    let rarely = || proptest::bool::weighted(0.1);
    let early = prop_oneof![
        7 => Just(Earliness::Not),
        1 => Just(Earliness::Far),
        2 => Just(Earliness::Near),
    ];
    let occurrence = (
        1..8_u64,
        any::<bool>(),
        proptest::option::weighted(0.4, proptest::bool::weighted(0.8)),
        proptest::option::weighted(0.3, lateness()),
        early,
        overlap(),
        0..2_u8,
        reruns(),
    )
        .prop_map(
            |(n, prev, gap, late, early, overlap, schedule, reruns)| Form::Occurrence {
                n,
                prev,
                gap,
                late,
                early,
                overlap,
                schedule,
                reruns,
            },
        );
    let drops = (1..8_u64, proptest::bool::weighted(0.8), rarely(), 0..2_u8).prop_map(
        |(n, right, far, schedule)| Form::Drops {
            n,
            right,
            far,
            schedule,
        },
    );
    prop_oneof![1 => Just(Form::Bare), 1 => Just(Form::Manual), 1 => drops, 9 => occurrence]
}

fn overlap() -> impl Strategy<Value = Overlap> {
    use proptest::prelude::Just;
    proptest::prop_oneof![
        1 => Just(Overlap::Skip),
        2 => Just(Overlap::Wait),
        3 => (0..4_u32).prop_map(|limit| Overlap::Queue { limit }),
        1 => Just(Overlap::Queue { limit: u32::MAX }),
    ]
}

fn lateness() -> impl Strategy<Value = Lateness> {
    use proptest::prelude::{Just, any};
    let newer = proptest::option::of(any::<bool>());
    let catch_up = (proptest::bool::weighted(0.2), newer)
        .prop_map(|(over, newer)| Lateness::CatchUp { over, newer });
    proptest::prop_oneof![1 => Just(Lateness::Miss), 1 => Just(Lateness::Leave), 4 => catch_up]
}

fn reruns() -> impl Strategy<Value = Reruns> {
    (0..3_u32, 0..4_u32).prop_map(|(most, attempts)| Reruns { most, attempts })
}

fn asked() -> impl Strategy<Value = Asked> {
    let until = proptest::option::weighted(0.5, 0..4_u64);
    let resumes = proptest::bool::weighted(0.6);
    (-1..3_i8, until, resumes).prop_map(|(after, until, resumes)| Asked {
        after,
        until,
        resumes,
    })
}

fn step() -> impl Strategy<Value = Step> {
    use proptest::prelude::Just;
    use proptest::prop_oneof;
    let who = || 0..CLAIMANTS;
    let how = prop_oneof![Just(How::WithRecord), Just(How::GiveBack), Just(How::Plain)];
    let wish = (0..2_u8, form()).prop_map(|(job, form)| Wish { job, form });
    prop_oneof![
        6 => (who(), wish).prop_map(|(who, wish)| Step::Claim(who, wish)),
        4 => who().prop_map(Step::Resend),
        2 => who().prop_map(Step::Renew),
        4 => (who(), how).prop_map(|(who, how)| Step::Finish(who, how)),
        2 => who().prop_map(Step::Settle),
        1 => (who(), 1..5_u32).prop_map(|(who, attempt)| Step::Attempt(who, attempt)),
        1 => Just(Step::Evict),
        3 => Just(Step::Expire),
        1 => (0..2_u8, 0..4_u8).prop_map(|(job, schedule)| Step::Register(job, schedule)),
        2 => (0..2_u8, asked()).prop_map(|(job, asked)| Step::Pause(job, asked)),
    ]
}

/// What the model keeps besides the states: what was sent, and which fences correspond.
struct Model<'a, S> {
    subject: &'a S,
    store: std::sync::Arc<dyn Store>,
    lock_name: Lock,
    lock: LockState,
    jobs: [Option<JobState>; 2],
    records: [Vec<Record>; 2],
    start: Timestamp,
    sent: Vec<Option<(u8, Claim)>>,
    /// The model's fences and the store's, which differ by the clock alone.
    fences: Vec<(u64, u64)>,
}

fn job(n: u8) -> JobName {
    JobName::parse(["one", "two"][usize::from(n)]).unwrap()
}

impl<S: Subject> Model<'_, S> {
    async fn clock(&self) -> Clock {
        let now = self.store.now().await.unwrap();
        at(now)
    }

    async fn register(&mut self, n: u8, schedule: u8) -> Result<(), String> {
        let registration = Registration {
            job: job(n),
            lock: self.lock_name.clone(),
            fingerprint: Fingerprint(format!("f{schedule}")),
            ttl: LONG,
        };
        let theirs = self
            .store
            .register(std::slice::from_ref(&registration))
            .await;
        let theirs = theirs.unwrap().remove(0);
        let state = &mut self.jobs[usize::from(n)];
        let ours = protocol::register(&self.lock, state, at(theirs.now), &registration);
        same("decided until", ours.decided_until, theirs.decided_until)?;
        same("beyond", ours.decided_beyond, theirs.decided_beyond)?;
        same("pauses", ours.pauses, theirs.pauses)?;
        same("head", told_head(ours.head), told_head(theirs.head))?;
        same(
            "open",
            ours.open
                .map(|open| (open.run_id, open.attempt, open.remaining.is_zero())),
            theirs
                .open
                .map(|open| (open.run_id, open.attempt, open.remaining.is_zero())),
        )
    }

    async fn pause(&mut self, n: u8, asked: &Asked) -> Result<(), String> {
        let state = &mut self.jobs[usize::from(n)];
        let newest = state.as_ref().and_then(|state| state.pauses.last());
        let newest = newest.map_or(self.start, |pause| pause.asked_at);
        let seconds = Duration::from_secs(u64::from(asked.after.unsigned_abs()));
        let asked_at = if asked.after < 0 {
            newest.minus(seconds)
        } else {
            newest.plus(seconds)
        };
        let until = asked
            .until
            .map(|span| asked_at.plus(Duration::from_secs(span)));
        let request = PauseRequest {
            job: job(n),
            lock: self.lock_name.clone(),
            order: if asked.resumes {
                PauseOrder::Resume
            } else {
                let reason = "a reason".to_owned();
                PauseOrder::Pause { until, reason }
            },
            by: "alice@web1".to_owned(),
            asked_at,
        };
        let theirs = self.store.pause(&request).await.unwrap();
        let ours = protocol::pause(state, at(self.store.now().await.unwrap()), &request);
        same("pause", ours, theirs)
    }

    /// `near` is within the lead of a claim.
    fn claim_for(&self, who: u8, number: usize, (wish, near): (&Wish, Timestamp)) -> Claim {
        let name = format!("{who}-{number}");
        let job_name = job(wish.job);
        let what = match wish.form {
            Form::Bare => ClaimTarget::Lock,
            Form::Manual => ClaimTarget::Manual {
                job: job_name,
                if_paused: IfPaused::Refuse,
            },
            Form::Occurrence {
                n,
                prev,
                gap,
                late,
                early,
                overlap,
                schedule,
                reruns,
            } => {
                let at = |n: u64| self.start.plus(Duration::from_secs(n));
                let last = self.jobs[usize::from(wish.job)]
                    .as_ref()
                    .map(|job| job.last);
                let undecided = (1..n).find(|n| last.is_some_and(|last| at(*n) > last));
                let drop = undecided.map(|from| DroppedRange {
                    range: Range {
                        from: at(from),
                        until: at(n - 1),
                        count: n - from,
                    },
                    outcome: Outcome::Missed,
                    reason: "dropped".to_owned(),
                });
                ClaimTarget::Occurrence {
                    job: job_name,
                    kind: Kind::Schedule,
                    due: Due {
                        scheduled_at: at(n),
                        not_before: match early {
                            Earliness::Not => Timestamp::EPOCH,
                            Earliness::Far => at(1_000_000),
                            Earliness::Near => near,
                        },
                        deadline: if late.is_some() {
                            Timestamp::EPOCH
                        } else {
                            at(1_000_000)
                        },
                        prev: (prev && n > 1).then(|| at(n - 1)),
                        fingerprint: Fingerprint(format!("f{schedule}")),
                        gap: gap.zip(last).map(|(right, last)| GapAnswer {
                            if_last: if right {
                                last
                            } else {
                                last.minus(Duration::from_millis(1))
                            },
                            drop: drop.into_iter().collect(),
                        }),
                        late: match late {
                            None | Some(Lateness::Miss) => Late::Miss,
                            Some(Lateness::Leave) => Late::Leave,
                            Some(Lateness::CatchUp { over, newer }) => Late::CatchUp {
                                until: if over { at(n) } else { at(1_000_000) },
                                newer: newer.map(|due| if due { at(n + 1) } else { at(900_000) }),
                            },
                        },
                        max_reruns: reruns.most,
                        max_attempts: reruns.attempts,
                        // The nodes of a majority do not keep when a lease ended: a window that
                        // ends with the lease would be judged by milliseconds.
                        rerun_window: LONG * 1000,
                        lead: if early == Earliness::Near {
                            protocol::LEAD
                        } else {
                            Duration::ZERO
                        },
                    },
                    overlap,
                    keep: cronlatch::store::Retention::of_records(1000),
                }
            }
            Form::Drops {
                n,
                right,
                far,
                schedule,
            } => self.drops(wish.job, (n, right, far), schedule),
        };
        Claim {
            lock: self.lock_name.clone(),
            token: token(&name),
            run_id: run_id(&name),
            ttl: LONG,
            what,
        }
    }

    fn drops(&self, n: u8, (until, right, far): (u64, bool, bool), schedule: u8) -> ClaimTarget {
        let at = |n: u64| self.start.plus(Duration::from_secs(n));
        let fingerprint = Fingerprint(format!("f{schedule}"));
        let state = self.jobs[usize::from(n)].as_ref();
        let base = state.map_or(self.start, |job| {
            let seen = job.fingerprints.iter().find(|(f, _)| *f == fingerprint);
            seen.map_or(job.last, |(_, first)| job.last.max(*first))
        });
        let until = if far { 1_000_000 } else { until };
        let from = (1..=until).find(|n| at(*n) > base);
        let drop = from.map(|from| DroppedRange {
            range: Range {
                from: at(from),
                until: at(until),
                count: until - from + 1,
            },
            outcome: Outcome::Skipped,
            reason: "dropped".to_owned(),
        });
        ClaimTarget::Drops {
            job: job(n),
            fingerprint,
            answer: GapAnswer {
                if_last: if right {
                    base
                } else {
                    base.minus(Duration::from_millis(1))
                },
                drop: drop.into_iter().collect(),
            },
            keep: cronlatch::store::Retention::of_records(1000),
        }
    }

    fn keep(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let Effect::Append {
                record,
                follows,
                replaces,
                ..
            } = effect
            else {
                continue;
            };
            let records = &mut self.records[usize::from(record.job == job(1))];
            if replaces {
                records.retain(|known| !protocol::is_replaced_by(known, &record));
            }
            let merged = records
                .last()
                .and_then(|newest| protocol::merge(newest, &record, follows));
            if merged.is_some() {
                records.pop();
            }
            records.push(merged.unwrap_or(*record));
        }
    }

    async fn claim(&mut self, n: u8, claim: &Claim) -> Result<(), String> {
        // A schedule must be known before: the instant of first sight is the store's own.
        let schedule = match &claim.what {
            ClaimTarget::Occurrence { due, .. } => Some(&due.fingerprint),
            ClaimTarget::Drops { fingerprint, .. } => Some(fingerprint),
            ClaimTarget::Lock | ClaimTarget::Manual { .. } => None,
        };
        if let Some(schedule) = schedule {
            let schedule = schedule.0[1..].parse().unwrap_or(0);
            self.register_unknown(n, schedule).await?;
        }
        let before = self.clock().await.utc();
        let theirs = self.store.claim(claim).await.unwrap();
        let after = self.clock().await;
        if let ClaimTarget::Occurrence { due, .. } = &claim.what
            && before < due.not_before
            && due.not_before <= after.utc()
        {
            return Err(AT_ITS_INSTANT.to_owned());
        }
        let clock = match theirs {
            ClaimReply::Granted { at: instant, .. } => at(instant),
            _ => after,
        };
        let state = &mut self.jobs[usize::from(n)];
        let (ours, effects) = protocol::claim(&mut self.lock, state, clock, claim);
        protocol::summarize(state, &effects, clock);
        self.keep(effects);
        if let (
            ClaimReply::Granted { fence: ours, .. },
            ClaimReply::Granted { fence: theirs, .. },
        ) = (&ours, &theirs)
        {
            self.fences.push((*ours, *theirs));
        }
        same("claim", timeless(ours), timeless(theirs))
    }

    /// Makes the job's ledger begin at the start of the schedule.
    async fn begin(&mut self, n: u8) -> Result<(), String> {
        let claim = Claim {
            lock: self.lock_name.clone(),
            token: token(&format!("begin-{n}")),
            run_id: run_id("begin"),
            ttl: LONG,
            what: ClaimTarget::Drops {
                job: job(n),
                fingerprint: Fingerprint("f0".to_owned()),
                answer: GapAnswer {
                    if_last: self.start,
                    drop: Vec::new(),
                },
                keep: cronlatch::store::Retention::of_records(1000),
            },
        };
        let theirs = self.store.claim(&claim).await.unwrap();
        let clock = self.clock().await;
        let state = &mut self.jobs[usize::from(n)];
        let (ours, _) = protocol::claim(&mut self.lock, state, clock, &claim);
        same("beginning", ours, theirs)
    }

    /// Registers a schedule that the model does not know.
    async fn register_unknown(&mut self, n: u8, schedule: u8) -> Result<(), String> {
        let known = self.jobs[usize::from(n)].as_ref().is_some_and(|job| {
            let name = format!("f{schedule}");
            job.fingerprints.iter().any(|(known, _)| known.0 == name)
        });
        if known {
            return Ok(());
        }
        self.register(n, schedule).await
    }

    async fn run(&mut self, number: usize, step: &Step) -> Result<(), String> {
        match step {
            Step::Claim(who, wish) => {
                let near = self.clock().await.utc().plus(NEAR);
                let claim = self.claim_for(*who, number, (wish, near));
                self.sent[usize::from(*who)] = Some((wish.job, claim.clone()));
                self.claim(wish.job, &claim).await
            }
            Step::Register(n, schedule) => self.register(*n, *schedule).await,
            Step::Pause(n, asked) => self.pause(*n, asked).await,
            Step::Evict => {
                self.subject.evict(&self.lock_name).await;
                self.lock.key = Key::Absent;
                Ok(())
            }
            // A lease that nobody holds has no end: a store keeps none.
            Step::Expire if self.lock.token.is_none() => Ok(()),
            Step::Expire => {
                self.subject.expire(&self.lock_name).await;
                self.lock.key = Key::Absent;
                self.lock.lease_end = self.clock().await.lease - 1;
                Ok(())
            }
            Step::Resend(who)
            | Step::Renew(who)
            | Step::Finish(who, _)
            | Step::Settle(who)
            | Step::Attempt(who, _) => match self.sent[usize::from(*who)].clone() {
                Some((n, claim)) => self.follow_up(n, &claim, step).await,
                None => Ok(()),
            },
        }
    }

    async fn follow_up(&mut self, n: u8, claim: &Claim, step: &Step) -> Result<(), String> {
        let (lock, token) = (claim.lock.clone(), claim.token.clone());
        let state = usize::from(n);
        match step {
            Step::Renew(_) => {
                let ttl = LONG;
                let renewal = Grant {
                    lock,
                    token,
                    run_id: claim.run_id.clone(),
                    fence: 0,
                    ttl,
                    sent: BootInstant::BOOT,
                    starts_at: None,
                }
                .renewal();
                let theirs = self.store.renew(std::slice::from_ref(&renewal)).await;
                let clock = self.clock().await;
                let (ours, _) = protocol::renew(&mut self.lock, &mut None, clock, &renewal);
                same("renew", ours, theirs.unwrap()[0])
            }
            Step::Finish(_, how) => {
                let finish = finish_of(n, claim, *how);
                let theirs = self.store.finish(&finish).await.unwrap();
                let clock = self.clock().await;
                let mut none = None;
                let job = if finish.job.is_some() {
                    &mut self.jobs[state]
                } else {
                    &mut none
                };
                let (ours, effects) = protocol::finish(&mut self.lock, job, clock, &finish);
                protocol::summarize(job, &effects, clock);
                self.keep(effects);
                same("finish", ours, theirs)
            }
            Step::Settle(_) => {
                let settle = Settle {
                    lock,
                    job: job(n),
                    run_id: claim.run_id.clone(),
                    keep: cronlatch::store::Retention::of_records(1000),
                };
                let theirs = self.store.settle(&settle).await.unwrap();
                let clock = self.clock().await;
                let job = &mut self.jobs[state];
                let (ours, effects) = protocol::settle(&mut self.lock, job, clock, &settle);
                protocol::summarize(job, &effects, clock);
                self.keep(effects);
                same("settle", ours, theirs)
            }
            Step::Attempt(_, attempt) => {
                let attempt = Attempt {
                    lock,
                    token,
                    job: job(n),
                    attempt: *attempt,
                };
                let theirs = self.store.note_attempt(&attempt).await.unwrap();
                let ours = protocol::note_attempt(&mut self.jobs[state], &attempt);
                same("attempt", ours, theirs)
            }
            _ => self.claim(n, claim).await,
        }
    }

    /// Ledgers, holders and histories agree as well.
    async fn compare(&mut self) -> Result<(), String> {
        let clock = self.clock().await;
        for n in 0..2_u8 {
            let asked = [(job(n), self.lock_name.clone())];
            let theirs = self.store.jobs(&asked).await.unwrap().remove(0);
            let state = self.jobs[usize::from(n)].as_ref();
            let ours = protocol::report(&job(n), &self.lock, true, state, clock);
            same("report", seen(&ours), seen(&theirs))?;
            let theirs = self.store.history(&job(n), &self.lock_name, 1000).await;
            let mut theirs = theirs.unwrap().records;
            theirs.reverse();
            let mut ours = self.records[usize::from(n)].clone();
            if self.subject.copies() > 1 {
                leave_out_overtaken(&mut ours);
            }
            same("history", told(&ours), told(&theirs))?;
        }
        for (one, other) in self
            .fences
            .iter()
            .flat_map(|a| self.fences.iter().map(move |b| (a, b)))
        {
            same("order of fences", one.0.cmp(&other.0), one.1.cmp(&other.1))?;
        }
        Ok(())
    }
}

/// What is put together from several nodes says nothing else of an occurrence than that it ran, if
/// it did.
fn leave_out_overtaken(records: &mut Vec<Record>) {
    let ran = records.iter().filter(|record| record.run_id.is_some());
    let ran: Vec<_> = ran.filter_map(|record| record.scheduled_at).collect();
    records.retain(|record| {
        let is_one = record.run_id.is_none() && record.until.is_none();
        !is_one || record.scheduled_at.is_none_or(|at| !ran.contains(&at))
    });
}

fn finish_of(n: u8, claim: &Claim, how: How) -> Finish {
    let scheduled_at = match &claim.what {
        ClaimTarget::Occurrence { due, .. } => Some(due.scheduled_at),
        ClaimTarget::Lock | ClaimTarget::Manual { .. } | ClaimTarget::Drops { .. } => None,
    };
    let with_job = !matches!(claim.what, ClaimTarget::Lock | ClaimTarget::Drops { .. });
    let record = Record {
        run_id: Some(claim.run_id.clone()),
        exit_code: Some(0),
        attempts: 1,
        fence: Some(1),
        ..record(job(n), scheduled_at, Outcome::Succeeded)
    };
    Finish {
        lock: claim.lock.clone(),
        token: claim.token.clone(),
        record: (with_job && matches!(how, How::WithRecord)).then_some(record),
        job: with_job.then(|| job(n)),
        give_back: matches!(how, How::GiveBack),
        keep: cronlatch::store::Retention::of_records(1000),
    }
}

fn at(now: Timestamp) -> Clock {
    let millis = u64::try_from(now.millis()).unwrap();
    Clock {
        micros: millis * 1000,
        lease: millis,
        past: Past::default(),
    }
}

/// The reply without what depends on the very millisecond.
fn timeless(reply: ClaimReply) -> ClaimReply {
    let whether = |d: Duration| Duration::from_secs(u64::from(!d.is_zero()));
    match reply {
        ClaimReply::Granted {
            attempt, starts_in, ..
        } => ClaimReply::Granted {
            fence: 0,
            attempt,
            at: Timestamp::EPOCH,
            starts_in: whether(starts_in),
        },
        ClaimReply::Early { by } => ClaimReply::Early { by: whether(by) },
        ClaimReply::Waits {
            head,
            entered,
            by,
            remaining,
        } => ClaimReply::Waits {
            head: timeless_head(head),
            entered,
            by,
            remaining: remaining.map(whether),
        },
        ClaimReply::Held { by, remaining } => ClaimReply::Held {
            by,
            remaining: remaining.map(whether),
        },
        ClaimReply::AlreadyClaimed(RunStatus::Running {
            by,
            run_id,
            attempt,
            remaining,
        }) => ClaimReply::AlreadyClaimed(RunStatus::Running {
            by,
            run_id,
            attempt,
            remaining: whether(remaining),
        }),
        other => other,
    }
}

/// The deadline of a rerun counts from the end of a lease, which lies elsewhere in the store.
fn timeless_head(head: Head) -> Head {
    Head {
        deadline: if head.kind == Kind::Rerun {
            Timestamp::EPOCH
        } else {
            head.deadline
        },
        ..head
    }
}

fn told_head(head: Option<Head>) -> Option<Head> {
    head.map(timeless_head)
}

fn seen(report: &JobReport) -> String {
    let open = report.open.as_ref().map(|open| {
        let lives = !open.remaining.is_zero();
        (
            open.scheduled_at,
            &open.run_id,
            &open.by,
            open.attempt,
            lives,
        )
    });
    let holder = report.holder.as_ref().map(|holder| &holder.value);
    let JobReport {
        last, fingerprints, ..
    } = report;
    let waiting: Vec<_> = report.waiting.iter().copied().map(timeless_head).collect();
    let pauses = &report.pauses;
    let recent = &report.summary.recent;
    let summary = told_summary(&report.summary);
    format!(
        "{last:?} {fingerprints:?} {open:?} {holder:?} {waiting:?} {pauses:?} {recent:?} {summary:?}"
    )
}

/// The records of a summary, without their times.
fn told_summary(summary: &Summary) -> Vec<String> {
    let first = summary.newest.iter().chain(&summary.last_success);
    let records: Vec<Record> = first.chain(&summary.failures).cloned().collect();
    told(&records)
}

/// The records without their times.
fn told(records: &[Record]) -> Vec<String> {
    let timeless = records.iter().cloned().map(|record| Record {
        started_at: None,
        finished_at: None,
        fence: record.fence.map(|fence| fence.min(1)),
        ..record
    });
    timeless.map(|record| format!("{record:?}")).collect()
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "what is compared is made for it"
)]
fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: T, theirs: T) -> Result<(), String> {
    if ours == theirs {
        Ok(())
    } else {
        Err(format!(
            "{what}:\n  protocol {ours:?}\n  store    {theirs:?}"
        ))
    }
}

async fn play(subject: &impl Subject, case: usize, steps: &[Step]) -> Result<(), String> {
    let mut model = Model {
        subject,
        store: subject.store(),
        lock_name: Lock::named(&LockName::parse(&format!("agree-{case}")).unwrap()),
        lock: LockState::default(),
        jobs: [None, None],
        records: [Vec::new(), Vec::new()],
        start: Timestamp::EPOCH,
        sent: vec![None; usize::from(CLAIMANTS)],
        fences: Vec::new(),
    };
    model.start = model.store.now().await.unwrap().minus(BACK);
    model.begin(0).await?;
    model.begin(1).await?;
    for (number, step) in steps.iter().enumerate() {
        let done = model.run(number, step).await;
        if done.as_ref().is_err_and(|why| why == AT_ITS_INSTANT) {
            return Ok(());
        }
        done.map_err(|e| format!("step {number}, {step:?}: {e}"))?;
    }
    model.compare().await
}

pub(crate) async fn the_store_does_what_the_protocol_says_call_by_call(subject: &impl Subject) {
    let runtime = tokio::runtime::Handle::current();
    let cases = std::cell::Cell::new(0);
    let config = Config {
        cases: test_cases(CASES),
        failure_persistence: None,
        ..Config::default()
    };
    tokio::task::block_in_place(|| {
        let outcome =
            TestRunner::new(config).run(&proptest::collection::vec(step(), 1..40), |steps| {
                cases.set(cases.get() + 1);
                runtime
                    .block_on(play(subject, cases.get(), &steps))
                    .map_err(proptest::test_runner::TestCaseError::fail)
            });
        match outcome {
            Ok(()) => (),
            Err(TestError::Fail(reason, steps)) => panic!("{reason}\nin {steps:#?}"),
            Err(abort) => panic!("{abort}"),
        }
    });
}
