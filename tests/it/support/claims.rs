//! Claims for tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cronlatch::names::{HostName, JobName, RunId, Token};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, Due, Fingerprint, Kind, Late, Lock, Outcome, Overlap, Record,
    RunStatus, Store, StoreError,
};
use cronlatch::time::Timestamp;

use super::wait::{INTERVAL, LIMIT};

/// A job.
pub(crate) fn job() -> JobName {
    JobName::parse("j").expect("a valid name")
}

/// An occurrence that is due at an instant, may start for an hour, and is never run again.
pub(crate) fn due(at: Timestamp) -> Due {
    Due {
        scheduled_at: at,
        not_before: at,
        deadline: at.plus(Duration::from_secs(3600)),
        prev: None,
        fingerprint: Fingerprint("f".into()),
        gap: None,
        late: Late::Miss,
        max_reruns: 0,
        max_attempts: 0,
        rerun_window: Duration::ZERO,
        lead: Duration::ZERO,
    }
}

/// The record of an occurrence of a job of which nothing else is known.
pub(crate) fn record(job: JobName, scheduled_at: Option<Timestamp>, outcome: Outcome) -> Record {
    Record {
        scheduled_at,
        ..Record::blank(job, Kind::Schedule, outcome)
    }
}

/// Claims two occurrences while the only replica of the server on this port is away. The first claim is taken
/// back, so the occurrence waits, and the report of the job names the missing replica. The deadline of the second
/// one passes meanwhile, and its record gives that as the reason.
pub(crate) async fn expect_missing_replica(store: &Arc<dyn Store>, lock: &Lock, port: u16) {
    let job = JobName::parse("unreplicated").expect("a valid name");
    let claims = ReplicaClaims {
        store,
        lock,
        job: &job,
        began: Instant::now(),
    };
    let at = claims.now().await;
    claims.claim_until_it_waits(at).await;
    let server = claims.expect_report(at, port).await;
    claims.expect_missed(at, &server).await;
}

struct ReplicaClaims<'a> {
    store: &'a Arc<dyn Store>,
    lock: &'a Lock,
    job: &'a JobName,
    began: Instant,
}

impl ReplicaClaims<'_> {
    async fn now(&self) -> Timestamp {
        self.store.now().await.expect("the store answers")
    }

    async fn claim(&self, due: Due) -> ClaimReply {
        let run_id = RunId::new();
        let claim = Claim {
            lock: self.lock.clone(),
            token: Token::new(&HostName::parse("h1").expect("a valid name"), &run_id),
            run_id,
            ttl: Duration::from_secs(3),
            what: ClaimTarget::Occurrence {
                job: self.job.clone(),
                kind: Kind::Schedule,
                due,
                overlap: Overlap::Skip,
                keep: cronlatch::store::Retention::of_records(10),
            },
        };
        loop {
            match self.store.claim(&claim).await {
                // A busy machine may not reach the server at first.
                Err(StoreError::Unreachable(e) | StoreError::PartUnreachable(e)) => {
                    assert!(self.began.elapsed() < LIMIT, "{e}");
                    tokio::time::sleep(INTERVAL).await;
                }
                reply => return reply.expect("the store answers"),
            }
        }
    }

    async fn claim_until_it_waits(&self, at: Timestamp) {
        loop {
            match self.claim(due(at)).await {
                ClaimReply::Waits { .. } => return,
                // The reply `Waits` was lost, and the claim was sent again.
                ClaimReply::Finished => {}
                reply => panic!("{reply:?}"),
            }
        }
    }

    /// Expects that the report of the job names the missing replica. Returns the server that lacks it.
    async fn expect_report(&self, since: Timestamp, port: u16) -> String {
        let asked = [(self.job.clone(), self.lock.clone())];
        let reports = self.store.jobs(&asked).await;
        let report = reports.expect("the store answers").remove(0);
        let missing = report.unacknowledged.expect("what is missing");
        assert_eq!(
            (missing.acknowledged, missing.wanted, missing.since),
            (0, 1, since)
        );
        let is_ours = missing.server.contains(&format!(":{port}"));
        assert!(is_ours, "{missing:?}");
        missing.server
    }

    async fn expect_missed(&self, before: Timestamp, server: &str) {
        let next = before.plus(Duration::from_millis(1));
        while self.now().await <= next {
            tokio::time::sleep(INTERVAL).await;
        }
        let late = Due {
            deadline: next,
            ..due(next)
        };
        let reply = self.claim(late).await;
        let decided = ClaimReply::AlreadyClaimed(RunStatus::Decided);
        assert!([ClaimReply::TooLate, decided].contains(&reply), "{reply:?}");
        let history = self.store.history(self.job, self.lock, 10).await;
        let history = history.expect("the store answers");
        let [record] = &history.records[..] else {
            panic!("{history:?}");
        };
        assert_eq!(record.outcome, Outcome::Missed);
        let reason = record.reason.clone().unwrap_or_default();
        let expected = format!("too few replicas of {server} acknowledged its claim: 0 of 1");
        assert_eq!(reason, expected);
    }
}
