//! What passes between hosts and store, and how it fares on the way.

use std::collections::BTreeSet;
use std::time::Duration;

use cronlatch::names::{HostName, JobName, RunId};
use cronlatch::store::{
    Attempt, Beginning, Claim, ClaimReply, Entry, Finish, FinishReply, JobReport, Ledger, Listing,
    Lock, ManualNote, ManualRun, Registered, Registration, RenewReply, Renewal, Replaced,
    Replacement, Settle, StoreError,
};
use cronlatch::time::Timestamp;

use crate::host::Timer;
use crate::plan::StoreKind;
use crate::world::{Item, Sim};

/// Within so many milliseconds a host that asks several nodes has its answer, or gives up.
const MAJORITY_ANSWERS: i64 = 15_000;

/// A request to the store; the operations of `cronlatch::store::Store`.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Claim(Box<Claim>),
    Finish(Box<Finish>),
    Attempt(Box<Attempt>),
    Renew(Vec<Renewal>),
    Settle(Box<Settle>),
    Register(Vec<Registration>),
    Jobs(JobName, Lock),
    /// That a host lives, whether it drains, and for how many milliseconds that holds.
    Announce {
        host: HostName,
        drains: bool,
        valid_for: i64,
    },
    Now,
    Hosts,
    Ledger(JobName, Lock),
    Replace(Box<Replacement>),
    Listings(Vec<JobName>),
    Enlist(HostName, Vec<(JobName, Entry)>),
    ListedBy(HostName),
    BeginLedgers(Vec<Beginning>),
    NoteManual(Box<ManualRun>),
    ManualRuns,
    ForgetManual(RunId),
}

impl Request {
    /// Whether a majority of several nodes decides on it, in several steps.
    fn is_decided(&self) -> bool {
        !matches!(
            self,
            Self::Renew(_)
                | Self::Announce { .. }
                | Self::Now
                | Self::Hosts
                | Self::Listings(_)
                | Self::Enlist(..)
                | Self::ListedBy(_)
                | Self::NoteManual(_)
                | Self::ManualRuns
                | Self::ForgetManual(_)
        )
    }
}

/// The store's reply.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Claim(ClaimReply),
    Finished(FinishReply),
    Counted(bool),
    Renew(Vec<RenewReply>),
    Settled(bool),
    Registered(Vec<Registered>),
    Report(Box<JobReport>),
    Announced,
    Now(Timestamp),
    /// The hosts that live and do not drain.
    Hosts(BTreeSet<HostName>),
    Ledger(Box<Ledger>),
    Replaced(Replaced),
    Listings(Vec<Listing>),
    Enlisted,
    Listed(Vec<JobName>),
    LedgersBegun,
    ManualRuns(Vec<ManualNote>),
    /// A run by hand was noted, or its note forgotten.
    Noted,
}

/// A request under way.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) host: usize,
    pub(crate) life: u32,
    pub(crate) id: u64,
    pub(crate) request: Request,
    /// The longest TTL of the host's list.
    pub(crate) longest: Duration,
    /// How long the answer takes.
    pub(crate) back: i64,
    /// The answer is lost.
    pub(crate) deaf: bool,
}

/// The network of a host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wire {
    pub(crate) cut_until: i64,
    /// Until when, and how many of a hundred messages are lost, late, repeated.
    pub(crate) bad: (i64, i64, i64, i64),
    pub(crate) latency: i64,
    /// When the last message arrives that was sent: they keep their order.
    pub(crate) last: i64,
}

impl Wire {
    /// Whether a message that is sent now gets nowhere.
    fn loses(&self, sim: &mut Sim) -> bool {
        sim.now < self.cut_until || sim.now < self.bad.0 && sim.dice.chance(self.bad.1)
    }

    /// Returns how long a message takes, or `None` when it is lost.
    pub(crate) fn delay(&self, sim: &mut Sim) -> Option<i64> {
        (!self.loses(sim)).then(|| sim.dice.range(1, self.latency.max(1) + 1))
    }

    /// Sends a request, and a timer that fires when its answer is given up.
    pub(crate) fn send(&mut self, sim: &mut Sim, mut message: Message, limit: Duration) {
        let (host, life, id) = (message.host, message.life, message.id);
        let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        let delay = self.delay(sim);
        let back = delay.and_then(|_| self.delay(sim));
        // A majority is asked by the host itself, which has time-outs for each node.
        let limit = match sim.plan.store {
            StoreKind::Quorum(_) if back.is_some() && message.request.is_decided() => {
                limit.max(MAJORITY_ANSWERS)
            }
            _ => limit,
        };
        let timer = Timer::GiveUp(id);
        sim.at(sim.now + limit, Item::Timer { host, life, timer });
        let Some(delay) = delay else {
            return;
        };
        match back {
            Some(back) => message.back = back,
            None => message.deaf = true,
        }
        let bad = sim.now < self.bad.0;
        let mut at = sim.now + delay;
        if bad && sim.dice.chance(self.bad.2) {
            at += sim.dice.range(500, 6_000);
        } else {
            self.last = self.last.max(at);
            at = self.last;
        }
        if bad && sim.dice.chance(self.bad.3) {
            let later = at + sim.dice.range(1, 5_000);
            let copy = Message {
                deaf: true,
                ..message.clone()
            };
            sim.at(later, Item::Arrive(Box::new(copy)));
        }
        sim.at(at, Item::Arrive(Box::new(message)));
    }
}

/// The error of a request whose fate is unknown.
pub(crate) fn unanswered() -> StoreError {
    StoreError::Unreachable("no answer in time".into())
}
