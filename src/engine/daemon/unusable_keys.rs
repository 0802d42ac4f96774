//! Jobs that wait because their own keys in the store cannot be used. Other jobs continue.

use super::Daemon;
use crate::engine::core::JobIx;
use crate::store::KeyFault;

impl Daemon {
    /// Logs, once for each fault, that a job waits and what can be done about it.
    pub(super) fn keys_unusable(&mut self, place: JobIx, fault: &KeyFault) {
        let Some(job) = self.job(place).map(|job| job.name.clone()) else {
            return;
        };
        if self.unusable.insert(place, fault.clone()).as_ref() == Some(fault) {
            return;
        }
        tracing::error!(
            %job,
            host = %self.host,
            key = fault.key,
            kind = fault.kind.word(),
            "cannot run this job: {fault}; retrying every few seconds, other jobs are not \
             affected. To repair it, {}",
            fault.repair(Some(job.as_str()))
        );
        self.status();
    }

    /// The store has replied about the job, so its keys can be used.
    pub(super) fn keys_usable(&mut self, place: JobIx) {
        if self.unusable.remove(&place).is_none() {
            return;
        }
        if let Some(job) = self.job(place) {
            tracing::info!(job = %job.name, host = %self.host, "this job's keys are usable \
                                                                again; the job runs as scheduled");
        }
        self.status();
    }
}
