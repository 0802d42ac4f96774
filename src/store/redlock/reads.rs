//! Requests that go to many nodes or for many jobs, and how their answers become one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::RedlockStore;
use super::ask::Answer;
use super::transact::{Done, Majority, Outcomes, Subject};
use super::view::{Counting, Merged, count, merge};
use crate::names::JobName;
use crate::store::protocol::{self, horizon_of, report};
use crate::store::redis::node::{Ballot, Mode, Placed};
use crate::store::{
    HostReport, JobReport, Lock, Outcome, Record, Registered, Registration, StoreError,
};

/// How many locks are asked about at once: their requests share round trips.
const AT_ONCE: usize = 64;

impl RedlockStore {
    /// The answers of a majority; the rest is not waited for.
    pub(super) async fn a_majority<T>(
        &self,
        answers: UnboundedReceiver<Answer<T>>,
    ) -> Result<Vec<T>, StoreError> {
        self.collect(answers, Enough::Majority).await
    }

    /// The answers of all nodes that do, at least a majority; those that failed a moment ago are
    /// not waited for.
    pub(super) async fn all_there<T>(
        &self,
        answers: UnboundedReceiver<Answer<T>>,
    ) -> Result<Vec<T>, StoreError> {
        self.collect(answers, Enough::AllThere).await
    }

    async fn collect<T>(
        &self,
        mut answers: UnboundedReceiver<Answer<T>>,
        enough: Enough,
    ) -> Result<Vec<T>, StoreError> {
        let nodes = &self.majority.nodes;
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        let mut silent: BTreeSet<usize> = (0..nodes.len()).collect();
        let is_enough = |found: usize, silent: &BTreeSet<usize>| match enough {
            Enough::All => false,
            Enough::AllThere => {
                found >= nodes.quorum() && silent.iter().all(|at| nodes.is_shunned(*at))
            }
            Enough::Majority => found >= nodes.quorum(),
        };
        while !is_enough(found.len(), &silent)
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
            return Err(nodes.too_few(found.len(), &errors));
        }
        Ok(found)
    }

    pub(super) async fn register_all(
        &self,
        jobs: &[Registration],
    ) -> Result<Vec<Registered>, StoreError> {
        for registration in jobs {
            self.majority.longest(registration.ttl);
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

    pub(super) async fn declare_new(&self) -> Result<Option<u64>, StoreError> {
        let nodes = &self.majority.nodes;
        let answers = nodes.ask(
            0..nodes.len(),
            |node| async move { node.count_keys().await },
        );
        let counts = self.collect(answers, Enough::All).await?;
        if counts.len() < nodes.len() {
            return Err(StoreError::Unreachable(format!(
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
        if self.collect(answers, Enough::All).await?.len() < nodes.len() {
            return Err(StoreError::Unreachable(
                "not all nodes could be declared new".to_owned(),
            ));
        }
        Ok(None)
    }
}

/// Whose answers are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enough {
    /// Everybody's.
    All,
    /// Everybody's but those who failed a moment ago.
    AllThere,
    /// A majority's.
    Majority,
}

impl Majority {
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
                return Err(self.nodes.too_few(heard.views.len(), &heard.errors));
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
                return Err(StoreError::Unreachable(format!("given up: {error}")));
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

/// All records that any node has, each once, newest first.
pub(super) fn union(found: Vec<Vec<Placed>>) -> Vec<Record> {
    let all = together(found);
    all.into_iter().map(|(_, record)| record).collect()
}

/// All records that any node has, each once and where it lies, newest first. A node that was away
/// lacks some, and has ranges in pieces that another has as one.
pub(super) fn together(found: Vec<Vec<Placed>>) -> Vec<Placed> {
    let mut all: Vec<Placed> = Vec::new();
    // From the largest range to the smallest, so that a piece finds the whole.
    let mut sorted: Vec<Placed> = found.into_iter().flatten().collect();
    sorted.sort_by_key(|((_, seq), record)| (std::cmp::Reverse(record.count.unwrap_or(1)), *seq));
    for (place, record) in sorted {
        match all.iter_mut().find(|(_, known)| covers(known, &record)) {
            // A record that was copied later lies where it does not belong.
            Some((known, whole)) if whole.until == record.until => *known = (*known).min(place),
            Some(_) => {}
            None => all.push((place, record)),
        }
    }
    all.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
    all
}

/// Whether `record` says nothing that `known` does not say.
fn covers(known: &Record, record: &Record) -> bool {
    if known == record {
        return true;
    }
    if let (Some(one), Some(two)) = (&known.run_id, &record.run_id) {
        // The same verdict, recorded on different nodes at different tries.
        return one == two
            && known.scheduled_at == record.scheduled_at
            && known.outcome == record.outcome
            && known.attempts == record.attempts;
    }
    let plain = |r: &Record| {
        r.run_id.is_none()
            && matches!(
                r.outcome,
                Outcome::Skipped | Outcome::Missed | Outcome::Unknown
            )
    };
    let range = |r: &Record| Some((r.scheduled_at?, r.until.or(r.scheduled_at)?));
    match (range(known), range(record)) {
        (Some((from, until)), Some((a, b))) => {
            plain(known)
                && plain(record)
                && known.outcome == record.outcome
                && known.reason == record.reason
                && from <= a
                && b <= until
        }
        _ => false,
    }
}
