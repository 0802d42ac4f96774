//! The error of a store, with the error that caused it. Its kind says what the caller can do: retry,
//! report, or leave one job out.

use std::error::Error;
use std::fmt;

use super::error_detail::ErrorDetail;
use super::key_fault::KeyFault;

/// Why a store did not execute a request.
///
/// [`source`](Error::source) leads to the error of the network, of the Redis client or of `SQLite`
/// that caused this one, if there was one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StoreError {
    /// The connection failed, the reply was late, or the server serves nobody for now. The operation may
    /// have been executed.
    ///
    /// Such a claim must be resent with the same token, or cancelled with `finish`.
    Unreachable(ErrorDetail),
    /// As [`Self::Unreachable`], but only one of several servers cannot be reached. Locks on the others
    /// are not affected.
    PartUnreachable(ErrorDetail),
    /// The store rejected the request: wrong password, no permission, out of memory, read-only.
    Refused(ErrorDetail),
    /// The server is a replica, which takes no writes.
    Replica(ErrorDetail),
    /// The list of nodes names a replica, or one server twice.
    WrongList(ErrorDetail),
    /// The store contains data that cronlatch did not write, or that a newer version wrote.
    Corrupt(ErrorDetail),
    /// One key cannot be used. Only the job that it belongs to is affected.
    Key(KeyFault),
}

impl StoreError {
    pub(crate) fn unreachable(detail: impl Into<ErrorDetail>) -> Self {
        Self::Unreachable(detail.into())
    }

    pub(crate) fn refused(detail: impl Into<ErrorDetail>) -> Self {
        Self::Refused(detail.into())
    }

    pub(crate) fn corrupt(detail: impl Into<ErrorDetail>) -> Self {
        Self::Corrupt(detail.into())
    }

    /// As [`Self::refused`], for a file or another part of this machine. `what` names it.
    pub(crate) fn refused_by(
        what: impl fmt::Display,
        cause: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self::Refused(ErrorDetail::of(what, cause))
    }

    /// Returns what went wrong, for a sentence that already says that the store could not be used.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Unreachable(detail)
            | Self::PartUnreachable(detail)
            | Self::Refused(detail)
            | Self::Replica(detail) => detail.to_string(),
            other => other.to_string(),
        }
    }

    /// Whether the store replied, and takes no writes for now: its memory is full, it lacks replicas, or it
    /// cannot save its data.
    pub(crate) fn takes_no_writes(&self) -> bool {
        self.detail().is_of_rejected_writes()
    }

    fn detail(&self) -> &ErrorDetail {
        match self {
            Self::Unreachable(detail)
            | Self::PartUnreachable(detail)
            | Self::Refused(detail)
            | Self::Replica(detail)
            | Self::WrongList(detail)
            | Self::Corrupt(detail) => detail,
            Self::Key(fault) => &fault.detail,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(detail) if detail.is_of_rejected_writes() => {
                write!(f, "the store cannot be used: {detail}")
            }
            Self::Unreachable(detail) => write!(f, "the store is unreachable: {detail}"),
            Self::PartUnreachable(detail) if detail.is_of_rejected_writes() => {
                write!(f, "part of the store cannot be used: {detail}")
            }
            Self::PartUnreachable(detail) => {
                write!(f, "part of the store is unreachable: {detail}")
            }
            Self::Refused(detail) | Self::Replica(detail) => {
                write!(f, "the store cannot be used: {detail}")
            }
            Self::WrongList(detail) => {
                write!(f, "the store URL names unsuitable servers: {detail}")
            }
            Self::Corrupt(detail) => {
                write!(
                    f,
                    "the store contains data that this version cannot read: {detail}"
                )
            }
            Self::Key(fault) => write!(f, "{fault}"),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.detail().cause()
    }
}
