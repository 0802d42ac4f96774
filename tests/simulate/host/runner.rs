//! Runs and their leases, as `run` and the watchdog thread have them: attempts, retries,
//! renewals, and what ends them. The lease table is the real one.

use std::collections::BTreeMap;
use std::sync::Arc;

use cronlatch::LeaseLost;
use cronlatch::config::{Job, OnLost};
use cronlatch::engine::simulated::JobIx;
use cronlatch::ground::timing;
use cronlatch::lease::table::{LeaseId, LeaseTable, RenewedLease};
use cronlatch::names::{RunId, Token};
use cronlatch::store::{
    Attempt, Grant, GrantedRun, Kind, Outcome, Record, RenewReply, Renewal, RunTerms,
};
use cronlatch::time::{BootInstant, Timestamp};

use super::guard::{Exit, Process, ProcessReport};
use super::tasks::RESPONSE;
use super::{Env, Timer};
use crate::chance;
use crate::message::{Reply, Request};
use crate::plan::{JobPlan, millis};
use crate::trace::{Ended, Start};
use crate::world::Item;

/// The pause before an attempt is reported to the store again, in milliseconds.
const COUNT_AGAIN: i64 = 250;

/// Why the daemon ended an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    TimedOut,
    Lost(LeaseLost),
    Stopped,
}

/// How much the daemon wants its runs to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    Drain,
    End,
}

/// The grant that a run has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Granted {
    pub(crate) fence: u64,
    /// When the claim that was granted was sent.
    pub(crate) sent: BootInstant,
    /// Before this nothing of it may start.
    pub(crate) starts_at: Option<BootInstant>,
    pub(crate) terms: RunTerms,
}

/// What a run is granted for.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) job: Arc<Job>,
    pub(crate) plan: JobPlan,
    pub(crate) place: Option<JobIx>,
    pub(crate) token: Token,
    pub(crate) run_id: RunId,
    pub(crate) kind: Kind,
    pub(crate) at: Option<Timestamp>,
    pub(crate) attempt: u32,
    /// The fencing token and when the claim was sent; `None`: nobody was asked.
    pub(crate) granted: Option<Granted>,
}

#[derive(Debug)]
struct Run {
    assignment: Assignment,
    lease: Option<LeaseId>,
    lost: Option<LeaseLost>,
    /// When it may start at the earliest, or, once its first process has ended, when that began.
    started_at: Timestamp,
    has_begun: bool,
    tries: u32,
    starts: u32,
    process: Option<u64>,
    /// The request that counts its next attempt.
    counts: Option<u64>,
    cause: Option<Cause>,
}

/// Why an occurrence goes back undecided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returned {
    /// The host lacks resources.
    Short,
    /// The run was withdrawn, or its lease was lost, before its process began.
    Withdrawn,
}

/// A run that is over; its lease is held until its verdict is delivered.
#[derive(Debug)]
pub(crate) struct Over {
    pub(crate) job: Arc<Job>,
    pub(crate) place: Option<JobIx>,
    pub(crate) token: Token,
    pub(crate) record: Record,
    pub(crate) lease: Option<LeaseId>,
    /// Nothing was started, and the occurrence goes back undecided: for this reason.
    pub(crate) returns: Option<Returned>,
}

#[derive(Debug)]
struct Lease {
    run: u64,
    ends: BootInstant,
    lost: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Runner {
    book: LeaseTable,
    runs: BTreeMap<u64, Run>,
    leases: BTreeMap<LeaseId, Lease>,
    asked: BTreeMap<u64, (BootInstant, Vec<LeaseId>)>,
    armed: Option<i64>,
    over: Vec<Over>,
    stop: Option<Stop>,
}

impl Runner {
    /// The runs that ended since this was last asked.
    pub(super) fn take_over(&mut self) -> Vec<Over> {
        std::mem::take(&mut self.over)
    }

    pub(super) fn waits_for(&self, id: u64) -> bool {
        self.asked.contains_key(&id) || self.runs.values().any(|run| run.counts == Some(id))
    }

    pub(super) fn is_lost(&self, lease: LeaseId) -> bool {
        self.leases.get(&lease).is_none_or(|lease| lease.lost)
    }

