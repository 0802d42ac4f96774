//! Claims that too few replicas have acknowledged (`wait_replicas`).
//!
//! The server granted the claim, so the ledger names a run that must not start while replicas are
//! missing. Therefore the occurrence is returned at once: its lock is free, and it waits in the ledger
//! until its deadline, where any host may claim it again under a new token. The old token is finished,
//! so that a late copy of the claim starts nothing. A claim without an occurrence fails, and its sender
//! resends or cancels it.
//!
//! A note in the job's hash says which replicas are missing until a claim of the job is acknowledged.
//! `status` shows it, and it becomes the reason of the occurrences that do not start in the meantime.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::failure::RedisFailure;
use crate::store::{Claim, ClaimReply, ClaimTarget, Finish, Head};

/// How long a host waits before it claims a returned occurrence.
const AGAIN: Duration = Duration::from_secs(1);

/// Returns the request that returns the claim's occurrence, and the reply to the claim. `None` if the
/// claim is not for an occurrence, or failed for another reason.
pub(super) fn give_back(claim: &Claim, failure: &RedisFailure) -> Option<(Finish, ClaimReply)> {
    let ClaimTarget::Occurrence {
        job,
        kind,
        due,
        keep,
        ..
    } = &claim.what
    else {
        return None;
    };
    failure.shortfall()?;
    let finish = Finish {
        lock: claim.lock.clone(),
        token: claim.token.clone(),
        record: None,
        job: Some(job.clone()),
        give_back: true,
        keep: *keep,
    };
    let waits = ClaimReply::Waits {
        head: Head {
            scheduled_at: due.scheduled_at,
            kind: *kind,
            deadline: due.deadline,
        },
        entered: true,
        by: Some(format!("nobody ({})", failure.text())),
        remaining: Some(AGAIN),
    };
    Some((finish, waits))
}

/// The servers whose replicas are missing, so that each is logged once.
#[derive(Debug, Default)]
pub(super) struct MissingReplicas(Mutex<BTreeSet<String>>);

impl MissingReplicas {
    /// Logs that claims on this server are returned.
    pub(super) fn note(&self, server: &str, claim: &Claim, failure: &RedisFailure) {
        if self.servers().insert(server.to_owned()) {
            let job = claim.what.job().map(tracing::field::display);
            tracing::warn!(
                job,
                lock = claim.lock.name,
                "{}; each claim is returned, so due jobs do not start on any host, until enough \
                 replicas acknowledge. Check that the server's replicas are up",
                failure.text()
            );
        }
    }

    /// Logs that claims on this server are acknowledged again.
    pub(super) fn over(&self, server: impl FnOnce() -> String) {
        let mut servers = self.servers();
        if servers.is_empty() {
            return;
        }
        let server = server();
        if servers.remove(&server) {
            tracing::info!(server, "enough replicas acknowledge claims again");
        }
    }

    fn servers(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // No code that holds the guard can panic in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
