//! What a lane does when an occurrence comes due: it claims it, or leaves it to `catch_up` if this host was
//! stopped or suspended, or keeps it until the store has replied.

use std::time::Duration;

use super::event::Now;
use super::lane::Lane;
use super::occurrence::{Aim, NotClaimed, Occurrence, Origin};
use super::shared::{Mode, Shared, StoreState, TimerKind};
use crate::config::{OnOverlap, OnStoreDown};
use crate::store::protocol::LEAD;
use crate::store::{Kind, Overlap};
use crate::time::{BootInstant, Timestamp};

/// A host that notices an occurrence this late was not running when it came due: the machine was
/// suspended, the process stopped, or the clock set forward.
const LATE: Duration = Duration::from_secs(30);

/// A host that notices an occurrence within this time was running when it came due.
const PROMPT: Duration = Duration::from_secs(1);

/// How long a host that was stopped or suspended waits for the store's reply before it acts on an
/// outage: the outage may have ended meanwhile.
const ASKS_AGAIN: Duration = Duration::from_secs(3);

impl Lane {
    /// The ticker fired an occurrence.
    pub(super) fn due(&mut self, shared: &mut Shared, at: Timestamp) {
        if shared.mode == Mode::Draining || self.seen_until.is_some_and(|seen| at <= seen) {
            return;
        }
        if self.policy.not_before(at) > shared.now.utc.plus(LEAD) {
            // Fired before the clock was set: the ticker fires it again at its time.
            return;
        }
        self.seen_until = Some(at);
        if self.notes.of(at) == Some(NotClaimed::RanWithoutStore) {
            // It ran before the clock was found to be ahead.
            self.needs_ledger_sync = true;
            return;
        }
        if self.policy.not_before(at) < self.began(shared.now) {
            // The clock was behind when this daemon began to run the job, so only the ledger knows
            // whether the occurrence is decided.
            self.needs_ledger_sync = true;
            return;
        }
        if shared.clock_wrong {
            self.needs_ledger_sync = true;
            return;
        }
        // The store may have been reachable for other hosts in the meantime.
        let slept_through = self.slept_through(shared.now.utc, at);
        if slept_through {
            shared.awoke();
        }
        if slept_through || shared.store == StoreState::Down && self.was_asleep(shared, at) {
            self.needs_ledger_sync = true;
            self.advance(shared);
            return;
        }
        if let Some(until) = self.unsure_until(shared) {
            self.put_off(shared, at, until);
            return;
        }
        if shared.store == StoreState::Down && self.due_while_down(shared, at) {
            return;
        }
        let needs_ledger_sync = std::mem::take(&mut self.needs_ledger_sync);
        self.pending.push_back(Occurrence {
            needs_ledger_sync,
            ..self.current(at)
        });
        self.advance(shared);
    }

    /// Whether this host was stopped or suspended when the occurrence came due: it notices it late,
    /// or together with the next one. `catch_up` then judges it with the others.
    fn slept_through(&self, now: Timestamp, at: Timestamp) -> bool {
        let next = self.policy.calendar.next_after(at);
        now.since(self.policy.not_before(at)) > LATE
            || next.is_some_and(|next| self.policy.not_before(next) <= now)
            || (self.needs_ledger_sync && now.since(self.policy.not_before(at)) > PROMPT)
    }

    /// Returns until when this host does not act on an outage that it knows of from before it was stopped
    /// or suspended. What runs without the store is delayed at most until its start deadline.
    pub(super) fn unsure_until(&self, shared: &Shared) -> Option<BootInstant> {
        let wait = match self.policy.on_store_down {
            OnStoreDown::Wait => return None,
            OnStoreDown::Run => ASKS_AGAIN.min(self.policy.start_deadline),
            OnStoreDown::Skip => ASKS_AGAIN,
        };
        let until = shared.awake_since?.plus(wait);
        (shared.store == StoreState::Down && shared.now.boot < until).then_some(until)
    }

    /// Keeps what comes due until the store has replied, or had the time to.
    fn put_off(&mut self, shared: &mut Shared, at: Timestamp, until: BootInstant) {
        self.needs_ledger_sync = false;
        self.pending.push_back(Occurrence {
            needs_ledger_sync: true,
            ..self.current(at)
        });
        shared.arm(until, self.job, TimerKind::Unsure);
    }

    /// Whether an occurrence came due before this host noticed that it had been stopped or suspended.
    fn was_asleep(&self, shared: &Shared, at: Timestamp) -> bool {
        let now = shared.now;
        let late = now.utc.since(self.policy.not_before(at));
        (shared.awake_since).is_some_and(|awake| now.boot.since(awake) < late)
    }

    /// Returns when this daemon began to run the job, by the clock as it is known now.
    pub(super) fn began(&self, now: Now) -> Timestamp {
        now.utc.minus(now.boot.since(self.began_at))
    }

    /// Returns an occurrence that runs at its time.
    pub(super) fn current(&self, at: Timestamp) -> Occurrence {
        Occurrence {
            at,
            kind: Kind::Schedule,
            deadline: self.policy.deadline(at),
            overlap: match self.policy.on_overlap {
                OnOverlap::Skip => Overlap::Skip,
                OnOverlap::Wait => Overlap::Wait,
                OnOverlap::Queue { limit } => Overlap::Queue {
                    limit: u32::try_from(limit).unwrap_or(u32::MAX),
                },
            },
            late: self.policy.if_late(at),
            aim: Aim::Run,
            gap: None,
            origin: Origin::Lane,
            blocked: false,
            needs_ledger_sync: false,
        }
    }
}
