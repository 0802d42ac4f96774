//! What runs ask of the thread that writes, and how much may wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;

use super::entry::OutputOrigin;
use crate::config::OutputPolicy;
use crate::observe::RunFields;
use crate::store::Outcome;
use crate::time::Timestamp;

/// How many bytes of one run may wait for the disk.
const MOST_OF_RUN: usize = 1 << 20;
/// How many bytes of all runs may wait for the disk.
const MOST_OF_ALL: usize = 16 << 20;

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum WriterCommand {
    /// A run begins.
    Begin { serial: u64, fields: Box<RunFields> },
    /// Its command wrote something.
    Write {
        serial: u64,
        at: Timestamp,
        origin: OutputOrigin,
        bytes: Vec<u8>,
        /// How many bytes before these had no room in the queue.
        dropped: u64,
        queue: Arc<OutputQueue>,
    },
    /// A further attempt starts.
    Attempt { serial: u64, attempt: u32 },
    /// The run has ended.
    End {
        serial: u64,
        end: RunEnd,
        dropped: u64,
    },
    /// Nothing more comes of the run.
    Forget { serial: u64 },
    /// Another policy is in force.
    Policy(OutputPolicy),
    /// Reports when everything before this is written.
    Close(oneshot::Sender<()>),
}

/// How a run ended, as far as its output is concerned.
#[derive(Debug, Clone)]
pub(crate) enum RunEnd {
    /// With this outcome, for this reason.
    Ended(Outcome, Option<String>),
    /// Its command was never started, and the occurrence goes back undecided.
    NotStarted,
}

/// How many bytes of a run, and of all runs, wait for the disk.
#[derive(Debug)]
pub(super) struct OutputQueue {
    own: AtomicUsize,
    all: Arc<AtomicUsize>,
}

impl OutputQueue {
    /// The queue of a run; `all` counts the bytes of all runs.
    pub(super) fn new(all: &Arc<AtomicUsize>) -> Self {
        Self {
            own: AtomicUsize::new(0),
            all: Arc::clone(all),
        }
    }

    /// Takes room for a chunk, if there is any.
    pub(super) fn enter(&self, bytes: usize) -> bool {
        let all = self.all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let own = self.own.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let fits = own <= MOST_OF_RUN && all <= MOST_OF_ALL;
        if !fits {
            self.leave(bytes);
        }
        fits
    }

    /// A chunk was written, or dropped.
    pub(super) fn leave(&self, bytes: usize) {
        self.all.fetch_sub(bytes, Ordering::Relaxed);
        self.own.fetch_sub(bytes, Ordering::Relaxed);
    }
}
