//! The wall clock, as something that tests can step.

use std::time::SystemTime;

/// A wall clock: it may be stepped forward and back at any time.
pub trait WallClock: Send + Sync + 'static {
    /// What it shows.
    fn now(&self) -> SystemTime;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl WallClock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
