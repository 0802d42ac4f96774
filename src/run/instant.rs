//! What keeps a run from starting that was granted ahead of its instant.

use std::sync::Arc;

use super::attempt_result::{AttemptResult, ReturnReason};
use super::lease::RunLease;
use super::{Cause, PendingClaims, RunControl};
use crate::guard::{Processes, Turn};
use crate::lease::LeaseLost;
use crate::store::Outcome;
use crate::time::BootInstant;

/// Why a granted run must not start any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Withdrawal {
    /// The daemon stops.
    Draining,
    /// Somebody had the run killed.
    Killed(Arc<Cause>),
    /// Its lease was lost.
    Lost(LeaseLost),
}

impl Withdrawal {
    /// Returns how a run ends that has not started for this reason. It has a result only if a person wanted
    /// that; otherwise its occurrence is returned undecided.
    pub(super) fn result(self, lease: &mut RunLease) -> AttemptResult {
        let (outcome, why, returned) = match self {
            Self::Draining => {
                let why = "the daemon stopped before the command began".to_owned();
                (Outcome::Stopped, why, Some(ReturnReason::Draining))
            }
            Self::Killed(cause) => {
                let why = format!("killed by {cause} before the command began");
                (Outcome::Stopped, why, None)
            }
            Self::Lost(lost) => {
                lease.notice(lost);
                let why = format!("{} before the command began", lease.explain(lost));
                (Outcome::LeaseLost, why, Some(ReturnReason::LeaseLost))
            }
        };
        AttemptResult {
            returned,
            ..AttemptResult::not_started(outcome, why)
        }
    }
}

/// Waits until a run must not start any more. Cancel-safe, and returns the same again.
pub(super) async fn withdrawn(lease: &mut RunLease, control: &mut RunControl) -> Withdrawal {
    // Every arm is cancel-safe, as the documentation of each says.
    tokio::select! {
        lost = lease.is_lost() => Withdrawal::Lost(lost),
        told = control.told_to_stop() => match told {
            Some(cause) => Withdrawal::Killed(cause),
            None => Withdrawal::Draining,
        },
    }
}

