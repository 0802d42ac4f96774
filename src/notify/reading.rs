//! Reads the histories of jobs for the facts that depend on them.
//!
//! Facts of one job keep their order, and one read serves all that wait. A store that does not
//! reply delays messages and nothing else.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OnceCell, watch};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::Instant;

use super::decide::Reach;
use crate::config::Job;
use crate::ground::tasks::SpawnBoxed as _;
use crate::names::{HostName, JobName, RunId};
use crate::store::{Outcome, Record, Store, StoreError};
use crate::time::Timestamp;

/// How many records are read to decide about a verdict.
pub(super) const RECORDS: usize = 100;
/// How many records are read first. They suffice after a success, and to find what a claim recorded.
const NEWEST: usize = 20;
/// How many histories are read at the same time.
const AT_ONCE: usize = 8;
/// How often a read is tried, and the pause between.
const READS: u32 = 5;
const READ_AGAIN: Duration = Duration::from_secs(2);

/// A fact that needs the job's history.
#[derive(Debug)]
pub(super) enum Question {
    /// Which targets receive this verdict?
    Verdict(Box<Record>),
    /// Did a claim record anything that its reply does not name?
    Passing,
    /// The verdict of this run was recorded by this host.
    Settled(RunId),
}

/// What was read.
#[derive(Debug)]
pub(super) struct JobHistory {
    /// The newest records, newest first.
    pub(super) records: Vec<Record>,
    /// Whether there are, or may be, older ones.
    pub(super) reach: Reach,
    /// When the notifications of this process started, by the store's clock; `None` if not known.
    pub(super) since: Option<Timestamp>,
}

impl JobHistory {
    /// Nothing was read.
    pub(super) fn unread() -> Self {
        Self {
            records: Vec::new(),
            reach: Reach::Part,
            since: None,
        }
    }
}

/// The questions of one job, and its history.
pub(super) type Answered = (Arc<Job>, Vec<Question>, JobHistory);

/// The questions that wait, and the reads under way.
#[derive(Debug)]
pub(super) struct Histories {
    reader: HistoryReader,
    /// By job. The entry stays while its history is read: questions that come meanwhile wait.
    lanes: HashMap<JobName, Vec<Question>>,
    /// The jobs whose history is to be read next.
    waiting: VecDeque<Arc<Job>>,
    reads: JoinSet<Answered>,
    /// The job whose history each of these reads.
    reading: HashMap<task::Id, Arc<Job>>,
    /// Whether there is no more time to read.
    given_up: watch::Sender<bool>,
}

impl Histories {
    /// Nothing waits.
    pub(super) fn new(store: Arc<dyn Store>, host: HostName, keep: u32) -> Self {
        Self {
            reader: HistoryReader {
                store,
                host,
                keep: keep as usize,
                began: Instant::now(),
                since: Arc::default(),
            },
            lanes: HashMap::new(),
            waiting: VecDeque::new(),
            reads: JoinSet::new(),
            reading: HashMap::new(),
            given_up: watch::Sender::new(false),
        }
    }

    /// Jobs keep this many records from now on.
    pub(super) fn set_keep(&mut self, keep: u32) {
        self.reader.keep = keep as usize;
    }

    /// Whether no question waits.
    pub(super) fn is_idle(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Stops reading: what waits is decided at once, as if the store did not reply.
    pub(super) fn give_up(&mut self) {
        self.given_up.send_replace(true);
    }

    pub(super) fn has_given_up(&self) -> bool {
        *self.given_up.borrow()
    }

    /// Whether a question of this job waits.
    pub(super) fn has(&self, job: &JobName) -> bool {
        self.lanes.contains_key(job)
    }

    /// Takes a question.
    pub(super) fn ask(&mut self, job: &Arc<Job>, question: Question) {
        if let Some(lane) = self.lanes.get_mut(&job.name) {
            lane.push(question);
        } else {
            self.lanes.insert(job.name.clone(), vec![question]);
            self.waiting.push_back(Arc::clone(job));
            self.read();
        }
    }

    /// Waits for a history; never returns while none is read. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Answered, JoinError> {
        let Some(read) = self.reads.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let id = read.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        if let Some(job) = self.reading.remove(&id) {
            match self.lanes.get(&job.name) {
                Some(lane) if !lane.is_empty() => self.waiting.push_back(job),
                _ => drop(self.lanes.remove(&job.name)),
            }
        }
        self.read();
        read.map(|(_, answered)| answered)
    }

    fn read(&mut self) {
        while self.reads.len() < AT_ONCE
            && let Some(job) = self.waiting.pop_front()
        {
            let lane = self.lanes.get_mut(&job.name);
            let questions = lane.map(std::mem::take).unwrap_or_default();
            let reader = self.reader.clone();
            let mut given_up = self.given_up.subscribe();
            let read_job = Arc::clone(&job);
            let read = self.reads.spawn_boxed(async move {
                let history = tokio::select! {
                    history = reader.history(&job, &questions) => history,
                    _ = given_up.wait_for(|given_up| *given_up) => JobHistory::unread(),
                };
                (job, questions, history)
            });
            self.reading.insert(read.id(), read_job);
        }
    }
}

