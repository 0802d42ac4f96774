//! The watchdog: one thread per process that renews every held lease.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as blocking;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::handle::{Lease, LeaseState, LeaseView};
use super::renewal_loop::{
    Heartbeat, LeaseSubscriber, PendingRelease, RenewalLoop, WatchdogCommand,
};
use super::table::{LeaseId, Terms};
use crate::ground::{OnLost, timing};
use crate::names::{RunId, Token};
use crate::store::{self, Finish, Lock, Store, StoreError, StoreSettings, Tenure};
use crate::time::BootInstant;

/// Something that is kept alive for as long as something else lasts, and does its work when it is
/// dropped.
pub(crate) type Keepsake = Box<dyn Any + Send + Sync>;

/// A lease as granted.
#[derive(Debug)]
pub struct GrantedLease {
    /// The lock.
    pub lock: Lock,
    /// The token it was granted under.
    pub token: Token,
    /// Its length.
    pub ttl: Duration,
    /// What the store needs to take it back after it lost its data.
    pub tenure: Tenure,
    /// When the claim that was answered was sent.
    pub sent: BootInstant,
    /// The run whose processes the guard must be told about; `None` for the library.
    pub run: Option<RunId>,
    /// With `Continue` the guard's deadline is not set.
    pub on_lost: OnLost,
    /// No renewal is sent after this; `None`: the lease is renewed for as long as it is held.
    pub renew_until: Option<BootInstant>,
    /// Dropped as soon as the lease is lost, released or let go, whichever comes first.
    pub while_held: Option<Keepsake>,
}

/// Why a lease is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseLost {
    /// Another holder has the lock. Renewals find this out, so within a third of the TTL.
    Taken,
    /// The lock is gone from the store and may be granted to others: it was released by force,
    /// or its lease ended there.
    Absent,
    /// The lease was not renewed before it ended: the store did not answer, this process stood
    /// still, or nobody asked for a renewal.
    Expired,
    /// Its holder released the lock, or dropped it.
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

/// Where the ends of renewed leases are told, so that what runs under them is ended in time: the
/// guard process. Told by the thread itself, so that a busy runtime elsewhere cannot let a job die
/// whose lease is sound.
pub trait ExtendRuns: Send + std::fmt::Debug {
    /// Each run may now go on until the instant beside it.
    fn extend(&self, runs: &[(RunId, BootInstant)]) -> io::Result<()>;
}

/// The handle of the thread. The thread ends when the last handle and the last lease are dropped.
#[derive(Debug, Clone)]
pub struct Watchdog {
    commands: mpsc::UnboundedSender<WatchdogCommand>,
    heartbeat: Arc<Heartbeat>,
    next_id: Arc<AtomicU64>,
}

impl Watchdog {
    /// Starts the thread, with a runtime and a store connection of its own.
    pub fn start(
        settings: &StoreSettings,
        deadlines: Option<Box<dyn ExtendRuns>>,
    ) -> io::Result<Self> {
        let settings = settings.clone();
        Self::start_on(move || store::open(&settings), deadlines)
    }

    /// Starts the thread on the store that `open` opens, within the thread's runtime.
    pub(super) fn start_on(
        open: impl FnOnce() -> Result<Arc<dyn Store>, StoreError> + Send + 'static,
        deadlines: Option<Box<dyn ExtendRuns>>,
    ) -> io::Result<Self> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let heartbeat = Arc::new(Heartbeat::default());
        heartbeat.strike(BootInstant::now());
        let (opened, is_open) = blocking::sync_channel(1);
        let thread_beat = Arc::clone(&heartbeat);
        std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || keep_watch(open, deadlines, inbox, thread_beat, &opened))?;
        is_open.recv().map_err(|_| {
            io::Error::other("the watchdog thread ended unexpectedly at its start")
        })??;
        Ok(Self {
            commands,
            heartbeat,
            next_id: Arc::default(),
        })
    }

    /// Begins to renew a lease; dropping the [`Lease`] stops it.
    ///
    /// Never waits: the lease's end is known here and now, whatever the thread is busy with.
    pub fn hold(&self, held: GrantedLease) -> Lease {
        let id = LeaseId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let ends = timing::ends(held.sent, held.ttl);
        let (state, view) = watch::channel(LeaseState::Held { ends });
        let (trouble, last_trouble) = watch::channel(None);
        let subscriber = LeaseSubscriber {
            state,
            trouble,
            run: held.run.filter(|_| held.on_lost == OnLost::Kill),
            lock: held.lock.name.clone(),
            _while_held: held.while_held,
            complained: false,
        };
        let signal = subscriber.state.clone();
        let terms = Terms {
            lock: held.lock,
            token: held.token,
            ttl: held.ttl,
            tenure: held.tenure,
            sent: held.sent,
            renew_until: held.renew_until,
        };
        // Fails only when the thread died; the lease then runs out, and its view says so.
        let _ = self
            .commands
            .send(WatchdogCommand::Hold(id, subscriber, Box::new(terms)));
        Lease {
            id,
            commands: self.commands.clone(),
            state: signal,
            trouble: last_trouble,
            view: LeaseView::new(view, ends),
        }
    }

    /// Finishes in the background what nobody waits for: the release of `lease`, or a claim that
    /// may still be granted. Needs no runtime of the caller's, and is retried for `limit`.
    ///
    /// `until_done` is dropped when the store has answered or the limit is over.
    pub(crate) fn finish(
        &self,
        lease: Option<Lease>,
        finish: Finish,
        limit: Duration,
        until_done: Keepsake,
    ) {
        if let Some(lease) = &lease {
            lease.end();
        }
        let finishing = PendingRelease {
            lease: lease.as_ref().map(|lease| lease.id),
            finish,
            limit,
            until_done,
        };
        // Fails only when the thread died; the lease then ends with its TTL.
        let _ = self
            .commands
            .send(WatchdogCommand::Finish(Box::new(finishing)));
        // The thread knows already that it is not to be renewed any more.
        drop(lease);
    }

    /// When the thread last went round its loop; it does at least once a second.
    pub fn last_beat(&self) -> BootInstant {
        self.heartbeat.at()
    }
}

fn keep_watch(
    open: impl FnOnce() -> Result<Arc<dyn Store>, StoreError>,
    deadlines: Option<Box<dyn ExtendRuns>>,
    inbox: mpsc::UnboundedReceiver<WatchdogCommand>,
    heartbeat: Arc<Heartbeat>,
    opened: &blocking::SyncSender<io::Result<()>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return drop(opened.send(Err(error))),
    };
    runtime.block_on(async {
        let store = match open() {
            Ok(store) => store,
            Err(error) => return drop(opened.send(Err(io::Error::other(error)))),
        };
        let _ = opened.send(Ok(()));
        // The first renewal should not have to pay for the connection.
        let warm = Arc::clone(&store);
        tokio::spawn(async move { warm.now().await.map(drop) });
        RenewalLoop::new(store, deadlines, inbox, heartbeat, BootInstant::now)
            .run()
            .await;
    });
    // A store call may hang in a blocking thread; the process must not wait for it.
    runtime.shutdown_background();
}
