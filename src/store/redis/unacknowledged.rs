//! A claim that too few replicas have acknowledged (`wait_replicas`).
//!
//! The server granted it, so the ledger names a run that will not start while the replicas are away.
//! An occurrence is therefore given back at once: it waits in the ledger until its deadline, where any
//! host may claim it again under a new token, and its lock is free. The token is finished, so a copy
//! of the claim that arrives late starts nothing. A claim without an occurrence stays with its
//! sender, which resends or cancels it.
//!
//! The job's hash notes what was missing, until a claim of the job is acknowledged: `status` shows
//! it, and it is the reason of the occurrences that do not start meanwhile.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;

use super::failure::RedisFailure;
use super::keys::LockKeys;
use super::link::Call;
use crate::names::Prefix;
use crate::store::request::ClaimTarget;
use crate::store::{Claim, ClaimReply, Finish, Head, Unacknowledged};
use crate::time::Timestamp;

/// How long until a claim for what was given back is worth trying.
const AGAIN: Duration = Duration::from_secs(1);

/// What gives the claim back, and the reply to it then; `None` if the claim is not for an occurrence,
/// or failed for another reason.
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

/// What notes in the job's hash that the claim was not acknowledged.
pub(super) fn note_call(prefix: &Prefix, claim: &Claim, failure: &RedisFailure) -> Option<Call> {
    let (ClaimTarget::Occurrence { due, .. }, Some(shortfall)) = (&claim.what, failure.shortfall())
    else {
        return None;
    };
    let mut call = job_call(prefix, claim)?;
    call.arg(&due.scheduled_at.millis())
        .arg(&claim.token)
        .arg(&shortfall.acknowledged)
        .arg(&shortfall.wanted)
        .arg(&shortfall.server);
    Some(call)
}

/// What removes that note, if the answer to a claim that was acknowledged says that there is one.
pub(super) fn clear_call(prefix: &Prefix, claim: &Claim, answer: &Value) -> Option<Call> {
    // See claim.lua.
    let is_noted = matches!(answer, Value::Array(items) if items.len() > 4);
    let mut call = job_call(prefix, claim).filter(|_| is_noted)?;
    call.arg("");
    Some(call)
}

fn job_call(prefix: &Prefix, claim: &Claim) -> Option<Call> {
    let job = claim.what.job()?;
    let keys = LockKeys::of(prefix, &claim.lock);
    let mut call = Call::default();
    call.key(keys.job(job)).key(keys.runs(job));
    Some(call)
}

/// What a note says; `None` if there is none.
pub(super) fn read(noted: &str) -> Option<Unacknowledged> {
    let mut words = noted.splitn(5, ' ');
    let mut number = || words.next()?.parse::<i64>().ok();
    let (since, at) = (number()?, number()?);
    let (acknowledged, wanted) = (number()?, number()?);
    Some(Unacknowledged {
        server: words.next()?.to_owned(),
        acknowledged: u32::try_from(acknowledged).ok()?,
        wanted: u32::try_from(wanted).ok()?,
        since: Timestamp::from_millis(since),
        at: Timestamp::from_millis(at),
    })
}

/// Which servers lack acknowledgements, so that the log names each once.
#[derive(Debug, Default)]
pub(super) struct MissingReplicas(Mutex<BTreeSet<String>>);

impl MissingReplicas {
    /// Logs that claims on this server are given back.
    pub(super) fn note(&self, server: &str, claim: &Claim, failure: &RedisFailure) {
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
