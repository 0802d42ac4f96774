//! Each operation loads the states, runs the protocol, and writes what changed. The worker calls them
//! inside a transaction.

use super::context::WorkContext;
use super::error::SqliteFailure;
use super::history;
use super::lifetimes;
use super::registry;
use super::rows::{
    Change, id_of, load_job, load_lease, load_lock, save_job, save_lease, save_lock,
};
use crate::names::JobName;
use crate::store::protocol::{self, Effect, JobState, Key, LockState};
use crate::store::{
    Attempt, Claim, ClaimReply, Finish, FinishReply, Forget, Forgotten, JobReport, Ledger, Lock,
    PauseReply, PauseRequest, Registered, Registration, RenewReply, Renewal, Replaced, Replacement,
    Settle,
};

/// Runs one transition on a lock and, if it concerns one, a job.
fn transition<T>(
    work: &WorkContext<'_>,
    lock: &Lock,
    job: Option<&JobName>,
    run: impl FnOnce(&mut LockState, &mut Option<JobState>) -> (T, Vec<Effect>),
) -> Result<T, SqliteFailure> {
    let id = id_of(lock);
    let lock_before = load_lock(work.db, &id, &work.now)?;
    let job_before = match job {
        Some(job) => load_job(work.db, &id, job)?,
        None => None,
    };
    let (mut lease, mut state) = (lock_before.clone(), job_before.clone());
    let (reply, effects) = run(&mut lease, &mut state);
    protocol::summarize(&mut state, &effects, work.now.clock);
    let change = Change {
        before: &lock_before,
        after: &lease,
    };
    save_lock(work.db, &id, change, &work.now)?;
    if let Some(job) = job {
        let change = Change {
            before: job_before.as_ref(),
            after: state.as_ref(),
        };
        save_job(work.db, &id, job, change)?;
        if job_before != state || !effects.is_empty() {
            lifetimes::note_change(work, lock, job)?;
        }
    }
    for effect in effects {
        match effect {
            Effect::Append {
                record,
                keep,
                follows,
                replaces,
            } => {
                if replaces {
                    history::remove_replaced(work, &id, &record)?;
                }
                history::append(work, &id, &record, keep, follows)?;
            }
            Effect::Released => work.freed.set(true),
        }
    }
    Ok(reply)
}

pub(super) fn claim(work: &WorkContext<'_>, claim: &Claim) -> Result<ClaimReply, SqliteFailure> {
    transition(work, &claim.lock, claim.what.job(), |lock, job| {
        protocol::claim(lock, job, work.now.clock, claim)
    })
}

pub(super) fn finish(
    work: &WorkContext<'_>,
    finish: &Finish,
) -> Result<FinishReply, SqliteFailure> {
    let job = finish
        .job
        .as_ref()
        .or(finish.record.as_ref().map(|record| &record.job));
    transition(work, &finish.lock, job, |lock, job| {
        protocol::finish(lock, job, work.now.clock, finish)
    })
}

pub(super) fn ledger(
    work: &WorkContext<'_>,
    job: &JobName,
    lock: &Lock,
) -> Result<Ledger, SqliteFailure> {
    let id = id_of(lock);
    let state = load_lease(work.db, &id, &work.now)?;
    let kept = load_job(work.db, &id, job)?;
    Ok(protocol::ledger(&state, kept.as_ref(), work.now.clock))
}

pub(super) fn replace(
    work: &WorkContext<'_>,
    replacement: &Replacement,
) -> Result<Replaced, SqliteFailure> {
    let job = Some(&replacement.job);
    transition(work, &replacement.lock, job, |lock, job| {
        let reply = protocol::replace(lock, job, work.now.clock, replacement);
        (reply, Vec::new())
    })
}

pub(super) fn settle(work: &WorkContext<'_>, settle: &Settle) -> Result<bool, SqliteFailure> {
    transition(work, &settle.lock, Some(&settle.job), |lock, job| {
        protocol::settle(lock, job, work.now.clock, settle)
    })
}

pub(super) fn pause(
    work: &WorkContext<'_>,
    request: &PauseRequest,
) -> Result<PauseReply, SqliteFailure> {
    transition(work, &request.lock, Some(&request.job), |_, job| {
        (protocol::pause(job, work.now.clock, request), Vec::new())
    })
}

