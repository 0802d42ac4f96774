//! The one task that turns facts into notices.
//!
//! Facts of one job are handled in order, each with the job's history if a target depends on it.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::LAST_MESSAGES;
use super::decide::{Earlier, Merged, NotifyRule};
use super::fact::{Fact, JobsByName, LastMessages, NotifiedList, NotifierSetup, Role, RunBegan};
use super::notice::{Notice, NoticeKind};
use super::outbound::Outbound;
use super::overdue::{Overdue, OverdueFinding, OverdueWatch};
use super::passing::{ReportedVerdicts, recorded_in_passing};
use super::ping::{PingedRun, Signal};
use super::reading::{Histories, JobHistory, Question};
use crate::config::{Job, JobEvent, show_duration, show_roughly};
use crate::ground::tasks;
use crate::names::{HostName, JobName, RunId};
use crate::store::{Outcome, Record, Store};
use crate::time::Timestamp;

/// How much of the time for the last messages is reserved for sending them.
const SENDING_RESERVE: Duration = Duration::from_secs(3);

/// Starts the task and its senders.
pub(super) fn start(
    setup: NotifierSetup,
    facts: mpsc::Receiver<Fact>,
    lists: watch::Receiver<NotifiedList>,
) -> io::Result<()> {
    let NotifierSetup {
        list,
        store,
        host,
        role,
    } = setup;
    let mut task = NotifyTask {
        jobs: JobsByName::default(),
        outbound: Outbound::start(&list)?,
        histories: Histories::new(Arc::clone(&store), host.clone(), list.keep),
        store,
        host,
        role,
        keep: list.keep,
        known: ReportedVerdicts::default(),
        running: HashMap::new(),
        timers: BTreeSet::new(),
        overdue: Overdue::none(),
    };
    task.watch_jobs(&list);
    tasks::spawn(task.run(facts, lists));
    Ok(())
}

struct NotifyTask {
    jobs: JobsByName,
    outbound: Outbound,
    histories: Histories,
    store: Arc<dyn Store>,
    host: HostName,
    role: Role,
    keep: u32,
    known: ReportedVerdicts,
    running: HashMap<RunId, (RunBegan, Instant)>,
    /// When each run becomes `long`.
    timers: BTreeSet<(Instant, RunId)>,
    overdue: Overdue,
}

impl NotifyTask {
    async fn run(
        mut self,
        mut facts: mpsc::Receiver<Fact>,
        mut lists: watch::Receiver<NotifiedList>,
    ) {
        let mut ending: Option<LastMessages> = None;
        let mut open = true;
        loop {
            let until = ending.as_ref().map(|end| end.until - SENDING_RESERVE);
            if until.is_some() && self.histories.is_idle() {
                break;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                self.histories.give_up();
            }
            let until = until.filter(|_| !self.histories.has_given_up());
            let long = self.timers.first().map(|(at, _)| *at);
            let overdue = self.overdue.next().filter(|_| ending.is_none());
            // Every arm is cancel-safe: channels, join sets, timers.
            tokio::select! {
                fact = facts.recv(), if open => match fact {
                    Some(Fact::End(end)) => ending = Some(end),
                    Some(fact) => self.take(fact),
                    None => open = false,
                },
                Ok(()) = lists.changed() => {
                    let list = lists.borrow_and_update().clone();
                    self.replace(&list);
                }
                read = self.histories.next() => match read {
                    Ok((job, questions, history)) => self.answer(&job, questions, &history),
                    Err(error) => tracing::error!(
                        "a notification task failed, which is a bug: please report it with this log: {error}"
                    ),
                },
                () = until_instant(long), if long.is_some() => self.report_long_runs(),
                () = until_instant(overdue), if overdue.is_some() => {
                    self.overdue.look(&self.store, (&self.host, self.keep), &self.jobs);
                }
                Some((job, finding)) = self.overdue.found() => self.report_overdue(&job, finding),
                () = until_instant(until), if until.is_some() => {}
                else => return,
            }
        }
        if let Some(LastMessages { until, done }) = ending {
            let outbound = self.outbound;
            // The senders are threads, and waiting for them blocks.
            let ended = tokio::task::spawn_blocking(move || outbound.end(until.into_std()));
            let _ = ended.await;
            let _ = done.send(());
        }
    }

    fn replace(&mut self, list: &NotifiedList) {
        let retired = self.outbound.replace(list);
        let until = std::time::Instant::now() + LAST_MESSAGES;
        tokio::task::spawn_blocking(move || retired.end(until));
        self.watch_jobs(list);
    }

    /// Watches the jobs of a list whose senders are running.
    fn watch_jobs(&mut self, list: &NotifiedList) {
        self.jobs = JobsByName::of(&list.jobs);
        self.keep = list.keep;
        self.histories.set_keep(list.keep);
        let watched = match self.role {
            Role::Daemon => list.jobs.as_slice(),
            // The daemons watch for success.
            Role::SingleRun => &[],
        };
        let watch = |job: &Arc<Job>| OverdueWatch::of(job, self.outbound.shortest_repeat(job));
        let watches = watched.iter().filter(|job| job.enabled).filter_map(watch);
        self.overdue.replace(watches, Instant::now());
    }

