//! Why a daemon could not start, or had to end.

use std::io;

use crate::http::HttpError;
use crate::schedule::ticker::TickerError;
use crate::store::StoreError;

/// Why a daemon could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    /// A call of the operating system failed.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// The store's settings cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ticker does not start.
    #[error(transparent)]
    Ticker(#[from] TickerError),
    /// With `strict`, a check at the start found a danger.
    #[error("{0}")]
    FailedCheck(String),
    /// With `at_start: refuse`, no majority of the servers is reachable.
    #[error("refusing to start (at_start: refuse): {0}")]
    NoMajority(#[source] StoreError),
    /// The HTTP server cannot be started.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The last results could be neither delivered to the store nor written to disk.
    #[error(
        "{lost} lost at the end (each is named above): not delivered to the store, and not \
         written to {place}: {source}"
    )]
    VerdictsLost {
        /// How many results.
        lost: String,
        /// The file that could not be written.
        place: String,
        /// Why it could not be written.
        source: io::Error,
    },
    /// Runs survived SIGKILL, so their results are not recorded.
    #[error(
        "{0} did not end, so the result is not recorded (each run is named above); other hosts \
         record interrupted when the lease expires"
    )]
    RunsAbandoned(String),
    /// The guard process ended. A service manager should start the daemon again.
    #[error("the guard process has died: all jobs were killed")]
    GuardGone,
}
