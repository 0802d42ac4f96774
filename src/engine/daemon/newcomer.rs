//! A job that this daemon is to enter into the store's registry, and the result of maintaining it.

use crate::config::Job;
use crate::names::HostName;
use crate::store::{Beginning, CountsFrom, Entry, JobsRevision, Keeping, LockId, Registration};
use crate::time::Timestamp;

/// A job that this daemon has not entered yet.
#[derive(Debug, Clone)]
pub(super) struct Newcomer {
    pub(super) lock: LockId,
    /// What this daemon last wrote about it: a store that lost its data may not have it.
    pub(super) known: Option<Entry>,
    /// What is asked to begin its ledger, but for the instant from which it counts.
    pub(super) beginning: Beginning,
    /// What the store is to keep of it.
    pub(super) keeping: Keeping,
}

/// What the store is to keep of a job of this host.
pub(super) fn keeping(job: &Job, host: &HostName) -> Keeping {
    Keeping::of(
        job.name.clone(),
        &job.lock_id(),
        host,
        job.policies.catch_up_window,
    )
}

impl Newcomer {
    pub(super) fn of(
        job: &Job,
        host: &HostName,
        registration: &Registration,
        known: Option<Entry>,
    ) -> Self {
        Self {
            lock: job.lock_id(),
            known,
            keeping: keeping(job, host),
            beginning: Beginning {
                job: registration.job.clone(),
                lock: registration.lock.clone(),
                fingerprint: registration.fingerprint.clone(),
                ttl: registration.ttl,
                counts: CountsFrom {
                    at: Timestamp::EPOCH,
                    again: false,
                },
            },
        }
    }
}

/// What a check of this host's entries in the registry found or did.
#[derive(Debug, Default)]
pub(super) struct RegistryNews {
    /// The jobs that the list no longer has are withdrawn.
    pub(super) withdrawn: bool,
    /// With this revision the store lists none of them.
    pub(super) revision: Option<JobsRevision>,
    /// An entry that was written is gone, or is an older one.
    pub(super) lost: bool,
    /// All entries were written again.
    pub(super) written: bool,
}
