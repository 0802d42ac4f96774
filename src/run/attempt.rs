//! One attempt of a run: start the command, follow it, end it when it must end.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;

use super::{RunDriver, Stop, Tools, command};
use crate::config::OnLost;
use crate::ground::timing;
use crate::guard::{EndedBy, Event, Exit, Lack, Running, SpawnError, Status, Stream};
use crate::lease::{Lease, LeaseLost};
use crate::observe::run_log;
use crate::store::Outcome;

/// Why this daemon ended an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    TimedOut(Duration),
    Lost(LeaseLost),
    Stopped,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AttemptResult {
    pub(super) outcome: Outcome,
    pub(super) reason: Option<String>,
    pub(super) status: Option<Status>,
    /// Whether the command was started at all.
    pub(super) started: bool,
    /// Set if this host lacked the resources to start it.
    pub(super) shortage: Option<Shortage>,
}

/// Why this host could not start a command that another host may be able to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// It has run out of something.
    Of(Lack),
    /// Its guard is gone; the daemon ends.
    NoGuard,
}

impl AttemptResult {
    fn not_started(outcome: Outcome, reason: String) -> Self {
        Self {
            outcome,
            reason: Some(reason),
            status: None,
            started: false,
            shortage: None,
        }
    }

    /// Whether a further attempt could do better.
    pub(super) fn is_worth_a_retry(&self) -> bool {
        matches!(self.outcome, Outcome::Failed | Outcome::TimedOut)
    }
}

