//! Requests that go to many nodes or for many jobs, and how their answers become one.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::RedlockStore;
use super::ask::Answer;
use super::transact::{Done, Outcomes, Subject};
use super::view::{Counting, Merged, count, merge};
use crate::names::JobName;
use crate::store::protocol::{self, horizon_of, report};
use crate::store::redis::node::{Ballot, Mode};
use crate::store::{
    HostReport, JobReport, Lock, Outcome, Record, Registered, Registration, StoreError,
};

/// A record, and where it lies in the stream of a node.
type Placed = ((u64, u64), Record);

impl RedlockStore {
    /// The answers of a majority; the rest is not waited for.
    pub(super) async fn a_majority<T>(
        &self,
        answers: UnboundedReceiver<Answer<T>>,
    ) -> Result<Vec<T>, StoreError> {
        self.collect(answers, self.majority.nodes.quorum()).await
    }

    /// The answers of all nodes that do; at least a majority.
    pub(super) async fn everybody<T>(
        &self,
        answers: UnboundedReceiver<Answer<T>>,
    ) -> Result<Vec<T>, StoreError> {
        self.collect(answers, self.majority.nodes.len()).await
    }

    async fn collect<T>(
        &self,
        mut answers: UnboundedReceiver<Answer<T>>,
        enough: usize,
    ) -> Result<Vec<T>, StoreError> {
        let nodes = &self.majority.nodes;
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        while found.len() < enough
            && let Some((at, answer)) = answers.recv().await
        {
            match answer {
                Ok(answer) => found.push(answer),
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
        let mut all = Vec::with_capacity(jobs.len());
        for registration in jobs {
            let subject = Subject {
                lock: &registration.lock,
                job: Some(&registration.job),
                me: None,
                ttl: Duration::ZERO,
            };
            let done = self
                .majority
                .transact_lazily(&subject, |lock, job, clock| Outcomes {
                    reply: protocol::register(lock, job, clock, registration),
                    effects: Vec::new(),
                    taken: false,
                })
                .await?;
            all.push(match done {
                Done::Reply(registered) => registered,
                Done::Recovering(left) => self.forgotten(&subject, registration, left).await?,
            });
        }
        Ok(all)
    }

    pub(super) async fn report_all(
        &self,
        jobs: &[(JobName, Lock)],
    ) -> Result<Vec<JobReport>, StoreError> {
        let mut all = Vec::with_capacity(jobs.len());
        for (job, lock) in jobs {
            let subject = Subject {
                lock,
                job: Some(job),
                me: None,
                ttl: Duration::ZERO,
            };
            all.push(self.report(&subject, job).await?);
        }
        Ok(all)
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

    async fn report(&self, subject: &Subject<'_>, job: &JobName) -> Result<JobReport, StoreError> {
        let merged = self.read(subject).await?;
        let (exclusive, state) = (subject.lock.exclusive, merged.job.as_ref());
        Ok(report(job, &merged.lock, exclusive, state, merged.clock))
    }

    /// Lock and job as a majority has them, or as those that recover do.
    async fn read(&self, subject: &Subject<'_>) -> Result<Merged, StoreError> {
        let majority = &self.majority;
        let (place, quorum) = (majority.place(subject), majority.nodes.quorum());
        let all = 0..majority.nodes.len();
        let read = (Mode::Read, Ballot::default());
        let heard = majority.look(&place, all, read, Vec::new()).await?;
        let counted = match count(&heard.views, quorum) {
            Counting::On { counted, .. } => counted,
            // To be shown is less than to be granted.
            Counting::Recovering(_) => (0..heard.views.len()).collect(),
            Counting::TooFew => {
                return Err(majority.nodes.too_few(heard.views.len(), &heard.errors));
            }
        };
        let exclusive = subject.lock.exclusive;
        Ok(merge(&heard.views, &counted, quorum, (exclusive, None)))
    }

    pub(super) async fn declare_new(&self) -> Result<Option<u64>, StoreError> {
        let nodes = &self.majority.nodes;
        let answers = nodes.ask(
            0..nodes.len(),
            |node| async move { node.count_keys().await },
        );
        let counts = self.everybody(answers).await?;
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
        if self.everybody(answers).await?.len() < nodes.len() {
            return Err(StoreError::Unreachable(
                "not all nodes could be declared new".to_owned(),
            ));
        }
        Ok(None)
    }
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

/// All records that any node has, each once, newest first. A node that was away lacks some, and
/// has ranges in pieces that another has as one.
pub(super) fn union(found: Vec<Vec<Placed>>) -> Vec<Record> {
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
    all.into_iter().map(|(_, record)| record).collect()
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
