//! What may go wrong in the file, told in the store's words.

use rusqlite::ErrorCode;

use crate::store::StoreError;

/// Why a piece of work failed; nothing of it was kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// `SQLite` said so.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A row holds what cronlatch does not write.
    #[error("{0}")]
    Unreadable(String),
}

impl Failure {
    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            Self::Unreadable(_) => None,
        }
    }

    /// Whether other processes kept the file locked for too long.
    pub(super) fn is_busy(&self) -> bool {
        matches!(
            self.code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        )
    }

    /// Whether the connection should be made anew: its caches may be wrong, or the trouble may
    /// lie in files that were moved, remounted or repaired since.
    pub(super) fn spoils_connection(&self) -> bool {
        !self.is_busy() && self.code().is_some()
    }

    /// For those who asked. `shown` is the path of the file.
    pub(super) fn told(&self, shown: &str) -> StoreError {
        let Self::Sqlite(error) = self else {
            return StoreError::Corrupt(format!("{shown}: {self}"));
        };
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreError::Unreachable(format!("{shown}: other processes keep it locked"))
            }
            Some(ErrorCode::DiskFull) => {
                StoreError::Refused(format!("{shown}: the disk is full, or a quota is used up"))
            }
            Some(ErrorCode::ReadOnly) => StoreError::Refused(format!(
                "{shown}: the file, its directory or its file system is read-only"
            )),
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                StoreError::Refused(format!("{shown}: cannot be opened: {error}"))
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreError::Corrupt(format!("{shown}: {error}; restore it, or move it away"))
            }
            Some(_) => StoreError::Unreachable(format!("{shown}: {error}")),
            None => StoreError::Corrupt(format!("{shown}: {error}")),
        }
    }
}

/// The same error once more: a failed transaction is told to everyone who shared it.
pub(super) fn same(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unreachable(text) => StoreError::Unreachable(text.clone()),
        StoreError::PartUnreachable(text) => StoreError::PartUnreachable(text.clone()),
        StoreError::Refused(text) => StoreError::Refused(text.clone()),
        StoreError::Corrupt(text) => StoreError::Corrupt(text.clone()),
    }
}
