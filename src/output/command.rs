//! What runs ask of the thread that writes, and how much may wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;

use super::entry::OutputOrigin;
use crate::config::OutputPolicy;
use crate::observe::RunFields;
use crate::store::Outcome;
use crate::time::Timestamp;

/// How many bytes of one run may wait for the disk. A single chunk is far smaller.
const RUN_BYTES_MAX: usize = 1 << 20;
/// How many bytes of all runs may wait for the disk.
const ALL_BYTES_MAX: usize = 16 << 20;

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum WriterCommand {
    Begin {
        serial: u64,
        fields: Box<RunFields>,
    },
    /// Its command wrote something.
    Write {
        serial: u64,
        at: Timestamp,
        origin: OutputOrigin,
        bytes: Vec<u8>,
        /// How many bytes before these were dropped, because the budget was used up.
        dropped: u64,
        budget: Arc<OutputBudget>,
    },
    Attempt {
        serial: u64,
        attempt: u32,
    },
    /// The run has ended.
    End {
        serial: u64,
        end: RunEnd,
        dropped: u64,
    },
    /// The run's output handle was dropped. If there was no `End`, the file stays, as after a failure.
    Forget {
        serial: u64,
    },
    /// Another policy is in force.
    Policy(OutputPolicy),
    /// Replies once everything sent before it is written.
    Flush(oneshot::Sender<()>),
}

/// How a run ended, as far as its output is concerned.
#[derive(Debug, Clone)]
pub(crate) enum RunEnd {
    /// With this outcome, for this reason.
    Ended(Outcome, Option<String>),
    /// Its command was never started, and the occurrence goes back undecided.
    NotStarted,
}

/// Limits how many bytes of a run, and of all runs, wait for the disk.
#[derive(Debug)]
pub(super) struct OutputBudget {
    own: AtomicUsize,
    all: Arc<AtomicUsize>,
}

impl OutputBudget {
    /// The budget of a run; `all` counts the bytes of all runs.
    pub(super) fn new(all: &Arc<AtomicUsize>) -> Self {
        Self {
            own: AtomicUsize::new(0),
            all: Arc::clone(all),
        }
    }

    /// Reserves the bytes of a chunk. Returns whether they were within the budget.
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let all = self.all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let own = self.own.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let fits = own <= RUN_BYTES_MAX && all <= ALL_BYTES_MAX;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    /// A chunk was written, or dropped.
    pub(super) fn release(&self, bytes: usize) {
        self.all.fetch_sub(bytes, Ordering::Relaxed);
        self.own.fetch_sub(bytes, Ordering::Relaxed);
    }
}
