//! The wait for the instant of a run that was granted ahead of it.

use std::time::Duration;

use super::RunControl;
use super::attempt::{AttemptResult, Shortage};
use super::lease::RunLease;
use crate::guard::SpawnError;
use crate::store::Outcome;

/// How long before its instant the process of a run is prepared; it then waits for the rest by itself. A
/// daemon that stops before that returns the occurrence; afterwards, the run counts as started.
const PREPARED_FOR: Duration = Duration::from_millis(20);

/// Waits until the process of a run is to be prepared that starts after so long. The error is why it does
/// not start.
pub(super) async fn wait(
    starts_in: Duration,
    lease: &mut RunLease,
    control: &mut RunControl,
) -> Result<(), AttemptResult> {
    let wait = starts_in.saturating_sub(PREPARED_FOR);
    if wait.is_zero() {
        return Ok(());
    }
    // Every arm is cancel-safe: a timer, a watch, and the lease, whose documentation says so.
    let told = tokio::select! {
        () = tokio::time::sleep(wait) => return Ok(()),
        _ = lease.next_loss() => {
            let why = SpawnError::TooLate.to_string();
            return Err(AttemptResult::not_started(Outcome::LeaseLost, why));
        }
        told = control.told_to_stop() => told,
    };
    if let Some(cause) = told {
        let why = format!("killed by {cause} before its instant");
        return Err(AttemptResult::not_started(Outcome::Stopped, why));
    }
    let why = "the daemon stopped before its instant".to_owned();
    Err(AttemptResult {
        shortage: Some(Shortage::Draining),
        ..AttemptResult::not_started(Outcome::Stopped, why)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::watch;

    use super::*;
    use crate::run::{Cause, RunOrder, Stop};

    const FAR: Duration = Duration::from_secs(60);

    fn control() -> (watch::Sender<Stop>, RunControl) {
        let (stopper, stop) = watch::channel(Stop::Not);
        (stopper, RunControl::of(stop))
    }

    #[tokio::test(start_paused = true)]
    async fn the_process_is_prepared_a_moment_before_the_instant() {
        let (_stopper, mut control) = control();
        let mut lease = RunLease::default();
        for (starts_in, waits) in [(0, 0), (20, 0), (50, 30)] {
            let before = tokio::time::Instant::now();
            let starts_in = Duration::from_millis(starts_in);
            assert_eq!(wait(starts_in, &mut lease, &mut control).await, Ok(()));
            assert_eq!(before.elapsed(), Duration::from_millis(waits));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_stops_meanwhile_returns_the_occurrence() {
        for stop in [Stop::Drain, Stop::End] {
            let (stopper, mut control) = control();
            stopper.send_replace(stop);
            let told = wait(FAR, &mut RunLease::default(), &mut control).await;
            let told = told.expect_err("it does not start");
            assert_eq!(told.shortage, Some(Shortage::Draining));
            assert!(!told.started);
        }
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
        let told = wait(FAR, &mut RunLease::default(), &mut control).await;
        let told = told.expect_err("it does not start");
        assert_eq!((told.outcome, told.shortage), (Outcome::Stopped, None));
        let why = "killed by alice@web1 before its instant";
        assert_eq!(told.reason.as_deref(), Some(why));
    }
}
