//! Reports what the daemon does to the task. Reporting never waits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::fact::{Fact, LastMessages, NotifiedList, NotifierSetup, Role, RunBegan};
use super::task;
use crate::names::{HostName, JobName, RunId};
use crate::run::RunObserver;
use crate::store::protocol::{REASON_OVERLAP, REASON_QUEUE_FULL, REASON_TOO_LATE, REASON_UNKNOWN};
use crate::store::{
    Claim, ClaimReply, ClaimTarget, CopyReply, DroppedRange, Kind, Outcome, Overlap, Record,
};
use crate::time::Timestamp;

/// How many facts wait at most.
const WAITING_MAX: usize = 20_000;

/// Whether a new list has other targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetChange {
    /// It has the same.
    Same,
    /// It has others.
    Changed,
}

/// Reports facts to the task. Does nothing if the list has no notifications.
#[derive(Debug, Clone)]
pub(crate) struct Notifier(Option<Handle>);

#[derive(Debug, Clone)]
struct Handle {
    facts: mpsc::Sender<Fact>,
    list: Arc<watch::Sender<NotifiedList>>,
    /// Whether the list has notifications. Nothing is reported without.
    asks: Arc<AtomicBool>,
    host: HostName,
    lost: Arc<AtomicU64>,
}

impl Notifier {
    /// Starts the task, and the senders that the list needs.
    pub(crate) fn start(setup: NotifierSetup) -> io::Result<Self> {
        let asks = setup.list.asks();
        if setup.role == Role::SingleRun && !asks {
            return Ok(Self::off());
        }
        let (facts, received) = mpsc::channel(WAITING_MAX);
        let (list, lists) = watch::channel(setup.list.clone());
        let host = setup.host.clone();
        task::start(setup, received, lists)?;
        Ok(Self(Some(Handle {
            facts,
            list: Arc::new(list),
            asks: Arc::new(AtomicBool::new(asks)),
            host,
            lost: Arc::default(),
        })))
    }

    /// Puts a new list into force. Messages to targets that are unchanged, or are no longer in the
    /// list, are still sent.
    pub(crate) fn replace(&self, list: NotifiedList) -> TargetChange {
        let Some(handle) = &self.0 else {
            return TargetChange::Same;
        };
        handle.asks.store(list.asks(), Ordering::Relaxed);
        let targets = list.targets.clone();
        if handle.list.send_replace(list).targets == targets {
            TargetChange::Same
        } else {
            TargetChange::Changed
        }
    }

    /// One that does nothing.
    pub(crate) fn off() -> Self {
        Self(None)
    }

    fn report(&self, fact: impl FnOnce(&Handle) -> Option<Fact>) {
        let Some(handle) = &self.0 else { return };
        if !handle.asks.load(Ordering::Relaxed) {
            return;
        }
        let Some(fact) = fact(handle) else { return };
        if let Err(mpsc::error::TrySendError::Full(_)) = handle.facts.try_send(fact) {
            let lost = handle.lost.fetch_add(1, Ordering::Relaxed) + 1;
            if lost.is_power_of_two() {
                match lost {
                    1 => tracing::error!(
                        "1 event was not considered for notifications: too many at once"
                    ),
                    n => tracing::error!(
                        "{n} events were not considered for notifications: too many at once"
                    ),
                }
            }
        }
    }

    /// A verdict was delivered to the store.
    pub(crate) fn verdict(&self, record: &Record) {
        self.report(|_| Some(Fact::Verdict(Box::new(record.clone()))));
    }

    /// The store has replied to a claim.
    pub(crate) fn claimed(&self, claim: &Claim, reply: &CopyReply) {
        self.report(|handle| {
            let job = claim.what.job()?.clone();
            if records_nothing(reply) {
                return None;
            }
            Some(Fact::Claimed(job, recorded(claim, reply, &handle.host)))
        });
    }

    /// This host recorded a run as interrupted whose host is gone.
    pub(crate) fn settled(&self, job: &JobName, run_id: &RunId) {
        self.report(|_| Some(Fact::Settled(job.clone(), run_id.clone())));
    }

    /// A run is about to start.
    pub(crate) fn watch(&self, run: RunBegan) -> RunWatch {
        RunWatch {
            notifier: self.clone(),
            run,
            began: AtomicBool::new(false),
        }
    }

