//! The error of a command that could not be prepared.

use crate::guard::Lack;

/// Why a command could not be prepared.
#[derive(Debug)]
pub(super) struct NotPrepared {
    pub(super) reason: String,
    /// What this host lacks, if that is the cause.
    pub(super) lack: Option<Lack>,
}

impl From<String> for NotPrepared {
    fn from(reason: String) -> Self {
        Self { reason, lack: None }
    }
}