/// Whether the newest records answer all questions: they reach back to a success before every
/// verdict in question.
fn suffices(newest: &[Record], questions: &[Question]) -> bool {
    let is_success = |record: &Record| record.outcome == Outcome::Succeeded;
    let asked = questions.iter().filter(|question| match question {
        Question::Verdict(record) => is_success(record),
        Question::Passing | Question::Settled(_) => false,
    });
    let only_passing = |question: &Question| matches!(question, Question::Passing);
    questions.iter().all(only_passing)
        || newest.iter().filter(|record| is_success(record)).count() > asked.count()
}

/// How a history is read.
#[derive(Debug, Clone)]
struct HistoryReader {
    store: Arc<dyn Store>,
    host: HostName,
    keep: usize,
    began: Instant,
    since: Arc<OnceCell<Timestamp>>,
}

impl HistoryReader {
    /// Returns what could be read: nothing, if the store does not reply for a while.
    async fn history(&self, job: &Job, questions: &[Question]) -> JobHistory {
        for read in 1..=READS {
            match self.try_read(job, questions).await {
                Ok(history) => return history,
                Err(StoreError::Unreachable(_) | StoreError::PartUnreachable(_))
                    if read < READS =>
                {
                    tokio::time::sleep(READ_AGAIN).await;
                }
                Err(error) => {
                    tracing::warn!(
                        job = %job.name,
                        "cannot read the history for notifications: {error}; continuing without it: `after` and \
                         `repeat` are not applied to this event"
                    );
                    break;
                }
            }
        }
        JobHistory::unread()
    }

    async fn try_read(&self, job: &Job, questions: &[Question]) -> Result<JobHistory, StoreError> {
        let since = self.since.get_or_try_init(|| self.start()).await?;
        let lock = job.lock_on(&self.host);
        let read = async |limit| {
            let history = self.store.history(&job.name, &lock, limit).await?;
            Ok::<_, StoreError>(history.records)
        };
        let mut limit = NEWEST.min(self.keep);
        let mut records = read(limit).await?;
        if records.len() >= limit && limit < self.keep && !suffices(&records, questions) {
            limit = RECORDS.min(self.keep);
            records = read(limit).await?;
        }
        Ok(JobHistory {
            reach: if records.len() < limit {
                Reach::Whole
            } else {
                Reach::Part
            },
            records,
            since: Some(*since),
        })
    }

    /// When this process started to watch, by the store's clock.
    async fn start(&self) -> Result<Timestamp, StoreError> {
        let now = self.store.now().await?;
        Ok(now.minus(self.began.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::stub::stub_store;

    /// A store that never replies.
    #[derive(Debug)]
    struct NoReplies;

    stub_store! {
        NoReplies {
            async fn now(&self) -> Result<Timestamp, StoreError> {
                std::future::pending().await
            }
        }
        away: claim renew finish settle note_attempt register announce released jobs history hosts forget init
    }

    /// A list of so many jobs.
    fn jobs(count: usize) -> (tempfile::TempDir, crate::config::JobList) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("jobs.yaml");
        let job = |n| format!("  - {{ name: job-{n}, schedule: '@daily', command: 'true' }}\n");
        let jobs: String = (0..count).map(job).collect();
        std::fs::write(&path, format!("jobs:\n{jobs}")).expect("a file");
        let list = crate::config::load(&path).expect("a list");
        (dir, list)
    }

    fn histories(store: impl Store + 'static) -> Histories {
        let host = HostName::parse("web1").expect("a name");
        Histories::new(Arc::new(store), host, 100)
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_answered_without_its_history_when_there_is_no_more_time() {
        let count = AT_ONCE + 2;
        let (_dir, list) = jobs(count);
        let mut histories = histories(NoReplies);
        for job in &list.jobs {
            histories.ask(job, Question::Settled(RunId::new()));
        }
        let early = tokio::time::timeout(Duration::from_secs(60), histories.next()).await;
        assert!(early.is_err(), "the store has replied");
        histories.give_up();
        let mut answered = Vec::new();
        while !histories.is_idle() {
            let (job, questions, history) = histories.next().await.expect("no panic");
            assert_eq!((questions.len(), history.reach), (1, Reach::Part));
            answered.push(job.name.clone());
        }
        answered.sort();
        answered.dedup();
        assert_eq!(answered.len(), count);
    }

    /// A store of which each request is a bug.
    #[derive(Debug)]
    struct Broken;

    stub_store! {
        Broken {
            async fn now(&self) -> Result<Timestamp, StoreError> {
                panic!("a bug")
            }
        }
        away: claim renew finish settle note_attempt register announce released jobs history hosts forget init
    }

    #[tokio::test]
    async fn after_a_read_that_panicked_the_history_of_its_job_is_read_again() {
        let (_dir, list) = jobs(1);
        let mut histories = histories(Broken);
        for _ in 0..2 {
            histories.ask(&list.jobs[0], Question::Passing);
            let read = histories.next().await;
            assert!(read.expect_err("it panicked").is_panic());
            assert!(histories.is_idle());
        }
    }
}
