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
        "the results of {runs} are lost (each is named above): the store did not accept them, and \
         {place} could not be written: {source}"
    )]
    ResultsLost {
        /// How many runs.
        runs: String,
        /// The file that could not be written.
        place: String,
        /// Why it could not be written.
        source: io::Error,
    },
    /// Runs survived SIGKILL, so their results are not recorded.
    #[error(
        "{0} did not end, so no result is recorded (each run is named above). When its lease has \
         expired, other hosts record the run as interrupted, or run it again (on_crash: rerun)"
    )]
    RunsAbandoned(String),
    /// The guard process ended. A service manager should start the daemon again.
    #[error("the guard process has died: all jobs were killed")]
    GuardGone,
}