    pub(super) fn begin(&mut self, env: &mut Env<'_>, assignment: Assignment) {
        let key = env.sim.fresh();
        let starts_at = (assignment.granted).and_then(|granted| granted.starts_at);
        let wait = starts_at.map_or(0, |at| env.sim.of_boot(at) - env.sim.now);
        let started_at = env.utc().plus(millis(wait.max(0)));
        let due = assignment.at.map(|at| at.plus(assignment.job.delay()));
        let due = due.filter(|_| starts_at.is_some());
        let started_at = due.map_or(started_at, |due| started_at.max(due));
        let granted = assignment.granted;
        let lease = granted.map(
            |Granted {
                 fence, sent, terms, ..
             }| {
                let id = LeaseId(key);
                let lease = RenewedLease {
                    renewal: Renewal {
                        grant: Grant {
                            lock: assignment.job.lock_on(env.name),
                            token: assignment.token.clone(),
                            run_id: assignment.run_id.clone(),
                            fence,
                            ttl: assignment.job.lock.ttl,
                            sent,
                            starts_at: None,
                        },
                        run: Some(GrantedRun {
                            job: assignment.job.name.clone(),
                            scheduled_at: assignment.at,
                            attempt: assignment.attempt,
                            kind: assignment.kind,
                            started_at,
                            terms,
                        }),
                    },
                    renew_until: None,
                };
                let ends = self.book.add(id, lease);
                let lost = false;
                self.leases.insert(
                    id,
                    Lease {
                        run: key,
                        ends,
                        lost,
                    },
                );
                id
            },
        );
        let starts = assignment.attempt.saturating_sub(1);
        let run = Run {
            assignment,
            lease,
            lost: None,
            started_at,
            has_begun: false,
            tries: 0,
            starts,
            process: None,
            counts: None,
            cause: None,
        };
        self.runs.insert(key, run);
        self.start_attempt(env, key);
        self.tend(env);
    }

    fn start_attempt(&mut self, env: &mut Env<'_>, key: u64) {
        let Some(run) = self.runs.get_mut(&key) else {
            return;
        };
        run.tries += 1;
        let assignment = &run.assignment;
        let attempt = assignment.attempt.saturating_sub(1) + run.tries;
        let lease = run.lease.and_then(|id| self.leases.get(&id));
        if run.tries == 1 && lease.is_some_and(|lease| env.sim.of_boot(lease.ends) <= env.sim.now) {
            let why = "its lease was over before it began".to_owned();
            return self.end(env, key, Outcome::LeaseLost, why, Exit::TooLate);
        }
        let kill_at = lease.map(|lease| env.sim.of_boot(timing::kill_at(lease.ends)));
        let plan = &assignment.plan;
        let at = assignment.at.map(Timestamp::millis);
        let draw = chance::hash(&[
            &env.sim.plan.seed.to_be_bytes(),
            plan.name.as_bytes(),
            &at.unwrap_or_default().to_be_bytes(),
            &attempt.to_be_bytes(),
        ]);
        let span = u64::try_from(plan.work.1 - plan.work.0 + 1).unwrap_or(1);
        let work = plan.work.0 + i64::try_from(draw % span).unwrap_or(0);
        let fails = i64::try_from(draw >> 32 & 0xFFFF).unwrap_or(0) % 100 < plan.fails;
        let process = Process {
            life: env.life,
            start: Start {
                job: plan.name.clone(),
                lock: assignment.job.lock_on(env.name).name,
                host: env.host,
                run_id: assignment.run_id.to_string(),
                at,
                attempt,
                fence: assignment.granted.map(|granted| granted.fence),
                begin: 0,
                end: None,
                ended: None,
            },
            not_before: (assignment.granted)
                .and_then(|granted| granted.starts_at)
                .filter(|_| run.tries == 1)
                .map(|at| env.sim.of_boot(at)),
            start_until: kill_at.filter(|_| run.tries == 1),
            deadline: kill_at.filter(|_| assignment.job.policies.on_lost == OnLost::Kill),
            work,
            code: i32::from(fails),
            grace: millis_of(assignment.job.policies.kill.grace),
            stubborn: plan.stubborn,
        };
        let begins = process.not_before.unwrap_or(0).max(env.sim.now);
        run.process = Some(env.guard.spawn(env.sim, process));
        if let Some(limit) = assignment.job.policies.timeout {
            let timer = Timer::TimedOut(key, run.tries);
            env.arm(begins + millis_of(limit), timer);
        }
    }

