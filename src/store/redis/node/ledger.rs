//! A job's ledger as a node keeps it: one JSON text with a version.
//!
//! The scripts store and return this text without reading it. The ballot and the epoch, which they
//! compare, are hash fields of their own.

use serde::{Deserialize, Serialize};

use super::{Ballot, JobView};
use crate::store::protocol::JobState;
use crate::store::redis::failure::RedisFailure;
use crate::time::Timestamp;

/// The format of a ledger without pauses.
const PLAIN: u32 = 1;

/// The format that this version writes if a ledger needs it. Raise it when a version that does not know
/// a new field must not rewrite the ledger without it: the version before the pauses would end them.
const VERSION: u32 = 2;

/// The JSON text without its version.
#[derive(Serialize, Deserialize)]
struct StoredLedger {
    v: u32,
    job: JobState,
    doubt: bool,
    horizon: Option<Timestamp>,
}

/// Only the version, which decides whether the rest can be read.
#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// Returns the text that a node stores for `view`.
pub(super) fn write(view: &JobView) -> Result<String, RedisFailure> {
    let ledger = StoredLedger {
        v: if view.state.pauses.is_empty() {
            PLAIN
        } else {
            VERSION
        },
        job: view.state.clone(),
        doubt: view.doubt,
        horizon: view.horizon,
    };
    serde_json::to_string(&ledger).map_err(|error| {
        RedisFailure::corrupt(format!("a job's ledger cannot be written: {error}"))
    })
}

/// Reads what [`write`] returned; `ballot` is the proposal that stored it.
pub(super) fn read(text: &str, ballot: Ballot) -> Result<JobView, RedisFailure> {
    let unreadable = |error: serde_json::Error| {
        RedisFailure::corrupt(format!("a job's ledger cannot be read: {error}"))
    };
    let version: Version = serde_json::from_str(text).map_err(unreadable)?;
    if !(PLAIN..=VERSION).contains(&version.v) {
        return Err(RedisFailure::corrupt(format!(
            "a job's ledger has format {}; this version of cronlatch reads formats up to {VERSION}",
            version.v
        )));
    }
    let ledger: StoredLedger = serde_json::from_str(text).map_err(unreadable)?;
    Ok(JobView {
        ballot,
        state: ledger.job,
        doubt: ledger.doubt,
        horizon: ledger.horizon,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{RunId, Token};
    use crate::store::protocol::{Moved, Open, Pause, Waiting};
    use crate::store::{Fingerprint, Kind, LockRef, Outcome, RecentOutcome, RunTerms, Summary};

    fn view() -> JobView {
        JobView {
            ballot: Ballot { number: 7, id: 3 },
            state: JobState {
                last: Timestamp::from_millis(1_700_000_000_123),
                decided_beyond: vec![Timestamp::from_millis(1_700_000_060_000)],
                open: Some(Open {
                    scheduled_at: None,
                    run_id: RunId::from_text("r"),
                    token: Token::from_text("h:1:r:00ff"),
                    attempt: 2,
                    kind: Kind::CatchUp,
                    fence: u64::MAX,
                    started_at: Timestamp::EPOCH,
                    host: "a \"quoted\" host".to_owned(),
                    terms: RunTerms {
                        rerun_window: std::time::Duration::from_secs(5),
                        max_reruns: 2,
                        ..RunTerms::NONE
                    },
                }),
                waiting: vec![Waiting {
                    scheduled_at: Timestamp::from_millis(-1),
                    kind: Kind::Queue,
                    deadline: Timestamp::EPOCH,
                    yields: true,
                    attempts: 1,
                    reruns: 1,
                    crashed: None,
                }],
                fingerprints: vec![(Fingerprint("0 5 * * *\nUTC".into()), Timestamp::EPOCH)],
                summary: Summary {
                    recent: vec![RecentOutcome {
                        outcome: Outcome::Interrupted,
                        provisional: Some(RunId::from_text("r")),
                    }],
                    ..Summary::default()
                },
                moved: Some(Moved {
                    number: 3,
                    since: 1,
                    to: LockRef {
                        name: "a lock".to_owned(),
                        raw: true,
                    },
                }),
                pauses: vec![Pause {
                    asked_at: Timestamp::from_secs(9),
                    since: Timestamp::from_secs(8),
                    until: Some(Timestamp::from_secs(9)),
                    by: "alice@web1".to_owned(),
                    resumed_by: Some("bob@web2".to_owned()),
                    reason: "a \"new\" disk".to_owned(),
                }],
            },
            doubt: true,
            horizon: Some(Timestamp::from_secs(5)),
        }
    }

    #[test]
    fn a_ledger_is_read_as_it_was_written() {
        let whole = view();
        let text = write(&whole).expect("it can be written");
        assert_eq!(read(&text, whole.ballot).expect("it can be read"), whole);
        let idle = JobView {
            state: JobState::starting_after(Timestamp::EPOCH),
            doubt: false,
            horizon: None,
            ..whole
        };
        let text = write(&idle).expect("it can be written");
        assert_eq!(read(&text, idle.ballot).expect("it can be read"), idle);
    }

    #[test]
    fn a_ledger_of_another_version_is_refused_by_name() {
        let text = write(&view()).expect("it can be written");
        let newer = text.replacen("\"v\":2", "\"v\":3", 1);
        let error = read(&newer, Ballot::default()).expect_err("another version");
        let said = format!("{error:?}");
        assert!(said.contains("has format 3"), "{said}");
        let error = read("{", Ballot::default()).expect_err("no JSON");
        assert!(format!("{error:?}").contains("cannot be read"));
    }
}
