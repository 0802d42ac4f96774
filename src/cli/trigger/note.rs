//! The note that lets any daemon record the end of this run, if this process dies.

use std::convert::Infallible;
use std::time::Duration;

use crate::names::RunId;
use crate::store::{ManualRun, Store, StoreError};

/// How often the note is written again: the store may have lost it with other data.
const AGAIN: Duration = Duration::from_secs(20);
/// How long the store may take to forget the note.
const TAKE_BACK: Duration = Duration::from_secs(2);

/// Writes the note. If the key of the notes cannot be used, the run takes place all the same.
pub(super) async fn leave(store: &dyn Store, run: &ManualRun) -> Result<(), StoreError> {
    match store.note_manual(run).await {
        Err(StoreError::Key(fault)) => {
            tracing::warn!(
                job = %run.job,
                "cannot write the note of this run: {fault}. If this process is killed, the run is \
                 recorded as interrupted only when the job is next due. To repair it, {}",
                fault.repair(None)
            );
            Ok(())
        }
        written => written,
    }
}

/// Writes the note again and again.
pub(super) async fn keep_up(store: &dyn Store, run: &ManualRun) -> Infallible {
    loop {
        tokio::time::sleep(AGAIN).await;
        if let Err(error) = store.note_manual(run).await {
            tracing::debug!(job = %run.job, "cannot renew the note of this run: {error}");
        }
    }
}

const KEPT: &str = "cannot delete the note of this run; a daemon deletes it later";

/// Deletes the note. If the store does not reply, a daemon does it later.
pub(super) async fn take_back(store: &dyn Store, run_id: &RunId) {
    let forgotten = store.forget_manual(std::slice::from_ref(run_id));
    match tokio::time::timeout(TAKE_BACK, forgotten).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(run = %run_id, "{KEPT}: {error}"),
        Err(_) => tracing::debug!(run = %run_id, "{KEPT}: no reply within {TAKE_BACK:?}"),
    }
}
