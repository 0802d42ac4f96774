//! The thread that owns the file. It has one connection and executes one transaction at a time.
//!
//! The requests that are queued during a transaction share the next one, so that a thousand claims at
//! one instant need one write to the disk. If that transaction fails, each request gets its own, so that
//! one unreadable row does not fail the others.
//!
//! While a daemon waits for what others write, the thread also checks whether they have written to the file,
//! which notifies nobody. A check wakes only this thread. It wakes the daemon only when there is something to
//! read.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::{Notify, oneshot};

use super::clock::{TransactionTime, boot_id};
use super::context::{BUSY, WorkContext};
use super::error::SqliteFailure;
use super::path_check::{self, FileId};
use super::{registry, schema};
use crate::store::StoreError;
use crate::time::BootInstant;

/// How often unused locks without jobs are deleted.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);

/// How often the file is checked while somebody waits for a change of it.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// How many requests share one transaction at most.
const BATCH: usize = 512;

/// Whether a request writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// A request with a caller that waits for its result.
trait QueuedRequest: Send {
    fn access(&self) -> Access;
    /// Does the work. May be called again after the transaction was rolled back.
    fn run(&mut self, work: &WorkContext<'_>) -> Result<(), SqliteFailure>;
    /// Sends the result, which is on the disk now, or the error.
    fn reply(self: Box<Self>, outcome: Result<(), StoreError>);
}

struct PendingRequest<T, F> {
    access: Access,
    run: F,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> QueuedRequest for PendingRequest<T, F>
where
    T: Send,
    F: FnMut(&WorkContext<'_>) -> Result<T, SqliteFailure> + Send,
{
    fn access(&self) -> Access {
        self.access
    }

    fn run(&mut self, work: &WorkContext<'_>) -> Result<(), SqliteFailure> {
        self.result = Some((self.run)(work)?);
        Ok(())
    }

    fn reply(self: Box<Self>, outcome: Result<(), StoreError>) {
        let reply = match (outcome, self.result) {
            (Ok(()), Some(result)) => Ok(result),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(StoreError::unreachable(
                "the request was not executed".to_owned(),
            )),
        };
        // The caller may have stopped waiting.
        let _ = self.reply.send(reply);
    }
}

/// What the thread is sent.
enum ThreadMessage {
    Request(Box<dyn QueuedRequest>),
    Watch(Watcher),
}

/// Sends messages to the thread, which ends when the last of these is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    messages: mpsc::Sender<ThreadMessage>,
}

impl Worker {
    pub(super) fn start(
        path: Option<&Path>,
        freed: Arc<Notify>,
        longest_ttl: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let (messages, queue) = mpsc::channel();
        let keeper = ConnectionThread {
            path: path.map(Path::to_owned),
            shown: path.map_or("memory".into(), |path| path.display().to_string()),
            freed,
            longest_ttl,
            open: None,
            ours: None,
            gone_until: None,
            watch: FileWatch::new(),
        };
        std::thread::Builder::new()
            .name("sqlite".to_owned())
            .spawn(move || keeper.serve(&queue))?;
        Ok(Self { messages })
    }

    pub(super) async fn ask<T, F>(&self, access: Access, run: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&WorkContext<'_>) -> Result<T, SqliteFailure> + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let request = PendingRequest {
            access,
            run,
            result: None,
            reply,
        };
        let message = ThreadMessage::Request(Box::new(request));
        self.messages.send(message).map_err(|_| thread_gone())?;
        result.await.map_err(|_| thread_gone())?
    }

