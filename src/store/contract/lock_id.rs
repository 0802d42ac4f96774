//! The lock that a job list gives to a job.

use std::fmt;
use std::sync::Arc;

use super::lock::{Lock, LockKey};
use crate::names::HostName;

/// Which lock a list gives to a job. Equal on all hosts with the same list, unlike [`Lock`],
/// whose name contains the host for `scope: host` and `scope: none`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockId {
    /// A named lock of the whole fleet.
    Fleet(Arc<str>),
    /// The raw key of a lock that other programs take too.
    Raw(Arc<str>),
    /// A lock for each host.
    Host(Arc<str>),
    /// No lock, and a ledger for each host.
    None(Arc<str>),
}

impl LockId {
    /// The lock in the words of a job list.
    pub fn shown(&self) -> String {
        match self {
            Self::Fleet(name) => format!("lock.name {name}"),
            Self::Raw(key) => format!("lock.key {key:?}"),
            Self::Host(name) => format!("lock.name {name} with scope: host"),
            Self::None(name) => format!("lock.name {name} with scope: none"),
        }
    }

    /// The lock that runs on `host` take.
    pub fn on(&self, host: &HostName) -> Lock {
        let named = |name: String| Lock {
            name,
            key: LockKey::Named,
            exclusive: true,
        };
        match self {
            Self::Fleet(name) => named(name.to_string()),
            Self::Raw(key) => Lock::raw(key),
            Self::Host(name) => named(format!("{name}@{host}")),
            Self::None(name) => Lock {
                exclusive: false,
                ..named(format!("{name}@{host}"))
            },
        }
    }

    /// Whether all hosts share the ledger that lies under this lock.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Fleet(_) | Self::Raw(_))
    }

    /// Whether a host that uses `self` and one that uses `other` could both run an occurrence
    /// that only one of them may run.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        self != other && (self.is_shared() || other.is_shared())
    }

    /// Reads what [`fmt::Display`] writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(' ')?;
        let name = name.into();
        Some(match kind {
            "fleet" => Self::Fleet(name),
            "key" => Self::Raw(name),
            "host" => Self::Host(name),
            "none" => Self::None(name),
            _ => return None,
        })
    }
}

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fleet(name) => write!(f, "fleet {name}"),
            Self::Raw(key) => write!(f, "key {key}"),
            Self::Host(name) => write!(f, "host {name}"),
            Self::None(name) => write!(f, "none {name}"),
        }
    }
}
