//! One attempt of a run: starts the command, follows it, and judges how it ended.

use std::borrow::Cow;
use std::future::pending;
use std::sync::Arc;

use super::attempt_result::{AttemptResult, ReturnReason};
use super::follow::{Followed, Interruption, KillReason, Limits, Supervisor, follow};
use super::instant::{self, SpawnQueue, Withdrawal};
use super::lease::RunLease;
use super::tail::FailureTail;
use super::{Began, RunControl, RunDriver, Tools, command};
use nix::sys::signal::Signal;

use crate::guard::{
    EndedBy, Exit, OutputSink, Running, Spawn, SpawnError, SpawnTurn, Status, Stream,
};
use crate::lease::{Lease, LeaseLost};
use crate::observe::{RunFields, run_log};
use crate::store::{Kind, Outcome};

impl RunDriver<'_> {
    /// Runs the command once.
    pub(super) async fn attempt(
        &mut self,
        tools: &Tools,
        control: &mut RunControl,
        number: u32,
    ) -> AttemptResult {
        let spawn = command::prepare(self.assignment, &tools.environment, number).await;
        let mut spawn = match spawn {
            Ok(spawn) => spawn,
            Err(refused) => {
                return AttemptResult {
                    returned: refused.lack.map(ReturnReason::Lacks),
                    ..AttemptResult::not_started(Outcome::Failed, refused.reason)
                };
            }
        };
        let turn = match self.turn(tools, control, number).await {
            Ok(turn) => turn,
            Err(why) => return why.result(&mut self.lease),
        };
        // Not before: the lease may have been renewed, or lost, while the command was prepared and waited for its turn.
        if let Some(lost) = self.loss_before_first_attempt(number) {
            return Withdrawal::Lost(lost).result(&mut self.lease);
        }
        (self.assignment).set_limits(&mut spawn, &turn, number, &self.lease);
        if !self.assignment.is_first(number) {
            self.output.begin_attempt(number);
        }
        let (started, withdrawal) = self.spawn(tools, turn, spawn, control).await;
        match (started, withdrawal) {
            (Err(SpawnError::Withdrawn | SpawnError::TooLate), Some(why)) => {
                why.result(&mut self.lease)
            }
            (Ok(running), _) => {
                let began = Began::of(running.started_at, &tools.clock);
                self.began.get_or_insert(began);
                self.output.begin();
                self.report_start(number, running.pid);
                tools.starts.report();
                self.follow(running, control).await
            }
            (Err(error), _) => of_failed_start(&error, &mut self.lease),
        }
    }

    /// Waits until the command of an attempt may be sent to the guard. Fails if the run was granted ahead of its instant
    /// and must not start any more.
    async fn turn(
        &mut self,
        tools: &Tools,
        control: &mut RunControl,
        number: u32,
    ) -> Result<SpawnTurn, Withdrawal> {
        let Some(start) = self.assignment.start_of(number) else {
            return Ok(tools.processes.turn(None).await);
        };
        let queue = SpawnQueue {
            processes: &tools.processes,
            claims: &tools.pending_claims,
            start,
        };
        queue.turn(&mut self.lease, control).await
    }

    /// Has the guard start the command. If it was granted ahead of its instant, and must not start any more before
    /// it has begun, the guard withdraws it. The second result is why, also if that came too late: what follows the
    /// process then learns of it again.
    async fn spawn(
        &mut self,
        tools: &Tools,
        turn: SpawnTurn,
        spawn: Spawn,
        control: &mut RunControl,
    ) -> (Result<Running, SpawnError>, Option<Withdrawal>) {
        let sink: Arc<dyn OutputSink> = self.output.clone();
        let is_ahead = spawn.start.is_some();
        let lease = &mut self.lease;
        let mut why = None;
        let withdrawn = async {
            if !is_ahead {
                pending::<()>().await;
            }
            why = Some(instant::withdrawn(lease, control).await);
        };
        let started = (tools.processes).spawn_unless(turn, spawn, Some(sink), withdrawn);
        (started.await, why)
    }

    /// Logs the start: a run's first attempt as `info`, so that each run has one such line; its
    /// retries, which the failed attempt has announced, as `debug`.
    fn report_start(&self, number: u32, pid: i32) {
        let fence = self.assignment.fence();
        let is_first = self.assignment.is_first(number);
        if is_first && self.assignment.kind == Kind::Rerun {
            run_log!(
                info as "run_started",
                self.fields,
                fence,
                attempt = number,
                pid,
                "started again: the earlier run of this occurrence did not report its end before its \
                 lease expired (on_crash: rerun)"
            );
        } else if is_first {
            run_log!(info as "run_started", self.fields, fence, attempt = number, pid, "started");
        } else {
            run_log!(debug, self.fields, fence, attempt = number, pid, "started");
        }
    }

    /// `on_lost: continue` lets a job outlive its lease, but not begin after it. While this host
    /// was suspended after the grant, others may have run later occurrences.
    fn loss_before_first_attempt(&self, number: u32) -> Option<LeaseLost> {
        let lease = self.lease.lease();
        lease
            .filter(|_| self.assignment.is_first(number))?
            .known_loss()
    }

    async fn follow(&mut self, running: Running, control: &mut RunControl) -> AttemptResult {
        let job = &self.assignment.job;
        let limits = Limits {
            timeout: job.policies.timeout,
            on_lost: job.policies.on_lost,
        };
        let mut supervisor = AttemptSupervisor {
            fields: &self.fields,
            tail: &mut self.tail,
            control,
        };
        let followed = follow(running, limits, &mut self.lease, &mut supervisor).await;
        self.ended_at = Some(followed.exit.at);
        self.lost = self.lost.or(followed.lost);
        self.usage = match (self.usage, followed.exit.usage) {
            (Some(before), Some(usage)) => Some(before.and(usage)),
            (before, usage) => usage.or(before),
        };
        self.judge(&followed, control)
    }

    /// The order of the arms matters. What the guard did not see is unknown, whatever was ordered. A lost
    /// lease comes before every other reason, because another run may have overlapped this one; so does
    /// the deadline, at which the guard kills a run whose lease this process may not know to be lost. An
    /// order counts only if the process ended by it: it may have ended by itself meanwhile. (So `follow` has
    /// left out a lease that expired, and a timeout that was over, after that.)
    fn judge(&self, followed: &Followed, control: &RunControl) -> AttemptResult {
        let exit = &followed.exit;
        let (outcome, reason) = match (followed.killed, exit.ended_by) {
            (_, EndedBy::GuardGone) => {
                (Outcome::Unknown, Some("the guard process died".to_owned()))
            }
            (Some(KillReason::Lost(lost)), _) => {
                (Outcome::LeaseLost, Some(self.lease.explain(lost)))
            }
            (_, EndedBy::Deadline) => (
                Outcome::LeaseLost,
                Some(self.lease.explain(LeaseLost::Expired)),
            ),
            (Some(KillReason::TimedOut(limit)), _) => (
                Outcome::TimedOut,
                Some(format!("ran longer than {limit:?}")),
            ),
            (Some(KillReason::Interrupted), EndedBy::Request) => {
                let why = killed_by(control).unwrap_or_else(|| control.why_stopped());
                (Outcome::Stopped, Some(why))
            }
            (Some(KillReason::Interrupted) | None, _) => match signalled(exit, control) {
                Some(why) => (Outcome::Stopped, Some(why)),
                None => self.judge_status(exit),
            },
        };
        AttemptResult {
            outcome,
            reason,
            status: Some(exit.status),
            started: true,
            returned: None,
        }
    }

    fn judge_status(&self, exit: &Exit) -> (Outcome, Option<String>) {
        let good = &self.assignment.job.policies.success_exit_codes;
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

/// Logs what happens to the command, keeps its last output, and passes orders on to it: the daemon ends it
/// when it stops, and people have it killed or send it a signal.
struct AttemptSupervisor<'a> {
    fields: &'a RunFields,
    tail: &'a mut FailureTail,
    control: &'a mut RunControl,
}