/// Waits for the turn of a run that was granted ahead of `start`: until few claims have no reply, and then until the
/// command may be sent to the guard. Fails at once if the run must not start any more. Cancel-safe.
pub(super) async fn turn(
    (processes, claims): (&Processes, &PendingClaims),
    start: BootInstant,
    lease: &mut RunLease,
    control: &mut RunControl,
) -> Result<Turn, Withdrawal> {
    let turn = async {
        claims.few(start).await;
        processes.turn(Some(start)).await
    };
    // Both arms are cancel-safe, as the documentation of each says.
    tokio::select! {
        biased;
        why = withdrawn(lease, control) => Err(why),
        turn = turn => Ok(turn),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::watch;

    use super::*;
    use crate::lease::Lease;
    use crate::run::{RunOrder, Stop};

    const FAR: Duration = Duration::from_secs(60);

    /// How a run ends that is withdrawn.
    async fn told(lease: &mut RunLease, control: &mut RunControl) -> AttemptResult {
        withdrawn(lease, control).await.result(lease)
    }

    fn control() -> (watch::Sender<Stop>, RunControl) {
        let (stopper, stop) = watch::channel(Stop::Not);
        (stopper, RunControl::of(stop))
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_stops_meanwhile_returns_the_occurrence() {
        for stop in [Stop::Drain, Stop::End] {
            let (stopper, mut control) = control();
            stopper.send_replace(stop);
            let told = told(&mut RunLease::default(), &mut control).await;
            assert_eq!(told.returned, Some(ReturnReason::Draining));
            assert!(!told.started);
        }
    }

    /// The turns of this host.
    struct Turns {
        processes: Processes,
        claims: PendingClaims,
        /// When the runs begin that ask for one.
        start: BootInstant,
    }

    impl Turns {
        fn new() -> Self {
            Self {
                processes: Processes::without_guard(),
                claims: PendingClaims::default(),
                start: BootInstant::now().plus(FAR),
            }
        }

        /// The turn of a run that begins at an instant which is far away; `None` while it has to wait.
        async fn ask(
            &self,
            lease: &mut RunLease,
            control: &mut RunControl,
        ) -> Option<Result<Turn, Withdrawal>> {
            let turn = turn((&self.processes, &self.claims), self.start, lease, control);
            tokio::time::timeout(Duration::ZERO, turn).await.ok()
        }
    }

    fn held_until(ends: BootInstant) -> RunLease {
        RunLease::new(Some(Lease::unrenewed(ends)))
    }

    #[tokio::test]
    async fn a_run_has_no_turn_while_many_claims_are_pending_or_its_crowd_has_no_place() {
        let turns = Turns::new();
        let mut lease = held_until(BootInstant::now().plus(FAR));
        let (_stopper, mut control) = control();
        turns.claims.set(10_000);
        assert!(turns.ask(&mut lease, &mut control).await.is_none());
        turns.claims.set(0);
        let first = turns.ask(&mut lease, &mut control).await;
        let first = first.expect("nothing is to be waited for").expect("a turn");
        assert!(turns.ask(&mut lease, &mut control).await.is_none());
        drop(first);
        assert!(turns.ask(&mut lease, &mut control).await.is_some());
    }

    #[tokio::test]
    async fn what_stopped_a_run_before_its_turn_is_noticed_at_once() {
        let turns = Turns::new();
        let (stopper, mut control) = control();
        stopper.send_replace(Stop::Drain);
        let mut lease = held_until(BootInstant::now().plus(FAR));
        let why = turns.ask(&mut lease, &mut control).await;
        assert_eq!(why.and_then(Result::err), Some(Withdrawal::Draining));
        let (_stopper, mut control) = self::control();
        let why = turns
            .ask(&mut held_until(BootInstant::BOOT), &mut control)
            .await;
        let expired = Withdrawal::Lost(LeaseLost::Expired);
        assert_eq!(why.and_then(Result::err), Some(expired));
    }

    #[tokio::test]
    async fn what_stops_a_run_while_it_waits_for_its_turn_is_noticed() {
        let turns = Turns::new();
        turns.claims.set(10_000);
        let (stopper, mut control) = control();
        let mut lease = held_until(BootInstant::now().plus(FAR));
        let tools = (&turns.processes, &turns.claims);
        let waiting = turn(tools, turns.start, &mut lease, &mut control);
        let stop = async { stopper.send_replace(Stop::Drain) };
        let (why, _) = tokio::join!(waiting, stop);
        assert_eq!(why.err(), Some(Withdrawal::Draining));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_lost_meanwhile_returns_the_occurrence() {
        let (_stopper, mut control) = control();
        let ends = BootInstant::now().plus(FAR);
        let mut lease = RunLease::new(Some(Lease::unrenewed(ends)));
        lease
            .lease()
            .expect("it has one")
            .mark_lost(LeaseLost::Taken);
        let again = withdrawn(&mut lease, &mut control).await;
        assert_eq!(again, Withdrawal::Lost(LeaseLost::Taken));
        assert_eq!(
            lease.noticed_loss(),
            None,
            "what follows a process notices it"
        );
        let told = told(&mut lease, &mut control).await;
        assert_eq!(told.returned, Some(ReturnReason::LeaseLost));
        assert_eq!(lease.noticed_loss(), Some(LeaseLost::Taken));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_killed_meanwhile_is_recorded() {
        let (_stopper, control) = control();
        let (mut control, orders) = control.with_orders();
        let cause = Cause {
            by: "alice@web1".to_owned(),
            reason: String::new(),
        };
        assert!(orders.send(RunOrder::Kill(Arc::new(cause))));
        let told = told(&mut RunLease::default(), &mut control).await;
        assert_eq!((told.outcome, told.returned), (Outcome::Stopped, None));
        let why = "killed by alice@web1 before the command began";
        assert_eq!(told.reason.as_deref(), Some(why));
    }
}
