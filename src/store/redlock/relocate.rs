//! Moves of ledgers: each step is one change that a majority takes.

use super::transact::{Done, Outcomes, Subject};
use super::{RedlockStore, answered};
use crate::names::JobName;
use crate::store::{Ledger, Lock, Replaced, Replacement, StoreError, protocol};

impl RedlockStore {
    pub(super) async fn read_ledger(
        &self,
        job: &JobName,
        lock: &Lock,
    ) -> Result<Ledger, StoreError> {
        let subject = Subject::of_job(job, lock);
        let done = self
            .majority
            .transact_lazily(&subject, |lock, job, clock| Outcomes {
                reply: protocol::ledger(lock, job.as_ref(), clock),
                effects: Vec::new(),
                taken: false,
            })
            .await?;
        answered(done)
    }

    pub(super) async fn replace_ledger(
        &self,
        replacement: &Replacement,
    ) -> Result<Replaced, StoreError> {
        let subject = Subject::of_job(&replacement.job, &replacement.lock);
        let done = self
            .majority
            .transact_lazily(&subject, |lock, job, clock| Outcomes {
                reply: protocol::replace(lock, job, clock, replacement),
                effects: Vec::new(),
                taken: false,
            })
            .await?;
        Ok(match done {
            Done::Reply(reply) => reply,
            Done::Recovering(remaining) => Replaced::Recovering { remaining },
        })
    }
}
