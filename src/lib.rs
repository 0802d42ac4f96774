//! cronlatch: the cron that a fleet can trust.
//!
//! The same job list lies on many hosts. For every occurrence of every job the hosts race for a
//! lock in a store they share; one wins, runs the job while its lease is renewed, and releases the
//! lock with the token that proves it its own. **Every occurrence runs once**: at most once
//! whatever the clocks, crashes and restarts, and at least once while a host and the store are up.
//!
//! # The library
//!
//! Rust programs take the same locks through [`Latch`]: with a TTL, a bounded wait that a release
//! cuts short, renewal in the background, a fencing token and a signal for a lease that was lost.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let url = format!("sqlite:{}/locks.db", dir.path().display());
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! use std::time::Duration;
//!
//! let latch = cronlatch::Latch::open(&url)?; // redis://10.0.0.5:6379/0 for a fleet
//! let fence = latch
//!     .lock("nightly-report")?
//!     .ttl(Duration::from_secs(30))
//!     .wait(Duration::from_secs(60)) // a Redis that is new to cronlatch grants after 30 s
//!     .run(|ticket| async move {
//!         // The work. Whatever it writes to can refuse a holder that comes late:
//!         ticket.fence()
//!     })
//!     .await?;
//! # assert!(fence > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Other ways to take and keep a lock: [`try_acquire`](LockRequest::try_acquire), several at once
//! ([`Latch::locks`]), keys that programs in other languages share ([`Latch::key`]), renewal
//! [by hand](LockRequest::manual_renewal) or [for a while](LockRequest::renew_for), and
//! [`blocking`] for programs without a runtime.
//!
//! Features: `program` (the default) is everything. With `default-features = false` this crate is
//! the lock alone, on Redis; the feature `sqlite` adds the embedded store.
//!
//! **What the library cannot do.** The daemon and `cronlatch exec` kill a job before its lease can
//! end in the store. A library cannot kill its caller: there exclusion ends at the lost-lease
//! signal ([`HeldLock::lost`], [`RunError::Lost`]), and what comes after it, in code that does not
//! watch for the signal or was paused when it came, is for the [fencing token](Ticket::fence) to
//! catch.
//!
//! Everything else in this crate is the program `cronlatch`; it is public for its tests and may
//! change at any time.
//!
//! # The life of a run
//!
//! 1. `config` reads the YAML list into validated jobs; every mistake is told at once, with its
//!    line.
//! 2. `schedule` names the instants, and its ticker fires at each: a job, and when it was due.
//! 3. `engine` decides: is the host full, is an older run of the job open, is it draining? If the
//!    job is to run, it sends a *claim* with a fresh token.
//! 4. `store` judges the claim in one atomic step: the ledger first (was this occurrence decided
//!    before?), then the lock. Winner and losers learn it in one round trip.
//! 5. `lease` takes the granted lease into the watchdog thread, which renews it every third of its
//!    TTL, and at least every ten seconds, on a connection and a runtime of its own.
//! 6. `guard` spawns the command through a small child process, which knows the
//!    deadline of every run and ends what outlives it, whatever became of the daemon.
//! 7. When the whole process tree is gone, `finish` writes verdict and record and releases the lock,
//!    in one atomic step again; `observe` has logged every line on the way.
//!
//! Data flows in that order only: `schedule` knows nothing of stores, `store` nothing of
//! processes, `guard` nothing of schedules.
//!
//! # Who owns which state
//!
//! | state | owner |
//! | --- | --- |
//! | lock, ledger, history | the store; its clock is the arbiter |
//! | when a lease ends | the watchdog thread, on the boot clock, counted from before the send |
//! | running processes and their deadlines | the guard |
//! | what a host is about to do | the engine's core, plain data behind one `handle(event)` |
//! | finishes not yet delivered | the engine; spooled to disk meanwhile |
//!
//! # When things go wrong
//!
//! *A lease is lost* (taken, gone, or not renewed in time): the watchdog says so, the engine ends
//! the job, the record says `lease_lost`, and nothing of the new holder's is touched. If the daemon
//! itself hangs, the guard ends the job at its deadline, before the lease can end in the store.
//!
//! *The store dies*: renewals are retried until each lease's deadline, claims until the
//! occurrence's start deadline; afterwards `catch_up` decides about what was missed.
//!
//! *The store loses its data*: it notices by the server process that its marker names, grants
//! nothing until what it may have forgotten is over, and takes leases back from their holders
//! (`store::protocol`, recovery); what was due before and is undecided is `unknown`.
//!
//! *Another store is in use for the same jobs*, by hosts that share a server with this one or by a
//! daemon of this host (`siblings`): nothing is claimed until those have ended.
//!
//! *SIGHUP comes*: the job list is read again, and replaced as a whole or not at all
//! (`engine::daemon`, `reload`); runs end under the definition that they began with.
//!
//! *SIGTERM comes*: no more claims, running jobs finish under renewed leases until
//! `drain_timeout`, a second SIGTERM ends them.
//!
//! # Where to add things
//!
//! A subcommand: one file in `src/cli/`, one arm in its `mod.rs`. A look of `doctor`: one file in
//! `src/preflight/`, an id, its line in `docs/operations.md`. A store: an implementation of
//! `store::Store`, opened in `src/store/open.rs`, that passes `tests/it/contract`. A policy: a field
//! of `config::Job`, decided in the engine's core, or, if hosts must agree on it, in
//! `store::protocol` and the Lua scripts that are compared with it.

#![expect(
    rustdoc::private_intra_doc_links,
    reason = "the docs of the program's own modules are for those who read its sources"
)]
#![cfg_attr(
    not(feature = "program"),
    allow(
        dead_code,
        unused_imports,
        reason = "much of what is common to the program and the library is used by the program"
    )
)]

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod latch;

#[cfg(feature = "program")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "program")]
#[doc(hidden)]
pub mod config;
#[cfg(feature = "program")]
#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
pub mod ground;
#[cfg(feature = "program")]
#[doc(hidden)]
pub mod guard;
#[doc(hidden)]
pub mod lease;
#[cfg(feature = "program")]
#[doc(hidden)]
pub mod observe;
#[cfg(feature = "program")]
mod preflight;
#[cfg(feature = "program")]
mod run;
#[cfg(feature = "program")]
#[doc(hidden)]
pub mod schedule;
#[cfg(feature = "program")]
mod siblings;
#[doc(hidden)]
pub mod store;

#[doc(hidden)]
pub use ground::{names, time};
pub use latch::{
    AcquireError, ExtendError, HeldLock, HeldLocks, Latch, LatchBuilder, LockRequest, LocksRequest,
    OpenError, Owner, ReleaseError, RunError, ShutdownError, Ticket, blocking,
};
pub use lease::LeaseLost;
pub use names::InvalidName;
pub use store::{ErrorDetail, StoreError};
