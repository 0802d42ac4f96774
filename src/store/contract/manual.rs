//! Notes of runs by hand, from which any host can record the end of a run whose process died.
//! [`manual`](crate::store::manual) reads them and settles the runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lock::{Lock, LockRef};
use super::registry::LISTED_FOR;
use super::reply::OpenRun;
use super::request::Settle;
use super::retention::Retention;
use crate::names::{JobName, RunId};

/// How long a note of a run that is not open is kept. The run may not have been claimed yet: a request
/// that `trigger` gave up on may still arrive.
pub const UNCLAIMED_FOR: Duration = Duration::from_secs(300);

/// How long a store keeps a note that no daemon ever reads.
pub(in crate::store) const NOTED_FOR: Duration = LISTED_FOR;

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

/// The stored form of a [`ManualRun`], without the run's id.
#[derive(Serialize, Deserialize)]
struct StoredManualRun {
    job: String,
    lock: LockRef,
    exclusive: bool,
}

impl ManualRun {
    /// What a store keeps under the run's id.
    pub(in crate::store) fn text(&self) -> String {
        let written = StoredManualRun {
            job: self.job.to_string(),
            lock: LockRef::of(&self.lock),
            exclusive: self.lock.exclusive,
        };
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// Parses what a store keeps. Returns `None`, and logs a warning, if it cannot be parsed.
    pub(in crate::store) fn parse(run_id: &str, text: &str) -> Option<Self> {
        let written = serde_json::from_str::<StoredManualRun>(text).ok();
        let named = written.and_then(|it| Some((JobName::parse(&it.job).ok()?, it)));
        let Some((job, written)) = named else {
            tracing::warn!(
                run_id,
                "ignoring an unreadable note of a manual run: {text:?}"
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

/// What a daemon must do about a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteFate {
    /// The run continues. Its lease lasts for this long unless it is renewed.
    Lives(Duration),
    /// The lease of the run has expired: the run must be settled.
    Ended,
    /// The run is not open, but may still be claimed.
    Unclaimed,
    /// The run has ended or was never claimed: the note can be removed.
    Over,
}

impl ManualNote {
    /// Decides from the job's open run.
    pub fn fate(&self, open: Option<&OpenRun>) -> NoteFate {
        match open.filter(|open| open.run_id == self.run.run_id) {
            Some(open) if open.remaining.is_zero() => NoteFate::Ended,
            Some(open) => NoteFate::Lives(open.remaining),
            None if self.age < UNCLAIMED_FOR => NoteFate::Unclaimed,
            None => NoteFate::Over,
        }
    }

    /// Returns the request that records the end of the run in a history of `keep` records.
    pub fn settle(&self, keep: Retention) -> Settle {
        Settle {
            lock: self.run.lock.clone(),
            job: self.run.job.clone(),
            run_id: self.run.run_id.clone(),
            keep,
        }
    }
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
