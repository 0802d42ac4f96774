//! The text of an error and the error that caused it, in one pointer that can be cloned.
//! [`StoreError`](super::StoreError) and [`KeyFault`](super::KeyFault) contain it.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What went wrong, as a text, and the error that caused it, if there was one.
///
/// One pointer, which keeps results small.
#[derive(Clone)]
pub struct ErrorDetail(Arc<DetailInner>);

struct DetailInner {
    text: String,
    cause: Option<Arc<dyn Error + Send + Sync>>,
    rejects_writes: bool,
}

impl ErrorDetail {
    /// Adds the error that caused this one; the text should contain its message.
    #[must_use]
    pub fn caused_by(self, cause: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(DetailInner {
            text: self.0.text.clone(),
            cause: Some(Arc::new(cause)),
            rejects_writes: self.0.rejects_writes,
        }))
    }

    /// Says that the server replied, and takes no writes for now.
    #[must_use]
    pub(crate) fn of_rejected_writes(self) -> Self {
        Self(Arc::new(DetailInner {
            text: self.0.text.clone(),
            cause: self.0.cause.clone(),
            rejects_writes: true,
        }))
    }

    pub(crate) fn is_of_rejected_writes(&self) -> bool {
        self.0.rejects_writes
    }

    /// Returns `WHAT: CAUSE`, caused by `cause`.
    pub(crate) fn of(what: impl fmt::Display, cause: impl Error + Send + Sync + 'static) -> Self {
        Self::from(format!("{what}: {cause}")).caused_by(cause)
    }

    /// Returns another text for the same cause.
    pub(crate) fn reworded(&self, text: String) -> Self {
        Self(Arc::new(DetailInner {
            text,
            cause: self.0.cause.clone(),
            rejects_writes: self.0.rejects_writes,
        }))
    }

    pub(super) fn cause(&self) -> Option<&(dyn Error + 'static)> {
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
        Self(Arc::new(DetailInner {
            text,
            cause: None,
            rejects_writes: false,
        }))
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
