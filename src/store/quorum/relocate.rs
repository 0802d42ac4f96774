//! Moves of ledgers: each step is one change that a majority accepts.

use super::QuorumStore;
use super::request::{QuorumReply, QuorumRequest, Transition};
use crate::names::JobName;
use crate::store::{Ledger, Lock, Replaced, Replacement, StoreError, protocol};

impl QuorumStore {
    pub(super) async fn read_ledger(
        &self,
        job: &JobName,
        lock: &Lock,
    ) -> Result<Ledger, StoreError> {
        let request = QuorumRequest::of_job(job, lock);
        let done = self
            .proposer
            .transact_lazily(&request, |lock, job, clock| {
                Transition::of(protocol::ledger(lock, job.as_ref(), clock), Vec::new())
            })
            .await?;
        done.or_recovering()
    }

    pub(super) async fn replace_ledger(
        &self,
        replacement: &Replacement,
    ) -> Result<Replaced, StoreError> {
        let request = QuorumRequest::of_job(&replacement.job, &replacement.lock);
        let done = self
            .proposer
            .transact_lazily(&request, |lock, job, clock| {
                Transition::of(protocol::replace(lock, job, clock, replacement), Vec::new())
            })
            .await?;
        Ok(match done {
            QuorumReply::Reply(reply) => reply,
            QuorumReply::Recovering(remaining) => Replaced::Recovering { remaining },
        })
    }
}