pub(super) fn note_attempt(
    work: &WorkContext<'_>,
    attempt: &Attempt,
) -> Result<bool, SqliteFailure> {
    transition(work, &attempt.lock, Some(&attempt.job), |_, job| {
        (protocol::note_attempt(job, attempt), Vec::new())
    })
}

/// Reads and writes only the small row of each lock, so that one transaction can renew thousands of
/// leases.
pub(super) fn renew(
    work: &WorkContext<'_>,
    renewals: &[Renewal],
) -> Result<Vec<RenewReply>, SqliteFailure> {
    renewals
        .iter()
        .map(|renewal| {
            let id = id_of(&renewal.grant.lock);
            let mut state = load_lease(work.db, &id, &work.now)?;
            // This store cannot lose data, so it never restores a run.
            let (reply, _) = protocol::renew(&mut state, &mut None, work.now.clock, renewal);
            if reply == RenewReply::Renewed {
                save_lease(work.db, &id, &state, &work.now)?;
            }
            Ok(reply)
        })
        .collect()
}

pub(super) fn register(
    work: &WorkContext<'_>,
    jobs: &[Registration],
) -> Result<Vec<Registered>, SqliteFailure> {
    jobs.iter()
        .map(|registration| {
            let id = id_of(&registration.lock);
            let lock = load_lease(work.db, &id, &work.now)?;
            let before = load_job(work.db, &id, &registration.job)?;
            let mut state = before.clone();
            let reply = protocol::register(&lock, &mut state, work.now.clock, registration);
            let change = Change {
                before: before.as_ref(),
                after: state.as_ref(),
            };
            save_job(work.db, &id, &registration.job, change)?;
            Ok(reply)
        })
        .collect()
}

pub(super) fn jobs(
    work: &WorkContext<'_>,
    jobs: &[(JobName, Lock)],
) -> Result<Vec<JobReport>, SqliteFailure> {
    jobs.iter()
        .map(|(job, lock)| {
            let id = id_of(lock);
            let state = load_lease(work.db, &id, &work.now)?;
            let ledger = load_job(work.db, &id, job)?;
            Ok(protocol::report(
                job,
                &state,
                lock.exclusive,
                ledger.as_ref(),
                work.now.clock,
            ))
        })
        .collect()
}

/// Deletes the rows of a job. A lock whose row cannot be read counts as free.
pub(super) fn forget(work: &WorkContext<'_>, request: &Forget) -> Result<Forgotten, SqliteFailure> {
    let id = id_of(&request.lock);
    if let (false, Ok(lock)) = (request.although_held, load_lease(work.db, &id, &work.now)) {
        let report = protocol::report(
            &request.job,
            &lock,
            request.lock.exclusive,
            None,
            work.now.clock,
        );
        if let Some(holder) = report.holder {
            return Ok(Forgotten::Held {
                by: holder.by,
                remaining: holder.remaining,
            });
        }
    }
    let job = request.job.as_str();
    let mut entries = 0;
    for table in ["jobs", "records"] {
        let delete = format!("DELETE FROM {table} WHERE lock = ? AND job = ?");
        entries += work.db.prepare_cached(&delete)?.execute([&*id, job])?;
    }
    entries += usize::from(registry::forget(work, &request.job)?);
    if request.with_lock {
        entries += work
            .db
            .prepare_cached("DELETE FROM finished WHERE lock = ?")?
            .execute([&id])?;
        // A lease that is held is kept, because its holder renews it.
        entries += work
            .db
            .prepare_cached("DELETE FROM locks WHERE lock = ? AND key_value IS NULL")?
            .execute([&id])?;
    }
    Ok(Forgotten::Done {
        entries: u64::try_from(entries).unwrap_or(u64::MAX),
    })
}

/// Returns whether a claim would find the lock free.
pub(super) fn is_free(work: &WorkContext<'_>, lock: &Lock) -> Result<bool, SqliteFailure> {
    let state = load_lease(work.db, &id_of(lock), &work.now)?;
    let promised = state.token.is_some() && state.lease_end > work.now.clock.lease;
    Ok(!promised && (state.key == Key::Absent || !lock.exclusive))
}
