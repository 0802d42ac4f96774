//! A run that too few nodes have a record of is written into their ledgers again by its holder.
//!
//! The nodes that lost their data extend a lease that they know nothing of, so that nobody else is
//! granted it. That is not enough: their ledgers know neither the occurrence nor the run, and after
//! the recovery it would be recorded as `unknown` while it goes on. So the holder proposes it as
//! any other change, with what its renewals carry. A single Redis does this within the renewal
//! (`reassert.lua`).

use std::sync::Arc;

use super::transact::{Outcomes, Proposer, QuorumWait, Subject};
use crate::store::{Renewal, protocol};

impl Proposer {
    /// Starts to bring a run back, beside the caller. If it fails, the next renewal starts again.
    pub(super) fn bring_back(self: &Arc<Self>, renewal: &Renewal) {
        // Without a fence its holder knows nothing of it.
        if renewal.grant.fence == 0 || !self.returning().insert(renewal.grant.token.clone()) {
            return;
        }
        let (majority, renewal) = (Arc::clone(self), renewal.clone());
        tokio::spawn(async move {
            majority.reassert(&renewal).await;
            majority.returning().remove(&renewal.grant.token);
        });
    }

    async fn reassert(&self, renewal: &Renewal) {
        let run = renewal.run.as_ref();
        let subject = Subject {
            lock: &renewal.grant.lock,
            job: run.map(|run| &run.job),
            me: Some(&renewal.grant.token),
            reports: true,
            ttl: renewal.grant.ttl,
            hear: QuorumWait::Enough,
        };
        let done = self
            .transact(&subject, |lock, job, clock| {
                let (taken_back, effects) = protocol::reassert(lock, job, clock, renewal);
                Outcomes {
                    reply: taken_back,
                    effects,
                    taken: false,
                }
            })
            .await;
        let run_id = &renewal.grant.run_id;
        match done {
            Ok(_) => tracing::debug!(%run_id, "told the nodes of a run that they had no record of"),
            Err(error) => tracing::debug!(
                %run_id,
                %error,
                "cannot tell the nodes of a run that they have no record of; trying again with \
                 the next renewal"
            ),
        }
    }
}
