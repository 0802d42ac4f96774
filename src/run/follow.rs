//! Follows one started process to its end, for runs and for `exec`.

use std::future::pending;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::lease::RunLease;
use crate::config::OnLost;
use crate::ground::timing;
use crate::guard::{EndedBy, Exit, ProcessEvent, Running, Status, Stream};
use crate::lease::LeaseLost;

/// When a process is killed without an order to do so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How long it may run.
    pub(crate) timeout: Option<Duration>,
    /// Whether it may outlive its lease.
    pub(crate) on_lost: OnLost,
}

/// An order for a process that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// Kill it: the first signal, the grace, SIGKILL.
    Kill,
    /// Pass a signal on to it.
    Signal(Signal),
}

/// Why a follower killed its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillReason {
    /// It ran longer than this.
    TimedOut(Duration),
    /// Its lease was lost.
    Lost(LeaseLost),
    /// [`Interruption::Kill`].
    Interrupted,
}

/// How a process ended that was followed.
#[derive(Debug)]
pub(crate) struct Followed {
    /// What the guard reported.
    pub(crate) exit: Exit,
    /// The first reason for which the follower killed it; `None` if it did not.
    pub(crate) killed: Option<KillReason>,
}

/// What runs and `exec` do differently while they follow a process: they log events in their own
/// words, and take orders from different sides.
pub(crate) trait Supervisor {
    /// The process wrote a line.
    fn line(&mut self, stream: Stream, text: &str);

    /// The process is about to be killed. Called for the first reason, and for the loss of the
    /// lease even if the process is being killed already.
    fn killing(&mut self, reason: KillReason, lease: &RunLease);

    /// The lease is lost, and the process continues (`on_lost: continue`).
    fn continuing(&mut self, lost: LeaseLost, lease: &RunLease);

    /// Waits for the next order. Must be cancel-safe. Not called again after an order to kill.
    fn interrupted(&mut self) -> impl Future<Output = Interruption> + Send;
}

/// Serves a process until nothing of it is left.
pub(crate) async fn follow(
    mut running: Running,
    limits: Limits,
    lease: &mut RunLease,
    supervisor: &mut (impl Supervisor + Send),
) -> Followed {
    if let Some(lease) = lease.lease() {
        // The deadline of the start is from before it, and the guard ignores renewals of a run that
        // it does not have yet. Those that come from now on reach it.
        running.extend(timing::kill_at(lease.ends()));
    }
    let mut timeout = std::pin::pin!(after(limits.timeout));
    let mut killed = None;
    let mut takes_orders = true;
    // Every arm is cancel-safe: events, a lease, a timer, and what the trait demands.
    let exit = loop {
        let reason = tokio::select! {
            event = running.events.recv() => match event {
                Some(ProcessEvent::Line { stream, text }) => {
                    supervisor.line(stream, &text);
                    continue;
                }
                Some(ProcessEvent::Exited(exit)) => break exit,
                None => break GUARD_GONE,
            },
            lost = lease.next_loss() => match limits.on_lost {
                OnLost::Kill => KillReason::Lost(lost),
                OnLost::Continue => {
                    supervisor.continuing(lost, lease);
                    continue;
                }
            },
            limit = &mut timeout, if killed.is_none() => KillReason::TimedOut(limit),
            order = supervisor.interrupted(), if takes_orders => match order {
                Interruption::Kill => {
                    takes_orders = false;
                    KillReason::Interrupted
                }
                Interruption::Signal(signal) => {
                    running.signal(signal);
                    continue;
                }
            },
        };
        if killed.is_none() || matches!(reason, KillReason::Lost(_)) {
            supervisor.killing(reason, lease);
        }
        killed = killed.or(Some(reason));
        running.end();
    };
    Followed { exit, killed }
}

/// All that is known of a process whose guard died before it reported the end.
const GUARD_GONE: Exit = Exit {
    status: Status::Unknown,
    ended_by: EndedBy::GuardGone,
    left_behind: 0,
    survivors: 0,
    usage: None,
};

/// Waits until a limit has passed, for ever without one. Cancel-safe while it is pinned.
async fn after(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            tokio::time::sleep(limit).await;
            limit
        }
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::ScriptedGuard;
    use crate::lease::Lease;
    use crate::time::BootInstant;

    struct Silent;

    impl Supervisor for Silent {
        fn line(&mut self, _stream: Stream, _text: &str) {}
        fn killing(&mut self, _reason: KillReason, _lease: &RunLease) {}
        fn continuing(&mut self, _lost: LeaseLost, _lease: &RunLease) {}
        async fn interrupted(&mut self) -> Interruption {
            pending().await
        }
    }

    /// The start was ordered before a renewal, and the guard has ignored that renewal.
    #[tokio::test]
    async fn a_renewal_while_a_process_was_started_reaches_the_guard() {
        let (mut guard, running) = ScriptedGuard::start();
        let ends = BootInstant::now().plus(Duration::from_secs(60));
        let mut lease = RunLease::new(Some(Lease::unrenewed(ends)));
        let limits = Limits {
            timeout: None,
            on_lost: OnLost::Kill,
        };
        let exit = Exit {
            status: Status::Code(0),
            ended_by: EndedBy::Itself,
            left_behind: 0,
            survivors: 0,
            usage: None,
        };
        guard
            .events
            .try_send(ProcessEvent::Exited(exit))
            .expect("room for it");
        let followed = follow(running, limits, &mut lease, &mut Silent).await;
        assert_eq!(followed.exit.status, Status::Code(0));
        assert_eq!(guard.next_deadline().await, Some(timing::kill_at(ends)));
    }
}
