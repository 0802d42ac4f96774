//! A claim that too few replicas have acknowledged (`wait_replicas`).
//!
//! The server granted it, so the ledger names a run that will not start while the replicas are away.
//! An occurrence is therefore given back at once: it waits in the ledger until its deadline, where any
//! host may claim it again under a new token, and its lock is free. The token is finished, so a copy
//! of the claim that arrives late starts nothing. A claim without an occurrence stays with its
//! sender, which resends or cancels it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::failure::Failure;
use crate::store::request::What;
use crate::store::{Claim, ClaimReply, Finish, Head};

/// How long until a claim for what was given back is worth trying.
const AGAIN: Duration = Duration::from_secs(1);

/// What gives the claim back, and the reply to it then; `None` if the claim is not for an occurrence,
/// or failed for another reason.
pub(super) fn give_back(claim: &Claim, failure: &Failure) -> Option<(Finish, ClaimReply)> {
    let What::Occurrence {
        job,
        kind,
        due,
        keep,
        ..
    } = &claim.what
    else {
        return None;
    };
    if !failure.is_short_of_replicas() {
        return None;
    }
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

/// Which servers lack acknowledgements, so that the log names each once.
#[derive(Debug, Default)]
pub(super) struct Shortage(Mutex<BTreeSet<String>>);

impl Shortage {
    /// Logs that claims on this server are given back.
    pub(super) fn note(&self, server: &str, claim: &Claim, failure: &Failure) {
        if self.servers().insert(server.to_owned()) {
            let job = claim.what.job().map(ToString::to_string);
            tracing::warn!(
                job,
                lock = claim.lock.name,
                "{}; claims are returned until enough replicas acknowledge them, and due jobs \
                 wait until their start deadlines. Check that the server's replicas are up",
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
        // Nothing that holds the guard can panic half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
