//! Delivering a `finish` to a store that may not reply at once.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::{Finish, FinishReply, Store, StoreError};

/// The first pause after a failed attempt; it doubles up to a second.
const FIRST_RETRY: Duration = Duration::from_millis(50);

/// Releases a lease or cancels a claim, and retries until `limit` is over.
pub(crate) async fn finish_until(
    store: &dyn Store,
    finish: &Finish,
    limit: Duration,
) -> Result<FinishReply, StoreError> {
    let until = Instant::now() + limit;
    let mut pause = FIRST_RETRY;
    loop {
        let error = match tokio::time::timeout_at(until, store.finish(finish)).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) => error,
            Err(_) => StoreError::unreachable(format!("no reply within {limit:?}")),
        };
        if Instant::now() + pause >= until {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
