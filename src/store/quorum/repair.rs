//! Repairs a node that lost its data, before its jobs are due.
//!
//! A node that lost its data counts for a job only after a proposal has written the job to it again. A
//! yearly job would cause that once a year, and other nodes may lose their data meanwhile. Therefore
//! every host with jobs checks the nodes whenever it announces itself, and proposes to such a node the
//! unchanged state that the others know.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::clock::{self, APART};
use super::condition::missing;
use super::proposer::Proposer;
use super::reads::by_lock;
use super::request::{QuorumRequest, QuorumWait, Transition};
use crate::ground::tasks;
use crate::names::JobName;
use crate::store::redis::node::{Ballot, NodeState, PrepareMode};
use crate::store::{Lock, Registration, StoreError};
use crate::time::Timestamp;

/// Checks and repairs the nodes, for the jobs of one host's list.
#[derive(Debug)]
pub(super) struct RepairLoop {
    proposer: Arc<Proposer>,
    jobs: Mutex<HashMap<JobName, Lock>>,
    /// For each node, the loss after which it received all these jobs.
    tended: Mutex<Vec<Option<Timestamp>>>,
    busy: AtomicBool,
    away: Mutex<Away>,
    /// The nodes whose clocks the log has reported as wrong.
    off: Mutex<BTreeSet<usize>>,
}

/// The nodes that the log has reported as unreachable.
#[derive(Debug, Default)]
struct Away(BTreeSet<usize>);

/// A change that the log reports.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Gone(String),
    Back,
}

impl Away {
    /// Returns what has changed since the previous replies.
    fn news<T>(&mut self, said: &[Result<T, StoreError>]) -> Vec<(usize, News)> {
        let mut news = Vec::new();
        for (at, answer) in said.iter().enumerate() {
            match answer {
                Ok(_) if self.0.remove(&at) => news.push((at, News::Back)),
                Err(error) if self.0.insert(at) => news.push((at, News::Gone(error.to_string()))),
                Ok(_) | Err(_) => {}
            }
        }
        news
    }
}

impl RepairLoop {
    pub(super) fn new(proposer: Arc<Proposer>) -> Arc<Self> {
        Arc::new(Self {
            jobs: Mutex::default(),
            tended: Mutex::new(vec![None; proposer.nodes.len()]),
            busy: AtomicBool::new(false),
            away: Mutex::default(),
            off: Mutex::default(),
            proposer,
        })
    }

    /// Adds the jobs of this host.
    pub(super) fn knows(&self, jobs: &[Registration]) {
        let mut known = lock(&self.jobs);
        for registration in jobs {
            known.insert(registration.job.clone(), registration.lock.clone());
        }
        lock(&self.tended).fill(None);
    }

    /// Starts a check, without waiting. Does nothing while one is running.
    pub(super) fn tend(self: &Arc<Self>) {
        if self.busy.swap(true, Ordering::Relaxed) {
            return;
        }
        let repair = Arc::clone(self);
        tasks::spawn(async move {
            // If a majority is unreachable, the requests that need it report that.
            let _ = repair.prepare().await;
            repair.busy.store(false, Ordering::Relaxed);
        });
    }

