//! Requests to many nodes or for many jobs, and how their replies are combined.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::QuorumStore;
use super::clock;
use super::merge::{MergedState, QuorumCheck, check_quorum, merge};
use super::nodes::NodeReply;
use super::proposer::Proposer;
use super::request::{QuorumReply, QuorumRequest, Transition};
use crate::ground::sorting::SortShort as _;
use crate::ground::tasks::SpawnBoxed as _;
use crate::names::JobName;
use crate::store::protocol::{self, horizon_of, report};
use crate::store::redis::node::{Ballot, PrepareMode, QuorumNode};
use crate::store::{
    Forget, Forgotten, HostReport, JobReport, Lock, Registered, Registration, Store, StoreError,
};

/// A request to one node.
type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// How many locks are queried at once, so that their requests share round trips.
const AT_ONCE: usize = 64;

impl QuorumStore {
    /// Returns the replies of a majority, without waiting for the other nodes.
    pub(super) async fn a_majority<T>(
        &self,
        answers: UnboundedReceiver<NodeReply<T>>,
    ) -> Result<Vec<T>, StoreError> {
        let quorum = self.proposer.nodes.quorum();
        self.collect(answers, |found, _| found.len() >= quorum)
            .await
    }

    /// Returns the clocks of a majority, or of all nodes that reply if those disagree.
    pub(super) async fn agreeing_clocks<T>(
        &self,
        answers: UnboundedReceiver<NodeReply<T>>,
        micros: impl Fn(&T) -> u64 + Copy,
    ) -> Result<Vec<T>, StoreError> {
        let nodes = &self.proposer.nodes;
        self.collect(answers, |found, silent| {
            found.len() >= nodes.quorum()
                && (clock::agree(found.iter().map(micros)) || nodes.are_shunned(silent))
        })
        .await
    }

    /// Returns the replies of all nodes that reply, at least of a majority. It does not wait for nodes
    /// that failed recently.
    pub(super) async fn all_there<T>(
        &self,
        answers: UnboundedReceiver<NodeReply<T>>,
    ) -> Result<Vec<T>, StoreError> {
        let nodes = &self.proposer.nodes;
        self.collect(answers, |found, silent| {
            found.len() >= nodes.quorum() && nodes.are_shunned(silent)
        })
        .await
    }

    /// Collects replies until `is_enough(replies, missing nodes)`, or until every node has replied.
    /// Fails with less than a majority.
    async fn collect<T>(
        &self,
        mut answers: UnboundedReceiver<NodeReply<T>>,
        is_enough: impl Fn(&[T], &BTreeSet<usize>) -> bool,
    ) -> Result<Vec<T>, StoreError> {
        let nodes = &self.proposer.nodes;
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        let mut silent: BTreeSet<usize> = (0..nodes.len()).collect();
        while !is_enough(&found, &silent)
            && let Some((at, answer)) = answers.recv().await
        {
            silent.remove(&at);
            match answer {
                Ok(answer) => {
                    nodes.note_answer(at);
                    found.push(answer);
                }
                Err(error) => {
                    nodes.note_failure(at, &error)?;
                    errors.push((at, Err(error)));
                }
            }
        }
        if found.len() < nodes.quorum() {
            return Err(self.proposer.few(found.len(), &errors));
        }
        self.proposer.outage.answered();
        Ok(found)
    }

    pub(super) async fn register_all(
        &self,
        jobs: &[Registration],
    ) -> Result<Vec<Registered>, StoreError> {
        for registration in jobs {
            self.proposer.longest.lists(registration.ttl);
            let lock = &registration.lock.name;
            self.proposer.outage.knows(lock, registration.ttl);
        }
        self.repair.knows(jobs);
        let proposer = Arc::clone(&self.proposer);
        let ask = move |registration: Registration| {
            let proposer = Arc::clone(&proposer);
            async move { proposer.register(&registration).await }
        };
        by_lock(jobs, |registration| &registration.lock, ask).await
    }

