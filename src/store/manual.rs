//! Records the end of runs by hand whose process died.
//!
//! Daemons watch the scheduled runs of their jobs, because the reply to their own claim names the run.
//! They would notice a run by hand only when its job is due again, and never if the job is disabled.
//! Therefore `trigger` writes a note to the store before it claims, and removes it when the run has its
//! record. Every daemon reads the notes every few seconds ([`settle_ended`]), also those of jobs that are
//! not in its list.

use std::time::Duration;

use super::contract::{ManualNote, NoteFate, Retention, Store, StoreError};

/// Records `interrupted` for each noted run whose lease has expired, and removes the notes of runs that
/// are no longer open.
///
/// Returns how long the shortest of the remaining leases lasts. Fails if the store is unreachable. If
/// only one job's keys cannot be read or reached, the other jobs are still looked after.
pub async fn settle_ended(
    store: &dyn Store,
    keep: Retention,
) -> Result<Option<Duration>, StoreError> {
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
                tracing::debug!(job = %note.run.job, run_id = %note.run.run_id, "cannot check a manual run: {error}");
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
async fn look(
    store: &dyn Store,
    note: &ManualNote,
    keep: Retention,
) -> Result<NoteFate, StoreError> {
    let asked = [(note.run.job.clone(), note.run.lock.clone())];
    let reports = store.jobs(&asked).await?;
    let open = reports.first().and_then(|report| report.open.as_ref());
    let fate = note.fate(open);
    if fate != NoteFate::Ended || !store.settle(&note.settle(keep)).await? {
        return Ok(fate);
    }
    let host = open.map_or("its host", |open| open.by.as_str());
    tracing::error!(
        job = %note.run.job,
        run_id = %note.run.run_id,
        "the manual run on {host} is recorded as interrupted: its lease expired, and {host} has not \
         reported a result (it has died, or does not reach the store). The run is not repeated"
    );
    Ok(NoteFate::Over)
}