impl RunDriver<'_> {
    /// What a lost lease means, in plain words, and why it was not renewed.
    pub(super) fn lost_reason(&self, lost: LeaseLost) -> String {
        let meaning = match lost {
            LeaseLost::Taken => "another holder took the lock",
            LeaseLost::Absent => "the lock disappeared from the store",
            LeaseLost::Expired => "the lease could not be renewed in time",
            LeaseLost::Released => "the lock was released",
        };
        let trouble = self.lease.as_ref().and_then(Lease::trouble);
        match trouble.filter(|_| lost == LeaseLost::Expired) {
            Some(error) => format!("{meaning} ({})", error.reason()),
            None => meaning.to_owned(),
        }
    }

    /// Runs the command once.
    pub(super) async fn attempt(
        &mut self,
        tools: &Tools,
        stop: &mut watch::Receiver<Stop>,
        number: u32,
    ) -> AttemptResult {
        if self.is_late(number) {
            return AttemptResult::not_started(Outcome::LeaseLost, SpawnError::TooLate.to_string());
        }
        let deadline = match (&self.lease, self.assignment.job.on_lost) {
            (Some(lease), OnLost::Kill) => Some(timing::kill_at(lease.ends())),
            _ => None,
        };
        let spawn = command::prepare(self.assignment, &tools.environment, number, deadline).await;
        let spawn = match spawn {
            Ok(spawn) => spawn,
            Err(refused) => {
                return AttemptResult {
                    shortage: refused.lack.map(Shortage::Of),
                    ..AttemptResult::not_started(Outcome::Failed, refused.reason)
                };
            }
        };
        match tools.processes.spawn(spawn).await {
            Ok(running) => {
                self.report_start(number, running.pid);
                tools.starts.started();
                self.follow(running, stop).await
            }
            Err(error) => {
                let outcome = match error {
                    SpawnError::TooLate => Outcome::LeaseLost,
                    SpawnError::NoReport => Outcome::Unknown,
                    SpawnError::CannotStart { .. }
                    | SpawnError::NoResources { .. }
                    | SpawnError::GuardGone => Outcome::Failed,
                };
                let shortage = match error {
                    SpawnError::NoResources { lack, .. } => Some(Shortage::Of(lack)),
                    SpawnError::GuardGone => Some(Shortage::NoGuard),
                    _ => None,
                };
                AttemptResult {
                    shortage,
                    ..AttemptResult::not_started(outcome, error.to_string())
                }
            }
        }
    }

    /// Logs the start: a run's first attempt as `info`, so that each run has one such line; its
    /// retries, which the failed attempt has announced, as `debug`.
    fn report_start(&self, number: u32, pid: i32) {
        let fence = self.assignment.fence();
        if number == self.assignment.attempt {
            run_log!(info, self.fields, fence, attempt = number, pid, "started");
        } else {
            run_log!(debug, self.fields, fence, attempt = number, pid, "started");
        }
    }

    /// `on_lost: continue` lets a job outlive its lease, but not begin after it: while this host slept
    /// with the grant in hand, others may have run what came due later.
    fn is_late(&self, number: u32) -> bool {
        let is_first = number <= self.assignment.attempt;
        let lease = self.lease.as_ref().filter(|_| is_first);
        lease.is_some_and(|lease| lease.validity().is_zero())
    }

    async fn follow(
        &mut self,
        mut running: Running,
        stop: &mut watch::Receiver<Stop>,
    ) -> AttemptResult {
        let timeout = self.assignment.job.timeout;
        let timer = tokio::time::sleep(timeout.unwrap_or(Duration::MAX));
        tokio::pin!(timer);
        let mut cause = None;
        // Every arm is cancel-safe: a channel, a timer, a watch, and a lease that says so.
        loop {
            tokio::select! {
                event = running.events.recv() => match event {
                    Some(Event::Line { stream, text }) => self.line(stream, &text),
                    Some(Event::Exited(exit)) => return self.judge(&exit, cause),
                    None => return self.judge(&GONE, cause),
                },
                lost = lost(&mut self.lease), if self.lost.is_none() => {
                    self.lost = Some(lost);
                    if self.lease_lost_ends_it(lost) {
                        cause = cause.or(Some(Cause::Lost(lost)));
                        running.end();
                    }
                }
                () = &mut timer, if timeout.is_some() && cause.is_none() => {
                    let limit = timeout.unwrap_or_default();
                    run_log!(warn, self.fields, "timed out after {limit:?}: killing it");
                    cause = Some(Cause::TimedOut(limit));
                    running.end();
                }
                () = reached(stop, Stop::End), if cause.is_none() => {
                    run_log!(warn, self.fields, "the daemon is stopping: killing it");
                    cause = Some(Cause::Stopped);
                    running.end();
                }
            }
        }
    }

    /// Says that the lease is lost and whether that ends the job.
    fn lease_lost_ends_it(&self, lost: LeaseLost) -> bool {
        let why = self.lost_reason(lost);
        match self.assignment.job.on_lost {
            OnLost::Kill => {
                run_log!(error, self.fields, "lease lost, {why}: killing it at once");
                true
            }
            OnLost::Continue => {
                run_log!(
                    warn,
                    self.fields,
                    "lease lost, {why}: it continues (on_lost: continue), and another run may \
                     overlap it"
                );
                false
            }
        }
    }

    fn line(&mut self, stream: Stream, text: &str) {
        self.tail.push(text);
        match stream {
            Stream::Out => run_log!(info, self.fields, stream = "stdout", "{text}"),
            Stream::Err => run_log!(warn, self.fields, stream = "stderr", "{text}"),
        }
    }

    fn judge(&self, exit: &Exit, cause: Option<Cause>) -> AttemptResult {
        let (outcome, reason) = match (cause, exit.ended_by) {
            (_, EndedBy::GuardGone) => {
                (Outcome::Unknown, Some("the guard process died".to_owned()))
            }
            (Some(Cause::Lost(lost)), _) => (Outcome::LeaseLost, Some(self.lost_reason(lost))),
            (_, EndedBy::Deadline) => (
                Outcome::LeaseLost,
                Some(self.lost_reason(LeaseLost::Expired)),
            ),
            (Some(Cause::TimedOut(limit)), _) => (
                Outcome::TimedOut,
                Some(format!("ran longer than {limit:?}")),
            ),
            (Some(Cause::Stopped), EndedBy::Request) => {
                (Outcome::Stopped, Some("the daemon was stopped".to_owned()))
            }
            (Some(Cause::Stopped) | None, _) => self.judge_status(exit),
        };
        AttemptResult {
            outcome,
            reason,
            status: Some(exit.status),
            started: true,
            shortage: None,
        }
    }

    fn judge_status(&self, exit: &Exit) -> (Outcome, Option<String>) {
        let good = &self.assignment.job.success_exit_codes;
        let succeeded = match exit.status {
            Status::Code(code) => u8::try_from(code).is_ok_and(|code| good.contains(&code)),
            Status::Signal(_) => false,
            Status::Unknown => {
                return (Outcome::Unknown, Some("its result is unknown".to_owned()));
            }
        };
        let outcome = if succeeded {
            Outcome::Succeeded
        } else {
            Outcome::Failed
        };
        let reason = match exit.left_behind {
            0 => None,
            1 => Some("left 1 process behind, which was killed".to_owned()),
            n => Some(format!("left {n} processes behind, which were killed")),
        };
        (outcome, reason)
    }
}

const GONE: Exit = Exit {
    status: Status::Unknown,
    ended_by: EndedBy::GuardGone,
    left_behind: 0,
    survivors: 0,
};

/// Waits until the lease, if there is one, is lost. Cancel-safe.
pub(super) async fn lost(lease: &mut Option<Lease>) -> LeaseLost {
    match lease {
        Some(lease) => lease.lost().await,
        None => pending().await,
    }
}

/// Waits until the daemon wants to stop at least so much. Cancel-safe.
pub(super) async fn reached(stop: &mut watch::Receiver<Stop>, level: Stop) {
    if stop.wait_for(|now| *now >= level).await.is_err() {
        // Whoever could tell us is gone, and so is this process soon.
        pending::<()>().await;
    }
}
