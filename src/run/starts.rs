//! Reports starts of commands: the next one to a daemon whose runs failed to start, and those of one
//! run to its follower.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Follows one run: learns of the start of each attempt, and is dropped when the run has ended.
pub(crate) trait RunObserver: Debug + Send + Sync {
    /// The command of an attempt was started. Must not wait.
    fn started(&self);
}

/// Reports starts of commands: the next one, if somebody waits for it, and those of one run to its
/// follower. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Starts {
    shared: Arc<StartSignal>,
    follower: Option<Arc<dyn RunObserver>>,
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

    /// Returns what one run reports its starts to.
    pub(crate) fn of_run(&self, follower: impl RunObserver + 'static) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            follower: Some(Arc::new(follower)),
        }
    }

    /// Reports that a command was started, to the follower of its run and to the daemon.
    pub(super) fn report(&self) {
        if let Some(follower) = &self.follower {
            follower.started();
        }
        if self.shared.watched.swap(false, Ordering::Relaxed) {
            self.shared.started.notify_one();
        }
    }

    /// Waits for a start after [`Starts::watch`]. Cancel-safe.
    pub(crate) async fn next(&self) {
        self.shared.started.notified().await;
    }
}