    fn take(&mut self, fact: Fact) {
        match fact {
            Fact::Verdict(record) => {
                self.known.note(&record);
                self.ping_end(&record);
                self.ask(&record.job.clone(), Question::Verdict(record));
            }
            Fact::Claimed(job, recorded) => {
                for record in recorded {
                    self.known.note(&record);
                    // No ping: none of these ran. Interrupted runs are found in the history (`Passing`).
                    self.ask(&job, Question::Verdict(Box::new(record)));
                }
                self.ask(&job, Question::Passing);
            }
            Fact::Settled(job, run_id) => self.ask(&job, Question::Settled(run_id)),
            Fact::Began(run) => self.began(run),
            Fact::Over(run_id) => self.forget_running(&run_id),
            // The loop takes it.
            Fact::End(_) => {}
        }
    }

    /// Answers a question, now or once the history of the job has been read.
    fn ask(&mut self, job: &JobName, question: Question) {
        let Some(job) = self.jobs.get(job).map(Arc::clone) else {
            return;
        };
        if job.alerts.targets.is_empty() && job.alerts.ping.is_none() {
            return;
        }
        if self.histories.has(&job.name) || self.outbound.needs_history(&job, &question) {
            self.histories.ask(&job, question);
        } else {
            self.answer(&job, vec![question], &JobHistory::unread());
        }
    }

    fn answer(&mut self, job: &Job, questions: Vec<Question>, history: &JobHistory) {
        for question in questions {
            match question {
                Question::Verdict(record) => self.verdict(job, &record, history),
                Question::Settled(run_id) => {
                    let is_its = |record: &&Record| record.run_id.as_ref() == Some(&run_id);
                    let record = history.records.iter().find(is_its);
                    self.report_recorded(job, record, history);
                }
                Question::Passing => {
                    let Some(since) = history.since else { continue };
                    for record in recorded_in_passing(&history.records, &self.host, since) {
                        self.report_recorded(job, Some(record), history);
                    }
                }
            }
        }
    }

    /// Reports a verdict that was read from the history, unless it was reported before.
    fn report_recorded(&mut self, job: &Job, record: Option<&Record>, history: &JobHistory) {
        if let Some(record) = record
            && self.known.note(record)
        {
            self.ping_end(record);
            self.verdict(job, record, history);
        }
    }

    /// Notifies the targets that receive a verdict.
    fn verdict(&mut self, job: &Job, record: &Record, history: &JobHistory) {
        if record.outcome == Outcome::Succeeded
            && let Some(at) = record.finished_at
        {
            self.overdue.succeeded(&job.name, at);
        }
        let (own, records) = earlier_than(record, &history.records);
        let earlier = Earlier {
            merged: own.and_then(|own| earlier_in_range(record, own)),
            records,
            reach: history.reach,
        };
        // The store may know more than the reply to the claim, for example that the deadline passed because too few
        // replicas acknowledged the claims before.
        let record = &Record {
            reason: own.map_or(&record.reason, |own| &own.reason).clone(),
            finished_at: own.map_or(record.finished_at, |own| own.finished_at),
            ..record.clone()
        };
        for (target, sender) in self.outbound.of(job) {
            let expected = job.alerts.expect_success_within;
            let rule = NotifyRule { target, expected };
            for decided in rule.verdict(record, earlier) {
                sender.push(Arc::new(Notice {
                    event: decided.event,
                    run_id: record.run_id.clone(),
                    scheduled_at: record.scheduled_at,
                    in_a_row: decided.in_a_row,
                    record: Some(record.clone()),
                    ..blank(&job.name, &self.host)
                }));
            }
        }
    }

    fn began(&mut self, run: RunBegan) {
        let Some(job) = self.jobs.get(&run.job).map(Arc::clone) else {
            return;
        };
        self.outbound.ping(
            &job,
            pinged(&run.job, &run.run_id, &self.host),
            Signal::Start,
        );
        self.notify_event(&job, JobEvent::Started, &run, None);
        let due = run.scheduled_at.map(|at| at.plus(job.delay()));
        let late = due.map(|due| Timestamp::now().since(due));
        if let Some(late) = late.filter(|late| *late > job.alerts.late_after) {
            let detail = format!("{} after it was due", show_roughly(late));
            self.notify_event(&job, JobEvent::Late, &run, Some(detail));
        }
        if let Some(long_after) = job.alerts.long_after {
            let at = Instant::now() + long_after;
            self.timers.insert((at, run.run_id.clone()));
            self.running.insert(run.run_id.clone(), (run, at));
        }
    }

