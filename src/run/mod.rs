//! One granted run, from the lease to the record: attempts, retries, and what ends them.
//!
//! Knows nothing of the daemon's loop: `trigger` uses the same driver, and `exec` the same follower
//! of a process.

mod attempt;
mod attempt_result;
mod backoff;
mod command;
mod control;
mod env_file;
mod follow;
mod identity;
mod instant;
mod lease;
mod manual;
mod not_prepared;
mod pending_claims;
mod starts;
mod tail;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Job, OnLost};
use crate::ground::timing;
use crate::guard::{Processes, Spawn, SpawnTurn, Status, Usage};
use crate::lease::{Lease, LeaseLost, NewLease, Watchdog};
use crate::names::{HostName, RunId, Token};
use crate::observe::{RunFields, run_log};
use crate::output::{OutputKeeper, RunEnd, RunOutput};
use crate::store::{
    Attempt, Finish, Grant, GrantedRun, Kind, Lock, ManualRun, Outcome, Record, Retention,
    RunTerms, RunUsage, Store,
};
use crate::time::{BootInstant, TimeSource, Timestamp};
use attempt_result::AttemptResult;
pub(crate) use attempt_result::ReturnReason;
pub(crate) use command::{JobEnvironment, inherited};
pub(crate) use control::{Cause, FollowedLines, RunControl, RunOrder, RunOrders, Stop};
pub(crate) use follow::{Followed, Interruption, KillReason, Limits, Supervisor, follow};
pub(crate) use lease::RunLease;
pub(crate) use manual::{ManualClaim, ManualRefusal, note_again, take_back_note};
pub(crate) use pending_claims::PendingClaims;
pub(crate) use starts::{RunObserver, Starts};
use tail::FailureTail;

/// How long to wait before an attempt is reported to the store again.
const COUNT_AGAIN: Duration = Duration::from_millis(250);

/// What every run of a process needs.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    /// Starts processes.
    pub(crate) processes: Processes,
    /// Renews leases.
    pub(crate) watchdog: Watchdog,
    /// Counts the attempts.
    pub(crate) store: Arc<dyn Store>,
    /// What jobs inherit.
    pub(crate) environment: Arc<JobEnvironment>,
    /// The claims that runs wait for before they are prepared.
    pub(crate) pending_claims: PendingClaims,
    /// Reports starts to who waits for one.
    pub(crate) starts: Starts,
    /// Keeps the output.
    pub(crate) outputs: OutputKeeper,
    /// The clock of the instants in records.
    pub(crate) clock: TimeSource,
}

/// Why a run may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Authority {
    /// The store granted it.
    Granted {
        /// The lease.
        grant: Grant,
        /// What its claim asked for.
        terms: RunTerms,
    },
    /// `on_store_down: run`: the store was not asked, or did not reply.
    Alone {
        /// The lock that it would have held.
        lock: Lock,
        /// The token under which its result is recorded.
        token: Token,
        /// Its identity.
        run_id: RunId,
    },
}

/// A run to be driven.
#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    /// The job.
    pub(crate) job: Arc<Job>,
    /// This host.
    pub(crate) host: HostName,
    /// How it came to be.
    pub(crate) kind: Kind,
    /// Its occurrence; `None` for a manual run.
    pub(crate) scheduled_at: Option<Timestamp>,
    /// 1, or more for a rerun.
    pub(crate) attempt: u32,
    /// Why it may start.
    pub(crate) authority: Authority,
    /// Who asked for it, if a person did.
    pub(crate) cause: Option<Cause>,
}

impl Assignment {
    /// The run's identity.
    pub(crate) fn run_id(&self) -> &RunId {
        match &self.authority {
            Authority::Granted { grant, .. } => &grant.run_id,
            Authority::Alone { run_id, .. } => run_id,
        }
    }

    /// The lock, and the token under which the result is recorded.
    pub(crate) fn lock_and_token(&self) -> (&Lock, &Token) {
        match &self.authority {
            Authority::Granted { grant, .. } => (&grant.lock, &grant.token),
            Authority::Alone { lock, token, .. } => (lock, token),
        }
    }

    /// The run, as the note of a run by hand has it.
    pub(crate) fn manual_run(&self) -> ManualRun {
        ManualRun {
            run_id: self.run_id().clone(),
            job: self.job.name.clone(),
            lock: self.lock_and_token().0.clone(),
        }
    }

