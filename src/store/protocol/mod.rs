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
//! 1. **Finished?** A token that finished is never granted again; nor one whose run was recorded
//!    as interrupted. The newest [`FINISHED_KEPT`] of a lock are remembered.
//! 2. **Own token?** The same claim again gets the same answer. While the lock holds the token,
//!    or is free with the token in the state or in the job's open run, the lease is taken again.
//!    If somebody else had the lock in between, the answer is the same but for the fence, which
//!    must exceed theirs. A lock that is another's answers `Held`.
//!    Before anything else is granted, a store that may have lost data waits: `Recovering`.
//! 3. **Early?** An occurrence that still lies in the store's future.
//! 4. **Ledger and gap.** `scheduled_at <= last` is decided: `AlreadyClaimed`, unless the open
//!    run is for that very instant, its lease is over and reruns are left. Otherwise the
//!    schedule's preceding occurrence must not lie beyond `last` (or beyond the instant this
//!    schedule was first seen): `Gap`. A gap answer computed from the very watermark that stands
//!    now drops its ranges, each as one record.
//!    What was due before a loss of data, and is undecided, is recorded as `unknown`.
//! 5. **Too late?** Past the deadline: recorded as `missed`.
//! 6. **Lock.** Held by any other value, or gone before its lease end: `Held`; with
//!    [`Overlap::Skip`](crate::store::Overlap::Skip) the occurrence is recorded as `skipped`. A
//!    rerun is never skipped: it stays open.
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
//! - *A rerun that is given back stays open*, with the attempt it had before: going back to
//!   "undecided" would let the occurrence start afresh with its reruns uncounted.
//! - *Giving back may come too late*: later occurrences are decided, so `last` cannot return. Then
//!   the occurrence is recorded as `missed`, else it would have no verdict (G7). For the same
//!   reason a run closed without record and not given back is recorded as `interrupted`.
//! - *`interrupted` names the host that had the run*, not the one that found it dead.
//! - *With `exclusive: false`* no lock key is read or written; token and lease end in the state
//!   play its part.

mod claim;
mod finish;
mod history;
mod recovery;
mod register;
mod renew;
mod settle;
mod state;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use claim::claim;
pub use finish::finish;
pub use history::{
    REASON_GIVEN_BACK_LATE, REASON_INTERRUPTED, REASON_NO_VERDICT, REASON_OVERLAP, REASON_TOO_LATE,
    REASON_UNKNOWN, REASON_UNKNOWN_END, merge,
};
pub use recovery::{AFTERMATH, Marker, Past, SUCCESSOR_SKEW, horizon_of, notice};
pub use register::{register, report};
pub use renew::renew;
pub use settle::settle;
pub use state::{
    Clock, Effect, Ending, FINGERPRINTS_KEPT, FINISHED_KEPT, JobState, Key, LockState, OTHER_TYPE,
    Open, holder,
};
