//! What the core is told, and what it asks for.

use std::time::Duration;

use crate::names::RunId;
use crate::store::{ClaimReply, GapAnswer, Kind, OpenRun, Overlap};
use crate::time::{BootInstant, Timestamp};

/// A job's place in the list of this daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobIx(pub(crate) u32);

impl JobIx {
    /// The place as an index.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// One claim of this daemon, with all its copies; also names the run that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClaimId(pub(crate) u64);

/// The two clocks at the moment of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// This host's wall clock.
    pub(crate) utc: Timestamp,
    /// Time since boot.
    pub(crate) boot: BootInstant,
}

impl Now {
    /// Both clocks, read now.
    pub(crate) fn read() -> Self {
        Self {
            utc: Timestamp::now(),
            boot: BootInstant::now(),
        }
    }
}

/// What happened.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// The ticker says that an occurrence is due.
    Due {
        /// The job.
        job: JobIx,
        /// The occurrence.
        at: Timestamp,
    },
    /// The store answered a claim.
    Answered {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
        /// The answer.
        reply: ClaimReply,
    },
    /// A claim got no answer; it is being resent until it gets one or is cancelled.
    Unanswered {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
    },
    /// As `Unanswered`, and for this lock alone: what other servers keep can be reached.
    UnansweredAlone {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
    },
    /// A release was heard of, or the limit of the wait is over.
    Woken {
        /// The job.
        job: JobIx,
        /// The claim whose answer began the wait.
        claim: ClaimId,
    },
    /// The store answered a registration.
    Registered {
        /// The job.
        job: JobIx,
        /// From where on its occurrences are undecided.
        decided_until: Timestamp,
        /// The store's clock.
        store_now: Timestamp,
        /// A run that is open.
        open: Option<OpenRun>,
    },
    /// What [`Action::Look`] found.
    Found {
        /// The job.
        job: JobIx,
        /// A run that is open.
        open: Option<OpenRun>,
    },
    /// A run's processes are gone; its place is free.
    RunEnded {
        /// The job.
        job: JobIx,
    },
    /// A run's verdict has reached the store, or its lease has ended without.
    RunClosed {
        /// The job.
        job: JobIx,
    },
    /// A run that was to be settled is not open any more: another host settled it, or its claim
    /// was given back and nobody has the occurrence.
    NotSettled {
        /// The job.
        job: JobIx,
    },
    /// The host's clock is too far from the store's: no claims until it is right.
    ClockWrong,
    /// The host's clock is right again.
    ClockRight,
    /// The store stopped answering.
    StoreDown,
    /// The store answers.
    StoreUp,
    /// No new claims from here on.
    Drain,
    /// A timer is due.
    Timer,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send a claim, and again until it is answered or cancelled.
    Claim(ClaimSpec),
    /// Stop resending the claim and cancel it in the store: nobody will use it.
    Cancel {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
    },
    /// Start the run that a claim opened.
    Start {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
        /// The occurrence.
        at: Timestamp,
        /// How the run came to be.
        kind: Kind,
        /// The fencing token.
        fence: u64,
        /// 1, or more for a rerun.
        attempt: u32,
    },
    /// Start a run without the store; stop resending the claim if there is one.
    StartAlone {
        /// The job.
        job: JobIx,
        /// The claim that got no answer, or a fresh number.
        claim: ClaimId,
        /// The occurrence.
        at: Timestamp,
    },
    /// Wait until the job's lock is released, at most `limit`, then say `Woken`.
    AwaitRelease {
        /// The job.
        job: JobIx,
        /// To be given back in `Woken`.
        claim: ClaimId,
        /// The longest wait.
        limit: Duration,
    },
    /// Close an orphaned run.
    Settle {
        /// The job.
        job: JobIx,
        /// The run.
        run_id: RunId,
    },
    /// Register the job, again and again until the store answers.
    Register {
        /// The job.
        job: JobIx,
    },
    /// Ask whether a run of the job is open, again and again until the store answers; then say
    /// `Found`.
    Look {
        /// The job.
        job: JobIx,
    },
    /// Write down that these occurrences were skipped because the store did not answer.
    RecordSkips {
        /// The job.
        job: JobIx,
        /// The occurrences.
        range: crate::store::Range,
    },
    /// Tell people.
    Say {
        /// The job.
        job: JobIx,
        /// The occurrence.
        at: Timestamp,
        /// What became of it.
        said: Said,
    },
}

/// A claim without what only the driver knows: token, lock, fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimSpec {
    /// The job.
    pub(crate) job: JobIx,
    /// The claim.
    pub(crate) claim: ClaimId,
    /// The occurrence.
    pub(crate) at: Timestamp,
    /// Its predecessor in the schedule.
    pub(crate) prev: Option<Timestamp>,
    /// When it may start.
    pub(crate) not_before: Timestamp,
    /// When it is too late to start.
    pub(crate) deadline: Timestamp,
    /// How it came to be.
    pub(crate) kind: Kind,
    /// What happens when the lock is held.
    pub(crate) overlap: Overlap,
    /// The answer to a gap.
    pub(crate) gap: Option<GapAnswer>,
    /// How many reruns are allowed.
    pub(crate) max_reruns: u32,
}

/// What became of an occurrence on this host, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// Another host runs it.
    LostTo(String),
    /// The ledger had decided it.
    Decided,
    /// The lock was held: skipped.
    Skipped(String),
    /// The lock is held: waiting.
    Waiting(String),
    /// This host's clock is so much ahead of the store's: waiting.
    ClockAhead(Duration),
    /// The lock is held without an end: a person must look.
    NoEnd(String),
    /// Too late: missed.
    TooLate,
    /// Due before the store lost its data: nobody knows.
    Unknown,
    /// A newer occurrence took its place.
    Superseded,
    /// The queue was full.
    QueueFull,
    /// Missed, and dropped by `catch_up`.
    Dropped(u64),
    /// Skipped, for the store does not answer.
    StoreDown,
    /// Skipped on this host, for the earlier run without the store goes on.
    StillRunning,
    /// All places of this host are taken: waiting.
    Full,
}
