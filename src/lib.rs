//! cronlatch: the cron that a fleet can trust.
//!
//! The same job list is deployed on many hosts. For each occurrence of each job the hosts race for a
//! lock in a store that they share. One host wins, runs the job while its lease is renewed, and
//! releases the lock with its token. **Every occurrence runs once**: at most once, whatever the clocks
//! show and whichever host crashes or restarts, and at least once while a host and the store are up.
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
//!     // Longer than the TTL: a Redis without cronlatch's marker may have lost the lease of somebody else,
//!     // so it grants nothing before such a lease has expired.
//!     .wait(Duration::from_secs(60))
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
//! expire in the store. A library cannot kill its caller. The library guarantees exclusion only until
//! the lost-lease signal ([`HeldLock::lost`], [`RunError::Lost`]). Code that does not watch for the
//! signal, or was paused when it arrived, may still run afterwards; what it writes to can reject it by
//! its [fencing token](Ticket::fence).
//!
//! Everything else in this crate is the program `cronlatch`. It is public for its tests and may
//! change at any time.
//!
//! # The life of a run
//!
//! 1. `config` reads the YAML list into validated jobs. It reports all errors at once, each with its
//!    line.
//! 2. `schedule` computes the instants at which a job is due; its ticker fires at each of them, or some
//!    milliseconds before it, so that claim and process are ready when it comes.
//! 3. `engine` decides what this host does: is the host full, is an older run of the job open, is the
//!    daemon draining? If the job is to run, it sends a *claim* with a new token.
//! 4. `store` judges the claim in one atomic step: first the *ledger*, which says up to which
//!    instant the occurrences of a job are decided and which run of it is open, then the lock.
//!    Winner and losers receive the reply in one round trip. The winner's reply becomes a `Grant`,
//!    which is passed on unchanged until the run has its record.
//! 5. `lease` hands the grant to the watchdog thread. It renews the lease every third of its TTL, and
//!    at least every ten seconds, on a connection and a runtime of its own.
//! 6. `run` prepares the command and follows it. `guard` spawns it through a small child process,
//!    which knows the deadline of every run and kills what outlives it, whatever happens to the daemon.
//!    `output` keeps what the command writes in files of this host, and never delays the command.
//! 7. When the whole process tree is gone, the *result* of the run (its exit code, its times, its
//!    last output) is sent to the store. In one atomic step, the store closes the run in the
//!    ledger, adds a *record* to the job's history, and releases the lock. The record's outcome is
//!    the *verdict* on the occurrence; an occurrence that did not run gets a verdict as well, such
//!    as `skipped`. `observe` logs each step, and `metrics` counts them.
//!
//! Data flows only in that order: `schedule` does not know stores, `store` does not know processes,
//! and `guard` does not know schedules. `docs/architecture.md` shows the path of one occurrence.
//!
//! # Who owns which state
//!
//! | state | owner |
//! | --- | --- |
//! | lock, ledger, history | the store; its clock decides |
//! | when a lease expires | the watchdog thread, on the boot clock, counted from before the request was sent |
//! | running processes and their deadlines | the guard |
//! | what a host does next | the engine's core: plain data behind one `handle(event)` |
//! | results that are not delivered yet | the engine's finisher, which also keeps them on disk |
//!
//! # When something fails
//!
//! *A lease is lost* (taken, gone, or not renewed in time): the watchdog reports it, and the run's
//! follower kills the job. The record is `lease_lost`, and the new holder's lock stays untouched. If
//! the daemon itself hangs, the guard kills the job at its deadline, before the lease can expire in
//! the store.
//!
//! *The store is unreachable*: renewals are retried until each lease's deadline, claims until the
//! occurrence's start deadline. Once the store is back, the policy `catch_up` of the job decides
//! which of the missed occurrences still run: none, the latest or all.
//!
//! *The store loses its data*: each request compares the server's identity with the one stored in
//! the data. If they differ, the store grants nothing until every lease that it may have lost has
//! expired, and holders re-acquire their leases (`store::protocol`, recovery). What happened to
//! occurrences that were due before the loss is not known, so each that no holder reports gets the
//! verdict `unknown`.
//!
//! *Another store is in use for the same jobs*, by hosts that share a server with this one or by a
//! daemon of this host (`siblings`): this host claims nothing until those daemons have ended.
//!
//! *SIGHUP*: the daemon reads the job list again and replaces it as a whole or not at all
//! (`engine::daemon`, `reload`). A run ends under the definition with which it began.
//!
//! *SIGTERM*: the daemon makes no more claims. Running jobs finish under renewed leases until
//! `drain_timeout`; a second SIGTERM kills them.
//!
//! # Where to add things
//!
//! A subcommand: one file in `src/cli/`, one arm in its `mod.rs`. A check of `doctor`: one file in
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

/// Unit tests share files with the tests in `tests/`, which know this crate by its name.
#[cfg(test)]
extern crate self as cronlatch;

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
#[cfg(feature = "program")]
mod http;
#[doc(hidden)]
pub mod lease;
#[cfg(feature = "program")]
mod metrics;
#[cfg(feature = "program")]
mod notify;
#[cfg(feature = "program")]
#[doc(hidden)]
pub mod observe;
#[cfg(feature = "program")]
mod output;
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
