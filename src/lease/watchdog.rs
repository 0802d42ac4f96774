//! The watchdog: one thread per process that renews every held lease.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as blocking;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::book::{LeaseId, Terms};
use super::handle::{Lease, LeaseView, State};
use super::rounds::{Beat, Command, Rounds, Seat};
use super::timing;
use crate::config::OnLost;
use crate::names::{RunId, Token};
use crate::process::Deadlines;
use crate::store::{self, Lock, Store, StoreError, StoreSettings, Tenure};
use crate::time::BootInstant;

/// A lease as granted.
#[derive(Debug, Clone)]
pub struct Held {
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
}

/// Why a lease is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseLost {
    /// Another token holds the lock.
    Taken,
    /// The lock was gone, and our right to it.
    Absent,
    /// It could not be renewed before it ended.
    Expired,
}

impl fmt::Display for LeaseLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Taken => "lease lost: another holder has the lock",
            Self::Absent => "lease lost: the lock is gone from the store",
            Self::Expired => "lease lost: it could not be renewed before it ended",
        })
    }
}

impl std::error::Error for LeaseLost {}

/// The handle of the thread. The thread ends when the last handle and the last lease are dropped.
#[derive(Debug, Clone)]
pub struct Watchdog {
    commands: mpsc::UnboundedSender<Command>,
    beat: Arc<Beat>,
    next_id: Arc<AtomicU64>,
}

impl Watchdog {
    /// Starts the thread, with a runtime and a store connection of its own.
    pub fn start(settings: &StoreSettings, deadlines: Option<Deadlines>) -> io::Result<Self> {
        let settings = settings.clone();
        Self::start_on(move || store::open(&settings), deadlines)
    }

    /// Starts the thread on the store that `open` opens, within the thread's runtime.
    pub(super) fn start_on(
        open: impl FnOnce() -> Result<Arc<dyn Store>, StoreError> + Send + 'static,
        deadlines: Option<Deadlines>,
    ) -> io::Result<Self> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let beat = Arc::new(Beat::default());
        beat.strike(BootInstant::now());
        let (opened, is_open) = blocking::sync_channel(1);
        let thread_beat = Arc::clone(&beat);
        std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || keep_watch(open, deadlines, inbox, thread_beat, &opened))?;
        is_open
            .recv()
            .map_err(|_| io::Error::other("the watchdog thread ended as it started"))??;
        Ok(Self {
            commands,
            beat,
            next_id: Arc::default(),
        })
    }

    /// Begins to renew a lease; dropping the [`Lease`] stops it.
    ///
    /// Never waits: the lease's end is known here and now, whatever the thread is busy with.
    pub fn hold(&self, held: Held) -> Lease {
        let id = LeaseId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let ends = timing::ends(held.sent, held.ttl);
        let (state, view) = watch::channel(State::Held { ends });
        let seat = Seat {
            state,
            run: held.run.filter(|_| held.on_lost == OnLost::Kill),
            lock: held.lock.name.clone(),
        };
        let terms = Terms {
            lock: held.lock,
            token: held.token,
            ttl: held.ttl,
            tenure: held.tenure,
            sent: held.sent,
        };
        // Fails only when the thread died; the lease then runs out, and its view says so.
        let _ = self.commands.send(Command::Hold(id, seat, Box::new(terms)));
        Lease {
            id,
            commands: self.commands.clone(),
            view: LeaseView::new(view, ends),
        }
    }

    /// When the thread last went round its loop; it does at least once a second.
    pub fn last_beat(&self) -> BootInstant {
        self.beat.at()
    }
}

fn keep_watch(
    open: impl FnOnce() -> Result<Arc<dyn Store>, StoreError>,
    deadlines: Option<Deadlines>,
    inbox: mpsc::UnboundedReceiver<Command>,
    beat: Arc<Beat>,
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
        Rounds::new(store, deadlines, inbox, beat, BootInstant::now)
            .run()
            .await;
    });
    // A store call may hang in a blocking thread; the process must not wait for it.
    runtime.shutdown_background();
}
