//! Sends a pause or its end to all ledgers of a job.

use std::time::Duration;

use super::select::Chosen;
use super::text::Changed;
use crate::cli::{Failure, output};
use crate::names::JobName;
use crate::store::{
    JobReport, Lock, Pause, PauseOrder, PauseReply, PauseRequest, RetryPace, Store, retry,
};
use crate::time::Timestamp;

/// How each request is repeated.
const ASKING: RetryPace = RetryPace::no_reply(Duration::from_secs(5));
/// How often an order is sent again because a newer one or a move of the ledger came in between.
const TRIES: u32 = 5;
const MILLISECOND: Duration = Duration::from_millis(1);

/// What is sent.
pub(super) struct PauseSender<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) order: PauseOrder,
    pub(super) by: String,
}

/// What one ledger replied.
enum Sent {
    Done,
    NotPaused,
    Unknown,
    Superseded,
}

impl PauseSender<'_> {
    /// Sends the order to each ledger of the job. Returns `None` if the job has no ledger.
    pub(super) async fn send(&self, chosen: &Chosen) -> Result<Option<Changed>, Failure> {
        for _ in 0..TRIES {
            let reports = self.reports(chosen).await?;
            let asked_at = self.instant(&reports).await?;
            let (mut done, mut known, mut superseded) = (false, false, false);
            for lock in &chosen.locks {
                let sent = self.send_to(&chosen.job, lock.clone(), asked_at).await?;
                done |= matches!(sent, Sent::Done);
                known |= !matches!(sent, Sent::Unknown);
                superseded |= matches!(sent, Sent::Superseded);
            }
            if !superseded {
                let changed = || self.changed(&chosen.job, &reports, (asked_at, done));
                return Ok(known.then(changed));
            }
        }
        Err(Failure::NotAcquired(format!(
            "job {}: others pause and resume it at the same time; see `cronlatch status`",
            chosen.job
        )))
    }

    fn changed(
        &self,
        job: &JobName,
        reports: &[JobReport],
        (at, done): (Timestamp, bool),
    ) -> Changed {
        let newest = reports.iter().filter_map(|report| report.pauses.last());
        let newest = newest.max_by_key(|pause| pause.asked_at);
        let before = newest.filter(|pause| pause.is_in_force(at)).cloned();
        let running = reports.iter().filter_map(|report| report.open.as_ref());
        let running = running.filter(|open| !open.remaining.is_zero());
        let pause = match &self.order {
            PauseOrder::Resume => None,
            PauseOrder::Pause { until, reason } => Some(Pause {
                asked_at: at,
                since: before.as_ref().map_or(at, |before| before.since),
                until: *until,
                by: self.by.clone(),
                resumed_by: None,
                reason: reason.clone(),
            }),
        };
        Changed {
            job: job.clone(),
            pause,
            before,
            done,
            by: self.by.clone(),
            running: running.cloned().collect(),
        }
    }

    async fn reports(&self, chosen: &Chosen) -> Result<Vec<JobReport>, Failure> {
        let locks = chosen.locks.iter();
        let asked: Vec<_> = locks
            .map(|lock| (chosen.job.clone(), lock.clone()))
            .collect();
        Ok(retry(ASKING, || self.store.jobs(&asked)).await?)
    }

    /// Returns the store's clock, or an instant after every request that the ledgers contain.
    async fn instant(&self, reports: &[JobReport]) -> Result<Timestamp, Failure> {
        let now = retry(ASKING, || self.store.now()).await?;
        let newest = reports.iter().filter_map(|report| report.pauses.last());
        let newest = newest.map(|pause| pause.asked_at.plus(MILLISECOND)).max();
        Ok(newest.map_or(now, |newest| newest.max(now)))
    }

    async fn send_to(
        &self,
        job: &JobName,
        lock: Lock,
        asked_at: Timestamp,
    ) -> Result<Sent, Failure> {
        let mut request = PauseRequest {
            job: job.clone(),
            lock,
            order: self.order.clone(),
            by: self.by.clone(),
            asked_at,
        };
        for _ in 0..TRIES {
            match retry(ASKING, || self.store.pause(&request)).await? {
                PauseReply::Done => return Ok(Sent::Done),
                PauseReply::NotPaused => return Ok(Sent::NotPaused),
                PauseReply::Unknown => return Ok(Sent::Unknown),
                PauseReply::Superseded => return Ok(Sent::Superseded),
                PauseReply::Moved { to } => request.lock = to.lock(),
                PauseReply::Recovering { remaining } => {
                    output::report(&format!(
                        "job {job}: the store may have lost data, and nothing starts for another \
                         {}; waiting until the job is registered again",
                        output::short(remaining)
                    ));
                    tokio::time::sleep(remaining + Duration::from_secs(2)).await;
                }
            }
        }
        Err(Failure::Unavailable(format!(
            "job {job}: its ledger keeps moving from lock to lock; try again"
        )))
    }
}
