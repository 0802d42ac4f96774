//! Requests that go to many nodes or for many jobs, and how their answers become one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::RedlockStore;
use super::ask::Answer;
use super::clock;
use super::transact::{Done, Outcomes, Proposer, Subject};
use super::view::{Counting, Merged, count, merge};
use crate::names::JobName;
use crate::store::protocol::{self, horizon_of, report};
use crate::store::redis::node::{Ballot, Mode, Node};
use crate::store::{
    Forget, Forgotten, HostReport, JobReport, Lock, Registered, Registration, Store, StoreError,
};

/// A request to one node.
type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// How many locks are asked about at once: their requests share round trips.
const AT_ONCE: usize = 64;

impl RedlockStore {
    /// The answers of a majority; the rest is not waited for.
    pub(super) async fn a_majority<T>(
        &self,
        answers: UnboundedReceiver<Answer<T>>,
    ) -> Result<Vec<T>, StoreError> {
        let quorum = self.majority.nodes.quorum();
        self.collect(answers, |found, _| found.len() >= quorum)
            .await
    }

    /// The clocks of a majority; of all nodes that answer, if they disagree.
    pub(super) async fn agreeing_clocks<T>(
        &self,
        answers: UnboundedReceiver<Answer<T>>,
        micros: impl Fn(&T) -> u64 + Copy,
    ) -> Result<Vec<T>, StoreError> {
        let nodes = &self.majority.nodes;
        self.collect(answers, |found, silent| {
            found.len() >= nodes.quorum()
                && (clock::agree(found.iter().map(micros)) || nodes.are_shunned(silent))
        })
        .await
    }

    /// The answers of all nodes that do, at least a majority; those that failed a moment ago are
    /// not waited for.
    pub(super) async fn all_there<T>(
        &self,
        answers: UnboundedReceiver<Answer<T>>,
    ) -> Result<Vec<T>, StoreError> {
        let nodes = &self.majority.nodes;
        self.collect(answers, |found, silent| {
            found.len() >= nodes.quorum() && nodes.are_shunned(silent)
        })
        .await
    }

