//! What can go wrong with a lock.

use std::fmt;
use std::io;
use std::time::Duration;

use super::acquire::NotAcquired;
use crate::lease::LeaseLost;
use crate::names::InvalidName;
use crate::store::StoreError;

/// Why a store cannot be opened. See [`LatchBuilder::open`](super::LatchBuilder::open).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is wrong. The text says how, and contains no password.
    #[error("{0}")]
    Url(String),
    /// The key prefix or the host name is not made of letters, digits, `.`, `_` and `-`.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// An option of the builder does not apply to the embedded store.
    #[error("the embedded store has no {0}")]
    NotForSqlite(&'static str),
    /// This machine's host name cannot be used. Set one with
    /// [`LatchBuilder::host`](super::LatchBuilder::host).
    #[error("{0}")]
    Host(String),
    /// The call was not made within a tokio runtime.
    #[error("a latch must be opened within a tokio runtime (or use cronlatch::blocking)")]
    NoRuntime,
    /// The runtime of a [blocking](super::blocking) latch cannot be started.
    #[error("cannot start a runtime for blocking calls: {0}")]
    Runtime(#[source] io::Error),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The thread that renews leases cannot be started.
    #[error("cannot start the thread that renews leases: {0}")]
    Watchdog(#[source] io::Error),
}

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The lock was still held when the wait was over.
    #[error("lock {lock:?} is held by {by}{}", until(*.remaining))]
    Held {
        /// The name of the lock, or its raw key.
        lock: String,
        /// The host that holds it, or what another program wrote into the key (at most 100 bytes).
        by: String,
        /// How long the lease lasts unless it is renewed; `None` for a raw key without a TTL.
        remaining: Option<Duration>,
    },
    /// The store is new, was restarted, or lost its data. Until every lock that it may have
    /// forgotten is renewed or over, it grants none.
    ///
    /// [`Latch::ready`](super::Latch::ready) waits for it; [`Latch::init`](super::Latch::init)
    /// declares a new store ready, once.
    #[error(
        "the store grants no locks for another {:.1} s: it is new, was restarted or lost its \
         data, and locks that it no longer knows may still be held; wait longer \
         (LockRequest::wait, Latch::ready), or initialise a new store once with Latch::init",
        .remaining.as_secs_f64()
    )]
    Recovering {
        /// How long until the store grants this lock.
        remaining: Duration,
    },
    /// The TTL is below 1 s or above 24 h.
    #[error("a TTL of {0:?} is out of range: it must be from 1 s to 24 h")]
    InvalidTtl(Duration),
    /// Of several locks one was lost again while the others were waited for.
    #[error("lock {lock:?} was lost while waiting for the others")]
    LostMeanwhile {
        /// The name of the lock.
        lock: String,
    },
    /// [`Latch::shutdown`](super::Latch::shutdown) was called on this latch.
    #[error("the latch was shut down")]
    ShutDown,
    /// The store does not reply, or rejects the request.
    #[error(transparent)]
    Store(StoreError),
}

/// Why work under a lock was not done, or was not done safely. See
/// [`LockRequest::run`](super::LockRequest::run).
#[non_exhaustive]
pub enum RunError<T> {
    /// The lock was not acquired. The work was not begun.
    NotAcquired(AcquireError),
    /// The lock was lost while the work went on. The work was dropped where it stood.
    Lost(LeaseLost),
    /// The work was done, and then its lock turned out to be lost: another holder may have begun
    /// before the work ended.
    LostAtEnd {
        /// Why the lock was lost.
        why: LeaseLost,
        /// What the work returned.
        output: T,
    },
}

/// Why a lock could not be released. See [`HeldLock::release`](super::HeldLock::release).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was lost before. No other holder's lock was touched.
    #[error(transparent)]
    Lost(LeaseLost),
    /// The store did not reply in time, or rejected the request. The lock ends with its TTL.
    #[error(transparent)]
    Store(StoreError),
}

/// Why a lock could not be extended. See [`HeldLock::extend`](super::HeldLock::extend).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lock is lost.
    #[error(transparent)]
    Lost(LeaseLost),
    /// The store did not reply in time, or rejected the request. The lock lasts as long as it did before;
    /// [`validity`](super::HeldLock::validity) says how long.
    #[error(transparent)]
    Store(StoreError),
}

/// Locks were still in use when [`Latch::shutdown`](super::Latch::shutdown) stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{left} {} not released within {limit:?}; {} with the TTL",
    if *left == 1 { "lock was" } else { "locks were" },
    if *left == 1 { "it ends" } else { "they end" }
)]
#[non_exhaustive]
pub struct ShutdownError {
    /// How many locks were held, waited for or being released.
    pub left: usize,
    /// How long `shutdown` waited.
    pub limit: Duration,
}

fn until(remaining: Option<Duration>) -> String {
    match remaining {
        Some(left) => format!(
            "; its lease expires in {:.1} s unless renewed",
            left.as_secs_f64()
        ),
        None => "; its key has no TTL, so it never expires".to_owned(),
    }
}

impl AcquireError {
    pub(super) fn of(lock: &str, why: NotAcquired) -> Self {
        match why {
            NotAcquired::Held { by, remaining } => Self::Held {
                lock: lock.to_owned(),
                by,
                remaining,
            },
            NotAcquired::Recovering { remaining } => Self::Recovering { remaining },
            NotAcquired::Store(error) => Self::Store(error),
        }
    }
}

impl<T> RunError<T> {
    /// What the work returned, if it came to its end.
    pub fn into_output(self) -> Option<T> {
        match self {
            Self::LostAtEnd { output, .. } => Some(output),
            Self::NotAcquired(_) | Self::Lost(_) => None,
        }
    }
}

impl<T> From<AcquireError> for RunError<T> {
    fn from(why: AcquireError) -> Self {
        Self::NotAcquired(why)
    }
}

impl<T> fmt::Display for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(why) => fmt::Display::fmt(why, f),
            Self::Lost(_) => f.write_str("the lock was lost, and the work was stopped"),
            Self::LostAtEnd { .. } => f.write_str(
                "the work is done, but its lock was lost: another holder may have begun before it \
                 ended",
            ),
        }
    }
}

/// Without the output, so that no `T: Debug` is needed.
impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(why) => f.debug_tuple("NotAcquired").field(why).finish(),
            Self::Lost(why) => f.debug_tuple("Lost").field(why).finish(),
            Self::LostAtEnd { why, .. } => f
                .debug_struct("LostAtEnd")
                .field("why", why)
                .finish_non_exhaustive(),
        }
    }
}

impl<T> std::error::Error for RunError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotAcquired(why) => why.source(),
            Self::Lost(why) | Self::LostAtEnd { why, .. } => Some(why),
        }
    }
}
