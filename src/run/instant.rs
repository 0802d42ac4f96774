//! What keeps a run from starting that was granted ahead of its instant.

use std::sync::Arc;

use super::attempt_result::{AttemptResult, ReturnReason};
use super::lease::RunLease;
use super::{Cause, PendingClaims, RunControl};
use crate::guard::{Processes, SpawnTurn};
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

/// What a run waits for that was granted ahead of its instant, before its command is sent to the guard.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpawnQueue<'a> {
    pub(super) processes: &'a Processes,
    pub(super) claims: &'a PendingClaims,
    /// The instant.
    pub(super) start: BootInstant,
}

impl SpawnQueue<'_> {
    /// Waits until few claims have no reply, and then until the command may be sent. Fails at once if the run must not
    /// start any more. Cancel-safe.
    pub(super) async fn turn(
        self,
        lease: &mut RunLease,
        control: &mut RunControl,
    ) -> Result<SpawnTurn, Withdrawal> {
        let turn = async {
            self.claims.few(self.start).await;
            self.processes.turn(Some(self.start)).await
        };
        // Both arms are cancel-safe, as the documentation of each says.
        tokio::select! {
            biased;
            why = withdrawn(lease, control) => Err(why),
            turn = turn => Ok(turn),
        }
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

    /// What the runs of a host wait for whose instant is far away, the same for all.
    struct QueueBench {
        processes: Processes,
        claims: PendingClaims,
        start: BootInstant,
    }

    impl QueueBench {
        fn new() -> Self {
            Self {
                processes: Processes::without_guard(),
                claims: PendingClaims::default(),
                start: BootInstant::now().plus(FAR),
            }
        }

        fn queue(&self) -> SpawnQueue<'_> {
            SpawnQueue {
                processes: &self.processes,
                claims: &self.claims,
                start: self.start,
            }
        }

        /// The turn of one of them; `None` while it has to wait.
        async fn ask(
            &self,
            lease: &mut RunLease,
            control: &mut RunControl,
        ) -> Option<Result<SpawnTurn, Withdrawal>> {
            let turn = self.queue().turn(lease, control);
            tokio::time::timeout(Duration::ZERO, turn).await.ok()
        }
    }

    fn held_until(ends: BootInstant) -> RunLease {
        RunLease::new(Some(Lease::unrenewed(ends)))
    }

    #[tokio::test]
    async fn a_run_has_no_turn_while_many_claims_are_pending_or_its_crowd_has_no_place() {
        let bench = QueueBench::new();
        let mut lease = held_until(BootInstant::now().plus(FAR));
        let (_stopper, mut control) = control();
        bench.claims.set(10_000);
        assert!(bench.ask(&mut lease, &mut control).await.is_none());
        bench.claims.set(0);
        let first = bench.ask(&mut lease, &mut control).await;
        let first = first.expect("nothing is to be waited for").expect("a turn");
        assert!(bench.ask(&mut lease, &mut control).await.is_none());
        drop(first);
        assert!(bench.ask(&mut lease, &mut control).await.is_some());
    }

    #[tokio::test]
    async fn what_stopped_a_run_before_its_turn_is_noticed_at_once() {
        let bench = QueueBench::new();
        let (stopper, mut control) = control();
        stopper.send_replace(Stop::Drain);
        let mut lease = held_until(BootInstant::now().plus(FAR));
        let why = bench.ask(&mut lease, &mut control).await;
        assert_eq!(why.and_then(Result::err), Some(Withdrawal::Draining));
        let (_stopper, mut control) = self::control();
        let why = bench
            .ask(&mut held_until(BootInstant::BOOT), &mut control)
            .await;
        let expired = Withdrawal::Lost(LeaseLost::Expired);
        assert_eq!(why.and_then(Result::err), Some(expired));
    }

    #[tokio::test]
    async fn what_stops_a_run_while_it_waits_for_claims_or_for_a_place_is_noticed() {
        for claims in [10_000, 0] {
            let bench = QueueBench::new();
            let _only_place = bench.processes.turn(Some(bench.start)).await;
            bench.claims.set(claims);
            let (stopper, mut control) = control();
            let mut lease = held_until(BootInstant::now().plus(FAR));
            let waiting = bench.queue().turn(&mut lease, &mut control);
            let stop = async { stopper.send_replace(Stop::Drain) };
            let (why, _) = tokio::join!(waiting, stop);
            assert_eq!(why.err(), Some(Withdrawal::Draining));
        }
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