    /// What identifies the run in the log.
    pub(crate) fn fields(&self) -> RunFields {
        RunFields {
            job: self.job.name.clone(),
            run: self.run_id().clone(),
            scheduled_at: self.scheduled_at,
            host: self.host.clone(),
        }
    }

    /// The lease, if the store granted one.
    pub(crate) fn grant(&self) -> Option<&Grant> {
        match &self.authority {
            Authority::Granted { grant, .. } => Some(grant),
            Authority::Alone { .. } => None,
        }
    }

    /// Whether this is the first attempt that this host makes.
    fn is_first(&self, attempt: u32) -> bool {
        attempt == self.attempt
    }

    /// The instant of an attempt that was granted ahead of it, also once that has passed: until its command has
    /// begun, it can be withdrawn.
    fn start_of(&self, attempt: u32) -> Option<BootInstant> {
        let starts_at = self.grant()?.starts_at;
        starts_at.filter(|_| self.is_first(attempt))
    }

    /// Sets when the command of an attempt may begin, and when it must be dead. Takes the turn as a proof that the wait
    /// for it is over: the lease may be renewed meanwhile.
    fn set_limits(&self, spawn: &mut Spawn, _turn: &SpawnTurn, attempt: u32, lease: &RunLease) {
        let kill_at = lease.lease().map(|lease| timing::kill_at(lease.ends()));
        spawn.start = self.start_of(attempt);
        // `on_lost: continue` lets a run outlive its lease, but not begin after it.
        spawn.start_until = kill_at.filter(|_| self.is_first(attempt));
        spawn.deadline = kill_at.filter(|_| self.job.policies.on_lost == OnLost::Kill);
    }

    /// How long it is until the run may start.
    fn starts_in(&self) -> Duration {
        let starts_at = self.grant().and_then(|grant| grant.starts_at);
        starts_at.map_or(Duration::ZERO, BootInstant::remaining)
    }

    /// Returns a start as it is recorded: never before the occurrence, whatever this host takes for the
    /// store's time.
    fn starts_after(&self, now: Timestamp) -> Timestamp {
        let due = self.scheduled_at.map(|at| at.plus(self.job.delay()));
        let ahead = self.grant().and_then(|grant| grant.starts_at).is_some();
        due.filter(|_| ahead).map_or(now, |due| now.max(due))
    }

    /// The fencing token, if the store gave one.
    pub(crate) fn fence(&self) -> Option<u64> {
        self.grant().map(|grant| grant.fence)
    }

    /// Returns the request that ends the run: with a record, or, if it never started, by giving the
    /// occurrence back undecided. `keep` is how many records the job's history keeps.
    pub(crate) fn finish(&self, record: Option<Record>, keep: Retention) -> Finish {
        let (lock, token) = self.lock_and_token();
        Finish {
            lock: lock.clone(),
            token: token.clone(),
            job: Some(self.job.name.clone()),
            give_back: record.is_none(),
            record,
            keep,
        }
    }

    /// What a store that lost its data needs to write the run into its ledger again.
    fn granted_run(&self, terms: RunTerms, started_at: Timestamp) -> GrantedRun {
        GrantedRun {
            job: self.job.name.clone(),
            scheduled_at: self.scheduled_at,
            attempt: self.attempt,
            kind: self.kind,
            started_at,
            terms,
        }
    }
}

/// A run that has ended. The lease is held until the record has been delivered.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What to record.
    pub(crate) record: Record,
    /// The lease, if there was one.
    pub(crate) lease: Option<Lease>,
    /// Set if the command was never started and the occurrence goes back undecided: nothing is recorded.
    pub(crate) returned: Option<ReturnReason>,
    /// Set if the lease was lost during the run.
    pub(crate) lost: Option<LeaseLost>,
}

struct RunDriver<'a> {
    assignment: &'a Assignment,
    fields: RunFields,
    lease: RunLease,
    tail: FailureTail,
    output: Arc<RunOutput>,
    /// What all attempts have used; `None` if that of one is not known.
    usage: Option<Usage>,
    /// When the first process of the run had become the command, as the guard saw it.
    began: Option<Began>,
    /// When the last process of the run had ended, as the guard saw it; `None` while the run waits for its
    /// next attempt.
    ended_at: Option<BootInstant>,
    /// Why the lease was lost while a process ran, or while a run that continues without it waited for its next
    /// attempt.
    lost: Option<LeaseLost>,
}