impl Supervisor for AttemptSupervisor<'_> {
    fn line(&mut self, stream: Stream, text: &str) {
        self.tail.push(&first_and_last_part(text));
        self.control.line(stream, text);
        let text = last_part(text);
        match stream {
            Stream::Out => run_log!(info as "run_output", self.fields, stream = "stdout", "{text}"),
            Stream::Err => run_log!(warn as "run_output", self.fields, stream = "stderr", "{text}"),
        }
    }

    fn killing(&mut self, reason: KillReason, lease: &RunLease) {
        match reason {
            KillReason::TimedOut(limit) => {
                run_log!(
                    warn,
                    self.fields,
                    "killing the run: it timed out after {limit:?}"
                );
            }
            KillReason::Lost(lost) => {
                let why = lease.explain(lost);
                let late = match lost {
                    LeaseLost::Expired => {
                        ", and the guard has not reported the end of the run within 1 s"
                    }
                    LeaseLost::Taken | LeaseLost::Absent | LeaseLost::Released => "",
                };
                run_log!(
                    error as "lease_lost",
                    self.fields,
                    "the lease was lost ({why}){late}: killing the run"
                );
            }
            KillReason::Interrupted => {
                let why = killed_by(self.control);
                let why = why.unwrap_or_else(|| self.control.why_stopping());
                run_log!(warn, self.fields, "killing the run: {why}");
            }
        }
    }

    fn continuing(&mut self, lost: LeaseLost, lease: &RunLease) {
        let why = lease.explain(lost);
        run_log!(
            warn as "lease_lost",
            self.fields,
            "the lease was lost ({why}): the run continues (on_lost: continue), and another run may overlap it"
        );
    }

    async fn interrupted(&mut self) -> Interruption {
        self.control.interrupted().await
    }
}

