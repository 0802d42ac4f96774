//! Why a store did not do what was asked of it, with the cause kept.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::KeyFault;

/// Why the store did not do what was asked of it.
///
/// [`source`](Error::source) leads to the error of the network, of the Redis client or of `SQLite`
/// that caused this one, if there was one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StoreError {
    /// It is not known whether the operation happened: the link failed or the reply came too late.
    ///
    /// A claim that ends so is resent with the same token, or cancelled by `finish`.
    Unreachable(ErrorDetail),
    /// As [`Self::Unreachable`], and only for this lock and those beside it: a server of several
    /// is away, and what others keep can be reached.
    PartUnreachable(ErrorDetail),
    /// The store replied, and refused: wrong password, no permission, out of memory, read-only.
    Refused(ErrorDetail),
    /// The server is a replica, which takes no writes.
    Replica(ErrorDetail),
    /// The list of servers of which a majority decides names a replica, or one server twice.
    WrongList(ErrorDetail),
    /// What the store holds is not what cronlatch writes, or belongs to a newer version.
    Corrupt(ErrorDetail),
    /// One key cannot be used. Only the job it belongs to is affected.
    Key(KeyFault),
}

/// What went wrong, in words, and the error that caused it, if there was one.
///
/// One pointer, which keeps results small.
#[derive(Clone)]
pub struct ErrorDetail(Arc<Inner>);

struct Inner {
    text: String,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl ErrorDetail {
    /// Adds the error that caused this one; the text should contain its message.
    #[must_use]
    pub fn caused_by(self, cause: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            text: self.0.text.clone(),
            cause: Some(Arc::new(cause)),
        }))
    }

    /// Returns `WHAT: CAUSE`, caused by `cause`.
    pub(crate) fn of(what: impl fmt::Display, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::from(format!("{what}: {cause}")).caused_by(cause)
    }

    /// Returns another text for the same cause.
    pub(crate) fn reworded(&self, text: String) -> Self {
        Self(Arc::new(Inner {
            text,
            cause: self.0.cause.clone(),
        }))
    }

    fn cause(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0.cause {
            Some(cause) => Some(&**cause),
            None => None,
        }
    }
}

impl fmt::Debug for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.text, f)
    }
}

/// By the text alone: causes cannot be compared.
impl PartialEq for ErrorDetail {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for ErrorDetail {}

impl From<&str> for ErrorDetail {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for ErrorDetail {
    fn from(text: String) -> Self {
        Self(Arc::new(Inner { text, cause: None }))
    }
}

impl Deref for ErrorDetail {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

impl fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
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

    /// What went wrong, for a sentence that says by itself that the store could not be used.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Unreachable(detail) | Self::PartUnreachable(detail) => detail.to_string(),
            other => other.to_string(),
        }
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
            Self::Unreachable(detail) => write!(f, "the store is unreachable: {detail}"),
            Self::PartUnreachable(detail) => {
                write!(f, "part of the store is unreachable: {detail}")
            }
            Self::Refused(detail) | Self::Replica(detail) => {
                write!(f, "the store rejected the request: {detail}")
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
