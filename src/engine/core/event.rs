//! The events that the core receives, and the actions that it returns.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::policy::Policy;
use crate::names::RunId;
use crate::store::{
    ClaimReply, GapAnswer, Grant, Head, Kind, Late, OpenRun, Overlap, Pause, Registered, RunTerms,
};
use crate::time::{BootInstant, Timestamp};

/// A job's place in the list of this daemon. A reload gives new places to jobs that are new or whose
/// instants or lock have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobIx(pub u32);

/// One claim of this daemon, with all its copies; also names the run that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub u64);

/// The two clocks at the moment of an event.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The store's clock as this host last measured it, or this host's wall clock before that.
    pub utc: Timestamp,
    /// Time since boot.
    pub boot: BootInstant,
}

impl Now {
    /// The wall clock and the boot clock, read now.
    pub fn read() -> Self {
        Self {
            utc: Timestamp::now(),
            boot: BootInstant::now(),
        }
    }
}

/// The list that replaces the present one.
#[derive(Debug, Clone)]
pub struct NewList {
    /// Its jobs.
    pub jobs: Vec<ListedJob>,
    /// The most runs at once.
    pub max_running: Option<NonZeroUsize>,
}

/// A job of the new list.
#[derive(Debug, Clone)]
pub struct ListedJob {
    /// Its place: a number that no other definition of a job has had.
    pub job: JobIx,
    /// Its policies.
    pub policy: Policy,
    /// What becomes of the lane.
    pub change: LaneChange,
}

/// How a job of the new list relates to the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneChange {
    /// Its place, its instants and its lock are the same.
    Kept,
    /// Its instants are the same, its lock is another one.
    Moved {
        /// Its place in the old list.
        before: JobIx,
    },
    /// It is new, or its instants are; `before` is the last place of a job of this name.
    New {
        /// The place of the definition whose runs may still go on.
        before: Option<JobIx>,
    },
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// The ticker says that an occurrence is due.
    Due {
        /// The job.
        job: JobIx,
        /// The occurrence.
        at: Timestamp,
    },
    /// The store granted a claim.
    Granted {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
        /// The lease.
        grant: Grant,
        /// 1, or more for a rerun.
        attempt: u32,
    },
    /// The store answered a claim, and did not grant it.
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
    /// The store cannot use the job's keys; the claim is being resent until it can, or until it is
    /// cancelled.
    Unusable {
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
        /// Later occurrences that are decided all the same.
        beyond: Vec<Timestamp>,
        /// The pauses that may still decide occurrences.
        pauses: Vec<Pause>,
        /// The store's clock.
        store_now: Timestamp,
        /// A run that is open.
        open: Option<OpenRun>,
        /// The first of the waiting list.
        head: Option<Head>,
    },
    /// What [`Action::Look`] found.
    Found {
        /// The job.
        job: JobIx,
        /// A run that is open.
        open: Option<OpenRun>,
        /// The first of the waiting list.
        head: Option<Head>,
    },
    /// A run's processes are gone; its place is free.
    RunEnded {
        /// The job.
        job: JobIx,
    },
    /// A granted run could not be started because this host lacks resources. Its occurrence goes
    /// back to the store undecided. The host claims nothing before `until`, then one run as a trial.
    RunNotStarted {
        /// The job.
        job: JobIx,
        /// The occurrence.
        at: Timestamp,
        /// How the run came to be.
        kind: Kind,
        /// When the host tries again.
        until: BootInstant,
    },
    /// A run was started: the host has resources again.
    ResourcesBack,
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
    /// [`Now::utc`] shows another time than it did, and is right now: the store's clock was measured
    /// for the first time, or was stepped itself.
    ClockSet,
    /// Another host may have returned an occurrence of the job undecided; `None`: of any job.
    Returned {
        /// The job.
        job: Option<JobIx>,
    },
    /// This host was not to claim anything so far. What came due meanwhile, other hosts may have
    /// run, in a ledger that this one cannot read.
    StartedAnew,
    /// No other host saw this one for a while, or the store has lost data. The job, or each of them
    /// without one, may use another lock by now: it is registered once more before anything is claimed.
    Absent { job: Option<JobIx> },
    /// The host's clock is too far from the store's: no claims until it is right.
    ClockWrong,
    /// The host's clock is right again.
    ClockRight,
    /// The job list was replaced by another one.
    Reload(NewList),
    /// The store stopped answering.
    StoreDown,
    /// The store answers.
    StoreUp,
    /// No new claims from here on.
    Drain,
    /// A timer is due.
    Timer,
}

impl Event {
    /// The store answered the registration of a job.
    pub fn registered(job: JobIx, answer: Registered) -> Self {
        Self::Registered {
            job,
            decided_until: answer.decided_until,
            beyond: answer.beyond,
            pauses: answer.pauses,
            store_now: answer.now,
            open: answer.open,
            head: answer.head,
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a claim, and again until it is answered or cancelled.
    Claim(ClaimSpec),
    /// Stop resending the claim and cancel it in the store: nobody will use it.
    Cancel {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
    },
    /// Give back what a claim was granted: this host will not run it.
    GiveBack {
        /// The job.
        job: JobIx,
        /// The lease.
        grant: Grant,
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
        /// The lease.
        grant: Grant,
        /// 1, or more for a rerun.
        attempt: u32,
        /// What the claim asked for.
        terms: RunTerms,
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
    /// Have the ledger record occurrences that policy drops; sent like a claim.
    Drops(DropSpec),
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
pub struct ClaimSpec {
    /// The job.
    pub job: JobIx,
    /// The claim.
    pub claim: ClaimId,
    /// The occurrence.
    pub at: Timestamp,
    /// Its predecessor in the schedule.
    pub prev: Option<Timestamp>,
    /// When it may start.
    pub not_before: Timestamp,
    /// When it is too late to start.
    pub deadline: Timestamp,
    /// How it came to be.
    pub kind: Kind,
    /// What happens when the lock is held.
    pub overlap: Overlap,
    /// The answer to a gap.
    pub gap: Option<GapAnswer>,
    /// What happens if the store executes the claim after the deadline.
    pub late: Late,
    /// How many reruns are allowed, how many attempts, and for how long after a crash.
    pub terms: RunTerms,
}

/// What policy drops without running anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropSpec {
    /// The job.
    pub job: JobIx,
    /// The request, numbered like a claim.
    pub claim: ClaimId,
    /// The ranges, and the watermark that they were computed from.
    pub answer: GapAnswer,
}

/// What became of an occurrence on this host, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
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
    /// The ledger is so much ahead of the store's clock: the job waits until the clock has caught
    /// up with it, at the instant that the action names.
    LedgerAhead(Duration),
    /// The ledger is so far ahead of the store's clock that the job continues from now.
    LedgerFarAhead(Duration),
    /// The job is paused, or was when the occurrence was due: skipped. Who paused it, and why.
    Paused(String),
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
    /// This host lacks resources to start processes: waiting.
    Short,
    /// Due, and not begun when another list replaced its schedule or its lock, or removed the job.
    Replaced,
}
