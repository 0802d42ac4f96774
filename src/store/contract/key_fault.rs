//! Faults of single keys: a key that cronlatch did not write, or that its user may not access.
//!
//! Such a fault affects the job that the key belongs to. [`apart`](fn@crate::store::apart) keeps it from
//! failing the other jobs of a batch.

use std::fmt;

use super::error_detail::ErrorDetail;

/// What is wrong with one key (or row) of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFault {
    /// The key, or the table and row of the embedded store.
    pub key: String,
    /// What kind of fault it is.
    pub kind: KeyFaultKind,
    /// What was found, for people.
    pub detail: ErrorDetail,
}

/// The kind of a [`KeyFault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFaultKind {
    /// It contains something that cronlatch did not write: another type, or an unreadable value.
    Damaged,
    /// The store's user may not access it.
    Forbidden,
}

impl KeyFaultKind {
    /// Returns the name that `--json` prints.
    pub fn word(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Forbidden => "forbidden",
        }
    }
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.detail)
    }
}

impl KeyFault {
    /// Returns what a person can do about it on one of several nodes.
    pub(crate) fn repair_on_node(&self) -> String {
        match self.kind {
            KeyFaultKind::Forbidden => self.repair(None),
            KeyFaultKind::Damaged => {
                "delete the key on this node; it is written anew from the other nodes".to_owned()
            }
        }
    }

    /// Returns what a person can do about it. `job` is the job that the key belongs to, if known.
    pub fn repair(&self, job: Option<&str>) -> String {
        match (self.kind, job) {
            (KeyFaultKind::Forbidden, _) => format!(
                "give the store's user the right to the key (`~{}` in its ACL; docs/stores.md \
                 lists what cronlatch needs)",
                self.key
            ),
            (KeyFaultKind::Damaged, Some(job)) => format!(
                "restore the key from a backup, or delete what the store keeps of the job with \
                 `cronlatch forget {job} --force`; the job then starts from now"
            ),
            (KeyFaultKind::Damaged, None) => {
                "restore the key from a backup, or delete it".to_owned()
            }
        }
    }
}
