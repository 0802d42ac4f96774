//! The store against the protocol's transition function, call by call, over random sequences of
//! requests: copies, delays, evictions and ends of leases included.

use std::time::Duration;

use cronlatch::names::LockName;
use cronlatch::store::protocol::{self, Clock, Effect, JobState, Key, LockState, Past};
use cronlatch::store::{
    Attempt, Claim, ClaimReply, ClaimTarget, Fingerprint, Finish, GapAnswer, Grant, Head,
    JobReport, Kind, Lock, Outcome, PauseRequest, Record, Registration, Retention, RunStatus,
    Settle, Store, Summary,
};
use cronlatch::time::{BootInstant, Timestamp};
use proptest::test_runner::{Config, TestError, TestRunner};

use super::{BACK, LONG, Subject, run_id, token};
use crate::steps::{
    Asked, Earlier, FAR, Frame, Gap, JOBS, Known, Meddling, PauseStep, Step, fingerprint, job_name,
    steps,
};
use crate::support::claims::record;
use crate::support::test_cases;

const CASES: u32 = 60;
/// More than a sequence adds: nodes that missed records keep others for them.
const KEEP: Retention = Retention::of_records(1000);

/// Whether any store can do a step, and nothing that follows depends on how a store keeps its data.
fn is_for_all_stores(step: &Step) -> bool {
    match step {
        Step::Claim(asked) => asked.wish().is_none_or(|wish| {
            // The record of a ledger that is set back says how far it was ahead, to the millisecond. The
            // nodes of a majority show an occurrence once that was dropped twice.
            !wish.ahead && !wish.gap.as_ref().is_some_and(Gap::is_arbitrary)
        }),
        Step::Meddle(meddling) => matches!(meddling, Meddling::End | Meddling::Evict),
        Step::Pass(_) => false,
        _ => true,
    }
}

/// The instant of a claim came while it was sent, so nobody knows on which side of it the store replied.
const AT_ITS_INSTANT: &str = "the instant came meanwhile";

/// What the model keeps besides the states: what was sent, and which fences correspond.
struct Model<'a, S> {
    subject: &'a S,
    store: std::sync::Arc<dyn Store>,
    lock_name: Lock,
    lock: LockState,
    jobs: [Option<JobState>; JOBS],
    records: [Vec<Record>; JOBS],
    frame: Frame,
    /// Each claim, and its job; 0 for the lock alone.
    sent: Vec<(usize, Claim)>,
    /// The model's fences and the store's, which differ by the clock alone.
    fences: Vec<(u64, u64)>,
}