    /// A process of one of the runs has ended.
    pub(super) fn exited(&mut self, env: &mut Env<'_>, process: u64, report: ProcessReport) {
        let exit = report.exit;
        let found = self.runs.iter().find(|(_, r)| r.process == Some(process));
        let Some(key) = found.map(|(key, _)| *key) else {
            return;
        };
        let Some(run) = self.runs.get_mut(&key) else {
            return;
        };
        run.process = None;
        let lease = run.lease.and_then(|id| self.leases.get(&id));
        let lease_ends = lease.map(|lease| env.sim.of_boot(lease.ends));
        let kills = run.assignment.job.policies.on_lost == OnLost::Kill;
        let lost = run.lost.filter(|_| kills);
        let mut causes = (run.cause.take().into_iter()).chain(lost.map(Cause::Lost));
        let cause = causes.find(|cause| !came_too_late(*cause, exit, lease_ends));
        let (outcome, reason) = verdict(run, cause, exit);
        if let Some(began) = report.began.filter(|_| !run.has_begun) {
            let shown = env.utc().minus(millis(env.sim.now - began));
            (run.started_at, run.has_begun) = (run.started_at.max(shown), true);
        }
        run.starts += u32::from(matches!(exit, Exit::Ended(..)));
        let none_started = run.starts < run.assignment.attempt;
        let returns = !matches!(exit, Exit::Ended(..));
        if returns && none_started && run.assignment.granted.is_some() {
            // Retries are for the command. Another host may start it at once.
            return self.end(env, key, outcome, reason, exit);
        }
        let worth = matches!(outcome, Outcome::Failed | Outcome::TimedOut);
        let made = run.assignment.attempt.saturating_sub(1) + run.tries;
        let retry = run
            .assignment
            .job
            .policies
            .retry
            .filter(|r| made < r.attempts);
        let Some(retry) = retry.filter(|_| worth) else {
            return self.end(env, key, outcome, reason, exit);
        };
        if let Some(lost) = lost {
            return self.end(env, key, Outcome::LeaseLost, reason_of(lost), exit);
        }
        if self.stop >= Some(Stop::Drain) {
            return self.end(env, key, outcome, reason, exit);
        }
        let delay = retry.delay.saturating_mul(1 << (run.tries - 1).min(8));
        let delay = millis_of(delay.min(retry.max_delay));
        env.arm(env.sim.now + delay, Timer::Retry(key));
    }

    fn end(&mut self, env: &mut Env<'_>, key: u64, outcome: Outcome, reason: String, exit: Exit) {
        let Some(run) = self.runs.remove(&key) else {
            return;
        };
        let Assignment {
            job,
            place,
            token,
            run_id,
            kind,
            at,
            attempt,
            granted,
            ..
        } = run.assignment;
        let mut reason = Some(reason).filter(|reason| !reason.is_empty());
        if reason.is_none() && granted.is_none() {
            reason = Some("ran without a lock: the store was unreachable".to_owned());
        }
        let record = Record {
            run_id: Some(run_id),
            scheduled_at: at,
            started_at: Some(run.started_at),
            finished_at: Some(run.started_at.max(env.utc())),
            host: Some(env.name.clone()),
            reason,
            exit_code: match exit {
                Exit::Ended(Ended::Itself(code), _) => Some(code),
                _ => None,
            },
            attempts: run.starts,
            fence: granted.map(|granted| granted.fence),
            ..Record::blank(job.name.clone(), kind, outcome)
        };
        self.over.push(Over {
            job,
            place,
            token,
            returns: match exit {
                Exit::NoResources => Some(Returned::Short),
                Exit::Withdrawn | Exit::TooLate => Some(Returned::Withdrawn),
                Exit::Ended(..) => None,
            }
            .filter(|_| run.starts < attempt && granted.is_some() && at.is_some()),
            record,
            lease: run.lease,
        });
    }

    /// The pause before a further attempt is over: the ledger counts the attempt first.
    pub(super) fn retry(&mut self, env: &mut Env<'_>, key: u64) {
        let Some(run) = self.runs.get_mut(&key).filter(|run| run.process.is_none()) else {
            return;
        };
        let assignment = &run.assignment;
        if assignment.granted.is_none() {
            return self.start_attempt(env, key);
        }
        let attempt = Attempt {
            lock: assignment.job.lock_on(env.name),
            token: assignment.token.clone(),
            job: assignment.job.name.clone(),
            attempt: assignment.attempt + run.tries,
        };
        run.counts = Some(env.send(Request::Attempt(Box::new(attempt)), RESPONSE));
    }

