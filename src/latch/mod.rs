//! The library: the lock that jobs run under, for Rust programs.
//!
//! `acquire` claims and releases a bare lock (the `exec` command uses it too), `patience` decides
//! how long to wait in between, `request` and `held` are what users see. Renewal is left to
//! [`crate::lease`].

mod acquire;
mod builder;
mod held;
mod patience;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use acquire::{Acquisition, Grant, NotAcquired, release, waits_text};
pub use builder::{LatchBuilder, OpenError};
pub use held::{HeldLock, ReleaseError, Ticket};
pub(crate) use patience::Wait;
pub use request::{AcquireError, LockRequest, RunError};

use std::sync::Arc;

use crate::lease::Watchdog;
use crate::names::{HostName, InvalidName, LockName};
use crate::store::{Lock, Store};

/// A way to take locks: a connection to a store, and the thread that renews what is held.
///
/// Cheap to clone; a program needs one.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}/locks.db", dir.path().display());
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use std::time::Duration;
///
/// // `redis://10.0.0.5:6379/0` for a fleet; `sqlite:PATH` for the programs of one host.
/// let latch = cronlatch::Latch::open(&url)?;
///
/// let held = latch
///     .lock("nightly-report")?
///     .ttl(Duration::from_secs(10))
///     .wait(Duration::from_secs(60))
///     .acquire()
///     .await?;
/// println!("ours for another {:?}, fencing token {}", held.validity(), held.fence());
/// held.release().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Latch {
    store: Arc<dyn Store>,
    watchdog: Watchdog,
    host: HostName,
}

impl Latch {
    /// Opens the store of this URL (`redis://`, `rediss://`, `redis+unix://` or `sqlite:PATH`).
    /// Must be called within a tokio runtime.
    ///
    /// A Redis server that cannot be reached is reported when a lock is taken, not here.
    pub fn open(url: &str) -> Result<Self, OpenError> {
        LatchBuilder::new(url).open()
    }

    /// Opens a store with a key prefix, a password file or a host name of one's own.
    pub fn builder(url: &str) -> LatchBuilder {
        LatchBuilder::new(url)
    }

    /// The lock of this name: letters, digits, `.`, `_` and `-`. Jobs whose `lock.name` it is, and
    /// `cronlatch exec --lock`, exclude and are excluded by those who hold it.
    pub fn lock(&self, name: &str) -> Result<LockRequest, InvalidName> {
        let name = LockName::parse(name)?;
        Ok(LockRequest::new(self.clone(), Lock::named(&name)))
    }

    /// The lock that this very key is, shared with programs in any language that take it with
    /// `SET key token NX PX`. Release is noticed by asking, as those programs announce nothing.
    pub fn key(&self, key: &str) -> LockRequest {
        LockRequest::new(self.clone(), Lock::raw(key))
    }
}