    pub(super) async fn report_all(
        &self,
        jobs: &[(JobName, Lock)],
    ) -> Result<Vec<JobReport>, StoreError> {
        let proposer = Arc::clone(&self.proposer);
        let ask = move |(job, lock): (JobName, Lock)| {
            let proposer = Arc::clone(&proposer);
            async move { proposer.report(&job, &lock).await }
        };
        by_lock(jobs, |(_, lock)| lock, ask).await
    }

    /// Deletes what the nodes keep of a job. All nodes must respond: a node that keeps the job would
    /// bring it back.
    pub(super) async fn forget_everywhere(
        &self,
        request: &Forget,
    ) -> Result<Forgotten, StoreError> {
        let nodes = &self.proposer.nodes;
        let ask = |step: fn(Arc<QuorumNode>, Forget) -> BoxFuture<Forgotten>| {
            let request = request.clone();
            let answers = nodes.ask(0..nodes.len(), move |node| step(node, request.clone()));
            self.collect(answers, |_, _| false)
        };
        let looked =
            ask(|node, request| Box::pin(async move { node.store.may_forget(&request).await }));
        let looked = looked.await?;
        if looked.len() < nodes.len() {
            return Err(StoreError::unreachable(format!(
                "{} of {} nodes respond; to forget a job, all must",
                looked.len(),
                nodes.len()
            )));
        }
        let held = |answer: &Forgotten| matches!(answer, Forgotten::Held { .. });
        if let Some(held) = looked.into_iter().find(held) {
            return Ok(held);
        }
        let done = ask(|node, request| Box::pin(async move { node.store.forget(&request).await }));
        let done = done.await?;
        if done.len() < nodes.len() {
            return Err(StoreError::unreachable(format!(
                "only {} of {} nodes have forgotten the job, and the others would bring it back: repeat \
                 the command once all nodes respond",
                done.len(),
                nodes.len()
            )));
        }
        let most = done.into_iter().max_by_key(|answer| match answer {
            Forgotten::Done { entries } => entries.to_owned(),
            Forgotten::Held { .. } => 0,
        });
        Ok(most.unwrap_or(Forgotten::Done { entries: 0 }))
    }

    /// Returns the daemons that are connected to any node.
    pub(super) async fn daemons_on_nodes(&self) -> Result<Vec<String>, StoreError> {
        let nodes = &self.proposer.nodes;
        let answers = nodes.ask(
            0..nodes.len(),
            |node| async move { node.store.daemons().await },
        );
        let found = self.collect(answers, |_, _| false).await?;
        let found: BTreeSet<String> = found.into_iter().flatten().collect();
        Ok(found.into_iter().collect())
    }

    pub(super) async fn declare_new(&self) -> Result<Option<u64>, StoreError> {
        let nodes = &self.proposer.nodes;
        let answers = nodes.ask(
            0..nodes.len(),
            |node| async move { node.count_keys().await },
        );
        let counts = self.collect(answers, |_, _| false).await?;
        if counts.len() < nodes.len() {
            return Err(StoreError::unreachable(format!(
                "{} of {} nodes respond; to declare them new, all must",
                counts.len(),
                nodes.len()
            )));
        }
        let found: u64 = counts.iter().sum();
        if found > 0 {
            return Ok(Some(found));
        }
        let answers = nodes.ask(
            0..nodes.len(),
            |node| async move { node.declare_new().await },
        );
        let declared = self.collect(answers, |_, _| false).await?.len();
        if declared < nodes.len() {
            return Err(StoreError::unreachable(format!(
                "only {declared} of {} nodes are declared new; the others count in no quorum until they \
                 have been up for one TTL",
                nodes.len()
            )));
        }
        Ok(None)
    }
}

