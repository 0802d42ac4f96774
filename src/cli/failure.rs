//! Why a command failed, and the exit code for it (sysexits.h).

use std::process::ExitCode;

use super::stderr;
use crate::store::StoreError;

/// Wrong use of the command line (`EX_USAGE`).
pub(super) const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;
const INTERNAL: u8 = 70;
pub(super) const NOT_ACQUIRED: u8 = 75;
/// Wrong configuration (`EX_CONFIG`).
pub(super) const CONFIG: u8 = 78;

/// Why a command failed. Each kind has one exit code; the text is for a person.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// 64: the command line asks for what cannot be.
    #[error("{0}")]
    Usage(String),
    /// 69: the store does not answer.
    #[error("{0}")]
    Unavailable(String),
    /// 70: a defect, or an operating system that refuses.
    #[error("{0}")]
    Internal(String),
    /// 75: the lock was not acquired, or was lost.
    #[error("{0}")]
    NotAcquired(String),
    /// 78: the configuration is wrong. The text holds every error.
    #[error("{0}")]
    Config(String),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::WrongList(_) => Self::Config(error.to_string()),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

impl Failure {
    /// Prints the failure on standard error and answers its exit code.
    pub fn report(&self) -> ExitCode {
        stderr::report(&self.to_string());
        ExitCode::from(self.code())
    }

    /// The exit code for this failure.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Unavailable(_) => UNAVAILABLE,
            Self::Internal(_) => INTERNAL,
            Self::NotAcquired(_) => NOT_ACQUIRED,
            Self::Config(_) => CONFIG,
        }
    }

    /// The failure that another process of ours reported.
    pub(super) fn with_code(code: u8, text: String) -> Self {
        match code {
            USAGE => Self::Usage(text),
            UNAVAILABLE => Self::Unavailable(text),
            NOT_ACQUIRED => Self::NotAcquired(text),
            CONFIG => Self::Config(text),
            _ => Self::Internal(text),
        }
    }
}