/// When a run began.
#[derive(Debug, Clone, Copy)]
struct Began {
    at: BootInstant,
    /// The same instant, as the record shows it.
    shown: Timestamp,
}

impl Began {
    /// Returns an instant of the boot clock with what the store's clock showed then, as far as this host knows.
    fn of(at: BootInstant, clock: &TimeSource) -> Self {
        let shown = clock.now().minus(BootInstant::now().since(at));
        Self { at, shown }
    }
}

/// When a run started and ended, as its record has it.
struct RunTimes {
    started_at: Timestamp,
    finished_at: Timestamp,
    took: Duration,
}

/// Drives a run to its end.
pub(crate) async fn drive(
    assignment: &Assignment,
    tools: &Tools,
    mut control: RunControl,
) -> Ended {
    let wait = assignment.starts_in();
    let earliest = Began {
        at: BootInstant::now().plus(wait),
        shown: assignment.starts_after(tools.clock.now().plus(wait)),
    };
    let mut work = RunDriver::new(assignment, tools, earliest.shown);
    let (verdict, attempts) = work.attempts(tools, &mut control).await;
    // An attempt that did run decides the occurrence, whatever became of the next one.
    let none_started = attempts < assignment.attempt;
    let returnable =
        none_started && assignment.fence().is_some() && assignment.scheduled_at.is_some();
    let returned = verdict.returned.filter(|_| returnable);
    let times = work.times(earliest, tools.clock.now());
    // The daemon reports an occurrence that is returned.
    let end = if returned.is_none() {
        work.report(&verdict, (!none_started).then_some(times.took));
        RunEnd::Ended(verdict.outcome, verdict.reason.clone())
    } else {
        RunEnd::NotStarted
    };
    work.output.end(end, &work.fields);
    if let Some(lease) = work.lease.lease() {
        lease.run_has_ended();
    }
    Ended {
        returned,
        lost: work.lost(verdict.outcome),
        record: work.record((&verdict, attempts), &times, &control),
        lease: work.lease.into_lease(),
    }
}

impl<'a> RunDriver<'a> {
    fn new(assignment: &'a Assignment, tools: &Tools, started_at: Timestamp) -> Self {
        let lease = match &assignment.authority {
            Authority::Granted { grant, terms } => Some(tools.watchdog.hold(NewLease {
                grant: grant.clone(),
                run: Some(assignment.granted_run(*terms, started_at)),
                guarded: assignment.job.policies.on_lost.into(),
                renew_until: None,
                while_held: None,
            })),
            Authority::Alone { .. } => None,
        };
        let fields = assignment.fields();
        Self {
            assignment,
            output: Arc::new(tools.outputs.of_run(&fields)),
            fields,
            lease: RunLease::new(lease),
            tail: FailureTail::default(),
            usage: None,
            began: None,
            ended_at: None,
            lost: None,
        }
    }

    /// Returns why the run lost its lease. A loss that was noticed after the last process had ended by itself
    /// does not count.
    fn lost(&self, outcome: Outcome) -> Option<LeaseLost> {
        match outcome {
            Outcome::LeaseLost => self.lease.noticed_loss(),
            _ => self.lost,
        }
    }

    /// Attempts until one succeeds, none is left, or something forbids another. Returns the last
    /// verdict and how many times the command was started, reruns included.
    async fn attempts(&mut self, tools: &Tools, control: &mut RunControl) -> (AttemptResult, u32) {
        let before = self.assignment.attempt.saturating_sub(1);
        let mut tries = 0;
        let mut starts = before;
        loop {
            tries += 1;
            let mut verdict = self.attempt(tools, control, before + tries).await;
            starts += u32::from(verdict.started);
            if verdict.returned.is_some() && starts == before && self.assignment.fence().is_some() {
                // Retries are for the command. Another host may start it at once.
                return (verdict, starts);
            }
            let Some(retry) = self.assignment.job.policies.retry else {
                return (verdict, starts);
            };
            let made = before + tries;
            if !verdict.is_worth_a_retry() || made >= retry.attempts {
                return (verdict, starts);
            }
            let delay = backoff::delay(&retry, tries, random());
            self.ended_at = None;
            self.report_retry(&verdict, delay, retry.attempts - made);
            let mut may_go_on = self.pause(delay, control).await;
            if may_go_on.is_ok() {
                may_go_on = self.count_attempt(&tools.store, made + 1, control).await;
            }
            if let Err((outcome, why)) = may_go_on {
                verdict.reason = Some(match verdict.reason.take() {
                    Some(reason) => format!("{reason}; {why}"),
                    None => why,
                });
                verdict.outcome = outcome.unwrap_or(verdict.outcome);
                return (verdict, starts);
            }
        }
    }

