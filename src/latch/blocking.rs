//! The same locks for programs without a tokio runtime: every call blocks its thread.
//!
//! A [`Latch`] runs on one thread of its own, besides the one that renews leases. Its calls may be
//! made from any thread; within an async task they block that task's thread, so use
//! [`cronlatch::Latch`](crate::Latch) there.
//!
//! Each type here wraps the asynchronous one of the same name, which has the logic. Two types are needed
//! because a call that blocks and one that is awaited have different signatures.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let url = format!("sqlite:{}/locks.db", dir.path().display());
//! use std::time::Duration;
//!
//! let latch = cronlatch::blocking::Latch::open(&url)?;
//! let held = latch.lock("user:42")?.wait(Duration::from_secs(60)).acquire()?;
//! // The work, in steps; after each one:
//! if let Some(why) = held.loss() {
//!     return Err(why.into());
//! }
//! held.release()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod several;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::Runtime;

pub use self::several::{HeldLocks, LocksRequest};
use super::request::ended;
use super::{
    AcquireError, ExtendError, LatchBuilder, OpenError, Owner, ReleaseError, RunError,
    ShutdownError, Ticket,
};
use crate::ground::tasks::{self, SpawnBoxed as _};
use crate::lease::LeaseLost;
use crate::names::InvalidName;
use crate::store::StoreError;

/// A source of locks, as [`cronlatch::Latch`](crate::Latch). Cheap to clone.
#[derive(Debug, Clone)]
pub struct Latch {
    latch: super::Latch,
    thread: RuntimeThread,
}

/// A lock to acquire, and how, as [`cronlatch::LockRequest`](crate::LockRequest).
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until `acquire`, `try_acquire` or `run` is called"]
pub struct LockRequest {
    request: super::LockRequest,
    thread: RuntimeThread,
}

/// A lock that is held and renewed in the background, as
/// [`cronlatch::HeldLock`](crate::HeldLock).
#[derive(Debug)]
#[must_use = "the lock is released as soon as this is dropped"]
pub struct HeldLock {
    held: super::HeldLock,
    thread: RuntimeThread,
}

/// The runtime that the calls run on.
#[derive(Debug, Clone)]
struct RuntimeThread(Arc<Background>);

#[derive(Debug)]
struct Background(Option<Runtime>);

impl Drop for Background {
    fn drop(&mut self) {
        // A runtime must not be dropped, and so wait, within another one.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl RuntimeThread {
    fn start() -> Result<Self, OpenError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("latch")
            .enable_all()
            .build()
            .map_err(OpenError::Runtime)?;
        Ok(Self(Arc::new(Background(Some(runtime)))))
    }

    fn runtime(&self) -> &Runtime {
        let runtime = self.0.0.as_ref();
        runtime.expect("the runtime is taken in `drop` only")
    }

    /// Runs a call there and waits for its result, wherever it is made.
    fn wait<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> T {
        let (sender, result) = mpsc::sync_channel(1);
        self.runtime().handle().spawn_boxed(async move {
            // Cannot fail: the receiver waits below.
            let _ = sender.send(call.await);
        });
        result.recv().expect("no call panics")
    }

    /// As [`Self::wait`], for a call that borrows.
    fn wait_borrowed<T: Send>(&self, call: impl Future<Output = T> + Send) -> T {
        // On a thread of its own: `block_on` panics on one that runs async tasks.
        std::thread::scope(|scope| {
            let done = scope.spawn(|| tasks::block_on(self.runtime(), call));
            done.join().expect("no call panics")
        })
    }
}

impl Latch {
    /// Opens the store of this URL; see [`cronlatch::Latch::open`](crate::Latch::open).
    pub fn open(url: &str) -> Result<Self, OpenError> {
        LatchBuilder::new(url).open_blocking()
    }

    pub(super) fn open_with(builder: LatchBuilder) -> Result<Self, OpenError> {
        let thread = RuntimeThread::start()?;
        let latch = {
            let _within = thread.runtime().enter();
            builder.open()?
        };
        Ok(Self { latch, thread })
    }

    /// The lock of this name; see [`cronlatch::Latch::lock`](crate::Latch::lock).
    pub fn lock(&self, name: &str) -> Result<LockRequest, InvalidName> {
        Ok(self.of(self.latch.lock(name)?))
    }

