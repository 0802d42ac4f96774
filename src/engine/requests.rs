//! What a daemon asks of the store: requests built from a job and from what the core decided.
//!
//! Pure, so that the daemon and the simulated fleets (`tests/simulate`) send the same requests.

use super::core::ClaimSpec;
use crate::config::Job;
use crate::names::{HostName, RunId, Token};
use crate::store::{Claim, ClaimTarget, Due, Finish, GapAnswer, Record, Registration, Retention};

/// Builds the requests that one host sends about one job.
#[derive(Debug, Clone, Copy)]
pub struct Requests<'a> {
    /// The job.
    pub job: &'a Job,
    /// This host.
    pub host: &'a HostName,
    /// What the job's history keeps.
    pub keep: Retention,
}

impl Requests<'_> {
    /// Returns the claim that the core asked for, under the token of this host's claim.
    pub fn claim(&self, spec: ClaimSpec, token: Token, run_id: RunId) -> Claim {
        let job = self.job;
        Claim {
            lock: job.lock_on(self.host),
            token,
            run_id,
            ttl: job.lock.ttl,
            what: ClaimTarget::Occurrence {
                job: job.name.clone(),
                kind: spec.kind,
                due: Due {
                    scheduled_at: spec.at,
                    not_before: spec.not_before,
                    deadline: spec.deadline,
                    prev: spec.prev,
                    fingerprint: job.fingerprint.clone(),
                    gap: spec.gap,
                    late: spec.late,
                    max_reruns: spec.terms.max_reruns,
                    max_attempts: spec.terms.max_attempts,
                    rerun_window: spec.terms.rerun_window,
                    lead: spec.lead,
                },
                overlap: spec.overlap,
                keep: self.keep,
            },
        }
    }

    /// Returns the request that cancels a claim which this host will not use.
    pub fn give_back(&self, token: Token) -> Finish {
        Finish {
            give_back: true,
            ..self.finish(token, None)
        }
    }

    /// Returns the request that delivers the verdict of a run or of skipped occurrences.
    pub fn verdict(&self, token: Token, record: Record) -> Finish {
        self.finish(token, Some(record))
    }

    fn finish(&self, token: Token, record: Option<Record>) -> Finish {
        Finish {
            lock: self.job.lock_on(self.host),
            token,
            record,
            job: Some(self.job.name.clone()),
            give_back: false,
            keep: self.keep,
        }
    }

    /// Returns the request that records occurrences which policy drops.
    pub fn drops(&self, answer: GapAnswer, token: Token, run_id: RunId) -> Claim {
        Claim {
            lock: self.job.lock_on(self.host),
            token,
            run_id,
            ttl: self.job.lock.ttl,
            what: ClaimTarget::Drops {
                job: self.job.name.clone(),
                fingerprint: self.job.fingerprint.clone(),
                answer,
                keep: self.keep,
            },
        }
    }

    /// Returns the registration of the job.
    pub fn registration(&self) -> Registration {
        Registration {
            job: self.job.name.clone(),
            lock: self.job.lock_on(self.host),
            fingerprint: self.job.fingerprint.clone(),
            ttl: self.job.lock.ttl,
        }
    }
}
