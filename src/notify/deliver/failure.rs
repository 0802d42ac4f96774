//! Why a message did not reach its target.

use std::time::Duration;

/// Why a try failed. Never names a URL or a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SendFailure {
    /// The reason.
    pub(crate) why: String,
    /// Whether another try could succeed.
    pub(crate) again: Again,
}

/// Whether another try could succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// No: the receiver rejects the message.
    Never,
    /// Perhaps.
    Later,
    /// Not before this time has passed.
    After(Duration),
}

impl SendFailure {
    pub(in crate::notify) fn never(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            again: Again::Never,
        }
    }

    pub(in crate::notify) fn later(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            again: Again::Later,
        }
    }
}