    /// The store has counted an attempt, or did not answer. Returns whether the request was this
    /// one's.
    pub(super) fn counted(&mut self, env: &mut Env<'_>, id: u64, reply: Option<&Reply>) -> bool {
        let found = self.runs.iter().find(|(_, run)| run.counts == Some(id));
        let Some(key) = found.map(|(key, _)| *key) else {
            return false;
        };
        let Some(run) = self.runs.get_mut(&key) else {
            return true;
        };
        run.counts = None;
        let kills = run.assignment.job.policies.on_lost == OnLost::Kill;
        if let Some(lost) = run.lost.filter(|_| kills) {
            self.end(env, key, Outcome::LeaseLost, reason_of(lost), Exit::TooLate);
            return true;
        }
        let must = run.lost.is_none()
            && run.assignment.job.lock_on(env.name).exclusive
            && (run.assignment.granted).is_some_and(|granted| granted.terms.max_reruns > 0);
        match reply {
            Some(Reply::Counted(false)) if must && kills => {
                let why = "the ledger has closed this run; no further attempt".to_owned();
                self.end(env, key, Outcome::LeaseLost, why, Exit::TooLate);
            }
            None if must && self.stop.is_some() => self.end_between(env, key),
            None if must => env.arm(env.sim.now + COUNT_AGAIN, Timer::Retry(key)),
            _ => {
                self.start_attempt(env, key);
                if self.stop == Some(Stop::End)
                    && let Some(run) = self.runs.get_mut(&key)
                {
                    end_process(env, run, Cause::Stopped);
                }
            }
        }
        true
    }

    /// The daemon stops: there is no further attempt.
    fn end_between(&mut self, env: &mut Env<'_>, key: u64) {
        let why = "no further attempt: the daemon is stopping".to_owned();
        let exit = Exit::Ended(Ended::Itself(1), env.sim.now);
        self.end(env, key, Outcome::Failed, why, exit);
    }

    pub(super) fn timed_out(&mut self, env: &mut Env<'_>, key: u64, tries: u32) {
        if let Some(run) = self.runs.get_mut(&key).filter(|run| run.tries == tries) {
            end_process(env, run, Cause::TimedOut);
        }
    }

    /// The daemon drains, or ends its runs.
    pub(super) fn stop(&mut self, env: &mut Env<'_>, stop: Stop) {
        self.stop = Some(stop);
        let keys: Vec<u64> = self.runs.keys().copied().collect();
        for key in keys {
            let Some(run) = self.runs.get_mut(&key) else {
                continue;
            };
            if let Some(process) = run.process
                && env.guard.withdraw(env.sim, process)
            {
                // The occurrence goes back undecided once the guard has said so.
            } else if run.process.is_none() && run.counts.is_none() {
                self.end_between(env, key);
            } else if stop == Stop::End {
                end_process(env, run, Cause::Stopped);
            }
        }
    }

    pub(super) fn let_go(&mut self, env: &mut Env<'_>, lease: LeaseId) {
        self.book.remove(lease);
        self.leases.remove(&lease);
        self.tend(env);
    }

    /// What the watchdog thread does whenever it wakes.
    pub(super) fn tend(&mut self, env: &mut Env<'_>) {
        let now = env.sim.boot();
        for id in self.book.expire(now) {
            self.lease_lost(env, id, LeaseLost::Expired);
        }
        for batch in self.book.due(now) {
            let limits = batch
                .renewals
                .iter()
                .map(|r| timing::response_timeout(r.grant.ttl));
            let limit = limits.min().unwrap_or_default();
            let id = env.send(Request::Renew(batch.renewals), limit);
            self.asked.insert(id, (batch.sent, batch.ids));
        }
        if let Some(wake) = self.book.next_wake() {
            let at = env.sim.of_boot(wake).max(env.sim.now + 1);
            if self
                .armed
                .is_none_or(|armed| armed <= env.sim.now || at < armed)
            {
                self.armed = Some(at);
                env.arm(at, Timer::Watchdog);
            }
        }
    }