    /// Reports to the ledger the attempt that is about to start, so that a rerun after a crash
    /// continues the count. A job that is rerun waits for the store to confirm it; for any other
    /// the count is only for the record.
    async fn count_attempt(
        &mut self,
        store: &Arc<dyn Store>,
        number: u32,
        control: &mut RunControl,
    ) -> Result<(), (Option<Outcome>, String)> {
        let Authority::Granted { grant, terms } = &self.assignment.authority else {
            return Ok(());
        };
        // Of the runs of a job without a lock the ledger keeps the newest alone.
        let must = terms.max_reruns > 0 && grant.lock.exclusive;
        let attempt = Attempt {
            lock: grant.lock.clone(),
            token: grant.token.clone(),
            job: self.assignment.job.name.clone(),
            attempt: number,
        };
        loop {
            match store.note_attempt(&attempt).await {
                Ok(false) if must && self.assignment.job.policies.on_lost == OnLost::Kill => {
                    let why = "the ledger has closed this run; no further attempt".to_owned();
                    return Err((Some(Outcome::LeaseLost), why));
                }
                Err(error) if must && self.lease.noticed_loss().is_none() => {
                    run_log!(
                        debug,
                        self.fields,
                        "cannot record the next attempt: {error}"
                    );
                    self.pause(COUNT_AGAIN, control).await?;
                }
                // Noted, or no reason to keep the attempt waiting.
                Ok(_) | Err(_) => return Ok(()),
            }
        }
    }

    /// Waits before the next attempt; the error is the reason why there is none.
    async fn pause(
        &mut self,
        delay: Duration,
        control: &mut RunControl,
    ) -> Result<(), (Option<Outcome>, String)> {
        if let Some(lost) = self.lease.noticed_loss()
            && self.assignment.job.policies.on_lost == OnLost::Kill
        {
            let why = self.lease.explain(lost);
            return Err((Some(Outcome::LeaseLost), why));
        }
        let timer = tokio::time::sleep(delay);
        tokio::pin!(timer);
        // Every arm is cancel-safe: a timer, a watch, and the lease, whose documentation says so.
        loop {
            tokio::select! {
                () = &mut timer => return Ok(()),
                told = control.told_to_stop() => return Err(match told {
                    Some(cause) => (Some(Outcome::Stopped), format!("killed by {cause}")),
                    None => (None, "no further attempt: the daemon is stopping".to_owned()),
                }),
                lost = self.lease.next_loss() => {
                    if self.assignment.job.policies.on_lost == OnLost::Kill {
                        let why = format!("{} before the next attempt", self.lease.explain(lost));
                        return Err((Some(Outcome::LeaseLost), why));
                    }
                    self.lost = Some(lost);
                }
            }
        }
    }

    fn report_retry(&self, verdict: &AttemptResult, delay: Duration, left: u32) {
        let how = how(verdict);
        let attempts = if left == 1 { "attempt" } else { "attempts" };
        run_log!(
            warn,
            self.fields,
            "attempt {how}; retrying in {delay:.1?} ({left} {attempts} left)"
        );
    }

    /// Logs the end of the run, and how long it took if its command was started.
    fn report(&self, verdict: &AttemptResult, took: Option<Duration>) {
        let end = end_text(verdict, took);
        let outcome = verdict.outcome.word();
        let duration_ms = took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let exit_code = match verdict.status {
            Some(Status::Code(code)) => Some(code),
            Some(Status::Signal(_) | Status::Unknown) | None => None,
        };
        macro_rules! line {
            ($level:ident) => {
                run_log!(
                    $level as "run_finished",
                    self.fields,
                    outcome,
                    duration_ms,
                    exit_code,
                    "{end}"
                )
            };
        }
        match verdict.outcome {
            Outcome::Succeeded => line!(info),
            // A signal to the daemon ended it.
            Outcome::Stopped => line!(warn),
            _ => line!(error),
        }
    }

