//! The runs in progress. A task drives each of them and returns its end to the loop.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};

use super::Daemon;
use crate::engine::core::{Event, JobIx};
use crate::engine::finisher::PendingFinish;
use crate::ground::sorting::SortShort as _;
use crate::ground::tasks::{self, SpawnBoxed as _};
use crate::names::{JobName, RunId};
use crate::observe::{RunFields, run_log};
use crate::run::{
    Assignment, Ended, ReturnReason, RunControl, RunOrder, RunOrders, Tools, drive, note_again,
};
use crate::store::{Kind, Retention};
use crate::time::{BootInstant, Timestamp};

/// A run of this daemon.
#[derive(Debug)]
pub(super) struct DaemonRun {
    /// What it is for.
    pub(super) origin: RunOrigin,
    /// What is run, and why it may.
    pub(super) assignment: Assignment,
}

/// What a run of this daemon is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunOrigin {
    /// An occurrence of a job.
    Lane {
        /// The job.
        job: JobIx,
        /// The occurrence.
        at: Timestamp,
    },
    /// Somebody asked for it. The core does not know of it.
    Request,
}

impl RunOrigin {
    /// The job whose lane waits for the run.
    fn lane(self) -> Option<JobIx> {
        match self {
            Self::Lane { job, .. } => Some(job),
            Self::Request => None,
        }
    }
}

/// A run that has ended, or could not be started.
#[derive(Debug)]
pub(super) struct EndedRun {
    run: DaemonRun,
    ended: Ended,
}

/// A run whose command was never started. Its occurrence goes back to the store.
#[derive(Debug)]
pub(super) struct NotStarted {
    /// The job.
    pub(super) job: JobIx,
    /// The occurrence.
    pub(super) at: Timestamp,
    /// How the run came to be.
    pub(super) kind: Kind,
    /// Why it goes back.
    pub(super) returned: ReturnReason,
    /// The step that failed, and why.
    pub(super) reason: String,
    /// The fields of its log lines.
    pub(super) fields: RunFields,
}

impl EndedRun {
    /// Returns why the run was not started; `None` if it ran.
    fn not_started(&self) -> Option<NotStarted> {
        let RunOrigin::Lane { job, at } = self.run.origin else {
            return None;
        };
        let assignment = &self.run.assignment;
        self.ended.returned.map(|returned| NotStarted {
            job,
            at,
            kind: assignment.kind,
            returned,
            reason: self.ended.record.reason.clone().unwrap_or_default(),
            fields: assignment.fields(),
        })
    }

    /// Returns the request to the store: the record, or the return of the undecided occurrence.
    fn into_finish(self, keep: Retention) -> PendingFinish {
        let record = match self.ended.returned {
            None => Some(self.ended.record),
            Some(_) => None,
        };
        PendingFinish {
            finish: self.run.assignment.finish(record, keep),
            lease: self.ended.lease,
            job: self.run.origin.lane(),
            spooled: false,
        }
    }
}

/// The tasks that drive runs.
#[derive(Debug)]
pub(super) struct Runs<T = EndedRun> {
    tasks: JoinSet<T>,
    under_way: HashMap<Id, RunUnderWay>,
}

/// What is known of a run while its task drives it.
#[derive(Debug)]
struct RunUnderWay {
    origin: RunOrigin,
    orders: RunOrders,
    fields: RunFields,
    /// Its `kill_grace`.
    grace: Duration,
    /// When its task was started.
    since: BootInstant,
}

/// A task whose run has no result, because the task failed.
#[derive(Debug)]
pub(super) struct FailedTask {
    run: RunUnderWay,
    error: JoinError,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self {
            tasks: JoinSet::new(),
            under_way: HashMap::new(),
        }
    }
}

