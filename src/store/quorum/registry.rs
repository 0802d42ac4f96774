//! The registry on several nodes: each node keeps the entries that it received, and the newest entry
//! of each host counts. Every majority that is read shares a node with the one that was written.
//!
//! Each request goes to all nodes, and waits for all but those that failed recently.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::QuorumStore;
use super::proposer::Proposer;
use super::reads::by_lock;
use super::request::{QuorumReply, QuorumRequest, Transition};
use crate::names::{HostName, JobName};
use crate::store::{Beginning, Entry, Keeping, Listing, Store as _, StoreError, protocol};

impl QuorumStore {
    pub(super) async fn begin_all(&self, jobs: &[Beginning]) -> Result<Vec<bool>, StoreError> {
        for job in jobs {
            self.proposer.longest.lists(job.ttl);
            self.proposer.outage.knows(&job.lock.name, job.ttl);
        }
        let proposer = Arc::clone(&self.proposer);
        let ask = move |beginning: Beginning| {
            let proposer = Arc::clone(&proposer);
            async move { proposer.begin(&beginning).await }
        };
        by_lock(jobs, |beginning| &beginning.lock, ask).await
    }

    pub(super) async fn merged_listings(
        &self,
        jobs: &[JobName],
    ) -> Result<Vec<Listing>, StoreError> {
        let asked: Arc<[JobName]> = jobs.into();
        let answers = self
            .proposer
            .nodes
            .ask(0..self.proposer.nodes.len(), |node| {
                let jobs = Arc::clone(&asked);
                async move { node.store.listings(&jobs).await }
            });
        let mut nodes: Vec<_> = (self.all_there(answers).await?.into_iter())
            .map(Vec::into_iter)
            .collect();
        let merged = |_| Listing::merge(nodes.iter_mut().filter_map(Iterator::next));
        Ok(jobs.iter().map(merged).collect())
    }

    pub(super) async fn enlist_on_nodes(
        &self,
        host: &HostName,
        entries: &[(JobName, Entry)],
    ) -> Result<(), StoreError> {
        let entries: Arc<[(JobName, Entry)]> = entries.into();
        let answers = self
            .proposer
            .nodes
            .ask(0..self.proposer.nodes.len(), |node| {
                let (host, entries) = (host.clone(), Arc::clone(&entries));
                async move { node.store.enlist(&host, &entries).await }
            });
        self.all_there(answers).await.map(drop)
    }

    pub(super) async fn keep_on_nodes(&self, jobs: &[Keeping]) -> Result<(), StoreError> {
        let jobs: Arc<[Keeping]> = jobs.into();
        let answers = self
            .proposer
            .nodes
            .ask(0..self.proposer.nodes.len(), |node| {
                let jobs = Arc::clone(&jobs);
                async move { node.store.keep(&jobs).await }
            });
        self.all_there(answers).await.map(drop)
    }

    pub(super) async fn listed_on_nodes(
        &self,
        host: &HostName,
    ) -> Result<Vec<JobName>, StoreError> {
        let answers = self
            .proposer
            .nodes
            .ask(0..self.proposer.nodes.len(), |node| {
                let host = host.clone();
                async move { node.store.listed_by(&host).await }
            });
        // A node that was unreachable may still list a job that the host has withdrawn since. Then the
        // host finds in the listing that there is nothing to withdraw.
        let jobs: BTreeSet<JobName> = self
            .all_there(answers)
            .await?
            .into_iter()
            .flatten()
            .collect();
        Ok(jobs.into_iter().collect())
    }
}

impl Proposer {
    async fn begin(&self, beginning: &Beginning) -> Result<bool, StoreError> {
        let request = QuorumRequest::of_job(&beginning.job, &beginning.lock);
        let done = self
            .transact_lazily(&request, |_, job, clock| {
                Transition::of(protocol::begin(job, clock, beginning), Vec::new())
            })
            .await?;
        Ok(match done {
            QuorumReply::Reply(done) => done,
            QuorumReply::Recovering(_) => false,
        })
    }
}
