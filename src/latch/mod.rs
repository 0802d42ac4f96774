//! The library: the lock that jobs run under, for Rust programs.
//!
//! `request`, `held`, `ticket` and `several` are what users see. `acquire` claims and releases a
//! bare lock (the `exec` command uses it too), `patience` decides how long to pause in between,
//! `queue` decides which task of this process asks, and `tally` counts what a shutdown waits for.
//! [`crate::lease`] renews leases and releases dropped locks.

mod acquire;
pub mod blocking;
mod builder;
mod error;
mod held;
mod owner;
mod patience;
mod queue;
mod request;
mod several;
mod shared;
mod tally;
#[cfg(test)]
mod tests;
mod ticket;

pub(crate) use acquire::{Acquisition, NotAcquired, release, waits_text};
pub use builder::LatchBuilder;
pub use error::{AcquireError, ExtendError, OpenError, ReleaseError, RunError, ShutdownError};
pub use held::HeldLock;
pub use owner::Owner;
pub(crate) use patience::WaitLimit;
pub use request::LockRequest;
pub use several::{HeldLocks, LocksRequest};
pub use ticket::Ticket;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::shared::LatchShared;
use crate::names::{InvalidName, LockName, RawKey};
use crate::store::{Lock, LockKey, StoreError};

/// A source of locks: a connection to a store, and the thread that renews what is held.
///
/// Cheap to clone; a program needs one. It belongs to the tokio runtime in which it was opened.
/// Programs without a runtime use [`blocking::Latch`].
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
/// println!("held for at least {:?}, fencing token {}", held.validity(), held.fence());
/// held.release().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Latch {
    shared: Arc<LatchShared>,
}

impl Latch {
    /// Opens the store of this URL. Must be called within a tokio runtime.
    ///
    /// | URL | store |
    /// | --- | --- |
    /// | `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]` | one Redis 7 or Valkey server |
    /// | `rediss://…` | the same over TLS |
    /// | `redis+unix:///PATH[?db=N&user=…&pass=…]` | the same through a unix socket |
    /// | `redis+sentinel://HOST[:PORT],HOST,…/MASTER[/DB]` | the master that Sentinels name;
    /// `rediss+sentinel://` over TLS |
    /// | `redis+cluster://HOST:PORT,HOST:PORT,…` | a Redis Cluster; `rediss+cluster://` over TLS |
    /// | `redis://A,redis://B,redis://C` | a majority of independent servers (Redlock): an odd
    /// number, three or more |
    /// | `sqlite:PATH` | an embedded database, for the programs of one host |
    ///
    /// Does not connect: a server that cannot be reached is reported when a lock is acquired.
    pub fn open(url: &str) -> Result<Self, OpenError> {
        LatchBuilder::new(url).open()
    }

    /// Opens a store with a key prefix, a password file, a CA file or a host name of its own.
    pub fn builder(url: &str) -> LatchBuilder {
        LatchBuilder::new(url)
    }

    /// The lock of this name: letters, digits, `.`, `_`, `-` and `:`, at most 200 bytes.
    ///
    /// Jobs with this `lock.name` and `cronlatch exec --lock` use the same lock.
    pub fn lock(&self, name: &str) -> Result<LockRequest, InvalidName> {
        let name = LockName::parse(name)?;
        Ok(LockRequest::new(self.clone(), Lock::named(&name)))
    }

    /// Several locks at once, by name; see [`LocksRequest`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let url = format!("sqlite:{}/locks.db", dir.path().display());
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let latch = cronlatch::Latch::open(&url)?;
    /// let transfer = latch.locks(["account:7", "account:3"])?.acquire().await?;
    /// let order: Vec<_> = transfer.iter().map(|held| held.name()).collect();
    /// assert_eq!(order, ["account:3", "account:7"]);
    /// transfer.release().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn locks<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<LocksRequest, InvalidName> {
        let requests = names.into_iter().map(|name| self.lock(name.as_ref()));
        Ok(LocksRequest::new(requests.collect::<Result<_, _>>()?))
    }

    /// The lock whose Redis key this is, unchanged: shared with programs in any language that take
    /// it with `SET key token NX PX`. From 1 to 1024 bytes.
    ///
    /// Such programs announce no release, so one who waits asks every 200 to 400 ms. In a Cluster a
    /// key must not contain a `}` that ends no hash tag; acquiring it is refused then.
    pub fn key(&self, key: &str) -> Result<LockRequest, InvalidName> {
        let key = RawKey::parse(key)?;
        Ok(LockRequest::new(self.clone(), Lock::raw(key.as_str())))
    }

    /// Shuts this latch and its clones down: from now on nothing is acquired through them, tasks
    /// that wait get [`AcquireError::ShutDown`], and the call waits until every lock is released
    /// or dropped and the store has confirmed it, for `limit` at most.
    ///
    /// For the end of a program that keeps its latch in a `static`, or ends by
    /// `std::process::exit`. Elsewhere dropping the latch does the same for locks that were dropped
    /// (see [`HeldLock`]).
    pub async fn shutdown(&self, limit: Duration) -> Result<(), ShutdownError> {
        self.shared.tally.close();
        match self.shared.tally.empty(limit).await {
            0 => Ok(()),
            left => Err(ShutdownError { left, limit }),
        }
    }

    /// Waits until the store grants locks, for `limit` at most; zero only asks. The error says how
    /// long it takes yet ([`AcquireError::Recovering`]), or why the store cannot be used.
    ///
    /// For the start of a program: a store that is new, was restarted or has lost its data grants
    /// no lock for a while, by default for 30 s. [`init`](Self::init) spares a new store that.
    /// A lock with a longer TTL is granted only after its own TTL. In a Cluster each part waits by
    /// itself, and this asks one of them.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn ready() -> Result<(), Box<dyn std::error::Error>> {
    /// let latch = cronlatch::Latch::open("redis://127.0.0.1/")?;
    /// latch.ready(Duration::from_secs(60)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn ready(&self, limit: Duration) -> Result<(), AcquireError> {
        let lock = Lock {
            name: READY.to_owned(),
            key: LockKey::Named,
            exclusive: true,
        };
        let request = LockRequest::new(self.clone(), lock).wait(limit);
        match request.acquire().await {
            Ok(held) => {
                // Nobody needs this lock: if its release is lost, it ends by itself.
                drop(held.release().await);
                Ok(())
            }
            Err(AcquireError::Held { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Declares a new, empty store ready, so that nobody has to wait before the first lock. Returns
    /// whether it did: `false` means that cronlatch has used the store before, and nothing changed.
    ///
    /// To be called **once, when the store is set up**, as `cronlatch init` is, and not at each
    /// start of a program: a store that has just lost its data is empty too, and the wait is what
    /// keeps its locks from being granted while their former holders still work.
    pub async fn init(&self) -> Result<bool, StoreError> {
        // Daemons that are connected run jobs, also if the store has just lost their data.
        let is_free = self.shared.store.daemons().await?.is_empty();
        Ok(is_free && self.shared.store.init().await?.is_none())
    }
}

/// The lock that [`Latch::ready`] claims to find out whether the store grants claims.
const READY: &str = "cronlatch:ready";

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch")
            .field("store", &self.shared.shown)
            .field("host", &self.shared.host)
            .finish_non_exhaustive()
    }
}
