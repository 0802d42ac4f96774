//! The events that the core receives, and the actions that it returns.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::policy::Policy;
use crate::names::RunId;
use crate::store::{
    ClaimReply, GapAnswer, Grant, Head, Kind, Late, OpenRun, Overlap, Registered, RunTerms,
};
use crate::time::{BootInstant, Timestamp};

/// The place of a job definition in this daemon. A reload gives a new place to every job that is
/// new or whose instants or lock have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobIx(pub u32);

/// One claim of this daemon with all its copies, and the run that it opens.
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

/// The job list of a reload.
#[derive(Debug, Clone)]
pub struct NewList {
    /// Its jobs.
    pub jobs: Vec<ListedJob>,
    /// The maximum number of concurrent runs.
    pub max_running: Option<NonZeroUsize>,
}

/// A job of the new list.
#[derive(Debug, Clone)]
pub struct ListedJob {
    /// Its place: a number that no other definition of a job has had.
    pub job: JobIx,
    /// Its policies.
    pub policy: Policy,
    /// What happens to the job's lane.
    pub change: LaneChange,
}

/// How a job of the new list relates to the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneChange {
    /// Its place, its instants and its lock are the same.
    Kept,
    /// Its instants are the same, and its lock has changed.
    Moved {
        /// Its place in the old list.
        before: JobIx,
    },
    /// The job is new, or its instants have changed.
    New {
        /// The last place of a job of this name; its runs may still be in progress.
        before: Option<JobIx>,
    },
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// The ticker fired: an occurrence is due.
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
    /// The store replied to a claim without granting it.
    Replied {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
        /// The reply.
        reply: ClaimReply,
    },
    /// A claim has received no reply. The driver resends it until it receives one or the core
    /// cancels it.
    NoReply {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
    },
    /// Like `NoReply`, but only the server that keeps this lock is unreachable.
    NoReplyForLock {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
    },
    /// The store cannot use the job's keys. The driver resends the claim until the store can, or
    /// until the core cancels it.
    KeysUnusable {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
    },
    /// The lock was released, or the limit of the wait has passed.
    Woken {
        /// The job.
        job: JobIx,
        /// The claim whose reply began the wait.
        claim: ClaimId,
    },
    /// The store replied to a registration.
    Registered {
        /// The job.
        job: JobIx,
        /// The reply.
        reply: Registered,
    },
    /// The reply to [`Action::QueryLedger`].
    LedgerQueried {
        /// The job.
        job: JobIx,
        /// A run that is open.
        open: Option<OpenRun>,
        /// The first of the waiting list.
        head: Option<Head>,
        /// The entry behind the head whose deadline passes first.
        behind: Option<Head>,
    },
    /// A run's processes have ended, and its place on this host is free.
    RunEnded {
        /// The job.
        job: JobIx,
    },
    /// A granted run was not started, because this host lacks resources, the daemon stops, or the lease was
    /// lost. Its occurrence goes back to the store undecided.
    RunNotStarted {
        /// The job.
        job: JobIx,
        /// The occurrence.
        at: Timestamp,
        /// How the run came to be.
        kind: Kind,
        /// Before this a host that lacks resources claims nothing, then one run as a trial. `None` if it
        /// lacks nothing.
        until: Option<BootInstant>,
    },
    /// A run was started, so the host has resources again.
    ResourcesBack,
    /// A run's verdict has reached the store, or its lease has expired without one.
    RunClosed {
        /// The job.
        job: JobIx,
    },
    /// A run that this host wanted to settle is no longer open: another host settled it, or its
    /// claim was returned and no host has the occurrence.
    NotSettled {
        /// The job.
        job: JobIx,
    },
    /// [`Now::utc`] was corrected: the store's clock was measured for the first time, or was
    /// stepped.
    ClockSet,
    /// Another host may have returned an occurrence of the job undecided; `None`: of any job.
    Returned {
        /// The job.
        job: Option<JobIx>,
    },
    /// This host may claim from now on. Other hosts may have run what came due before, in a ledger
    /// that this host cannot read.
    StartedAnew,
    /// Other hosts did not see this host for a while, or the store lost data. The job (`None`:
    /// every job) may use another lock by now, so the lane registers it again before it claims
    /// anything.
    Absent { job: Option<JobIx> },
    /// The host's clock differs too much from the store's. There are no claims until it is correct.
    ClockWrong,
    /// The host's clock agrees with the store's again.
    ClockRight,
    /// The job list was reloaded.
    Reload(NewList),
    /// The daemon was paused for seconds, so what it knows of the store may be outdated.
    Awake,
    /// The store is unreachable.
    StoreDown,
    /// The store is reachable again.
    StoreUp,
    /// The daemon drains: no new claims.
    Drain,
    /// A timer is due.
    Timer,
}