    /// A batch of renewals was answered, or given up. Returns whether the request was this one's.
    pub(super) fn renewed(
        &mut self,
        env: &mut Env<'_>,
        id: u64,
        replies: Option<Vec<RenewReply>>,
    ) -> bool {
        let Some((sent, ids)) = self.asked.remove(&id) else {
            return false;
        };
        let now = env.sim.boot();
        for id in self.book.expire(now) {
            self.lease_lost(env, id, LeaseLost::Expired);
        }
        match replies {
            None => {
                let spread = u8::try_from(env.sim.dice.range(0, 256)).unwrap_or(0);
                self.book.failed(now, sent, &ids, spread);
            }
            Some(replies) => {
                let changes = self.book.replied(sent, &ids, &replies);
                for (id, ends) in changes.extended {
                    self.extended(env, id, ends);
                }
                for (id, why) in changes.lost {
                    self.lease_lost(env, id, why);
                }
            }
        }
        self.tend(env);
        true
    }

    fn extended(&mut self, env: &mut Env<'_>, id: LeaseId, ends: BootInstant) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        lease.ends = ends;
        if let Some(run) = self.runs.get(&lease.run)
            && let Some(process) = run.process
            && run.assignment.job.policies.on_lost == OnLost::Kill
        {
            let deadline = env.sim.of_boot(timing::kill_at(ends));
            env.guard.extend(env.sim, process, deadline);
        }
    }

    fn lease_lost(&mut self, env: &mut Env<'_>, id: LeaseId, why: LeaseLost) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        lease.lost = true;
        let key = lease.run;
        let Some(run) = self.runs.get_mut(&key) else {
            return;
        };
        env.sim.trace.line(env.sim.now, || {
            format!(
                "LOST host-{} run {}: {why}",
                env.host, run.assignment.run_id
            )
        });
        run.lost = Some(why);
        if let Some(process) = run.process
            && env.guard.withdraw(env.sim, process)
        {
            return;
        }
        if run.assignment.job.policies.on_lost == OnLost::Continue {
            return;
        }
        if run.process.is_some() {
            end_process(env, run, Cause::Lost(why));
        } else if run.counts.is_none() {
            self.end(env, key, Outcome::LeaseLost, reason_of(why), Exit::TooLate);
        }
    }
}

fn end_process(env: &mut Env<'_>, run: &mut Run, cause: Cause) {
    if let Some(process) = run.process {
        run.cause = run.cause.or(Some(cause));
        env.guard.end(env.sim, process, Ended::OnRequest);
    }
}

fn millis_of(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 4)
}

fn reason_of(lost: LeaseLost) -> String {
    lost.to_string()
}

/// Whether a process had ended by itself before its lease, for which it was to be ended, as `run::follow` judges
/// it. A timeout never comes too late here: what a daemon that was stopped acts on keeps its order.
fn came_too_late(cause: Cause, exit: Exit, lease_ends: Option<i64>) -> bool {
    let Exit::Ended(Ended::Itself(_), at) = exit else {
        return false;
    };
    cause == Cause::Lost(LeaseLost::Expired) && lease_ends.is_some_and(|ends| at < ends)
}

fn verdict(run: &Run, cause: Option<Cause>, exit: Exit) -> (Outcome, String) {
    let good = |code: i32| {
        let codes = &run.assignment.job.policies.success_exit_codes;
        u8::try_from(code).is_ok_and(|code| codes.contains(&code))
    };
    match (cause, exit) {
        (_, Exit::Withdrawn) => (Outcome::Stopped, "withdrawn before its instant".to_owned()),
        (Some(Cause::Lost(lost)), _) => (Outcome::LeaseLost, reason_of(lost)),
        (_, Exit::TooLate) => (Outcome::LeaseLost, "too late to start it".to_owned()),
        (_, Exit::NoResources) => (Outcome::Failed, "cannot start a process".to_owned()),
        (_, Exit::Ended(Ended::AtDeadline, _)) => {
            (Outcome::LeaseLost, reason_of(LeaseLost::Expired))
        }
        (Some(Cause::TimedOut), _) => (Outcome::TimedOut, "its timeout".to_owned()),
        (Some(Cause::Stopped), Exit::Ended(Ended::OnRequest, _)) => {
            (Outcome::Stopped, "the daemon was stopped".to_owned())
        }
        (_, Exit::Ended(Ended::Itself(code), _)) if good(code) => {
            (Outcome::Succeeded, String::new())
        }
        (_, Exit::Ended(..)) => (Outcome::Failed, String::new()),
    }
}

impl Env<'_> {
    /// Arms a timer of this process.
    pub(super) fn arm(&mut self, at: i64, timer: Timer) {
        let (host, life) = (self.host, self.life);
        self.sim.at(at, Item::Timer { host, life, timer });
    }
}
