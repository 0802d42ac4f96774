//! Runs by hand whose process dies: what is kept of them so that any host can record their end.
//!
//! The daemons that have a job watch its scheduled runs: the reply to their own claim names the run.
//! They learn of a run by hand only when the job is due again, and never if the job is disabled. So `trigger` leaves a note in the store before it claims, and takes it back when the
//! run has its record. Every daemon reads the notes every few seconds ([`settle_ended`]), whatever
//! its own list says about the job.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::registry::LISTED_FOR;
use super::{Lock, LockRef, OpenRun, Settle, Store, StoreError};
use crate::names::{JobName, RunId};

/// How long a note stays that no process takes back and that names no open run. Its run may not
/// have been claimed yet: a request that `trigger` gave up may still be under way.
pub const UNCLAIMED_FOR: Duration = Duration::from_secs(300);

/// How long a store keeps a note at the longest, should no daemon ever read it.
pub(super) const NOTED_FOR: Duration = LISTED_FOR;

/// A run by hand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ManualRun {
    /// The run.
    pub run_id: RunId,
    /// Its job.
    pub job: JobName,
    /// The lock that it is claimed under.
    pub lock: Lock,
}

/// A run by hand as a store has noted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManualNote {
    /// The run.
    pub run: ManualRun,
    /// For how long it has been noted, by the store's clock.
    pub age: Duration,
}

/// [`ManualRun`] in writing, without the run's id.
#[derive(Serialize, Deserialize)]
struct Written {
    job: String,
    lock: LockRef,
    exclusive: bool,
}

impl ManualRun {
    /// What a store keeps under the run's id.
    pub(super) fn text(&self) -> String {
        let written = Written {
            job: self.job.to_string(),
            lock: LockRef::of(&self.lock),
            exclusive: self.lock.exclusive,
        };
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// Reads what a store keeps. What cannot be read is nobody's run, and is left out with a
    /// warning.
    pub(super) fn parse(run_id: &str, text: &str) -> Option<Self> {
        let written = serde_json::from_str::<Written>(text).ok();
        let named = written.and_then(|it| Some((JobName::parse(&it.job).ok()?, it)));
        let Some((job, written)) = named else {
            tracing::warn!(
                run = run_id,
                "ignoring a note of a run by hand that cannot be read: {text:?}"
            );
            return None;
        };
        Some(Self {
            run_id: RunId::from_text(run_id),
            job,
            lock: Lock {
                exclusive: written.exclusive,
                ..written.lock.lock()
            },
        })
    }
}

/// What is to be done about a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteFate {
    /// The run goes on; its lease lasts for so long, unless it is renewed.
    Lives(Duration),
    /// The lease of the run is over: it is to be settled.
    Ended,
    /// The run is not open, and may still be claimed.
    Unclaimed,
    /// The run is over, or was never claimed: the note can go.
    Over,
}

impl ManualNote {
    /// Decides by the job's open run.
    pub fn fate(&self, open: Option<&OpenRun>) -> NoteFate {
        match open.filter(|open| open.run_id == self.run.run_id) {
            Some(open) if open.remaining.is_zero() => NoteFate::Ended,
            Some(open) => NoteFate::Lives(open.remaining),
            None if self.age < UNCLAIMED_FOR => NoteFate::Unclaimed,
            None => NoteFate::Over,
        }
    }

    /// The request that records the end of the run, in a history of `keep` records.
    pub fn settle(&self, keep: u32) -> Settle {
        Settle {
            lock: self.run.lock.clone(),
            job: self.run.job.clone(),
            run_id: self.run.run_id.clone(),
            keep,
        }
    }
}

/// Records `interrupted` for each noted run whose lease is over, and forgets the notes of runs
/// that are not open any more.
///
/// Returns how long the first of the leases that go on lasts. Fails when the store does not
/// answer; if one job's keys cannot be read, or their server is away, the others go on.
pub async fn settle_ended(store: &dyn Store, keep: u32) -> Result<Option<Duration>, StoreError> {
    let mut soonest: Option<Duration> = None;
    let mut over = Vec::new();
    for note in store.manual_runs().await? {
        match look(store, &note, keep).await {
            Ok(NoteFate::Lives(left)) => {
                soonest = Some(soonest.map_or(left, |known| known.min(left)));
            }
            Ok(NoteFate::Over) => over.push(note.run.run_id),
            Ok(NoteFate::Ended | NoteFate::Unclaimed) => {}
            Err(error @ (StoreError::Key(_) | StoreError::PartUnreachable(_))) => {
                tracing::debug!(job = %note.run.job, run = %note.run.run_id, "cannot look after a run by hand: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    if !over.is_empty() {
        store.forget_manual(&over).await?;
    }
    Ok(soonest)
}

/// Looks after one run.
async fn look(store: &dyn Store, note: &ManualNote, keep: u32) -> Result<NoteFate, StoreError> {
    let asked = [(note.run.job.clone(), note.run.lock.clone())];
    let reports = store.jobs(&asked).await?;
    let open = reports.first().and_then(|report| report.open.as_ref());
    let fate = note.fate(open);
    if fate != NoteFate::Ended || !store.settle(&note.settle(keep)).await? {
        return Ok(fate);
    }
    tracing::warn!(
        job = %note.run.job,
        run = %note.run.run_id,
        "a run by hand is recorded as interrupted: its lease expired before `trigger` reported a \
         result"
    );
    Ok(NoteFate::Over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::LockName;
    use crate::time::Timestamp;

    fn run(lock: Lock) -> ManualRun {
        ManualRun {
            run_id: RunId::from_text("r"),
            job: JobName::parse("j").expect("a name"),
            lock,
        }
    }

    fn open(run_id: &str, remaining: Duration) -> OpenRun {
        OpenRun {
            scheduled_at: None,
            run_id: RunId::from_text(run_id),
            by: "h".to_owned(),
            attempt: 1,
            started_at: Timestamp::EPOCH,
            remaining,
        }
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let named = Lock::named(&LockName::parse("l").expect("a name"));
        let open = Lock {
            exclusive: false,
            ..named.clone()
        };
        for lock in [named, open, Lock::raw("app:{x} \"odd\"\n")] {
            let run = run(lock);
            assert_eq!(ManualRun::parse("r", &run.text()), Some(run));
        }
        for garbage in ["", "{}", "null", "{\"job\":\"a b\"}"] {
            assert_eq!(ManualRun::parse("r", garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn a_note_goes_only_when_its_run_is_over_or_was_not_claimed_for_long() {
        let second = Duration::from_secs(1);
        let note = |age| ManualNote {
            run: run(Lock::raw("l")),
            age,
        };
        let old = note(UNCLAIMED_FOR);
        let fate = |note: &ManualNote, open: OpenRun| note.fate(Some(&open));
        assert_eq!(fate(&old, open("r", second)), NoteFate::Lives(second));
        assert_eq!(fate(&old, open("r", Duration::ZERO)), NoteFate::Ended);
        assert_eq!(fate(&old, open("other", Duration::ZERO)), NoteFate::Over);
        assert_eq!(old.fate(None), NoteFate::Over);
        assert_eq!(note(second).fate(None), NoteFate::Unclaimed);
    }
}
