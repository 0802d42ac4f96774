//! What the figures ask a store for.

use std::time::Duration;

use cronlatch::names::{HostName, JobName, LockName, RunId, Token};
use cronlatch::store::{
    Claim, ClaimTarget, Due, Fingerprint, Finish, Grant, Kind, Late, Lock, Outcome, Overlap,
    Record, Renewal,
};
use cronlatch::time::{BootInstant, Timestamp};

/// The claim of `lock-N` alone, and the renewal that keeps it.
pub(crate) fn lease(n: usize) -> Result<(Claim, Renewal), String> {
    let ttl = Duration::from_secs(300);
    let host = HostName::parse("bench").map_err(|e| e.to_string())?;
    let name = LockName::parse(&format!("lock-{n}")).map_err(|e| e.to_string())?;
    let run_id = RunId::new();
    let claim = Claim {
        lock: Lock::named(&name),
        token: Token::new(&host, &run_id),
        run_id,
        ttl,
        what: ClaimTarget::Lock,
    };
    let renewal = Grant::of(&claim, 1, BootInstant::BOOT).renewal();
    Ok((claim, renewal))
}

/// The claim and the finish of the `n`th occurrence of the job `bench`, all of them in the past.
pub(crate) fn occurrence(n: i64) -> Result<(Claim, Finish), String> {
    occurrence_of("bench", n)
}

/// The same of this job.
pub(crate) fn occurrence_of(job: &str, n: i64) -> Result<(Claim, Finish), String> {
    let lock = Lock::named(&LockName::parse(job).map_err(|e| e.to_string())?);
    let job = JobName::parse(job).map_err(|e| e.to_string())?;
    let host = HostName::parse("bench").map_err(|e| e.to_string())?;
    let run_id = RunId::new();
    let token = Token::new(&host, &run_id);
    let at = |n| Timestamp::from_secs(1_700_000_000 + n);
    let claim = Claim {
        lock: lock.clone(),
        token: token.clone(),
        run_id: run_id.clone(),
        ttl: Duration::from_secs(30),
        what: ClaimTarget::Occurrence {
            job: job.clone(),
            kind: Kind::Schedule,
            due: Due {
                scheduled_at: at(n),
                not_before: at(n),
                deadline: Timestamp::now().plus(Duration::from_secs(3600)),
                prev: Some(at(n - 1)),
                fingerprint: Fingerprint("bench".into()),
                gap: None,
                late: Late::Miss,
                max_reruns: 0,
                max_attempts: 0,
                rerun_window: Duration::ZERO,
                lead: Duration::ZERO,
            },
            overlap: Overlap::Skip,
            keep: cronlatch::store::Retention::of_records(100),
        },
    };
    let record = Record {
        run_id: Some(run_id),
        scheduled_at: Some(at(n)),
        started_at: Some(at(n)),
        finished_at: Some(at(n)),
        host: Some(host),
        exit_code: Some(0),
        attempts: 1,
        ..Record::blank(job.clone(), Kind::Schedule, Outcome::Succeeded)
    };
    let finish = Finish {
        lock,
        token,
        record: Some(record),
        job: Some(job),
        give_back: false,
        keep: cronlatch::store::Retention::of_records(100),
    };
    Ok((claim, finish))
}
