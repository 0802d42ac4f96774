//! Waiting for a condition: a limit far beyond what a slow machine takes, a short interval.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a machine that is merely slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// How long between two looks.
pub(crate) const INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `look` finds something; `Err` when it did not within [`LIMIT`].
pub(crate) fn try_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        // The clock is read before the look: a look that comes last is always a fresh one.
        let late = began.elapsed() > LIMIT;
        if let Some(found) = look() {
            return Some(found);
        }
        if late {
            return None;
        }
        thread::sleep(INTERVAL);
    }
}

/// Waits until `look` finds something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    match try_for(look) {
        Some(found) => found,
        None => panic!("waited {LIMIT:?} in vain: {what}"),
    }
}

/// Waits until `holds` does.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}
