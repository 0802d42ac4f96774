//! The watchdog: a thread that renews all leases that it was given. A daemon, `exec` and `trigger` have one;
//! each `Latch` of the library has its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::command::{
    BackgroundFinish, LeaseFields, LeaseState, LeaseSubscriber, OnDrop, WatchdogCommand,
};
use super::handle::{Lease, LeaseView};
use super::renewal_loop::{ExtendRuns, Heartbeat, RenewalLoop};
use super::table::{LeaseId, RenewedLease};
use crate::ground::OnLost;
use crate::ground::tasks;
use crate::store::{self, Finish, Grant, GrantedRun, Renewal, Store, StoreError, StoreSettings};
use crate::time::BootInstant;

/// A lease to hold: the grant, and how it is kept.
#[derive(Debug)]
pub struct NewLease {
    /// The lease as granted.
    pub grant: Grant,
    /// The job's run that it was granted for; `None` for a bare lock.
    pub run: Option<GrantedRun>,
    /// Whether the guard has a deadline for the run.
    pub guarded: Guarded,
    /// No renewal is sent after this; `None`: the lease is renewed for as long as it is held.
    pub renew_until: Option<BootInstant>,
    /// Dropped when the lease ends for any reason.
    pub while_held: Option<OnDrop>,
}

/// Whether the guard kills the processes of a run before its lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    /// Each renewal moves the run's deadline in the guard.
    Yes,
    /// `on_lost: continue`, and the library, which runs no processes.
    No,
}

impl From<OnLost> for Guarded {
    fn from(on_lost: OnLost) -> Self {
        match on_lost {
            OnLost::Kill => Self::Yes,
            OnLost::Continue => Self::No,
        }
    }
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
    pub(crate) fn start_on(
        open: impl FnOnce() -> Result<Arc<dyn Store>, StoreError> + Send + 'static,
        deadlines: Option<Box<dyn ExtendRuns>>,
    ) -> io::Result<Self> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let heartbeat = Arc::new(Heartbeat::default());
        heartbeat.beat(BootInstant::now());
        let (opened, wait_opened) = std_mpsc::sync_channel(1);
        let thread_beat = Arc::clone(&heartbeat);
        std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || run_thread(open, deadlines, inbox, thread_beat, &opened))?;
        wait_opened.recv().map_err(|_| {
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
    /// Never waits: the end of the lease is known here, whatever the thread is doing.
    pub fn hold(&self, new: NewLease) -> Lease {
        let id = LeaseId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let ends = new.grant.ends();
        let (state, view) = watch::channel(LeaseState::Held { ends });
        let (trouble, last_trouble) = watch::channel(None);
        let run_ended = Arc::new(AtomicBool::new(false));
        let renewal = Renewal {
            grant: new.grant,
            run: new.run,
        };
        let fields = LeaseFields::of(&renewal);
        let subscriber = LeaseSubscriber {
            state: state.clone(),
            trouble,
            run: (new.guarded == Guarded::Yes).then(|| fields.run_id.clone()),
            fields,
            run_ended: Arc::clone(&run_ended),
            _while_held: new.while_held,
            is_failure_logged: false,
        };
        let lease = Box::new(RenewedLease {
            renewal,
            renew_until: new.renew_until,
        });
        // Fails only when the thread died; the lease then expires, and its view reports that.
        let _ = self
            .commands
            .send(WatchdogCommand::Hold(id, subscriber, lease));
        Lease {
            id,
            commands: self.commands.clone(),
            state,
            trouble: last_trouble,
            run_ended,
            view: LeaseView::new(view, ends),
        }
    }

    /// Delivers a request in the background: the release of `lease`, or the cancellation of a claim
    /// that may still be granted. Needs no runtime of the caller, and retries for `limit`.
    ///
    /// `until_done` is dropped when the store has replied or the limit is over.
    pub(crate) fn finish(
        &self,
        lease: Option<Lease>,
        finish: Finish,
        limit: Duration,
        until_done: OnDrop,
    ) {
        if let Some(lease) = &lease {
            lease.end();
        }
        let pending = BackgroundFinish {
            lease: lease.as_ref().map(|lease| lease.id),
            finish,
            limit,
            until_done,
        };
        // Fails only when the thread died; the lease then ends with its TTL.
        let _ = self
            .commands
            .send(WatchdogCommand::Finish(Box::new(pending)));
        // The thread has learned from this command that the lease is not to be renewed.
        drop(lease);
    }

    /// When the thread's loop last woke, which it does at least once a second.
    pub fn last_beat(&self) -> BootInstant {
        self.heartbeat.at()
    }
}

fn run_thread(
    open: impl FnOnce() -> Result<Arc<dyn Store>, StoreError>,
    deadlines: Option<Box<dyn ExtendRuns>>,
    inbox: mpsc::UnboundedReceiver<WatchdogCommand>,
    heartbeat: Arc<Heartbeat>,
    opened: &std_mpsc::SyncSender<io::Result<()>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return drop(opened.send(Err(error))),
    };
    tasks::block_on(&runtime, async {
        let store = match open() {
            Ok(store) => store,
            Err(error) => return drop(opened.send(Err(io::Error::other(error)))),
        };
        let _ = opened.send(Ok(()));
        // Connect now, so that the first renewal does not have to wait for it.
        let warm = Arc::clone(&store);
        tasks::spawn(async move { warm.now().await.map(drop) });
        RenewalLoop::new(store, deadlines, inbox, heartbeat, BootInstant::now)
            .run()
            .await;
    });
    // A store call may hang in a blocking thread; the process must not wait for it.
    runtime.shutdown_background();
}