    /// Waits until there are more changes than `seen`, and returns how many there are. A change is a commit of another
    /// process, a request to a daemon that was filed here, or a failed check. The file is checked twice a second.
    /// Returns at once for `None`.
    pub(super) async fn changed_since(&self, seen: Option<u64>) -> Result<u64, StoreError> {
        let (reply, changed) = oneshot::channel();
        let message = ThreadMessage::Watch(Watcher { seen, reply });
        self.messages.send(message).map_err(|_| thread_gone())?;
        changed.await.map_err(|_| thread_gone())
    }
}

fn thread_gone() -> StoreError {
    StoreError::unreachable("the thread of the embedded store is gone".to_owned())
}

/// The opened file.
struct Opened {
    db: Connection,
    boot: String,
    /// When old locks were last deleted.
    swept: BootInstant,
}

impl Opened {
    /// Changes with each commit of another connection; `None` if it cannot be read. Does not wait for a file that
    /// is locked, because requests may be waiting.
    fn version(&self) -> Option<i64> {
        self.db.busy_timeout(Duration::ZERO).ok()?;
        let version = self.db.prepare_cached("PRAGMA data_version");
        let version = version.and_then(|mut version| version.query_row([], |row| row.get(0)));
        self.db.busy_timeout(BUSY).ok()?;
        version.ok()
    }
}

/// The state of the thread.
struct ConnectionThread {
    /// The file; without one, the data are in memory.
    path: Option<PathBuf>,
    shown: String,
    freed: Arc<Notify>,
    longest_ttl: Arc<AtomicU64>,
    open: Option<Opened>,
    /// The file that contains our leases. Kept after the connection is closed because of a failure.
    ours: Option<FileId>,
    /// Set while that file is gone: when the last of its leases ends.
    gone_until: Option<BootInstant>,
    watch: FileWatch,
}

/// Somebody who waits for a change of the file.
struct Watcher {
    /// How many changes it knows; `None` to be told at once.
    seen: Option<u64>,
    /// Receives how many there are.
    reply: oneshot::Sender<u64>,
}

/// The changes of the file, and who waits for them.
struct FileWatch {
    waiting: Vec<Watcher>,
    /// How many changes were noticed: commits of others, failed checks, and transactions here that filed a request.
    changes: u64,
    /// What `PRAGMA data_version` was at the last check: another number after each commit of another connection.
    version: Option<i64>,
    /// When the file is checked next.
    due: BootInstant,
}

impl FileWatch {
    fn new() -> Self {
        Self {
            waiting: Vec::new(),
            changes: 0,
            version: None,
            due: BootInstant::BOOT,
        }
    }

    /// How long the thread may wait for its next message; `None` if nobody waits for a change.
    fn time_to_check(&mut self) -> Option<Duration> {
        self.waiting.retain(|watcher| !watcher.reply.is_closed());
        (!self.waiting.is_empty()).then(|| self.due.remaining())
    }

    fn record_check(&mut self, version: Option<i64>) {
        self.due = BootInstant::now().plus(CHECK_EVERY);
        if version.is_none() || version != self.version {
            self.changes += 1;
        }
        self.version = version;
    }

