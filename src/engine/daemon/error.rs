//! Why a daemon could not start, or had to end.

use std::io;

use crate::http::HttpError;
use crate::schedule::ticker::TickerError;
use crate::store::StoreError;

/// Why a daemon could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    /// The operating system refuses.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// The store's settings cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ticker does not start.
    #[error(transparent)]
    Ticker(#[from] TickerError),
    /// `strict`, and a look found a danger.
    #[error("{0}")]
    Danger(String),
    /// `at_start: refuse`, and no majority of the servers answers.
    #[error("refusing to start (at_start: refuse): {0}")]
    NoMajority(#[source] StoreError),
    /// The HTTP server cannot be started.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The store did not take the last verdicts, and they could not be kept either.
    #[error(
        "{lost} lost at the end (each is named above): not delivered to the store, and not \
         written to {place}: {source}"
    )]
    VerdictsLost {
        /// How many.
        lost: String,
        /// Where they were to be kept.
        place: String,
        /// Why they were not.
        source: io::Error,
    },
    /// Runs that resist SIGKILL: nobody records how they end.
    #[error(
        "{0} did not end, so the result is not recorded (each run is named above); other hosts \
         record interrupted when the lease expires"
    )]
    RunsAbandoned(String),
    /// The guard is gone; a service manager should start the daemon again.
    #[error("the guard process has died: all jobs were killed")]
    GuardGone,
}