impl Proposer {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let request = QuorumRequest::of_job(&registration.job, &registration.lock);
        let done = self
            .transact_lazily(&request, |lock, job, clock| {
                let registered = protocol::register(lock, job, clock, registration);
                Transition::of(registered, Vec::new())
            })
            .await?;
        match done {
            QuorumReply::Reply(registered) => Ok(registered),
            QuorumReply::Recovering(left) => self.forgotten(&request, registration, left).await,
        }
    }

    /// Returns what is known of a job while too many nodes recover. Writes nothing.
    async fn forgotten(
        &self,
        request: &QuorumRequest<'_>,
        registration: &Registration,
        left: Duration,
    ) -> Result<Registered, StoreError> {
        let merged = self.read(request).await?;
        let (mut job, mut clock) = (merged.job, merged.clock);
        clock.past.horizon = Some(horizon_of(clock.utc()));
        let mut registered = protocol::register(&merged.lock, &mut job, clock, registration);
        registered.recovering = left;
        Ok(registered)
    }

    async fn report(&self, job: &JobName, lock: &Lock) -> Result<JobReport, StoreError> {
        let merged = self.read(&QuorumRequest::of_job(job, lock)).await?;
        let (exclusive, state) = (lock.exclusive, merged.job.as_ref());
        Ok(report(job, &merged.lock, exclusive, state, merged.clock))
    }

    /// Reads lock and job from a majority, or, if too many nodes recover, from those that replied.
    async fn read(&self, request: &QuorumRequest<'_>) -> Result<MergedState, StoreError> {
        let (target, quorum) = (self.target(request), self.nodes.quorum());
        let all = 0..self.nodes.len();
        let read = (PrepareMode::Read, Ballot::default());
        let heard = self.prepare(&target, all, read, Vec::new()).await?;
        let counted = match check_quorum(&heard.replies, quorum) {
            QuorumCheck::Met { counted, .. } => counted,
            // Enough for a report. A grant would need a majority.
            QuorumCheck::Recovering(_) => (0..heard.replies.len()).collect(),
            QuorumCheck::TooFew => {
                return Err(self.few(heard.replies.len(), &heard.errors));
            }
        };
        let exclusive = request.lock.exclusive;
        Ok(merge(&heard.replies, &counted, quorum, (exclusive, None)))
    }
}

/// Asks about many items at once, and returns the replies in the order of the items. Items with the
/// same lock are asked one after the other, because their proposals would preempt each other.
pub(super) async fn by_lock<T, R, F>(
    items: &[T],
    lock: impl Fn(&T) -> &Lock,
    ask: impl Fn(T) -> F + Clone + Send + 'static,
) -> Result<Vec<R>, StoreError>
where
    T: Clone + Send + 'static,
    R: Send + 'static,
    F: Future<Output = Result<R, StoreError>> + Send,
{
    let mut groups: HashMap<&Lock, Vec<(usize, T)>> = HashMap::new();
    for (at, item) in items.iter().enumerate() {
        groups
            .entry(lock(item))
            .or_default()
            .push((at, item.clone()));
    }
    let mut waiting = groups.into_values();
    let mut asked = JoinSet::new();
    let mut all: Vec<(usize, R)> = Vec::with_capacity(items.len());
    loop {
        while asked.len() < AT_ONCE
            && let Some(group) = waiting.next()
        {
            let ask = ask.clone();
            asked.spawn_boxed(async move {
                let mut replies = Vec::with_capacity(group.len());
                for (at, item) in group {
                    replies.push((at, ask(item).await?));
                }
                Ok::<_, StoreError>(replies)
            });
        }
        match asked.join_next().await {
            Some(Ok(replies)) => all.extend(replies?),
            Some(Err(error)) => {
                return Err(StoreError::unreachable(format!(
                    "the task that asks the nodes failed, which is a bug: {error}"
                )));
            }
            None => break,
        }
    }
    all.sort_short_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, reply)| reply).collect())
}

/// The newest word of each host.
pub(super) fn newest(found: Vec<Vec<HostReport>>) -> Vec<HostReport> {
    let mut hosts = BTreeMap::new();
    for report in found.into_iter().flatten() {
        let host = report.info.host.clone();
        let newer = hosts
            .get(&host)
            .is_none_or(|known: &HostReport| known.seen_at < report.seen_at);
        if newer {
            hosts.insert(host, report);
        }
    }
    hosts.into_values().collect()
}