    /// Several locks at once, by name; see [`cronlatch::Latch::locks`](crate::Latch::locks).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let url = format!("sqlite:{}/locks.db", dir.path().display());
    /// let latch = cronlatch::blocking::Latch::open(&url)?;
    /// let transfer = latch.locks(["account:7", "account:3"])?.acquire()?;
    /// assert_eq!(transfer.names().collect::<Vec<_>>(), ["account:3", "account:7"]);
    /// transfer.release()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn locks<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<LocksRequest, InvalidName> {
        Ok(LocksRequest {
            request: self.latch.locks(names)?,
            thread: self.thread.clone(),
        })
    }

    /// The lock whose Redis key this is; see [`cronlatch::Latch::key`](crate::Latch::key).
    pub fn key(&self, key: &str) -> Result<LockRequest, InvalidName> {
        Ok(self.of(self.latch.key(key)?))
    }

    /// Waits for all locks to be released; see
    /// [`cronlatch::Latch::shutdown`](crate::Latch::shutdown).
    pub fn shutdown(&self, limit: Duration) -> Result<(), ShutdownError> {
        let latch = self.latch.clone();
        self.thread.wait(async move { latch.shutdown(limit).await })
    }

    /// Waits until the store grants locks; see [`cronlatch::Latch::ready`](crate::Latch::ready).
    pub fn ready(&self, limit: Duration) -> Result<(), AcquireError> {
        let latch = self.latch.clone();
        self.thread.wait(async move { latch.ready(limit).await })
    }

    /// Declares a new, empty store ready; see [`cronlatch::Latch::init`](crate::Latch::init).
    pub fn init(&self) -> Result<bool, StoreError> {
        let latch = self.latch.clone();
        self.thread.wait(async move { latch.init().await })
    }

    fn of(&self, request: super::LockRequest) -> LockRequest {
        LockRequest {
            request,
            thread: self.thread.clone(),
        }
    }
}

impl LockRequest {
    fn map(self, change: impl FnOnce(super::LockRequest) -> super::LockRequest) -> Self {
        Self {
            request: change(self.request),
            thread: self.thread,
        }
    }

    /// How long the lease lasts unless it is renewed: from 1 s to 24 h, 30 s by default.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.map(|request| request.ttl(ttl))
    }

    /// How long to wait for the lock; zero, the default, asks once.
    pub fn wait(self, wait: Duration) -> Self {
        self.map(|request| request.wait(wait))
    }

    /// Waits for as long as it takes.
    pub fn wait_forever(self) -> Self {
        self.map(super::LockRequest::wait_forever)
    }

    /// Renews the lease in the background for `limit` only, counted from the grant.
    pub fn renew_for(self, limit: Duration) -> Self {
        self.map(|request| request.renew_for(limit))
    }

    /// Does not renew the lease in the background; see [`HeldLock::extend`].
    pub fn manual_renewal(self) -> Self {
        self.map(super::LockRequest::manual_renewal)
    }

    /// Acquires the lock; see [`cronlatch::LockRequest::acquire`](crate::LockRequest::acquire).
    pub fn acquire(self) -> Result<HeldLock, AcquireError> {
        let request = self.request;
        let held = self.thread.wait(request.acquire())?;
        Ok(HeldLock {
            held,
            thread: self.thread,
        })
    }

    /// Acquires the lock if it is free; returns `None` when it is held.
    pub fn try_acquire(self) -> Result<Option<HeldLock>, AcquireError> {
        let request = self.request;
        let held = self.thread.wait(request.try_acquire())?;
        Ok(held.map(|held| HeldLock {
            held,
            thread: self.thread,
        }))
    }

    /// Acquires the lock, does the work on this thread, releases the lock.
    ///
    /// Nothing stops the work when the lock is lost: it should look at [`Ticket::loss`] between
    /// its steps. If the lock was lost by the end, the result is [`RunError::LostAtEnd`] with the
    /// output.
    pub fn run<T>(self, work: impl FnOnce(Ticket) -> T) -> Result<T, RunError<T>> {
        let held = self.acquire()?;
        let output = work(held.ticket());
        ended(held.release(), output)
    }

    /// Returns who holds the lock now; see
    /// [`cronlatch::LockRequest::owner`](crate::LockRequest::owner).
    pub fn owner(&self) -> Result<Option<Owner>, StoreError> {
        let request = self.request.clone();
        self.thread.wait(async move { request.owner().await })
    }

    /// Releases the lock of another holder, which breaks exclusion; see
    /// [`cronlatch::LockRequest::force_release`](crate::LockRequest::force_release).
    pub fn force_release(&self, token: &str) -> Result<bool, StoreError> {
        let (request, token) = (self.request.clone(), token.to_owned());
        self.thread
            .wait(async move { request.force_release(&token).await })
    }
}

impl HeldLock {
    /// The name of the lock, or its raw key.
    pub fn name(&self) -> &str {
        self.held.name()
    }

    /// The value of the lock in the store; see [`cronlatch::HeldLock::token`](crate::HeldLock::token).
    pub fn token(&self) -> &str {
        self.held.token()
    }

    /// The fencing token; see [`Ticket::fence`].
    pub fn fence(&self) -> u64 {
        self.held.fence()
    }

    /// How long the lock lasts from now if no further renewal succeeds; zero once it is lost.
    pub fn validity(&self) -> Duration {
        self.held.validity()
    }

    /// Why the lock is lost, if it is.
    pub fn loss(&self) -> Option<LeaseLost> {
        self.held.loss()
    }

    /// A view of this lock for the code that does the work.
    pub fn ticket(&self) -> Ticket {
        self.held.ticket()
    }

    /// Renews the lease now; see [`cronlatch::HeldLock::extend`](crate::HeldLock::extend).
    pub fn extend(&mut self) -> Result<(), ExtendError> {
        let Self { held, thread } = self;
        thread.wait_borrowed(held.extend())
    }

    /// Releases the lock; see [`cronlatch::HeldLock::release`](crate::HeldLock::release).
    pub fn release(self) -> Result<(), ReleaseError> {
        let Self { held, thread } = self;
        thread.wait(held.release())
    }
}
