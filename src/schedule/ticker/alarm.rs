//! Wakes a task at an instant, to about a tenth of a millisecond.
//!
//! Tokio's timers have a resolution of one millisecond, and epoll rounds up once more: together a
//! firing is 1.2 ms late at the median. So one thread sleeps until the instant on a condition
//! variable, whose timeout the kernel keeps to a few µs.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::sync::oneshot;

/// How long the thread waits if there is no sleeper. A new sleeper wakes it.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The thread, and the tasks that it will wake.
pub(super) struct Alarm {
    shared: Arc<AlarmShared>,
}

#[derive(Default)]
struct AlarmShared {
    state: Mutex<AlarmState>,
    changed: Condvar,
}

#[derive(Default)]
struct AlarmState {
    sleepers: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    /// Distinguishes sleepers that wake at the same instant.
    counter: u64,
    stopped: bool,
}

impl Alarm {
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(AlarmShared::default());
        let thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("cronlatch-alarm".to_owned())
            .stack_size(64 * 1024)
            .spawn(move || {
                // The kernel may otherwise be 50 µs late.
                let _ = nix::sys::prctl::set_timerslack(1);
                thread.run();
            })?;
        Ok(Self { shared })
    }

    /// Sleeps; returns early when the alarm is dropped.
    pub(super) async fn sleep(&self, duration: Duration) {
        let (tx, rx) = oneshot::channel();
        self.shared.add(Instant::now() + duration, tx);
        // An error means that the thread is gone, and so is the ticker.
        rx.await.ok();
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.shared.state().stopped = true;
        self.shared.changed.notify_one();
    }
}

impl AlarmShared {
    fn add(&self, instant: Instant, tx: oneshot::Sender<()>) {
        let mut state = self.state();
        let first = state.sleepers.keys().next().map(|(first, _)| *first);
        state.counter += 1;
        let key = (instant, state.counter);
        state.sleepers.insert(key, tx);
        drop(state);
        if first.is_none_or(|first| instant < first) {
            self.changed.notify_one();
        }
    }

    fn run(&self) {
        let mut state = self.state();
        while !state.stopped {
            let now = Instant::now();
            while let Some(sleeper) = state.sleepers.first_entry()
                && sleeper.key().0 <= now
            {
                // A task that gave up waiting needs no waking.
                sleeper.remove().send(()).ok();
            }
            let next = state.sleepers.keys().next().map(|(next, _)| *next);
            let wait = next.map_or(LONGEST_WAIT, |next| next - now);
            let waited = self.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.sleepers.clear();
    }

    fn state(&self) -> MutexGuard<'_, AlarmState> {
        // No code that holds the lock leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
