//! Follows one started process to its end, for runs and for `exec`.

use std::future::pending;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::lease::RunLease;
use crate::config::OnLost;
use crate::ground::timing;
use crate::guard::{EndedBy, Exit, ProcessEvent, Running, Status, Stream};
use crate::lease::{Lease, LeaseLost};
use crate::time::BootInstant;

/// How long the report of the guard may take that a run has ended whose lease expired: the guard kills it
/// before that.
const GUARD_REPORTS_WITHIN: Duration = Duration::from_secs(1);

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
    /// The first reason for which the follower killed it; `None` if it did not, or came too late: a process
    /// that had ended by itself before its limit, as the guard saw it, was not killed for that limit.
    pub(crate) killed: Option<KillReason>,
    /// Why its lease was lost; `None` if it was not, or if the process had ended by itself before.
    pub(crate) lost: Option<LeaseLost>,
}

/// What runs and `exec` do differently while they follow a process: they log events in their own
/// words, and take orders from different sides.
pub(crate) trait Supervisor {
    /// The process wrote a line.
    fn line(&mut self, stream: Stream, text: &str);

    /// The process is about to be killed. Called for the first reason, and for the loss of the
    /// lease even if the process is being killed already. Not called for a lease that expired if the
    /// guard reports at once that nothing of the process is left.
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
    let began = BootInstant::now();
    let mut timeout = std::pin::pin!(after(limits.timeout));
    let mut killed = None;
    let mut guard_is_late = std::pin::pin!(after(None));
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
                None => break guard_gone(),
            },
            why = lease.next_loss() => match limits.on_lost {
                OnLost::Kill => KillReason::Lost(why),
                OnLost::Continue => {
                    supervisor.continuing(why, lease);
                    continue;
                }
            },
            _ = &mut guard_is_late => {
                guard_is_late.set(after(None));
                supervisor.killing(KillReason::Lost(LeaseLost::Expired), lease);
                continue;
            }
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
        if reason == KillReason::Lost(LeaseLost::Expired) {
            // The guard has killed it, unless that is stopped as well; its report may be on the way.
            guard_is_late.set(after(Some(GUARD_REPORTS_WITHIN)));
        } else if killed.is_none() || matches!(reason, KillReason::Lost(_)) {
            supervisor.killing(reason, lease);
        }
        killed = killed.or(Some(reason));
        running.end();
    };
    let counts = |reason: &KillReason| !came_too_late(*reason, &exit, (began, &*lease));
    let noticed = lease.noticed_loss();
    let lost = noticed.filter(|why| counts(&KillReason::Lost(*why)));
    let kills = lost.filter(|_| limits.on_lost == OnLost::Kill);
    let killed = killed.filter(counts).or(kills.map(KillReason::Lost));
    Followed { exit, killed, lost }
}

/// Whether a process had ended by itself before the limit for which it was to be killed. A daemon that was
/// stopped notices limit and end at the same time, and only the guard knows which came first.
fn came_too_late(
    reason: KillReason,
    exit: &Exit,
    (began, lease): (BootInstant, &RunLease),
) -> bool {
    let limit = match reason {
        KillReason::TimedOut(limit) => Some(began.plus(limit)),
        KillReason::Lost(LeaseLost::Expired) => lease.lease().map(Lease::ends),
        // Another holder may have had the lock before this host noticed.
        KillReason::Lost(_) | KillReason::Interrupted => None,
    };
    exit.ended_by == EndedBy::Itself && limit.is_some_and(|limit| exit.at < limit)
}

/// All that is known of a process whose guard died before it reported the end.
fn guard_gone() -> Exit {
    Exit {
        status: Status::Unknown,
        ended_by: EndedBy::GuardGone,
        left_behind: 0,
        survivors: 0,
        usage: None,
        at: BootInstant::now(),
    }
}

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
            at: BootInstant::now(),
        };
        guard
            .events
            .try_send(ProcessEvent::Exited(exit))
            .expect("room for it");
        let followed = follow(running, limits, &mut lease, &mut Silent).await;
        assert_eq!(followed.exit.status, Status::Code(0));
        assert_eq!(guard.next_deadline().await, Some(timing::kill_at(ends)));
    }

    /// Follows a process as a daemon does that was stopped from soon after its start until after its lease
    /// had expired: it notices that before it reads the guard's report.
    async fn followed_late(exit: impl FnOnce(BootInstant) -> Exit) -> Followed {
        let (guard, running) = ScriptedGuard::start();
        let ends = BootInstant::now();
        let mut lease = RunLease::new(Some(Lease::unrenewed(ends)));
        let limits = Limits {
            timeout: None,
            on_lost: OnLost::Kill,
        };
        let exit = exit(ends);
        let mut noticing = Noticing {
            reports: Some((guard, exit)),
        };
        follow(running, limits, &mut lease, &mut noticing).await
    }

    /// Reports the end of the process once the loss of its lease was noticed.
    struct Noticing {
        reports: Option<(ScriptedGuard, Exit)>,
    }

    impl Supervisor for Noticing {
        fn line(&mut self, _stream: Stream, _text: &str) {}
        fn killing(&mut self, _reason: KillReason, _lease: &RunLease) {
            let (guard, exit) = self.reports.take().expect("reported once");
            let sent = guard.events.try_send(ProcessEvent::Exited(exit));
            sent.expect("room for it");
            // The guard stays.
            std::mem::forget(guard);
        }
        fn continuing(&mut self, _lost: LeaseLost, _lease: &RunLease) {}
        async fn interrupted(&mut self) -> Interruption {
            pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_ended_by_itself_before_its_lease_was_not_killed_for_it() {
        let exit = |ended_by, at| Exit {
            status: Status::Code(0),
            ended_by,
            left_behind: 0,
            survivors: 0,
            usage: None,
            at,
        };
        let earlier = |ends: BootInstant| ends.minus(Duration::from_secs(7));
        let in_time = followed_late(|ends| exit(EndedBy::Itself, earlier(ends))).await;
        assert_eq!((in_time.killed, in_time.lost), (None, None));
        let expired = LeaseLost::Expired;
        let lost = (Some(KillReason::Lost(expired)), Some(expired));
        let too_late = followed_late(|ends| exit(EndedBy::Itself, ends)).await;
        assert_eq!((too_late.killed, too_late.lost), lost);
        let killed = followed_late(|ends| exit(EndedBy::Request, earlier(ends))).await;
        assert_eq!((killed.killed, killed.lost), lost);
    }
}
