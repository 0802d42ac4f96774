//! What claims in tests are made of.

use std::time::Duration;

use cronlatch::store::{Due, Fingerprint, Late};
use cronlatch::time::Timestamp;

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
    }
}