impl Runs {
    /// Starts a run, and drives it to its end.
    pub(super) fn start(&mut self, run: DaemonRun, tools: Tools, control: RunControl) {
        let (control, orders) = control.with_orders();
        let known = RunUnderWay {
            origin: run.origin,
            orders,
            fields: run.assignment.fields(),
            grace: run.assignment.job.policies.kill.grace,
            since: BootInstant::now(),
        };
        self.spawn(known, async move {
            let ended = match run.origin {
                RunOrigin::Lane { .. } => drive(&run.assignment, &tools, control).await,
                RunOrigin::Request => drive_noted(&run.assignment, &tools, control).await,
            };
            EndedRun { run, ended }
        });
    }
}

/// Drives a run by hand. Its note, from which other hosts record its end if this daemon dies, is
/// written again and again.
async fn drive_noted(assignment: &Assignment, tools: &Tools, control: RunControl) -> Ended {
    let note = assignment.manual_run();
    // Stopped before the run is finished: a note that was taken back must not be written again.
    tokio::select! {
        ended = drive(assignment, tools, control) => ended,
        never = note_again(&*tools.store, &note) => match never {},
    }
}

impl<T: Send + 'static> Runs<T> {
    fn spawn(&mut self, run: RunUnderWay, drive: impl Future<Output = T> + Send + 'static) {
        let id = self.tasks.spawn_boxed(drive).id();
        self.under_way.insert(id, run);
    }

    /// Waits for the next run that ends; `None` when none is under way. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Result<T, FailedTask>> {
        let joined = self.tasks.join_next_with_id().await?;
        self.ended(joined)
    }

    /// Returns a run that has ended; `None` when there is none yet.
    fn try_next(&mut self) -> Option<Result<T, FailedTask>> {
        let joined = self.tasks.try_join_next_with_id()?;
        self.ended(joined)
    }

    fn ended(&mut self, joined: Result<(Id, T), JoinError>) -> Option<Result<T, FailedTask>> {
        match joined {
            Ok((id, ended)) => {
                self.under_way.remove(&id);
                Some(Ok(ended))
            }
            Err(error) => {
                let run = self.under_way.remove(&error.id())?;
                Some(Err(FailedTask { run, error }))
            }
        }
    }

    /// Gives an order to the runs of a job, or to one of them. Returns those that have not ended.
    pub(super) fn order(&self, job: &JobName, run: Option<&RunId>, order: &RunOrder) -> Vec<RunId> {
        let asked = self.under_way.values().filter(|known| {
            known.fields.job == *job && run.is_none_or(|run| known.fields.run == *run)
        });
        let told = asked.filter(|known| known.orders.send(order.clone()));
        told.map(|known| known.fields.run.clone()).collect()
    }

    /// How many runs are under way.
    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }

    /// The runs that are under way.
    pub(super) fn under_way(&self) -> impl ExactSizeIterator<Item = &RunFields> {
        self.under_way.values().map(|run| &run.fields)
    }

    /// The jobs of the runs that are under way, the oldest first, each with how long its run has taken:
    /// `backup (3m 12s), report (4s)`. Of many only the first are named.
    pub(super) fn listed(&self, now: BootInstant) -> String {
        const NAMED: usize = 10;
        let mut runs: Vec<&RunUnderWay> = self.under_way.values().collect();
        runs.sort_short_by(|a, b| {
            let by_name = || a.fields.job.as_str().cmp(b.fields.job.as_str());
            a.since.cmp(&b.since).then_with(by_name)
        });
        let named = runs.iter().take(NAMED).map(|run| {
            let took = now.since(run.since).as_secs();
            format!("{} ({})", run.fields.job, whole_seconds(took))
        });
        let mut named: Vec<String> = named.collect();
        if runs.len() > NAMED {
            named.push(format!("and {} more", runs.len() - NAMED));
        }
        named.join(", ")
    }

    /// The longest time that one of them may take to end (`kill_grace`).
    pub(super) fn longest_grace(&self) -> Option<Duration> {
        self.under_way.values().map(|run| run.grace).max()
    }
}

/// A length of time for people: `4s`, `3m 12s`, `2h 5m`.
pub(super) fn whole_seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        _ => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
    }
}

