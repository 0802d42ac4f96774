//! Fires occurrences at their instants, on tokio-cron-scheduler.
//!
//! The library by itself polls every half second, keeps one fixed offset from UTC for each job,
//! loses what does not fit into a channel of 200, and under load calls a job twice for one tick.
//! Its storage trait avoids all this: [`board`] knows from our own [`crate::schedule::Schedule`] what is due when;
//! [`storage`] tells the library that something is due a little *before* its instant; the library
//! calls back, and the callback starts a task for each job that is due soon. The task sleeps to the
//! exact instant and takes each occurrence from the board exactly once. If the library loses a
//! report, it is repeated at the next poll. If it doubles one, the second finds nothing to take. The
//! library knows one job only, so that its channels need not have room for all of them.
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
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio_cron_scheduler::{
    JobScheduler, JobSchedulerError, SimpleNotificationCode, SimpleNotificationStore,
};

use self::alarm::Alarm;
use self::board::Board;
pub use self::clock::{SystemClock, WallClock};
pub use self::firing::{ClaimsAhead, Firing, HEAD_STARTS, MOST_AT_ONCE, Skipped, TickerJob};
use self::storage::{Callback, Storage};
use crate::time::Timestamp;

/// The capacity of each channel of the library. One call at a time is under way, every half second.
const CHANNEL: usize = 64;

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
        let board = Arc::new(Board::new(jobs, tx, clock));
        let scheduler = begin(&board).await?;
        let ticker = Self { board, scheduler };
        ticker.call_at_once();
        Ok(ticker)
    }

    /// Replaces the jobs; see [`Board::replace`].
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
        if self.board.is_due_soon() {
            let calls = &self.scheduler.context.job_activation_tx;
            calls.send(storage::SERVE_DUE).ok();
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
async fn begin(board: &Arc<Board>) -> Result<JobScheduler, TickerError> {
    let scheduler = JobScheduler::new_with_storage_and_code(
        Box::new(Storage::new(Arc::clone(board))),
        Box::<SimpleNotificationStore>::default(),
        Box::new(Callback::new(board, Alarm::start()?)),
        Box::<SimpleNotificationCode>::default(),
        CHANNEL,
    );
    let mut scheduler = scheduler.await?;
    scheduler.init().await?;
    scheduler.start().await?;
    Ok(scheduler)
}

#[cfg(test)]
mod tests;
