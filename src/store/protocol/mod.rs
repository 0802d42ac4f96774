//! The rules of the protocol: what each operation does to the state of one lock.
//!
//! This is plain Rust without clocks, I/O or randomness. The `SQLite` store runs it inside a
//! transaction; the Lua scripts of the Redis store are compared with it call by call
//! (`tests/it/contract`); a model checker explores it. An operation gets the state of the lock, the
//! state of the job that it concerns, the store's [`Clock`] and the request. It changes the states, and
//! returns the reply and [`Effect`]s: records to append, and the release of the lock.
//!
//! # The rules of a claim, in this order
//!
//! 0. **Settled?** An occurrence that is decided, or runs under its lock, stays so in all cases
//!    (`settled`).
//! 1. **Finished?** A token that finished, or whose run was recorded as interrupted, is never granted
//!    again. The newest [`FINISHED_KEPT`] of a lock are remembered.
//!    A ledger that moved to another lock rejects everything else: `Moved`.
//! 2. **Own token?** The same claim gets the same reply again. While the lock holds the token,
//!    or is free with the token in the state or in the job's open run, the lease is taken again.
//!    If another token held the lock in between, only the fence differs, because it must exceed the
//!    other one. If another token holds the lock, the reply is `Held`.
//!    Before anything else is granted, a store that may have lost data waits: `Recovering`.
//! 3. **Early?** The occurrence is in the future by the store's clock.
//! 4. **Ledger.** A watermark more than [`LEDGER_AHEAD`] ahead of the store's clock was written
//!    while the clock was wrong: it is set back, and the correction recorded once. An open run whose
//!    lease has ended, and that must be repeated, moves to the head of the waiting list. Entries
//!    of that list whose deadline has passed are recorded and removed.
//!    An occurrence up to `last` is known to the ledger: for the head of the waiting list rule 7
//!    follows, for another entry the reply names the head (`Waits`), anything else is
//!    `AlreadyClaimed`, or `Ahead` while the watermark lies in the store's future.
//! 5. **Gap and deadline.** For an occurrence after `last`, the schedule's preceding occurrence
//!    must not be after `last` (or after the instant at which this schedule was first seen): `Gap`.
//!    Occurrences that hosts ran without the store are decided beyond `last`: the reply lists them, a
//!    gap answer that drops one of them is rejected, and a claim of one is `AlreadyClaimed`. A gap
//!    answer that was computed from the current watermark drops its ranges, each as one record.
//!    Occurrences that were due before a loss of data are recorded as `unknown`. Past its deadline, an
//!    occurrence is missed, caught up, or left undecided, as the claim's
//!    [`Late`](crate::store::Late) says.
//!    A gap answer that drops occurrences as missed that were due during a pause is rejected.
//! 6. **Paused?** While the job is paused, nothing of it starts: the occurrence is skipped, and so are
//!    all that wait. An occurrence that was due during a pause is skipped afterwards, too. A manual run
//!    is refused, unless it says that the pause does not concern it.
//! 7. **Lock.** Held by any other value, or gone before its lease end: the occurrence is skipped
//!    (`Held`), takes the place of those that yield to it, or joins the queue (`Waits`,
//!    `QueueFull`), as the claim's [`Overlap`](crate::store::Overlap) says. If the lock is free
//!    and another occurrence stands at the head, that one must be claimed first.
//! 8. **Grant.** The fence is `max(fence + 1, now in microseconds)`; an open run that is replaced
//!    is recorded as `interrupted`.
//!
//! The first request that names an unknown job creates it, and an unknown schedule is noted,
//! independently of the reply.
//!
//! # Where this goes beyond the obvious, and why
//!
//! - *Interrupted tokens are remembered*, with a mark of their own: a delayed copy of their claim
//!   would open a run that no host executes. Their `finish`, if it ever comes, still adds its record.
//! - *A result that arrives late replaces* the provisional record of its run (`interrupted`, or
//!   `unknown` after a loss of data) or the record that its occurrence is `unknown`, and
//!   cancels a rerun that has not started. A run id never has two verdicts.
//! - *An occurrence that is returned waits* with the deadline and the attempts it had, so that any
//!   host can claim it. A run that is closed without a record and not returned is recorded as
//!   `interrupted`, because otherwise its occurrence would have no verdict (G7).
//! - *A claim ahead of its instant* ([`Due::lead`](crate::store::Due::lead)) is granted if nothing about it is
//!   unusual, and is `Early` in every other case, so that before the instant nothing else is decided. After
//!   a loss of data the horizon lies one longest lead later ([`FORGOTTEN_AHEAD`]).
//! - *`last` never passes the store's clock* by more than [`LEAD`]: an occurrence that a host with a
//!   fast clock considers due is decided when it is due.
//! - *`interrupted` names the host of the run*, not the host that records it.
//! - *With `exclusive: false`* no lock key is read or written. Token and lease end in the state
//!   replace it.

mod attempt;
mod begin;
mod claim;
mod clock;
mod effect;
mod finish;
mod history;
mod job;
mod listed;
mod lock;
mod pause;
mod recovery;
mod register;
mod renew;
mod replace;
mod settle;
mod settled;
mod summary;
mod text;
mod usual;
mod waiting;

#[cfg(test)]
mod properties;
#[cfg(test)]
#[path = "../../../tests/support/steps.rs"]
#[expect(dead_code, reason = "no test uses all of it")]
mod steps;
#[cfg(test)]
mod tests;

pub use crate::store::contract::{
    Crashed, DECIDED_BEYOND_KEPT, FINGERPRINTS_KEPT, JobState, Moved, Open, Pause, Waiting,
};
pub use attempt::note_attempt;
pub use begin::begin;
pub use claim::claim;
pub(crate) use clock::lead_of;
pub use clock::{
    AFTERMATH, Clock, FORGOTTEN_AHEAD, LEAD, LEDGER_AHEAD, Past, SUCCESSOR_SKEW, horizon_of,
};
pub use effect::Effect;
pub use finish::finish;
pub use history::{
    REASON_INTERRUPTED, REASON_NEWER_RUN, REASON_NO_VERDICT, REASON_NOT_NEWEST, REASON_NOT_RERUN,
    REASON_OVERLAP, REASON_QUEUE_FULL, REASON_SUPERSEDED, REASON_TOO_LATE, REASON_UNKNOWN,
    REASON_UNKNOWN_END, REASON_WINDOW_OVER, is_provisional, is_replaced_by, merge,
};
pub use listed::{BARE_TTL_COUNTED, ListedTtl, ListedTtls, counted, least_wait, longest_counted};
pub use lock::{Ending, FINISHED_KEPT, Key, LockState, OTHER_TYPE, holder};
pub use pause::pause;
pub use recovery::{Marker, notice, reassert};
pub use register::{register, report};
pub use renew::renew;
pub use replace::{ledger, replace};
pub use settle::settle;
pub use settled::settled;
pub use summary::{summarize, trim};
pub use text::{
    decided_beyond_of_text, decided_beyond_text, pauses_of_text, pauses_text, terms_of_text,
    terms_text, waiting_of_text, waiting_text,
};