    /// Returns when the run started and ended, as the guard saw it. A run whose command never began counts from
    /// the instant it was granted for, and no run is recorded as started before that.
    fn times(&self, earliest: Began, now: Timestamp) -> RunTimes {
        let noticed = BootInstant::now();
        let began = self.began.unwrap_or(earliest);
        let ended = self.ended_at.unwrap_or(noticed);
        let started_at = earliest.shown.max(began.shown);
        RunTimes {
            started_at,
            finished_at: started_at.max(now.minus(noticed.since(ended))),
            took: ended.since(began.at),
        }
    }

    fn record(
        &self,
        (verdict, attempts): (&AttemptResult, u32),
        times: &RunTimes,
        control: &RunControl,
    ) -> Record {
        let assignment = self.assignment;
        let mut reason = verdict.reason.clone();
        let cause = assignment.cause.as_ref();
        if let Some(cause) = cause {
            let triggered = format!("triggered by {cause}");
            reason = Some(match reason {
                Some(reason) => format!("{triggered}; {reason}"),
                None => triggered,
            });
        }
        if reason.is_none() && assignment.grant().is_none() {
            reason = Some("ran without a lock: the store was unreachable".to_owned());
        }
        Record {
            job: assignment.job.name.clone(),
            run_id: Some(assignment.run_id().clone()),
            kind: assignment.kind,
            scheduled_at: assignment.scheduled_at,
            until: None,
            count: None,
            started_at: Some(times.started_at),
            finished_at: Some(times.finished_at),
            host: Some(assignment.host.clone()),
            outcome: verdict.outcome,
            reason,
            by: control.killed().or(cause).map(|cause| cause.by.clone()),
            exit_code: match verdict.status {
                Some(Status::Code(code)) => Some(code),
                _ => None,
            },
            signal: match verdict.status {
                Some(Status::Signal(signal)) => Some(signal),
                _ => None,
            },
            attempts,
            fence: assignment.fence(),
            output_tail: self.tail.keep(verdict.outcome == Outcome::Succeeded),
            usage: self.usage.map(usage_of),
        }
    }
}

fn usage_of(usage: Usage) -> RunUsage {
    RunUsage {
        cpu_ms: u64::try_from(usage.cpu.as_millis()).unwrap_or(u64::MAX),
        peak_memory_bytes: usage.peak_memory,
    }
}

/// How a run ended, and after what time; `None` if its command was never started.
fn end_text(verdict: &AttemptResult, took: Option<Duration>) -> String {
    let how = how(verdict);
    match (took, &verdict.reason) {
        (Some(took), _) if verdict.is_unstarted() => {
            format!("finished after {took:.1?}: the last attempt was {how}")
        }
        (Some(took), _) => format!("finished after {took:.1?}: {how}"),
        (None, Some(reason)) if verdict.is_unstarted() => format!("not started: {reason}"),
        (None, _) => how,
    }
}

/// How an attempt ended, as a clause.
fn how(verdict: &AttemptResult) -> String {
    let status = match verdict.status {
        Some(Status::Code(0) | Status::Unknown) | None => String::new(),
        Some(Status::Code(code)) => format!(", exit code {code}"),
        Some(Status::Signal(signal)) => match nix::sys::signal::Signal::try_from(signal) {
            Ok(name) => format!(", ended by {name}"),
            Err(_) => format!(", ended by signal {signal}"),
        },
    };
    let word = if verdict.is_unstarted() {
        "not started"
    } else {
        verdict.outcome.text()
    };
    match &verdict.reason {
        Some(reason) => format!("{word}{status} ({reason})"),
        None => format!("{word}{status}"),
    }
}

/// A number in [0, 1); a source that fails gives 0, which costs spread and nothing else.
pub(crate) fn random() -> f64 {
    getrandom::u32().map_or(0.0, |n| f64::from(n) / (f64::from(u32::MAX) + 1.0))
}