    async fn prepare(&self) -> Result<(), StoreError> {
        let said = self.proposer.standings(&[]).await;
        self.tell_of_news(&said);
        self.report_clocks(&said);
        let standings: Vec<Option<NodeState>> = said.into_iter().map(Result::ok).collect();
        let jobs: Vec<(JobName, Lock)> = {
            let jobs = lock(&self.jobs);
            jobs.iter().map(|(j, l)| (j.clone(), l.clone())).collect()
        };
        let Some((job, lock_of_it)) = jobs.first() else {
            return Ok(());
        };
        let lost = |standing: &Option<NodeState>| standing.as_ref().and_then(|s| s.lost_at);
        let recovers = |s: &Option<NodeState>| s.as_ref().is_some_and(|s| !s.recovering.is_zero());
        if standings.iter().any(recovers) {
            // The recovery period begins when the node notes the loss, which any request causes.
            let request = QuorumRequest::of_job(job, lock_of_it);
            let target = self.proposer.target(&request);
            let (all, read) = (0..standings.len(), (PrepareMode::Read, Ballot::default()));
            self.proposer
                .prepare(&target, all, read, Vec::new())
                .await?;
        }
        let is_news = |at: usize| {
            let known = lock(&self.tended)[at];
            lost(&standings[at]).is_some_and(|lost_at| known != Some(lost_at))
                && !recovers(&standings[at])
        };
        let news: Vec<usize> = (0..standings.len()).filter(|at| is_news(*at)).collect();
        if news.is_empty() {
            return Ok(());
        }
        let standings = self.ask(&jobs).await;
        let heard: Vec<&NodeState> = standings.iter().flatten().collect();
        let mut untold: Vec<usize> = Vec::new();
        for at in news {
            let Some(standing) = &standings[at] else {
                continue;
            };
            let of_it = missing(standing, &heard);
            if of_it.is_empty() {
                lock(&self.tended)[at] = standing.lost_at;
            }
            untold.extend(of_it);
        }
        untold.sort_unstable();
        untold.dedup();
        let untold: Vec<(JobName, Lock)> = untold.iter().map(|at| jobs[*at].clone()).collect();
        let proposer = Arc::clone(&self.proposer);
        let tell = move |(job, lock): (JobName, Lock)| {
            let proposer = Arc::clone(&proposer);
            async move { proposer.propose_unchanged(&job, &lock).await }
        };
        by_lock(&untold, |(_, lock)| lock, tell).await.map(drop)
    }

    /// Logs which nodes became unreachable or reachable. While a majority responds, nothing else shows
    /// that a node does not.
    fn tell_of_news(&self, said: &[Result<NodeState, StoreError>]) {
        for (at, news) in lock(&self.away).news(said) {
            let node = self.proposer.nodes.get(at).shown();
            match news {
                News::Gone(error) => tracing::warn!(
                    node,
                    "the node cannot be used; continuing with the others: {error}"
                ),
                News::Back => tracing::info!(node, "the node can be used again"),
            }
        }
    }

    /// Logs once that a node's clock differs from the one that decides, and when it is correct again.
    fn report_clocks(&self, said: &[Result<NodeState, StoreError>]) {
        let mut off = lock(&self.off);
        for (at, clock) in clock::offsets(said).into_iter().enumerate() {
            let Some(clock) = clock else { continue };
            let node = self.proposer.nodes.get(at).shown();
            if clock.exceeds(APART) && off.insert(at) {
                tracing::warn!(
                    node,
                    offset_ms = clock.offset_ms,
                    "this node's clock is {clock} the median of the reachable nodes; nothing \
                     starts early because of it, but if another node fails, jobs may start late. \
                     Check the node's time service"
                );
            } else if clock.is_within(APART / 10 * 9) && off.remove(&at) {
                tracing::info!(
                    node,
                    offset_ms = clock.offset_ms,
                    "this node's clock is correct again"
                );
            }
        }
    }

    async fn ask(&self, jobs: &[(JobName, Lock)]) -> Vec<Option<NodeState>> {
        let said = self.proposer.standings(jobs).await;
        said.into_iter().map(Result::ok).collect()
    }
}

impl Proposer {
    /// Proposes the unchanged state of a job, if a node has lost it.
    async fn propose_unchanged(&self, job: &JobName, lock: &Lock) -> Result<(), StoreError> {
        let request = QuorumRequest {
            wait: QuorumWait::All,
            ..QuorumRequest::of_job(job, lock)
        };
        let as_it_is = |_: &mut _, _: &mut _, _| Transition::of((), Vec::new());
        self.transact(&request, as_it_is).await.map(drop)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds the guard can panic half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_away_is_told_of_once_and_once_when_it_is_back() {
        let gone = || Err(StoreError::unreachable("refused".to_owned()));
        let mut away = Away::default();
        assert_eq!(away.news(&[Ok(()), Ok(()), Ok(())]), []);
        let said = "the store is unreachable: refused".to_owned();
        assert_eq!(
            away.news(&[Ok(()), gone(), Ok(())]),
            [(1, News::Gone(said))]
        );
        assert_eq!(away.news(&[Ok(()), gone(), Ok(())]), []);
        assert_eq!(away.news(&[Ok(()), Ok(()), Ok(())]), [(1, News::Back)]);
        assert_eq!(away.news(&[Ok(()), Ok(()), Ok(())]), []);
    }
}