    /// Sends what is waiting, within this time, and ends; logs what was not sent.
    pub(crate) async fn end(&self, limit: Duration) {
        let Some(handle) = &self.0 else { return };
        let (done, ended) = oneshot::channel();
        let until = Instant::now() + limit;
        let end = handle.facts.send(Fact::End(LastMessages { until, done }));
        // The senders log what they have left at the limit, a little later.
        let limit = limit + Duration::from_secs(1);
        let _ = tokio::time::timeout(limit, async {
            if end.await.is_ok() {
                let _ = ended.await;
            }
        })
        .await;
    }
}

/// Whether a claim with this reply has changed no verdict.
fn records_nothing(reply: &CopyReply) -> bool {
    use ClaimReply::{Ahead, AlreadyClaimed, Early, Finished, Gap, Moved, Recovering};
    match reply {
        CopyReply::NotSent => true,
        CopyReply::Granted { .. } => false,
        CopyReply::Refused(reply) => matches!(
            reply,
            AlreadyClaimed(_)
                | Gap { .. }
                | Early { .. }
                | Recovering { .. }
                | Ahead { .. }
                | Finished
                | Moved { .. }
        ),
    }
}

/// Follows a run from before its start to its end.
#[derive(Debug)]
pub(crate) struct RunWatch {
    notifier: Notifier,
    run: RunBegan,
    began: AtomicBool,
}

impl RunObserver for RunWatch {
    // Further attempts are no further starts.
    fn started(&self) {
        if !self.began.swap(true, Ordering::Relaxed) {
            self.notifier
                .report(|_| Some(Fact::Began(self.run.clone())));
        }
    }
}

impl Drop for RunWatch {
    fn drop(&mut self) {
        if self.began.load(Ordering::Relaxed) {
            let run = self.run.run_id.clone();
            self.notifier.report(|_| Some(Fact::Over(run)));
        }
    }
}

/// Returns the verdicts that were recorded according to the reply to a claim.
pub(crate) fn recorded(claim: &Claim, reply: &CopyReply, host: &HostName) -> Vec<Record> {
    let Some(job) = claim.what.job() else {
        return Vec::new();
    };
    let dropped = |drops: &[DroppedRange]| {
        let drops = drops.iter();
        drops.map(|drop| of_dropped(job, drop, host)).collect()
    };
    match (&claim.what, reply) {
        (ClaimTarget::Drops { answer, .. }, CopyReply::Refused(ClaimReply::Dropped)) => {
            dropped(&answer.drop)
        }
        (
            ClaimTarget::Occurrence {
                due, kind, overlap, ..
            },
            reply,
        ) => {
            let gap = due.gap.as_ref();
            let refusal = match reply {
                CopyReply::Refused(refusal) => Some(refusal),
                _ => None,
            };
            let mut records: Vec<Record> = gap.map_or_else(Vec::new, |gap| dropped(&gap.drop));
            let paused;
            let why = match refusal {
                Some(ClaimReply::Held { by, .. }) if *overlap == Overlap::Skip => {
                    Some((Outcome::Skipped, REASON_OVERLAP, Some(by.clone())))
                }
                Some(ClaimReply::Paused(pause)) => {
                    paused = pause.verdict();
                    Some((Outcome::Skipped, paused.as_str(), None))
                }
                Some(ClaimReply::QueueFull) => Some((Outcome::Skipped, REASON_QUEUE_FULL, None)),
                Some(ClaimReply::TooLate) if *kind != Kind::Rerun => {
                    Some((Outcome::Missed, REASON_TOO_LATE, None))
                }
                Some(ClaimReply::Unknown) => Some((Outcome::Unknown, REASON_UNKNOWN, None)),
                _ => None,
            };
            records.extend(why.map(|(outcome, reason, by)| Record {
                kind: *kind,
                by,
                reason: Some(reason.to_owned()),
                ..blank(job, due.scheduled_at, outcome, host)
            }));
            records
        }
        _ => Vec::new(),
    }
}

fn of_dropped(job: &JobName, drop: &DroppedRange, host: &HostName) -> Record {
    let several = drop.range.count > 1;
    Record {
        until: several.then_some(drop.range.until),
        count: several.then_some(drop.range.count),
        reason: Some(drop.reason.clone()),
        ..blank(job, drop.range.from, drop.outcome, host)
    }
}

fn blank(job: &JobName, at: Timestamp, outcome: Outcome, host: &HostName) -> Record {
    Record {
        scheduled_at: Some(at),
        finished_at: Some(Timestamp::now()),
        host: Some(host.clone()),
        ..Record::blank(job.clone(), Kind::Schedule, outcome)
    }
}
