//! `settle`: the end of a run whose host is gone. Any host may request it once the lease has ended.

use super::clock::Clock;
use super::effect::Effect;
use super::lock::LockState;
use crate::store::contract::JobState;
use std::time::Duration;

use super::history::interrupt;
use super::waiting::await_rerun;
use crate::store::Settle;

/// Closes an open run whose lease has ended as `interrupted`. Returns false if there is no such run any
/// more, or if it waits for its rerun.
pub fn settle(
    lock: &mut LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    settle: &Settle,
) -> (bool, Vec<Effect>) {
    // Its holder may be about to restore its lease.
    if clock.past.recovering(clock, Duration::ZERO).is_some() {
        return (false, Vec::new());
    }
    if (job.as_ref()).is_some_and(|state| state.moved_from(&settle.lock).is_some()) {
        return (false, Vec::new());
    }
    if let Some(state) = job.as_mut() {
        await_rerun(state, lock, clock);
    }
    let Some((state, token)) = job.as_mut().and_then(|state| {
        let open = state.open.as_ref()?;
        let over = lock.remaining(&open.token, clock).is_zero();
        let token = (open.run_id == settle.run_id && over).then(|| open.token.clone())?;
        Some((state, token))
    }) else {
        return (false, Vec::new());
    };
    let record = interrupt((&settle.job, state), lock, Some(settle.keep), clock);
    if lock.is_granted_to(&token) {
        lock.token = None;
        lock.run_id = None;
        lock.lease_end = 0;
    }
    (true, record.into_iter().collect())
}
