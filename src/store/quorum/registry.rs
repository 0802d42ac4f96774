//! The registry on several nodes: each node keeps the entries that it received, and the newest entry
//! of each host counts. Every majority that is read shares a node with the one that was written.
//!
//! Each request goes to all nodes, and waits for all but those that failed recently.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::QuorumStore;
use super::proposer::Proposer;
use super::reads::by_lock;
use super::request::{QuorumReply, QuorumRequest, Transition};
use crate::names::{HostName, JobName};
use crate::store::{
    Beginning, Entry, HostJobs, JobsRevision, Keeping, Listing, Store as _, StoreError, protocol,
};

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

    /// Each node has a revision of its own, and is asked for jobs only if it no longer has the known one.
    pub(super) async fn listed_on_nodes(
        &self,
        host: &HostName,
        known: Option<&JobsRevision>,
    ) -> Result<Option<HostJobs>, StoreError> {
        let known = Arc::new(revisions_of(known));
        let answers = self
            .proposer
            .nodes
            .ask(0..self.proposer.nodes.len(), |node| {
                let (host, known) = (host.clone(), Arc::clone(&known));
                async move {
                    let name = node.shown();
                    let listed = node.store.listed_since(&host, known.get(&name)).await?;
                    Ok((name, listed))
                }
            });
        // A node that was unreachable may still list a job that the host has withdrawn since. Then the
        // host finds in the listing that it has, and writes that again.
        let answers = self.all_there(answers).await?;
        if answers.iter().all(|(_, listed)| listed.is_none()) {
            return Ok(None);
        }
        let (mut jobs, mut revisions) = (BTreeSet::new(), NodeRevisions::new());
        for (name, listed) in answers {
            let revision = match listed {
                Some(listed) => {
                    jobs.extend(listed.jobs);
                    listed.revision
                }
                None => known.get(&name).cloned(),
            };
            revisions.extend(revision.map(|revision| (name, revision)));
        }
        Ok(Some(HostJobs {
            jobs: jobs.into_iter().collect(),
            revision: revision_of(&revisions),
        }))
    }
}

/// The revisions that nodes have, by their URLs. One that did not answer has none.
type NodeRevisions = BTreeMap<String, JobsRevision>;

/// Returns the revision that stands for those of nodes: a line for each.
fn revision_of(nodes: &NodeRevisions) -> Option<JobsRevision> {
    let line = |(name, revision): (&String, &JobsRevision)| format!("{name}\t{}", revision.0);
    let lines: Vec<String> = nodes.iter().map(line).collect();
    (!lines.is_empty()).then(|| JobsRevision(lines.join("\n")))
}

/// Reads what [`revision_of`] returned.
fn revisions_of(known: Option<&JobsRevision>) -> NodeRevisions {
    let lines = known.into_iter().flat_map(|known| known.0.lines());
    let parts = lines.filter_map(|line| line.split_once('\t'));
    parts
        .map(|(name, revision)| (name.to_owned(), JobsRevision(revision.to_owned())))
        .collect()
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
