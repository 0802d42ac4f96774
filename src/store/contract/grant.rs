//! A lease as a store granted it, and what its holder sends to keep it. The grant goes unchanged from
//! the claim to the lease table, the guard and the result.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lock::Lock;
use super::record::Kind;
use super::request::{Claim, Finish};
use crate::ground::timing;
use crate::names::{JobName, RunId, Token};
use crate::time::{BootInstant, Timestamp};

/// A lease as a store granted it.
///
/// The reply to a claim makes it, and it goes unchanged to the lease table, the guard, the run and
/// the request that finishes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The lock.
    pub lock: Lock,
    /// The token of the claim: only it renews the lease and releases the lock.
    pub token: Token,
    /// The run that the claim opened.
    pub run_id: RunId,
    /// The fencing token; 0 if it is not known, and then a store never takes the lease back.
    pub fence: u64,
    /// How long the lease lasts after a claim or a renewal.
    pub ttl: Duration,
    /// When the copy of the claim that was granted was sent: the lease counts from there.
    pub sent: BootInstant,
    /// Before this instant nothing of the run may start, because the claim was granted ahead of its
    /// instant; `None` if it may start at once.
    pub starts_at: Option<BootInstant>,
}

impl Grant {
    /// The grant of a claim under this fencing token. `sent` is when the copy of the claim that
    /// was granted was sent.
    pub fn of(claim: &Claim, fence: u64, sent: BootInstant) -> Self {
        Self {
            lock: claim.lock.clone(),
            token: claim.token.clone(),
            run_id: claim.run_id.clone(),
            fence,
            ttl: claim.ttl,
            sent,
            starts_at: None,
        }
    }

    /// The same grant, whose run may start when so much time has passed since a reply that had arrived
    /// by `received`. The store wrote the reply earlier, so that is never before the instant by the
    /// store's clock.
    #[must_use]
    pub fn starting_in(self, starts_in: Duration, received: BootInstant) -> Self {
        let starts_at = (!starts_in.is_zero()).then(|| received.plus(starts_in));
        Self { starts_at, ..self }
    }

    /// When the lease ends for its holder unless it is renewed.
    pub fn ends(&self) -> BootInstant {
        timing::ends(self.sent, self.ttl)
    }

    /// Returns the request that releases a bare lock.
    pub fn release(&self) -> Finish {
        Finish::of_lock(self.lock.clone(), self.token.clone())
    }

    /// Returns the renewal of the lease of a bare lock.
    pub fn renewal(&self) -> Renewal {
        Renewal {
            grant: self.clone(),
            run: None,
        }
    }
}

/// One lease to extend: it then lasts for its TTL from now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// The lease. Stores do not look at [`Grant::sent`].
    pub grant: Grant,
    /// The job's run that it was granted for; `None` for a bare lock. A store that has lost its
    /// data takes the lease back with it.
    pub run: Option<GrantedRun>,
}

/// The job's run that a lease was granted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedRun {
    /// The job.
    pub job: JobName,
    /// The occurrence; `None` for a manual run.
    pub scheduled_at: Option<Timestamp>,
    /// 1, or more when a crashed run is run again.
    pub attempt: u32,
    /// How the run came to be.
    pub kind: Kind,
    /// When it began, by the clock of its host.
    pub started_at: Timestamp,
    /// What the ledger keeps of its claim.
    pub terms: RunTerms,
}

/// What the ledger keeps of the claim that a run was granted for: enough to put the occurrence
/// back into the waiting list, or to run it again, when its host returns it or dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunTerms {
    /// When it is too late to start the occurrence.
    pub deadline: Timestamp,
    /// How long after a crash it may be run again.
    pub rerun_window: Duration,
    /// How many reruns are allowed (`max_reruns`); 0 without `on_crash: rerun`.
    pub max_reruns: u32,
    /// How many attempts are allowed in all, reruns included (`retry.attempts`); 0: no limit.
    pub max_attempts: u32,
    /// How many reruns there were.
    pub reruns: u32,
    /// Whether it gives way to a newer occurrence while it waits.
    pub yields: bool,
}

impl RunTerms {
    /// The terms of a run that is never run again and never put back: a manual one.
    pub const NONE: Self = Self {
        deadline: Timestamp::from_millis(0),
        rerun_window: Duration::ZERO,
        max_reruns: 0,
        max_attempts: 0,
        reruns: 0,
        yields: false,
    };
}