impl Daemon {
    /// A run has ended. Its result is handed over before the core plans anything: registrations
    /// wait for the results that the finisher has.
    pub(super) fn run_ended(&mut self, ended: Result<EndedRun, FailedTask>) {
        match ended {
            Ok(ended) => {
                let (origin, not_started) = (ended.run.origin, ended.not_started());
                let run = ended.run.assignment.manual_run();
                if let Some(why) = ended.ended.lost {
                    self.link.reporter.metrics.lost(why);
                }
                self.finisher.send(ended.into_finish(self.settings.history));
                match (origin, not_started) {
                    (_, Some(run)) => self.not_started(&run),
                    (RunOrigin::Lane { job, .. }, None) => self.feed(Event::RunEnded { job }),
                    (RunOrigin::Request, None) => {
                        tasks::spawn(self.link.clone().forget_note(run));
                    }
                }
            }
            Err(failed) => {
                report_failed(&failed);
                if let Some(job) = failed.run.origin.lane() {
                    self.feed(Event::RunEnded { job });
                    // No result will be delivered that the lane could wait for.
                    self.feed(Event::RunClosed { job });
                }
            }
        }
    }

    /// Returns the results of runs that have ended and were not yet handed to the finisher.
    pub(super) fn unsent_results(&mut self) -> Vec<PendingFinish> {
        let mut results = Vec::new();
        while let Some(ended) = self.runs.try_next() {
            match ended {
                Ok(ended) => results.push(ended.into_finish(self.settings.history)),
                Err(failed) => report_failed(&failed),
            }
        }
        results
    }
}

fn report_failed(failed: &FailedTask) {
    run_log!(
        error,
        failed.run.fields,
        "the task of this run failed, which is a bug ({}); please report it with this log. Its processes are killed when its lease \
         expires, and other hosts then record it as interrupted or rerun it (on_crash: rerun)",
        failed.error
    );
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::names::HostName;
    use crate::run::Stop;
    use crate::time::seconds_after_boot;

    fn run(job: u32) -> RunUnderWay {
        let stop = watch::channel(Stop::Not).1;
        RunUnderWay {
            origin: RunOrigin::Lane {
                job: JobIx(job),
                at: Timestamp::EPOCH,
            },
            orders: RunControl::of(stop).with_orders().1,
            fields: RunFields {
                job: JobName::parse("j").expect("a name"),
                run: RunId::new(),
                scheduled_at: None,
                host: HostName::parse("a").expect("a name"),
            },
            grace: Duration::from_secs(job.into()),
            since: seconds_after_boot(100 - u64::from(job)),
        }
    }

    #[tokio::test]
    async fn runs_are_listed_with_their_age_the_oldest_first() {
        let mut runs = Runs::<u32>::default();
        let now = seconds_after_boot(250);
        assert_eq!(runs.listed(now), "");
        runs.spawn(run(1), std::future::pending());
        runs.spawn(run(99), std::future::pending());
        assert_eq!(runs.listed(now), "j (4m 9s), j (2m 31s)");
        for _ in 0..10 {
            runs.spawn(run(0), std::future::pending());
        }
        let listed = runs.listed(now);
        assert!(listed.ends_with("j (2m 30s), and 2 more"), "{listed}");
        assert_eq!(whole_seconds(7_500), "2h 5m");
    }

    #[tokio::test]
    async fn a_run_counts_until_its_end_was_taken_even_if_its_task_panics() {
        let mut runs = Runs::<u32>::default();
        runs.spawn(run(1), async { panic!("a defect") });
        let failed = runs.next().await.expect("one run").expect_err("it failed");
        assert_eq!(failed.run.origin.lane(), Some(JobIx(1)));
        runs.spawn(run(2), async { 7 });
        assert_eq!((runs.len(), runs.under_way().len()), (1, 1));
        assert_eq!(runs.longest_grace(), Some(Duration::from_secs(2)));
        assert_eq!(runs.next().await.expect("one run").expect("its end"), 7);
        assert_eq!(runs.len(), 0);
        assert!(runs.next().await.is_none() && runs.try_next().is_none());
    }
}
