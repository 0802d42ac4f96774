//! Word of the next run that starts, for a daemon whose runs did not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Reports the next start of a command, if somebody waits for one. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Starts {
    shared: Arc<StartSignal>,
}

#[derive(Debug, Default)]
struct StartSignal {
    watched: AtomicBool,
    started: Notify,
}

impl Starts {
    /// The next start is of interest.
    pub(crate) fn watch(&self) {
        self.shared.watched.store(true, Ordering::Relaxed);
    }

    /// A command was started.
    pub(super) fn started(&self) {
        if self.shared.watched.swap(false, Ordering::Relaxed) {
            self.shared.started.notify_one();
        }
    }

    /// Waits for a start after [`Starts::watch`]. Cancel-safe.
    pub(crate) async fn next(&self) {
        self.shared.started.notified().await;
    }
}