    /// Collects answers until `is_enough` of those that came and the nodes that have not answered
    /// yet, or until every node has; fails with less than a majority.
    async fn collect<T>(
        &self,
        mut answers: UnboundedReceiver<Answer<T>>,
        is_enough: impl Fn(&[T], &BTreeSet<usize>) -> bool,
    ) -> Result<Vec<T>, StoreError> {
        let nodes = &self.majority.nodes;
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
            return Err(self.majority.few(found.len(), &errors));
        }
        self.majority.outage.answered();
        Ok(found)
    }

    pub(super) async fn register_all(
        &self,
        jobs: &[Registration],
    ) -> Result<Vec<Registered>, StoreError> {
        for registration in jobs {
            self.majority.longest.lists(registration.ttl);
            let lock = &registration.lock.name;
            self.majority.outage.knows(lock, registration.ttl);
        }
        self.tender.knows(jobs);
        let majority = Arc::clone(&self.majority);
        let ask = move |registration: Registration| {
            let majority = Arc::clone(&majority);
            async move { majority.register(&registration).await }
        };
        by_lock(jobs, |registration| &registration.lock, ask).await
    }

    pub(super) async fn report_all(
        &self,
        jobs: &[(JobName, Lock)],
    ) -> Result<Vec<JobReport>, StoreError> {
        let majority = Arc::clone(&self.majority);
        let ask = move |(job, lock): (JobName, Lock)| {
            let majority = Arc::clone(&majority);
            async move { majority.report(&job, &lock).await }
        };
        by_lock(jobs, |(_, lock)| lock, ask).await
    }

    /// Deletes what the nodes keep of a job. All of them must answer: one that did not hear of it
    /// would bring the job back.
    pub(super) async fn forget_everywhere(
        &self,
        request: &Forget,
    ) -> Result<Forgotten, StoreError> {
        let nodes = &self.majority.nodes;
        let ask = |step: fn(Arc<Node>, Forget) -> BoxFuture<Forgotten>| {
            let request = request.clone();
            let answers = nodes.ask(0..nodes.len(), move |node| step(node, request.clone()));
            self.collect(answers, |_, _| false)
        };
        let looked =
            ask(|node, request| Box::pin(async move { node.store.may_forget(&request).await }));
        let looked = looked.await?;
        if looked.len() < nodes.len() {
            return Err(StoreError::unreachable(format!(
                "{} of {} nodes answer; to forget a job all must",
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
            return Err(StoreError::unreachable(
                "not all nodes have forgotten the job: try again".to_owned(),
            ));
        }
        let most = done.into_iter().max_by_key(|answer| match answer {
            Forgotten::Done { entries } => entries.to_owned(),
            Forgotten::Held { .. } => 0,
        });
        Ok(most.unwrap_or(Forgotten::Done { entries: 0 }))
    }

    /// The daemons that are connected to any node.
    pub(super) async fn daemons_on_nodes(&self) -> Result<Vec<String>, StoreError> {
        let nodes = &self.majority.nodes;
        let answers = nodes.ask(
            0..nodes.len(),
            |node| async move { node.store.daemons().await },
        );
        let found = self.collect(answers, |_, _| false).await?;
        let found: BTreeSet<String> = found.into_iter().flatten().collect();
        Ok(found.into_iter().collect())
    }

    pub(super) async fn declare_new(&self) -> Result<Option<u64>, StoreError> {
        let nodes = &self.majority.nodes;
        let answers = nodes.ask(
            0..nodes.len(),
            |node| async move { node.count_keys().await },
        );
        let counts = self.collect(answers, |_, _| false).await?;
        if counts.len() < nodes.len() {
            return Err(StoreError::unreachable(format!(
                "{} of {} nodes answer; to declare them new all must",
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
        if self.collect(answers, |_, _| false).await?.len() < nodes.len() {
            return Err(StoreError::unreachable(
                "not all nodes could be declared new".to_owned(),
            ));
        }
        Ok(None)
    }
}

impl Proposer {
    async fn register(&self, registration: &Registration) -> Result<Registered, StoreError> {
        let subject = Subject::of_job(&registration.job, &registration.lock);
        let done = self
            .transact_lazily(&subject, |lock, job, clock| Outcomes {
                reply: protocol::register(lock, job, clock, registration),
                effects: Vec::new(),
                taken: false,
            })
            .await?;
        match done {
            Done::Reply(registered) => Ok(registered),
            Done::Recovering(left) => self.forgotten(&subject, registration, left).await,
        }
    }

    /// What can be said of a job while too many nodes recover; nothing is written.
    async fn forgotten(
        &self,
        subject: &Subject<'_>,
        registration: &Registration,
        left: Duration,
    ) -> Result<Registered, StoreError> {
        let merged = self.read(subject).await?;
        let (mut job, mut clock) = (merged.job, merged.clock);
        clock.past.horizon = Some(horizon_of(clock.utc()));
        let mut registered = protocol::register(&merged.lock, &mut job, clock, registration);
        registered.recovering = left;
        Ok(registered)
    }

    async fn report(&self, job: &JobName, lock: &Lock) -> Result<JobReport, StoreError> {
        let merged = self.read(&Subject::of_job(job, lock)).await?;
        let (exclusive, state) = (lock.exclusive, merged.job.as_ref());
        Ok(report(job, &merged.lock, exclusive, state, merged.clock))
    }

    /// Lock and job as a majority has them, or as those that recover do.
    async fn read(&self, subject: &Subject<'_>) -> Result<Merged, StoreError> {
        let (place, quorum) = (self.place(subject), self.nodes.quorum());
        let all = 0..self.nodes.len();
        let read = (Mode::Read, Ballot::default());
        let heard = self.look(&place, all, read, Vec::new()).await?;
        let counted = match count(&heard.views, quorum) {
            Counting::On { counted, .. } => counted,
            // To be shown is less than to be granted.
            Counting::Recovering(_) => (0..heard.views.len()).collect(),
            Counting::TooFew => {
                return Err(self.few(heard.views.len(), &heard.errors));
            }
        };
        let exclusive = subject.lock.exclusive;
        Ok(merge(&heard.views, &counted, quorum, (exclusive, None)))
    }
}

/// Asks about many at once, and answers in their order. What shares a lock is asked one after the
/// other, for its proposals would be in one another's way.
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
            asked.spawn(async move {
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
                return Err(StoreError::unreachable(format!("given up: {error}")));
            }
            None => break,
        }
    }
    all.sort_by_key(|(at, _)| *at);
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
