//! Brings a node that lost its data up again, before anything falls due.
//!
//! A node that forgot does not count for a job before a proposal has told it of that. Left to the
//! jobs themselves that may take a year, and another node may lose its data meanwhile. So whoever
//! has registered jobs looks whenever it announces itself, and proposes to such a node what the
//! others know, changed in nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::clock::{self, APART};
use super::condition::missing;
use super::reads::by_lock;
use super::transact::{Outcomes, Proposer, QuorumWait, Subject};
use crate::names::JobName;
use crate::store::redis::node::{Ballot, Mode, Standing};
use crate::store::{Lock, Registration, StoreError};
use crate::time::Timestamp;

/// Who looks after the nodes, for the jobs of one host's list.
#[derive(Debug)]
pub(super) struct RepairLoop {
    majority: Arc<Proposer>,
    jobs: Mutex<HashMap<JobName, Lock>>,
    /// Of each node, the loss after which it was told of all these jobs.
    tended: Mutex<Vec<Option<Timestamp>>>,
    busy: AtomicBool,
    away: Mutex<Away>,
    /// The nodes whose clocks were reported as wrong.
    off: Mutex<BTreeSet<usize>>,
}

/// Which nodes people were told are away.
#[derive(Debug, Default)]
struct Away(BTreeSet<usize>);

/// What people are told of a node.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Gone(String),
    Back,
}

impl Away {
    /// What has changed since the answers before these.
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
    pub(super) fn new(majority: Arc<Proposer>) -> Arc<Self> {
        Arc::new(Self {
            jobs: Mutex::default(),
            tended: Mutex::new(vec![None; majority.nodes.len()]),
            busy: AtomicBool::new(false),
            away: Mutex::default(),
            off: Mutex::default(),
            majority,
        })
    }

    /// These jobs are the host's.
    pub(super) fn knows(&self, jobs: &[Registration]) {
        let mut known = lock(&self.jobs);
        for registration in jobs {
            known.insert(registration.job.clone(), registration.lock.clone());
        }
        lock(&self.tended).fill(None);
    }

    /// Looks, and does what is to be done, beside the caller.
    pub(super) fn tend(self: &Arc<Self>) {
        if self.busy.swap(true, Ordering::Relaxed) {
            return;
        }
        let tender = Arc::clone(self);
        tokio::spawn(async move {
            // A majority that is away is told of by those who need it.
            let _ = tender.look().await;
            tender.busy.store(false, Ordering::Relaxed);
        });
    }

    async fn look(&self) -> Result<(), StoreError> {
        let said = self.majority.standings(&[]).await;
        self.tell_of_news(&said);
        self.report_clocks(&said);
        let standings: Vec<Option<Standing>> = said.into_iter().map(Result::ok).collect();
        let jobs: Vec<(JobName, Lock)> = {
            let jobs = lock(&self.jobs);
            jobs.iter().map(|(j, l)| (j.clone(), l.clone())).collect()
        };
        let Some((job, lock_of_it)) = jobs.first() else {
            return Ok(());
        };
        let lost = |standing: &Option<Standing>| standing.as_ref().and_then(|s| s.lost_at);
        let recovers = |s: &Option<Standing>| s.as_ref().is_some_and(|s| !s.recovering.is_zero());
        if standings.iter().any(recovers) {
            // Its wait begins when the loss is written down, and no job may be due for long.
            let subject = Subject::of_job(job, lock_of_it);
            let place = self.majority.place(&subject);
            let (all, read) = (0..standings.len(), (Mode::Read, Ballot::default()));
            self.majority.look(&place, all, read, Vec::new()).await?;
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
        let heard: Vec<&Standing> = standings.iter().flatten().collect();
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
        let majority = Arc::clone(&self.majority);
        let tell = move |(job, lock): (JobName, Lock)| {
            let majority = Arc::clone(&majority);
            async move { majority.tell(&job, &lock).await }
        };
        by_lock(&untold, |(_, lock)| lock, tell).await.map(drop)
    }

    /// While a majority answers nothing else shows that a node is away.
    fn tell_of_news(&self, said: &[Result<Standing, StoreError>]) {
        for (at, news) in lock(&self.away).news(said) {
            let node = self.majority.nodes.get(at).shown();
            match news {
                News::Gone(error) => tracing::warn!(
                    node,
                    "the node cannot be used; continuing with the others: {error}"
                ),
                News::Back => tracing::info!(node, "the node can be used again"),
            }
        }
    }

    /// Logs which node's clock differs from the one that decides, once, and when it is right again.
    fn report_clocks(&self, said: &[Result<Standing, StoreError>]) {
        let mut off = lock(&self.off);
        for (at, clock) in clock::offsets(said).into_iter().enumerate() {
            let Some(clock) = clock else { continue };
            let node = self.majority.nodes.get(at).shown();
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

    async fn ask(&self, jobs: &[(JobName, Lock)]) -> Vec<Option<Standing>> {
        let said = self.majority.standings(jobs).await;
        said.into_iter().map(Result::ok).collect()
    }
}

impl Proposer {
    /// Proposes a job as it is, if there is a node that forgot it.
    async fn tell(&self, job: &JobName, lock: &Lock) -> Result<(), StoreError> {
        let subject = Subject {
            hear: QuorumWait::All,
            ..Subject::of_job(job, lock)
        };
        let as_it_is = |_: &mut _, _: &mut _, _| Outcomes {
            reply: (),
            effects: Vec::new(),
            taken: false,
        };
        self.transact(&subject, as_it_is).await.map(drop)
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
