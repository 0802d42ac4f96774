//! Why a lease is over.

use std::fmt;

/// Why a lease is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseLost {
    /// Another holder has the lock. Renewals find this out, so within a third of the TTL.
    Taken,
    /// The lock is gone from the store and may be granted to others: it was released by force,
    /// or its lease ended there.
    Absent,
    /// The lease was not renewed before it ended: the store did not reply, this process was
    /// stopped, or renewal was not asked for.
    Expired,
    /// Its holder released or dropped the lock.
    Released,
}

impl fmt::Display for LeaseLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Taken => "lease lost: another holder has the lock",
            Self::Absent => "lease lost: the lock is gone from the store",
            Self::Expired => "lease lost: it could not be renewed before it expired",
            Self::Released => "lease ended: its holder released the lock",
        })
    }
}

impl std::error::Error for LeaseLost {}
