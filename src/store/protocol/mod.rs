//! The protocol's transition function: what each operation does to the state of one lock.
//!
//! Plain executable Rust without clocks, I/O or randomness. The `SQLite` store runs it inside a
//! transaction; the Lua scripts of the Redis store are compared with it call by call
//! (`tests/it/contract`); a model checker can explore it. An operation takes the state of the
//! lock, the state of the one job it concerns, the store's [`Clock`] and the request; it changes
//! the states and answers with the reply and with [`Effect`]s: records to append and the word
//! that the lock is free.
//!
//! # The rules of a claim, in this order
//!
//! 0. **Settled?** What is decided, or runs under its lock, is so whatever else there is (`settled`).
//! 1. **Finished?** A token that finished is never granted again; nor one whose run was recorded
//!    as interrupted. The newest [`FINISHED_KEPT`] of a lock are remembered.
//!    A ledger that moved to another lock refuses everything else: `Moved`.
//! 2. **Own token?** The same claim again gets the same answer. While the lock holds the token,
//!    or is free with the token in the state or in the job's open run, the lease is taken again.
//!    If somebody else had the lock in between, the answer is the same but for the fence, which
//!    must exceed theirs. A lock that is another's answers `Held`.
//!    Before anything else is granted, a store that may have lost data waits: `Recovering`.
//! 3. **Early?** An occurrence that still lies in the store's future.
//! 4. **Ledger.** A watermark more than [`LEDGER_AHEAD`] ahead of the store's clock was written
//!    under a wrong clock: it is set back, and the correction recorded once. An open run whose
//!    lease is over, and that is to be run again, moves to the head of the waiting list. Entries
//!    of that list whose deadline has passed are recorded and removed.
//!    An occurrence up to `last` is known to the ledger: the head of the waiting list goes on to
//!    rule 6, another entry is refused with the head's name (`Waits`), anything else is
//!    `AlreadyClaimed`, or `Ahead` while the watermark lies in the store's future.
//! 5. **Gap and deadline.** For an occurrence after `last`, the schedule's preceding occurrence
//!    must not lie beyond `last` (or beyond the instant this schedule was first seen): `Gap`. A
//!    What hosts ran without the store is decided beyond `last`: the reply lists it, an answer that
//!    drops any of it is refused, and a claim of it is `AlreadyClaimed`. A
//!    gap answer computed from the very watermark that stands now drops its ranges, each as one
//!    record. What was due before a loss of data is recorded as `unknown`. Past its deadline, an
//!    occurrence is missed, caught up, or left undecided, as the claim's
//!    [`Late`](crate::store::Late) says.
//! 6. **Lock.** Held by any other value, or gone before its lease end: the occurrence is skipped
//!    (`Held`), takes the place of those that yield to it, or joins the queue (`Waits`,
//!    `QueueFull`), as the claim's [`Overlap`](crate::store::Overlap) says. If the lock is free
//!    and another occurrence stands at the head, that one must be claimed first.
//! 7. **Grant.** The fence is `max(fence + 1, now in microseconds)`; an open run that is replaced
//!    is recorded as `interrupted`.
//!
//! A job that the store does not know is created by what first names it, and an unknown schedule
//! is noted, whatever the answer then is.
//!
//! # Where this goes beyond the obvious, and why
//!
//! - *Interrupted tokens are remembered*, with a mark of their own: a delayed copy of their claim
//!   would open a run that nobody drives. Their `finish`, if it ever comes, still adds its record.
//! - *A result that arrives late replaces* the provisional record of its run (`interrupted`, or
//!   `unknown` after a loss of data), and
//!   cancels a rerun that has not started. A run id never has two verdicts.
//! - *An occurrence that is given back waits* with the deadline and the attempts it had, so that any
//!   host can take it. A run closed without record and not given back is recorded as
//!   `interrupted`, else its occurrence would have no verdict (G7).
//! - *`last` never passes the store's clock* by more than [`LEAD`]: what a host with a fast clock
//!   believes due is decided when it is due.
//! - *`interrupted` names the host that had the run*, not the one that found it dead.
//! - *With `exclusive: false`* no lock key is read or written; token and lease end in the state
//!   play its part.

mod attempt;
mod begin;
mod claim;
mod finish;
mod history;
mod listed;
mod recovery;
mod register;
mod renew;
mod replace;
mod settle;
mod settled;
mod state;
mod text;
mod waiting;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use attempt::attempt;
pub use begin::begin;
pub use claim::{LEAD, LEDGER_AHEAD, claim};
pub use finish::finish;
pub use history::{
    REASON_BESIDE, REASON_INTERRUPTED, REASON_NO_VERDICT, REASON_NOT_NEWEST, REASON_NOT_RERUN,
    REASON_OVERLAP, REASON_QUEUE_FULL, REASON_SUPERSEDED, REASON_TOO_LATE, REASON_UNKNOWN,
    REASON_UNKNOWN_END, REASON_WINDOW_OVER, is_provisional, merge,
};
pub use listed::{BARE_TTL_COUNTED, ListedTtl, ListedTtls, counted, least_wait, longest_counted};
pub use recovery::{AFTERMATH, Marker, Past, SUCCESSOR_SKEW, horizon_of, notice, reassert};
pub use register::{register, report};
pub use renew::renew;
pub use replace::{ledger, replace};
pub use settle::settle;
pub use settled::settled;
pub use state::{
    BEYOND_KEPT, Clock, Crashed, Effect, Ending, FINGERPRINTS_KEPT, FINISHED_KEPT, JobState, Key,
    LockState, Moved, OTHER_TYPE, Open, Waiting, holder,
};
pub use text::{
    beyond_of_text, beyond_text, terms_of_text, terms_text, waiting_of_text, waiting_text,
};
pub(crate) use waiting::given_back;
