//! What claims in tests are made of.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cronlatch::names::{HostName, JobName, RunId, Token};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, Due, Fingerprint, Kind, Late, Lock, Outcome, Overlap,
    RunStatus, Store, StoreError,
};
use cronlatch::time::Timestamp;

use super::wait::{INTERVAL, LIMIT};

/// An occurrence that is due at an instant, may start for an hour, and is never run again.
pub(crate) fn due(at: Timestamp) -> Due {
    Due {
        scheduled_at: at,
        not_before: at,
        deadline: at.plus(Duration::from_secs(3600)),
        prev: None,
        fingerprint: Fingerprint("f".to_owned()),
        gap: None,
        late: Late::Miss,
        max_reruns: 0,
        max_attempts: 0,
        rerun_window: Duration::ZERO,
        lead: Duration::ZERO,
    }
}

/// Claims occurrences of a job on a store whose only replica, that of the server on this port, is
/// away: the first is returned, and what is missing is known of the job and is why the next one is
/// missed.
pub(crate) async fn expect_shortage(store: &Arc<dyn Store>, lock: &Lock, port: u16) {
    let job = JobName::parse("short").expect("a valid name");
    let claim = |due: Due| {
        let run_id = RunId::new();
        Claim {
            lock: lock.clone(),
            token: Token::new(&HostName::parse("h1").expect("a valid name"), &run_id),
            run_id,
            ttl: Duration::from_secs(3),
            what: ClaimTarget::Occurrence {
                job: job.clone(),
                kind: Kind::Schedule,
                due,
                overlap: Overlap::Skip,
                keep: cronlatch::store::Retention::of_records(10),
            },
        }
    };
    let began = Instant::now();
    // A busy machine may miss the server first.
    let ask = async |claim: Claim| loop {
        match store.claim(&claim).await {
            Err(StoreError::Unreachable(e) | StoreError::PartUnreachable(e)) => {
                assert!(began.elapsed() < LIMIT, "{e}");
                tokio::time::sleep(INTERVAL).await;
            }
            reply => return reply.expect("the store answers"),
        }
    };
    let at = store.now().await.expect("the store answers");
    loop {
        match ask(claim(due(at))).await {
            ClaimReply::Waits { .. } => break,
            // The reply that said so had been lost.
            ClaimReply::Finished => {}
            reply => panic!("{reply:?}"),
        }
    }
    let asked = [(job.clone(), lock.clone())];
    let report = store
        .jobs(&asked)
        .await
        .expect("the store answers")
        .remove(0);
    let short = report.unacknowledged.expect("what is missing");
    assert_eq!((short.acknowledged, short.wanted, short.since), (0, 1, at));
    assert!(short.server.contains(&format!(":{port}")), "{short:?}");

    let next = at.plus(Duration::from_millis(1));
    while store.now().await.expect("the store answers") <= next {
        tokio::time::sleep(INTERVAL).await;
    }
    let late = Due {
        deadline: next,
        ..due(next)
    };
    let reply = ask(claim(late)).await;
    let decided = ClaimReply::AlreadyClaimed(RunStatus::Decided);
    assert!([ClaimReply::TooLate, decided].contains(&reply), "{reply:?}");
    let history = store
        .history(&job, lock, 10)
        .await
        .expect("the store answers");
    let [record] = &history.records[..] else {
        panic!("{history:?}");
    };
    assert_eq!(record.outcome, Outcome::Missed);
    let reason = record.reason.clone().unwrap_or_default();
    let missing = format!(
        "too few replicas of {} acknowledged its claim: 0 of 1",
        short.server
    );
    assert_eq!(reason, missing);
}
