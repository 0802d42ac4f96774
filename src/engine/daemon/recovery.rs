//! What the daemon says of a store that may have lost data. What it does is the core's business.

use std::time::Duration;

use super::Daemon;
use crate::time::{BootInstant, Timestamp};

/// Two answers that differ by less speak of the same wait.
const SAME: Duration = Duration::from_secs(1);

impl Daemon {
    /// The store grants nothing for so long: said once.
    pub(super) fn store_recovers(&mut self, remaining: Duration) {
        if remaining.is_zero() {
            return;
        }
        self.registry.doubt();
        let until = BootInstant::now().plus(remaining);
        let known = self.recovers.replace(until);
        if known.is_some_and(|known| until <= known.plus(SAME)) {
            self.recovers = known.max(Some(until));
            return;
        }
        tracing::warn!(
            "the store is new, was restarted or has lost data; nothing starts until {} (in {:.1} \
             s), because a run that the store no longer knows may still be in progress on some \
             host. Runs on this host continue, and due jobs wait (to avoid this on a first start, \
             run `cronlatch init`)",
            Timestamp::now().plus(remaining),
            remaining.as_secs_f64()
        );
        // It may have forgotten that this host lives, and which locks it uses.
        if self.is_ready {
            self.announce();
        }
        self.look_after_registry();
        self.status();
    }

    /// Says that the wait is over.
    pub(super) fn look_for_recovery(&mut self) {
        if self
            .recovers
            .is_some_and(|until| until.remaining().is_zero())
        {
            self.recovers = None;
            tracing::info!(
                "the store has recovered; occurrences from before the data loss whose result is \
                 not known are recorded as unknown"
            );
        }
    }
}