/// Returns what becomes of an attempt whose command could not be started, and whether another host may be able
/// to start it.
fn of_failed_start(error: &SpawnError, lease: &mut RunLease) -> AttemptResult {
    let (outcome, returned) = match error {
        // The guard has noticed it first. A run whose command was started before keeps its record.
        SpawnError::TooLate | SpawnError::Withdrawn => {
            let lost = lease.lease().and_then(Lease::known_loss);
            return Withdrawal::Lost(lost.unwrap_or(LeaseLost::Expired)).result(lease);
        }
        SpawnError::NoReport => (Outcome::Unknown, None),
        SpawnError::CannotStart { .. } => (Outcome::Failed, None),
        SpawnError::NoResources { lack, .. } => (Outcome::Failed, Some(ReturnReason::Lacks(*lack))),
        SpawnError::GuardGone => (Outcome::Failed, Some(ReturnReason::NoGuard)),
        SpawnError::Killed => (Outcome::Failed, Some(ReturnReason::Killed)),
    };
    AttemptResult {
        returned,
        ..AttemptResult::not_started(outcome, error.to_string())
    }
}

/// Returns who had the run killed, if a person did.
fn killed_by(control: &RunControl) -> Option<String> {
    control.killed().map(|cause| format!("killed by {cause}"))
}

/// Returns who ended the process, if it ended by a signal that a person sent.
fn signalled(exit: &Exit, control: &RunControl) -> Option<String> {
    let Status::Signal(signal) = exit.status else {
        return None;
    };
    let name = Signal::try_from(signal).ok()?;
    let cause = control.sent(signal)?;
    Some(format!("ended by {name}, sent by {cause}"))
}

/// A line without what a terminal shows of it for a moment only: the states of a progress bar between the first and
/// the last one, which would leave no room for other lines in the record.
fn first_and_last_part(line: &str) -> Cow<'_, str> {
    match (line.split_once('\r'), line.rsplit_once('\r')) {
        (Some((first, _)), Some((before, last))) if first.len() < before.len() => {
            format!("{first}\r{last}").into()
        }
        _ => line.into(),
    }
}

/// What a terminal shows of a line in the end, such as the last state of a progress bar.
fn last_part(line: &str) -> &str {
    line.rsplit('\r').next().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the daemon notices the loss first, [`Withdrawal`] returns the occurrence as well.
    #[test]
    fn a_command_whose_lease_was_lost_before_it_began_is_left_to_other_hosts() {
        let result = of_failed_start(&SpawnError::TooLate, &mut RunLease::default());
        assert_eq!(result.outcome, Outcome::LeaseLost);
        assert_eq!(result.returned, Some(ReturnReason::LeaseLost));
        assert!(!result.started);
        let unknown = of_failed_start(&SpawnError::NoReport, &mut RunLease::default());
        assert_eq!(unknown.returned, None, "it may have begun");
        let killed = of_failed_start(&SpawnError::Killed, &mut RunLease::default());
        assert_eq!(killed.returned, Some(ReturnReason::Killed));
        assert!(!killed.started);
    }

    #[test]
    fn the_log_shows_the_last_state_of_a_progress_bar() {
        assert_eq!(last_part("10%\r20%\rdone"), "done");
        assert_eq!(last_part("plain"), "plain");
        let kept = ["10%\r20%\r30%\rdone", "a\rb", "plain"].map(first_and_last_part);
        assert_eq!(kept, ["10%\rdone", "a\rb", "plain"]);
    }
}