/// What the driver must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a claim, and resend it until the store replies or the core cancels it.
    Claim(ClaimSpec),
    /// Stop resending the claim and cancel it in the store.
    Cancel {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
    },
    /// Return a granted claim to the store, because this host will not run it.
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
        /// The terms that the claim asked for.
        terms: RunTerms,
    },
    /// Start a run without the store (`on_store_down: run`), and stop resending its claim.
    StartWithoutStore {
        /// The job.
        job: JobIx,
        /// The claim that received no reply, or a new number.
        claim: ClaimId,
        /// The occurrence.
        at: Timestamp,
    },
    /// Wait until the job's lock is released, but at most `limit`, then send `Woken`.
    AwaitRelease {
        /// The job.
        job: JobIx,
        /// The claim to name in `Woken`.
        claim: ClaimId,
        /// The longest wait.
        limit: Duration,
    },
    /// Record the verdict of a run whose lease has expired.
    Settle {
        /// The job.
        job: JobIx,
        /// The run.
        run_id: RunId,
    },
    /// Register the job, and retry until the store replies.
    Register {
        /// The job.
        job: JobIx,
    },
    /// Query the job's open run and the head of its waiting list, retry until the store replies,
    /// and send `LedgerQueried`.
    QueryLedger {
        /// The job.
        job: JobIx,
    },
    /// Have the ledger record occurrences that policy drops. The request is sent and resent like a
    /// claim.
    Drops(DropSpec),
    /// Log what happened to an occurrence.
    Report {
        /// The job.
        job: JobIx,
        /// The occurrence.
        at: Timestamp,
        /// What happened to it.
        notice: OccurrenceNotice,
    },
}

/// A claim; the driver adds token, lock and fingerprint.
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
    /// After this it is too late to start.
    pub deadline: Timestamp,
    /// How it came to be.
    pub kind: Kind,
    /// What happens when the lock is held.
    pub overlap: Overlap,
    /// The occurrences of a gap that are dropped.
    pub gap: Option<GapAnswer>,
    /// What happens if the store executes the claim after the deadline.
    pub late: Late,
    /// How long before `not_before` the store may grant it.
    pub lead: Duration,
    /// The limits on reruns and attempts, and how long after a crash a rerun may start.
    pub terms: RunTerms,
    /// Whether another host has probably claimed it, so that the store is asked for that first if there is time.
    pub asks_first: bool,
}

/// Occurrences that policy drops without running any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropSpec {
    /// The job.
    pub job: JobIx,
    /// The number of the request; claims use the same numbers.
    pub claim: ClaimId,
    /// The ranges, and the watermark that they were computed from.
    pub answer: GapAnswer,
}

/// What happened to an occurrence on this host, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OccurrenceNotice {
    /// Another host runs it.
    LostTo(String),
    /// The ledger had already decided it.
    Decided,
    /// The lock was held, so it was skipped.
    Skipped(String),
    /// The same, so long after it was due that it had waited for something else until then.
    SkippedLate {
        /// The holder.
        by: String,
        /// How late the reply of the store came.
        late: Duration,
    },
    /// The lock is held; it waits.
    Waiting(String),
    /// This host's clock is ahead of the store's by this much; it waits.
    ClockAhead(Duration),
    /// The lock is held without a TTL, which needs a person.
    NoEnd(String),
    /// It was too late, so it was missed.
    TooLate,
    /// It was due before the store lost its data, and may have run.
    Unknown,
    /// The ledger is ahead of the store's clock by this much. The job waits until the clock reaches
    /// the instant that the action names.
    LedgerAhead(Duration),
    /// The ledger is too far ahead of the store's clock (by this much) to wait for, so the job
    /// continues from now.
    LedgerFarAhead(Duration),
    /// The job is paused, or was when the occurrence was due, so it was skipped. Who paused it, and
    /// why.
    Paused(String),
    /// The queue was full.
    QueueFull,
    /// Missed, and dropped by `catch_up`.
    Dropped(u64),
    /// Skipped, because the store is unreachable.
    StoreDown,
    /// Skipped on this host, because the previous run without the store is still in progress.
    StillRunning,
    /// This host runs `max_running` jobs already; it waits.
    Full,
    /// This host lacks resources to start processes; it waits.
    Short,
    /// It was due and had not begun when a reload changed its schedule or lock, or removed the job.
    Replaced,
}
