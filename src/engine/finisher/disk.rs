//! Whether the spool can be written; logs when that changes.

use std::io;

use crate::engine::spool::Spool;

/// Whether the spool could be written the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disk {
    Works,
    /// It could not, and this was logged.
    Fails,
}

impl Disk {
    /// Logs once that the spool cannot be written, and once that it can be again.
    pub(super) fn report(&mut self, written: &io::Result<()>, spool: &Spool) {
        match (*self, written) {
            (Self::Works, Ok(())) => {}
            (Self::Works, Err(error)) => {
                *self = Self::Fails;
                tracing::error!(
                    "cannot write undelivered results to {}: {error}; retrying. If the daemon \
                     ends before the store accepts them, they are lost",
                    spool.place()
                );
            }
            (Self::Fails, Err(error)) => tracing::debug!("cannot write the spool: {error}"),
            (Self::Fails, Ok(())) => {
                *self = Self::Works;
                tracing::info!("undelivered results can be written to disk again");
            }
        }
    }
}