    fn forget_running(&mut self, run_id: &RunId) {
        if let Some((_, at)) = self.running.remove(run_id) {
            self.timers.remove(&(at, run_id.clone()));
        }
    }

    /// Reports the runs that have become `long` by now.
    fn report_long_runs(&mut self) {
        while let Some((at, run_id)) = self.timers.first().cloned()
            && at <= Instant::now()
        {
            self.timers.pop_first();
            let Some((run, _)) = self.running.remove(&run_id) else {
                continue;
            };
            let Some(job) = self.jobs.get(&run.job).map(Arc::clone) else {
                continue;
            };
            let limit = job.alerts.long_after.unwrap_or_default();
            tracing::warn!(
                job = %job.name,
                run_id = run_id.as_str(),
                scheduled_at = run.scheduled_at.map(tracing::field::display),
                host = %self.host,
                "still running after {} (long_after)",
                show_duration(limit)
            );
            let detail = format!("running for more than {}", show_roughly(limit));
            self.notify_event(&job, JobEvent::Long, &run, Some(detail));
        }
    }

    /// Notifies of an event that is not a verdict.
    fn notify_event(&self, job: &Job, event: JobEvent, run: &RunBegan, detail: Option<String>) {
        let notice = Notice {
            event,
            run_id: Some(run.run_id.clone()),
            scheduled_at: run.scheduled_at,
            detail,
            ..blank(&job.name, &self.host)
        };
        self.outbound.push(job, &Arc::new(notice));
    }

    fn report_overdue(&mut self, job: &JobName, finding: OverdueFinding) {
        let Some(job) = self.jobs.get(job).map(Arc::clone) else {
            return;
        };
        let Some(report) = finding.report else { return };
        let within = show_roughly(job.alerts.expect_success_within.unwrap_or_default());
        let detail = match finding.last_success {
            Some(at) => format!("no success since {at}, expected within {within}"),
            None => format!("no success on record, expected within {within}"),
        };
        tracing::warn!(job = %job.name, host = %self.host, "overdue: {detail} (expect_success_within)");
        let notice = Arc::new(Notice {
            event: JobEvent::Overdue,
            scheduled_at: None,
            detail: Some(detail),
            ..blank(&job.name, &self.host)
        });
        for (target, sender) in self.outbound.of(&job) {
            if target.on.contains(&JobEvent::Overdue) && report.concerns(target) {
                sender.push(Arc::clone(&notice));
            }
        }
    }

    /// Reports the end of a run to the job's monitoring service.
    fn ping_end(&self, record: &Record) {
        let Some(job) = self.jobs.get(&record.job) else {
            return;
        };
        if let Some(run_id) = &record.run_id {
            self.outbound.ping(
                job,
                pinged(&job.name, run_id, &self.host),
                Signal::End(record),
            );
        }
    }
}

fn pinged<'a>(job: &'a JobName, run_id: &'a RunId, host: &'a HostName) -> PingedRun<'a> {
    PingedRun { job, run_id, host }
}

fn blank(job: &JobName, host: &HostName) -> Notice {
    Notice {
        event: JobEvent::Started,
        job: job.clone(),
        host: host.clone(),
        at: Timestamp::now(),
        run_id: None,
        scheduled_at: None,
        in_a_row: 1,
        record: None,
        detail: None,
        kind: NoticeKind::Real,
    }
}

/// Returns the record as the history has it, and those before it, newest first. A verdict that is
/// not in the history (any more) is taken to be newer than all that are.
fn earlier_than<'a>(record: &Record, history: &'a [Record]) -> (Option<&'a Record>, &'a [Record]) {
    let is_same = |other: &Record| match (&record.run_id, record.scheduled_at) {
        (Some(run), _) => other.run_id.as_ref() == Some(run) && other.outcome == record.outcome,
        (None, Some(at)) => {
            let until = other.until.or(other.scheduled_at);
            let holds = other.scheduled_at.is_some_and(|from| from <= at)
                && until.is_some_and(|until| at <= until);
            other.run_id.is_none() && other.outcome == record.outcome && holds
        }
        (None, None) => false,
    };
    match history.iter().position(is_same) {
        Some(at) => (history.get(at), &history[at + 1..]),
        None => (None, history),
    }
}

/// Returns how many verdicts of a ranged record came before this one, and about when the last of them was: the
/// record keeps only the first and the last instant, so the interval is averaged.
fn earlier_in_range(record: &Record, own: &Record) -> Option<Merged> {
    let all = own.count?;
    let before = all
        .checked_sub(record.count.unwrap_or(1))
        .filter(|count| *count > 0)?;
    let span = own.until?.since(own.scheduled_at?);
    let interval = span / u32::try_from(all - 1).unwrap_or(u32::MAX).max(1);
    Some(Merged {
        count: before,
        last_at: own.finished_at?.minus(interval),
    })
}

/// Waits until then; for ever without an instant. Cancel-safe.
async fn until_instant(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
