//! A holder writes its run into the ledgers again if too few nodes know it.
//!
//! Nodes that lost their data extend a lease that they do not know, so that no other host is granted
//! the lock. That is not enough: their ledgers know neither the occurrence nor the run, and after the
//! recovery it would be recorded as `unknown` while it continues. Therefore the holder proposes it
//! like any other change, with the data of its renewal. A single Redis does this within the renewal
//! (`reassert.lua`).

use std::sync::Arc;

use super::proposer::Proposer;
use super::request::{QuorumRequest, QuorumWait, Transition};
use crate::ground::tasks;
use crate::store::{Renewal, protocol};

impl Proposer {
    /// Starts to re-assert a run, without waiting. If it fails, the next renewal tries again.
    pub(super) fn reassert_run(self: &Arc<Self>, renewal: &Renewal) {
        // Without a fence the holder does not know its grant.
        if renewal.grant.fence == 0 || !self.returning().insert(renewal.grant.token.clone()) {
            return;
        }
        let (proposer, renewal) = (Arc::clone(self), renewal.clone());
        tasks::spawn(async move {
            proposer.reassert(&renewal).await;
            proposer.returning().remove(&renewal.grant.token);
        });
    }

    async fn reassert(&self, renewal: &Renewal) {
        let run = renewal.run.as_ref();
        let request = QuorumRequest {
            lock: &renewal.grant.lock,
            job: run.map(|run| &run.job),
            me: Some(&renewal.grant.token),
            reports: true,
            ttl: renewal.grant.ttl,
            wait: QuorumWait::Enough,
        };
        let done = self
            .transact(&request, |lock, job, clock| {
                let (taken_back, effects) = protocol::reassert(lock, job, clock, renewal);
                Transition::of(taken_back, effects)
            })
            .await;
        let run_id = &renewal.grant.run_id;
        match done {
            Ok(_) => {
                tracing::debug!(%run_id, "wrote a run to nodes that had no record of it");
            }
            Err(error) => tracing::debug!(
                run_id = %run_id,
                %error,
                "cannot write a run to nodes that have no record of it; retrying with \
                 the next renewal"
            ),
        }
    }
}
