//! Delays the claims of hosts, in an order that differs between occurrences, so that no host wins all of
//! them: by seconds with `spread`, and by milliseconds where jobs are claimed ahead of their instants.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::names::{HostName, JobName};
use crate::time::Timestamp;

/// The delays of one host's claims for one job. A daemon keeps two for each of many jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spread {
    /// The window in microseconds: over an hour of them.
    window: u32,
    seed: u64,
}

impl Spread {
    /// Returns the delays of a host's claims for a job, each of them below `window`. A window of zero means none.
    #[must_use]
    pub fn new(host: &HostName, job: &JobName, window: Duration) -> Self {
        Self {
            window: u32::try_from(window.as_micros()).unwrap_or(u32::MAX),
            seed: hash(&[host.as_str().as_bytes(), b"/", job.as_str().as_bytes()]),
        }
    }

    /// Whether it delays nothing.
    pub(crate) fn is_none(self) -> bool {
        self.window == 0
    }

    /// No delay is as long as this.
    pub(crate) fn window(self) -> Duration {
        Duration::from_micros(self.window.into())
    }

    /// Returns the delay of the claim of an occurrence, at least 0 and below the smaller of window
    /// and `limit`.
    pub(crate) fn delay(self, at: Timestamp, limit: Duration) -> Duration {
        let millis = u64::try_from(self.window().min(limit).as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return Duration::ZERO;
        }
        let number = hash(&[&self.seed.to_be_bytes(), &at.millis().to_be_bytes()]);
        Duration::from_millis(number % millis)
    }
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
    }
    let digest = digest.finalize();
    let (head, _) = digest.split_at(8);
    head.iter().fold(0, |n, byte| (n << 8) | u64::from(*byte))
}
