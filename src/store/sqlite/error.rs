//! Failures of the file, and how they become errors of the store. A failure of one row affects only
//! its job.

use std::fmt::Display;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, User, access, geteuid};
use rusqlite::ErrorCode;

use crate::store::{ErrorDetail, KeyFault, KeyFaultKind, StoreError};

/// Why work failed. Its transaction was rolled back.
#[derive(Debug, thiserror::Error)]
pub(super) enum SqliteFailure {
    /// An error of `SQLite`.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A row contains something that cronlatch does not write.
    #[error("{}: {detail}", row.shown())]
    Unreadable {
        /// The row.
        row: RowKey,
        /// What is wrong with it.
        detail: ErrorDetail,
    },
}

/// The name of a row in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowKey {
    pub(super) table: &'static str,
    pub(super) row: String,
}

impl RowKey {
    pub(super) fn of(table: &'static str, row: impl Into<String>) -> Self {
        Self {
            table,
            row: row.into(),
        }
    }

    fn shown(&self) -> String {
        format!("table {}, row {}", self.table, self.row)
    }

    /// Returns the fault of this row of the file at `shown`.
    pub(super) fn fault(&self, shown: &str, detail: impl Into<ErrorDetail>) -> KeyFault {
        KeyFault {
            key: format!("{shown}, {}", self.shown()),
            kind: KeyFaultKind::Damaged,
            detail: detail.into(),
        }
    }

    pub(super) fn unreadable(self, detail: impl std::fmt::Display) -> SqliteFailure {
        SqliteFailure::Unreadable {
            row: self,
            detail: detail.to_string().into(),
        }
    }

    /// Attributes a value of the wrong type to the row, and any other failure to the file.
    pub(super) fn blamed(self, error: rusqlite::Error) -> SqliteFailure {
        match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => SqliteFailure::Unreadable {
                row: self,
                detail: ErrorDetail::from(error.to_string()).caused_by(error),
            },
            other => SqliteFailure::Sqlite(other),
        }
    }
}

impl SqliteFailure {
    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            Self::Unreadable { .. } => None,
        }
    }

    /// Whether other processes kept the file locked for too long.
    pub(super) fn is_busy(&self) -> bool {
        matches!(
            self.code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        )
    }

    /// Whether the file must be opened again, because the caches may be wrong or the files may have been
    /// moved, remounted or repaired.
    pub(super) fn spoils_connection(&self) -> bool {
        !self.is_busy() && self.code().is_some()
    }

    /// Returns the error of the store. `shown` is the path of the file.
    pub(super) fn store_error(self, shown: &str) -> StoreError {
        match self {
            Self::Unreadable { row, detail } => StoreError::Key(row.fault(shown, detail)),
            Self::Sqlite(error) => store_error(shown, error),
        }
    }
}

/// Says that this user may not open a file, and what to do.
pub(super) fn denied(path: impl Display) -> String {
    let uid = geteuid();
    let user = User::from_uid(uid).ok().flatten();
    let user = user.map_or_else(|| format!("with the id {uid}"), |user| user.name);
    format!(
        "{path} cannot be opened by user {user}: Permission denied; run this as root or as the \
         daemon's user (sudo)"
    )
}

/// Whether the rights of the file or of its directories keep this process from using it.
fn is_denied(path: &str) -> bool {
    access(path, AccessFlags::R_OK | AccessFlags::W_OK) == Err(Errno::EACCES)
}

fn store_error(shown: &str, error: rusqlite::Error) -> StoreError {
    type Variant = fn(ErrorDetail) -> StoreError;
    let (variant, text): (Variant, _) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            StoreError::Unreachable,
            format!("{shown}: other processes keep it locked"),
        ),
        Some(ErrorCode::DiskFull) => (
            StoreError::Refused,
            format!("{shown}: the disk is full, or a quota is used up"),
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
            if is_denied(shown) =>
        {
            (StoreError::Refused, denied(shown))
        }
        Some(ErrorCode::ReadOnly) => (
            StoreError::Refused,
            format!("{shown}: the file, its directory or its file system is read-only"),
        ),
        Some(ErrorCode::CannotOpen) if std::path::Path::new(shown).is_dir() => (
            StoreError::Refused,
            format!("{shown} is a directory: name a file"),
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => (
            StoreError::Refused,
            format!("{shown}: cannot be opened: {error}"),
        ),
        Some(ErrorCode::NotADatabase) => (
            StoreError::Corrupt,
            format!("{shown} is not an SQLite database; restore it from a backup, or move it away"),
        ),
        Some(ErrorCode::DatabaseCorrupt) => (
            StoreError::Corrupt,
            format!("{shown} is damaged ({error}); restore it from a backup, or move it away"),
        ),
        Some(_) => (StoreError::Unreachable, format!("{shown}: {error}")),
        None => (StoreError::Corrupt, format!("{shown}: {error}")),
    };
    variant(ErrorDetail::from(text).caused_by(error))
}
