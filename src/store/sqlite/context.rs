//! The context of the work inside one transaction of the embedded store. Every operation gets it from
//! the worker.

use std::cell::Cell;
use std::time::Duration;

use rusqlite::Connection;

use super::clock::TransactionTime;

/// How long a transaction waits for the transactions of other processes.
pub(super) const BUSY: Duration = Duration::from_secs(2);

/// The transaction, and its instant.
pub(super) struct WorkContext<'a> {
    pub(super) db: &'a Connection,
    /// The path of the file.
    pub(super) shown: &'a str,
    pub(super) now: TransactionTime,
    /// Set when a lock was released.
    pub(super) freed: Cell<bool>,
    /// Set when a request to a daemon was filed.
    pub(super) filed: Cell<bool>,
}