impl<S: Subject> Model<'_, S> {
    async fn clock(&self) -> Clock {
        let now = self.store.now().await.unwrap();
        at(now)
    }

    async fn register(&mut self, n: usize, schedule: &Fingerprint) -> Result<(), String> {
        let registration = Registration {
            job: job_name(n),
            lock: self.lock_name.clone(),
            fingerprint: schedule.clone(),
            ttl: LONG,
        };
        let theirs = self
            .store
            .register(std::slice::from_ref(&registration))
            .await;
        let theirs = theirs.unwrap().remove(0);
        let state = &mut self.jobs[n];
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

    async fn pause(&mut self, step: &PauseStep) -> Result<(), String> {
        let state = &mut self.jobs[step.job];
        let newest = state.as_ref().and_then(|state| state.pauses.last());
        let (asked_at, order) = self.frame.pause(step, newest.map(|pause| pause.asked_at));
        let request = PauseRequest {
            job: job_name(step.job),
            lock: self.lock_name.clone(),
            order,
            by: "alice@web1".to_owned(),
            asked_at,
        };
        let theirs = self.store.pause(&request).await.unwrap();
        let ours = protocol::pause(state, at(self.store.now().await.unwrap()), &request);
        same("pause", ours, theirs)
    }

    /// What a host knows that makes this claim.
    fn known(&self, asked: &Asked, clock: Timestamp) -> Known {
        let state = asked.job().and_then(|job| self.jobs[job].as_ref());
        let base = state.map(|job| {
            let schedule = asked.wish().map(|wish| fingerprint(wish.schedule));
            let seen = job.fingerprints.iter();
            let seen = seen.filter(|(known, _)| Some(known) == schedule.as_ref());
            seen.map(|(_, first)| *first).fold(job.last, Timestamp::max)
        });
        Known {
            clock,
            head: state.and_then(|job| job.waiting.first().map(|it| it.scheduled_at)),
            base,
        }
    }

    fn new_claim(&self, asked: &Asked, number: usize, clock: Timestamp) -> Claim {
        let name = format!("{}-{number}", number % 5);
        Claim {
            lock: self.lock_name.clone(),
            token: token(&name),
            run_id: run_id(&name),
            ttl: LONG,
            what: self.frame.target(asked, self.known(asked, clock)),
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
            let records = &mut self.records[usize::from(record.job == job_name(1))];
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

    async fn claim(&mut self, n: usize, claim: &Claim) -> Result<(), String> {
        // A schedule must be known before: the instant of first sight is the store's own.
        let schedule = match &claim.what {
            ClaimTarget::Occurrence { due, .. } => Some(&due.fingerprint),
            ClaimTarget::Drops { fingerprint, .. } => Some(fingerprint),
            ClaimTarget::Lock | ClaimTarget::Manual { .. } => None,
        };
        if let Some(schedule) = schedule {
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
        let state = &mut self.jobs[n];
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
    async fn begin(&mut self, n: usize) -> Result<(), String> {
        let claim = Claim {
            lock: self.lock_name.clone(),
            token: token(&format!("begin-{n}")),
            run_id: run_id("begin"),
            ttl: LONG,
            what: ClaimTarget::Drops {
                job: job_name(n),
                fingerprint: fingerprint(0),
                answer: GapAnswer {
                    if_last: self.frame.start,
                    drop: Vec::new(),
                },
                keep: KEEP,
            },
        };
        let theirs = self.store.claim(&claim).await.unwrap();
        let clock = self.clock().await;
        let state = &mut self.jobs[n];
        let (ours, _) = protocol::claim(&mut self.lock, state, clock, &claim);
        same("beginning", ours, theirs)
    }

    /// Registers a schedule that the model does not know.
    async fn register_unknown(&mut self, n: usize, schedule: &Fingerprint) -> Result<(), String> {
        let knows = |job: &JobState| job.fingerprints.iter().any(|(known, _)| known == schedule);
        if self.jobs[n].as_ref().is_some_and(knows) {
            return Ok(());
        }
        self.register(n, schedule).await
    }

    fn earlier(&self, claim: Earlier) -> Option<(usize, Claim)> {
        match claim {
            Earlier::Newest(back) => self.sent.iter().rev().nth(back).cloned(),
            Earlier::Holder => {
                let token = self.lock.token.as_ref()?;
                let mut sent = self.sent.iter();
                sent.find(|(_, claim)| claim.token == *token).cloned()
            }
        }
    }

    async fn run(&mut self, number: usize, step: &Step) -> Result<(), String> {
        match step {
            Step::Claim(asked) => {
                let clock = self.clock().await.utc();
                let claim = self.new_claim(asked, number, clock);
                let job = asked.job().unwrap_or(0);
                self.sent.push((job, claim.clone()));
                self.claim(job, &claim).await
            }
            Step::Resend(claim)
            | Step::Finish { claim, .. }
            | Step::Settle(claim)
            | Step::Attempt(claim, _) => match self.earlier(*claim) {
                Some((job, claim)) => self.follow_up(job, &claim, step).await,
                None => Ok(()),
            },
            Step::Renew(claims) => {
                for claim in claims {
                    if let Some((_, claim)) = self.earlier(*claim) {
                        self.renew(&claim).await?;
                    }
                }
                Ok(())
            }
            Step::Register { job, schedule } => self.register(*job, &fingerprint(*schedule)).await,
            Step::Pause(pause) => self.pause(pause).await,
            Step::Meddle(Meddling::Evict) => {
                self.subject.evict(&self.lock_name).await;
                self.lock.key = Key::Absent;
                Ok(())
            }
            // A lease that nobody holds has no end: a store keeps none.
            Step::Meddle(Meddling::End) if self.lock.token.is_none() => Ok(()),
            Step::Meddle(Meddling::End) => {
                self.subject.expire(&self.lock_name).await;
                self.lock.key = Key::Absent;
                self.lock.lease_end = self.clock().await.lease - 1;
                Ok(())
            }
            Step::Meddle(_) | Step::Pass(_) => Ok(()),
        }
    }

    async fn follow_up(&mut self, n: usize, claim: &Claim, step: &Step) -> Result<(), String> {
        match step {
            Step::Finish {
                record, give_back, ..
            } => self.finish(n, claim, (*record, *give_back)).await,
            Step::Settle(_) => self.settle(n, claim).await,
            Step::Attempt(_, attempt) => self.note_attempt(n, claim, *attempt).await,
            _ => self.claim(n, claim).await,
        }
    }

    async fn renew(&mut self, claim: &Claim) -> Result<(), String> {
        // Without a fencing token, so that the store takes back no lease that was lost.
        let renewal = Grant::of(claim, 0, BootInstant::BOOT).renewal();
        let theirs = self.store.renew(std::slice::from_ref(&renewal)).await;
        let clock = self.clock().await;
        let (ours, _) = protocol::renew(&mut self.lock, &mut None, clock, &renewal);
        same("renew", ours, theirs.unwrap()[0])
    }

    async fn finish(
        &mut self,
        n: usize,
        claim: &Claim,
        how: (Option<Outcome>, bool),
    ) -> Result<(), String> {
        let finish = finish_of(n, claim, how);
        let theirs = self.store.finish(&finish).await.unwrap();
        let clock = self.clock().await;
        let mut none = None;
        let job = if finish.job.is_some() {
            &mut self.jobs[n]
        } else {
            &mut none
        };
        let (ours, effects) = protocol::finish(&mut self.lock, job, clock, &finish);
        protocol::summarize(job, &effects, clock);
        self.keep(effects);
        same("finish", ours, theirs)
    }

    async fn settle(&mut self, n: usize, claim: &Claim) -> Result<(), String> {
        let settle = Settle {
            lock: claim.lock.clone(),
            job: job_name(n),
            run_id: claim.run_id.clone(),
            keep: KEEP,
        };
        let theirs = self.store.settle(&settle).await.unwrap();
        let clock = self.clock().await;
        let job = &mut self.jobs[n];
        let (ours, effects) = protocol::settle(&mut self.lock, job, clock, &settle);
        protocol::summarize(job, &effects, clock);
        self.keep(effects);
        same("settle", ours, theirs)
    }

    async fn note_attempt(&mut self, n: usize, claim: &Claim, attempt: u32) -> Result<(), String> {
        let attempt = Attempt {
            lock: claim.lock.clone(),
            token: claim.token.clone(),
            job: job_name(n),
            attempt,
        };
        let theirs = self.store.note_attempt(&attempt).await.unwrap();
        let ours = protocol::note_attempt(&mut self.jobs[n], &attempt);
        same("attempt", ours, theirs)
    }

    /// Ledgers, holders and histories agree as well.
    async fn compare(&mut self) -> Result<(), String> {
        let clock = self.clock().await;
        for n in 0..JOBS {
            let asked = [(job_name(n), self.lock_name.clone())];
            let theirs = self.store.jobs(&asked).await.unwrap().remove(0);
            let state = self.jobs[n].as_ref();
            let ours = protocol::report(&job_name(n), &self.lock, true, state, clock);
            same("report", seen(&ours), seen(&theirs))?;
            let theirs = self
                .store
                .history(&job_name(n), &self.lock_name, 1000)
                .await;
            let mut theirs = theirs.unwrap().records;
            theirs.reverse();
            let mut ours = self.records[n].clone();
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

fn finish_of(n: usize, claim: &Claim, (outcome, give_back): (Option<Outcome>, bool)) -> Finish {
    let scheduled_at = match &claim.what {
        ClaimTarget::Occurrence { due, .. } => Some(due.scheduled_at),
        ClaimTarget::Lock | ClaimTarget::Manual { .. } | ClaimTarget::Drops { .. } => None,
    };
    let with_job = !matches!(claim.what, ClaimTarget::Lock | ClaimTarget::Drops { .. });
    let record = outcome.filter(|_| with_job).map(|outcome| Record {
        run_id: Some(claim.run_id.clone()),
        exit_code: Some(i32::from(outcome == Outcome::Failed)),
        attempts: 1,
        fence: Some(1),
        ..record(job_name(n), scheduled_at, outcome)
    });
    Finish {
        lock: claim.lock.clone(),
        token: claim.token.clone(),
        record,
        job: with_job.then(|| job_name(n)),
        give_back,
        keep: KEEP,
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
    let store = subject.store();
    let now = store.now().await.unwrap();
    let mut model = Model {
        subject,
        store,
        lock_name: Lock::named(&LockName::parse(&format!("agree-{case}")).unwrap()),
        lock: LockState::default(),
        jobs: [None, None],
        records: [Vec::new(), Vec::new()],
        frame: Frame {
            start: now.minus(BACK),
            every: Duration::from_secs(1),
            now,
            // The nodes of a majority do not keep when a lease ended: a window that ends with the
            // lease would be judged by milliseconds.
            short_window: FAR,
            keep: KEEP,
        },
        sent: Vec::new(),
        fences: Vec::new(),
    };
    for n in 0..JOBS {
        model.begin(n).await?;
    }
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
        let outcome = TestRunner::new(config).run(&steps(60, is_for_all_stores), |steps| {
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
