//! Makes scripts known to a server: one request sends the text of a script, and the others wait for it.
//!
//! A server forgets all scripts when it restarts. If a thousand claims then each sent the whole
//! text after `NOSCRIPT`, the connection would be busy for seconds, which looks like an
//! outage.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// The number of times that the text of a script was sent. Held while it is being sent.
pub(super) type SendOrder = OwnedMutexGuard<u64>;

/// For each script, by digest, how often its text was sent on this link.
#[derive(Debug, Default)]
pub(super) struct KnownScripts {
    scripts: Mutex<HashMap<String, Arc<AsyncMutex<u64>>>>,
}

impl KnownScripts {
    /// Returns how often the text was sent so far, or `None` while it is being sent.
    pub(super) fn so_far(&self, digest: &str) -> Option<u64> {
        self.of(digest).try_lock().ok().map(|sent| *sent)
    }

    /// Waits until no other task is sending the text.
    pub(in crate::store::redis) async fn turn(&self, digest: &str) -> SendOrder {
        self.of(digest).lock_owned().await
    }

    fn of(&self, digest: &str) -> Arc<AsyncMutex<u64>> {
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sent) = scripts.get(digest) {
            return Arc::clone(sent);
        }
        Arc::clone(scripts.entry(digest.to_owned()).or_default())
    }
}
