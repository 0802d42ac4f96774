//! The store on several independent servers, of which a majority decides (Redlock).
//!
//! Every node has the keys and the meaning of a single server. [`transact`] has the two phases in
//! which a majority takes a change ([`hear`], [`propose`]), [`view`] what the nodes say together,
//! [`judge`] the rules of [`protocol`](super::protocol), applied to that; [`ask`] asks the nodes,
//! [`mend`] and [`tend`] bring one up that was away, [`member`] is what one of them does, in plain
//! form. Renewals go to all nodes at once: they change no ledger.

mod ask;
mod condition;
mod hear;
mod judge;
mod member;
mod mend;
mod propose;
mod reads;
mod renew;
mod resolve;
mod tend;
mod transact;
mod view;

pub use member::{Here, Identity, Ledger, Member, Seat};
pub use resolve::{Resolved, resolve};
pub use view::{Counting, Merged, count, merge, quorum};

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::tend::Tender;
use self::transact::{Done, Hear, Majority, Outcomes, Subject};
use super::protocol;
use super::{
    Claim, ClaimReply, Condition, Finish, FinishReply, HostInfo, HostReport, JobReport, Lock,
    Record, RedlockSettings, Registered, Registration, RenewReply, Renewal, Settle, Store,
    StoreError, What,
};
use crate::names::JobName;
use crate::time::Timestamp;

/// The store on a majority of nodes.
#[derive(Debug)]
pub(super) struct RedlockStore {
    majority: Arc<Majority>,
    tender: Arc<Tender>,
}

impl RedlockStore {
    /// A store that connects when it is first asked.
    pub(super) fn new(settings: &RedlockSettings) -> Result<Self, StoreError> {
        let majority = Arc::new(Majority::new(settings)?);
        Ok(Self {
            tender: Tender::new(Arc::clone(&majority)),
            majority,
        })
    }
}

fn recovering(left: Duration) -> StoreError {
    StoreError::Unreachable(format!(
        "a majority of the nodes has lost its data, or was never declared new (cronlatch init); \
         nothing is granted for another {:.1} s",
        left.as_secs_f64()
    ))
}

/// The answer, or the error for nodes that recover.
fn answered<R>(done: Done<R>) -> Result<R, StoreError> {
    match done {
        Done::Reply(reply) => Ok(reply),
        Done::Recovering(left) => Err(recovering(left)),
    }
}

#[async_trait]
impl Store for RedlockStore {
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError> {
        let subject = Subject {
            lock: &claim.lock,
            job: match &claim.what {
                What::Lock => None,
                What::Manual { job } | What::Occurrence { job, .. } => Some(job),
            },
            me: Some(&claim.token),
            ttl: claim.ttl,
            hear: Hear::Enough,
        };
        let done = self
            .majority
            .transact(&subject, |lock, job, clock| {
                let (reply, effects) = protocol::claim(lock, job, clock, claim);
                let taken = matches!(reply, ClaimReply::Granted { .. });
                Outcomes {
                    reply,
                    effects,
                    taken,
                }
            })
            .await?;
        Ok(match done {
            Done::Reply(reply) => reply,
            Done::Recovering(remaining) => ClaimReply::Recovering { remaining },
        })
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>, StoreError> {
        self.majority.renew(renewals).await
    }

    async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
        let recorded = finish.record.as_ref().map(|record| &record.job);
        let subject = Subject {
            lock: &finish.lock,
            job: finish.job.as_ref().or(recorded),
            me: Some(&finish.token),
            ttl: Duration::ZERO,
            hear: Hear::Enough,
        };
        let done = self
            .majority
            .transact(&subject, |lock, job, clock| {
                let (reply, effects) = protocol::finish(lock, job, clock, finish);
                Outcomes {
                    reply,
                    effects,
                    taken: false,
                }
            })
            .await?;
        answered(done)
    }

    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError> {
        let subject = Subject::of_job(&settle.job, &settle.lock);
        let done = self
            .majority
            .transact_lazily(&subject, |lock, job, clock| {
                let (reply, effects) = protocol::settle(lock, job, clock, settle);
                Outcomes {
                    reply,
                    effects,
                    taken: false,
                }
            })
            .await?;
        Ok(match done {
            Done::Reply(settled) => settled,
            // Its holder may take it back.
            Done::Recovering(_) => false,
        })
    }

    async fn register(&self, jobs: &[Registration]) -> Result<Vec<Registered>, StoreError> {
        self.register_all(jobs).await
    }

    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError> {
        let (host, asked) = (host.clone(), self.majority.nodes.len());
        let answers = self.majority.nodes.ask(0..asked, |node| {
            let host = host.clone();
            async move { node.store.announce(&host, valid_for).await }
        });
        if valid_for.is_zero() {
            // A node that did not hear of it would go on listing the host.
            return self.all_there(answers).await.map(drop);
        }
        self.a_majority(answers).await?;
        self.tender.tend();
        Ok(())
    }

    async fn released(&self, lock: &Lock, limit: Duration) -> Result<(), StoreError> {
        // One that listens to the first of many is woken by most; it asks again anyway.
        let first = self.majority.nodes.order(&lock.name)[0];
        self.majority
            .nodes
            .get(first)
            .store
            .released(lock, limit)
            .await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let asked = self.majority.nodes.len();
        let answers = self
            .majority
            .nodes
            .ask(0..asked, |node| async move { node.store.now().await });
        let clocks = self.a_majority(answers).await?;
        let micros = |at: &Timestamp| u64::try_from(at.millis()).unwrap_or(0) * 1000;
        Ok(view::median_clock(clocks.iter().map(micros).collect()).utc())
    }

    async fn jobs(&self, jobs: &[(JobName, Lock)]) -> Result<Vec<JobReport>, StoreError> {
        self.report_all(jobs).await
    }

    async fn history(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let asked = self.majority.nodes.len();
        let answers = self.majority.nodes.ask(0..asked, |node| {
            let (job, lock) = (job.clone(), lock.clone());
            async move { node.records(&job, &lock, limit.max(1)).await }
        });
        let found = self.all_there(answers).await?;
        let mut records = reads::union(found);
        records.truncate(limit);
        Ok(records)
    }

    async fn hosts(&self) -> Result<Vec<HostReport>, StoreError> {
        let asked = self.majority.nodes.len();
        let answers = self
            .majority
            .nodes
            .ask(0..asked, |node| async move { node.store.hosts().await });
        Ok(reads::newest(self.a_majority(answers).await?))
    }

    async fn condition(&self, jobs: &[(JobName, Lock)]) -> Result<Condition, StoreError> {
        Ok(self.look_at_nodes(jobs).await)
    }

    async fn init(&self) -> Result<Option<u64>, StoreError> {
        self.declare_new().await
    }
}
