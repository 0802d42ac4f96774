//! Fires occurrences at their instants, on tokio-cron-scheduler.
//!
//! The library by itself polls every half second, keeps one fixed offset from UTC for each job,
//! loses what does not fit into a channel of 200, and under load calls a job twice for one tick.
//! Its storage trait avoids all this: [`board`] knows from our own [`crate::schedule::Schedule`] what is due when;
//! [`storage`] reports a job to the library a little *before* its instant; the library calls the
//! job back, and the callback sleeps to the exact instant and takes each occurrence from the board
//! exactly once. If the library loses a report, it is repeated at the next poll. If it doubles one,
//! the second finds nothing to take.
//!
//! Wall clocks are stepped. The ticker sleeps on the monotonic clock, for at most one second at a
//! time, and reads the wall clock after each sleep. So
//! - if the clock is stepped forward, each occurrence that was passed over is delivered once, in
//!   order (the newest [`MOST_AT_ONCE`] of a job; the firing has the range that was left out);
//! - if the clock is stepped back, none is delivered again. If it is set back by more than three
//!   hours, this counts as a correction, as in Debian's cron: firing continues from the new time, and
//!   the ledger knows what has run.

mod alarm;
#[doc(hidden)]
pub mod board;
mod clock;
mod firing;
mod storage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{RwLock, broadcast, mpsc};
use tokio_cron_scheduler::{
    Context, JobScheduler, JobSchedulerError, SimpleNotificationCode, SimpleNotificationStore,
};

use self::alarm::Alarm;
use self::board::Board;
pub use self::clock::{SystemClock, WallClock};
pub use self::firing::{ClaimsAhead, Firing, HEAD_STARTS, MOST_AT_ONCE, Skipped, TickerJob};
use self::storage::{Callback, Storage};
use crate::time::Timestamp;

/// The capacity of the library's own channels, which are not used here.
const UNUSED_CHANNEL: usize = 16;

/// The ticker cannot start or stop.
#[derive(Debug, thiserror::Error)]
pub enum TickerError {
    /// The library refused.
    #[error("the scheduler failed: {0}")]
    Library(#[from] JobSchedulerError),
    /// There is no thread to be had.
    #[error("cannot start the timer thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// Fires jobs until it is stopped or dropped.
pub struct Ticker {
    board: Arc<Board>,
    scheduler: JobScheduler,
    /// How many jobs the channels of the library have room for.
    capacity: usize,
}

impl Ticker {
    /// Fires `jobs` into `tx`, each job's occurrences in ascending order. Needs a tokio runtime
    /// with time.
    pub async fn start(
        jobs: Vec<TickerJob>,
        tx: mpsc::UnboundedSender<Firing>,
    ) -> Result<Self, TickerError> {
        Self::start_with_clock(jobs, tx, Arc::new(SystemClock)).await
    }

    /// As [`Ticker::start`], by another wall clock than the system's.
    pub async fn start_with_clock(
        jobs: Vec<TickerJob>,
        tx: mpsc::UnboundedSender<Firing>,
        clock: Arc<dyn WallClock>,
    ) -> Result<Self, TickerError> {
        let capacity = jobs.len();
        let board = Arc::new(Board::new(jobs, tx, clock));
        let scheduler = begin(&board, capacity).await?;
        let ticker = Self {
            board,
            scheduler,
            capacity,
        };
        ticker.call_at_once();
        Ok(ticker)
    }

    /// Makes room for `count` jobs. If it fails, the ticker continues as it is.
    pub async fn make_room(&mut self, count: usize) -> Result<(), TickerError> {
        if count > self.capacity {
            // The channels of the library hold no more. Callbacks that have begun continue.
            let capacity = count + count / 2;
            let scheduler = begin(&self.board, capacity).await?;
            let mut old = std::mem::replace(&mut self.scheduler, scheduler);
            self.capacity = capacity;
            old.shutdown().await?;
        }
        Ok(())
    }

    /// Replaces the jobs, for which [`Self::make_room`] has made room; see [`Board::replace`].
    pub fn replace(
        &self,
        jobs: Vec<TickerJob>,
        firings: &mut mpsc::UnboundedReceiver<Firing>,
    ) -> Vec<Firing> {
        let fired = self.board.replace(jobs, firings);
        self.call_at_once();
        fired
    }

    /// The library's next poll comes within half a second: too late for what is due before.
    fn call_at_once(&self) {
        for job in self.board.due_soon() {
            let id = storage::id_of(job);
            self.scheduler.context.job_activation_tx.send(id).ok();
        }
    }

    /// What is fired when.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Stops: once this returns, nothing more is delivered.
    pub async fn stop(&mut self) -> Result<(), TickerError> {
        self.board.stop();
        Ok(self.scheduler.shutdown().await?)
    }

    /// When the next occurrence of any job is to be fired; `None` when nothing is ahead.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.board.next_due()
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.board.stop();
        // Ends the library's polling; its lock is held only while it starts or stops.
        if let Ok(scheduler) = self.scheduler.scheduler.try_read() {
            scheduler.shutdown.store(true, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Ticker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticker").finish_non_exhaustive()
    }
}

/// Starts the library on a board.
async fn begin(board: &Arc<Board>, capacity: usize) -> Result<JobScheduler, TickerError> {
    let mut scheduler = library(board, Alarm::start()?, capacity);
    scheduler.init().await?;
    scheduler.start().await?;
    Ok(scheduler)
}

/// The library around our board. It is assembled by hand because its constructor gives all of its
/// ten channels one size: sized for 10,000 jobs, they would take 13 MB.
fn library(board: &Arc<Board>, alarm: Alarm, count: usize) -> JobScheduler {
    let mut context = Context::new_with_channel_size(
        Arc::new(RwLock::new(Box::new(Storage::new(Arc::clone(board))))),
        Arc::new(RwLock::new(Box::new(SimpleNotificationStore::default()))),
        Arc::new(RwLock::new(Box::new(Callback::new(board, alarm)))),
        Arc::new(RwLock::new(Box::new(SimpleNotificationCode::default()))),
        UNUSED_CHANNEL,
    );
    // One activation of each job may wait, and three notes on it.
    context.job_activation_tx = broadcast::channel(count.max(UNUSED_CHANNEL)).0;
    context.notify_tx = broadcast::channel(3 * count.max(UNUSED_CHANNEL)).0;
    JobScheduler {
        context: Arc::new(context),
        inited: Arc::new(AtomicBool::new(false)),
        job_creator: Arc::default(),
        job_deleter: Arc::default(),
        job_runner: Arc::default(),
        notification_creator: Arc::default(),
        notification_deleter: Arc::default(),
        notification_runner: Arc::default(),
        scheduler: Arc::default(),
        shutdown_notifier: None,
    }
}

#[cfg(test)]
mod tests;