    /// Notifies those who do not know of all changes.
    fn notify(&mut self) {
        let changes = self.changes;
        for watcher in self
            .waiting
            .extract_if(.., |watcher| watcher.seen != Some(changes))
        {
            // It may have stopped waiting.
            let _ = watcher.reply.send(changes);
        }
    }
}

impl ConnectionThread {
    fn serve(mut self, queue: &mpsc::Receiver<ThreadMessage>) {
        loop {
            let received = match self.watch.time_to_check() {
                None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(rest) => queue.recv_timeout(rest),
            };
            let mut next = match received {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut batch = Vec::new();
            while let Some(message) = next.take() {
                match message {
                    ThreadMessage::Request(request) => batch.push(request),
                    ThreadMessage::Watch(watcher) => self.watch.waiting.push(watcher),
                }
                if batch.len() < BATCH {
                    next = queue.try_recv().ok();
                }
            }
            if !batch.is_empty() {
                self.serve_batch(batch);
            }
            self.check_for_changes();
        }
    }

    /// Checks the file if that is due, and notifies those who wait.
    fn check_for_changes(&mut self) {
        if self.watch.waiting.is_empty() {
            return;
        }
        if self.watch.due.remaining().is_zero() {
            // A file that cannot be read wakes those who wait: their own read reports the error. Only a request
            // opens the file, because that may wait for other processes.
            let version = match self.check_file() {
                Ok(()) => self.open.as_ref().and_then(Opened::version),
                Err(_) => None,
            };
            self.watch.record_check(version);
        }
        self.watch.notify();
    }

    fn serve_batch(&mut self, mut batch: Vec<Box<dyn QueuedRequest>>) {
        let outcome = self.run_batch(&mut batch);
        let alone = batch.len() == 1 || matches!(&outcome, Ok(()) | Err(BatchError::Whole(_)));
        for mut request in batch {
            let outcome = if alone {
                outcome
                    .as_ref()
                    .map_err(|trouble| trouble.error().clone())
                    .copied()
            } else {
                let one = std::slice::from_mut(&mut request);
                self.run_batch(one)
                    .map_err(|trouble| trouble.error().clone())
            };
            request.reply(outcome);
        }
    }

    /// Runs all requests in one transaction.
    fn run_batch(&mut self, batch: &mut [Box<dyn QueuedRequest>]) -> Result<(), BatchError> {
        let shown = self.shown.clone();
        let opened = self.opened().map_err(BatchError::Whole)?;
        match transact(opened, &shown, batch) {
            Ok(committed) => {
                if committed.freed {
                    self.freed.notify_waiters();
                }
                self.watch.changes += u64::from(committed.filed);
                Ok(())
            }
            Err(failure) => {
                if failure.spoils_connection() {
                    self.open = None;
                }
                let is_busy = failure.is_busy();
                let error = failure.store_error(&self.shown);
                Err(if is_busy {
                    BatchError::Whole(error)
                } else {
                    BatchError::Some(error)
                })
            }
        }
    }

    /// Returns the connection. Opens the file if there is none, or if it is another file.
    fn opened(&mut self) -> Result<&mut Opened, StoreError> {
        self.check_file()?;
        if self.open.is_none() {
            self.open = Some(self.connect()?);
            // The numbers of two connections cannot be compared.
            self.watch.version = None;
        }
        self.open
            .as_mut()
            .ok_or_else(|| StoreError::unreachable(format!("{}: not open", self.shown)))
    }

    /// Checks that the path still leads to the same file. A file that was deleted or replaced must not be
    /// written any more, because other processes do not see it. Its replacement must not be used before
    /// every lease of this process in the old file has ended.
    fn check_file(&mut self) -> Result<(), StoreError> {
        let identity = |path: &PathBuf| path_check::identity(path).ok();
        if self.ours.is_some() && self.path.as_ref().and_then(identity) != Some(self.ours) {
            self.ours = None;
            let kept = self.longest_ttl.load(Ordering::Relaxed);
            self.gone_until = Some(BootInstant::now().plus(Duration::from_millis(kept)));
            if let Some(opened) = self.open.take() {
                // Closing it must not delete the write-ahead log of the file that now has its name.
                let _ = opened
                    .db
                    .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            }
        }
        let remaining = self
            .gone_until
            .map_or(Duration::ZERO, BootInstant::remaining);
        if !remaining.is_zero() {
            return Err(StoreError::refused(format!(
                "{} was deleted or replaced while in use; the file that is there now will be used in {} s, \
                 when the leases of the lost file have ended",
                self.shown,
                remaining.as_secs() + 1
            )));
        }
        self.gone_until = None;
        Ok(())
    }

    fn connect(&mut self) -> Result<Opened, StoreError> {
        let store_error = |e: rusqlite::Error| SqliteFailure::from(e).store_error(&self.shown);
        let boot = boot_id()?;
        let file = (self.path.as_deref())
            .map(path_check::prepare)
            .transpose()?;
        let opened = match &file {
            None => Connection::open_in_memory(),
            Some(file) => {
                let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE
                    | OpenFlags::SQLITE_OPEN_CREATE
                    | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                flags.set(OpenFlags::SQLITE_OPEN_NOFOLLOW, file.is_shared);
                Connection::open_with_flags(&file.path, flags)
            }
        };
        let mut db = opened.map_err(store_error)?;
        db.busy_timeout(BUSY).map_err(store_error)?;
        db.set_prepared_statement_cache_capacity(32);
        let now = TransactionTime::read(&boot);
        schema::prepare(&mut db, now.clock.utc().millis(), &self.shown)?;
        let forgotten =
            schema::forget_old_locks(&db, &now).and_then(|()| registry::forget_old(&db, &now));
        if let Err(error) = forgotten {
            // The next operation reports what is wrong with the file.
            tracing::debug!(%error, "cannot delete old locks and registry entries");
        }
        self.ours = file.map(|file| file.identity);
        let swept = BootInstant::now();
        Ok(Opened { db, boot, swept })
    }
}

/// Whether a failure affects the whole batch, or possibly only some of its requests.
enum BatchError {
    Whole(StoreError),
    Some(StoreError),
}

impl BatchError {
    fn error(&self) -> &StoreError {
        match self {
            Self::Whole(error) | Self::Some(error) => error,
        }
    }
}

/// The effects of a transaction that others in this process are notified of.
struct Committed {
    /// It has released a lock.
    freed: bool,
    /// It has filed a request to a daemon.
    filed: bool,
}

/// Runs one transaction.
fn transact(
    opened: &mut Opened,
    shown: &str,
    batch: &mut [Box<dyn QueuedRequest>],
) -> Result<Committed, SqliteFailure> {
    let writes = batch.iter().any(|r| r.access() == Access::Write);
    let behavior = if writes {
        TransactionBehavior::Immediate
    } else {
        TransactionBehavior::Deferred
    };
    let tx = Transaction::new(&mut opened.db, behavior)?;
    // Read after the wait for the write lock, so that later transactions have later instants.
    let now = TransactionTime::read(&opened.boot);
    let work = WorkContext {
        db: &tx,
        shown,
        now,
        freed: Cell::new(false),
        filed: Cell::new(false),
    };
    for request in batch {
        request.run(&work)?;
    }
    if writes && BootInstant::now().since(opened.swept) >= SWEEP_EVERY {
        opened.swept = BootInstant::now();
        schema::forget_old_locks(work.db, &work.now)?;
    }
    let committed = Committed {
        freed: work.freed.get(),
        filed: work.filed.get(),
    };
    tx.commit()?;
    Ok(committed)
}
