//! The requests that a majority decides on, and the rules that it applies to them.

use std::time::Duration;

use cronlatch::names::{JobName, Token};
use cronlatch::store::protocol::{self, Clock, Effect, JobState, LockState};
use cronlatch::store::quorum::{LongestTtl, RequestTarget};
use cronlatch::store::{
    Attempt, Beginning, Claim, ClaimReply, Finish, FinishReply, Lock, Registered, Registration,
    Renewal, Replacement, Settle,
};

use crate::message::Reply;

/// A request about one lock.
#[derive(Debug, Clone)]
pub(super) enum Part {
    Claim(Box<Claim>),
    Finish(Box<Finish>),
    Attempt(Box<Attempt>),
    Settle(Box<Settle>),
    Register(Box<Registration>),
    BeginLedger(Box<Beginning>),
    /// A run that its nodes have no record of is brought back.
    Reassert(Box<Renewal>),
    /// The state of a job is read.
    Report(JobName, Lock),
    /// The ledger of a job is read, to be moved to another lock.
    Ledger(JobName, Lock),
    Replace(Box<Replacement>),
}

/// What the rules make of it.
#[derive(Debug, Clone)]
pub(super) enum PartReply {
    Whole(Reply),
    Registered(Box<Registered>),
    LedgerBegun,
    Nothing,
    /// The ledger has moved: the result is reported there.
    Follow(Box<Finish>),
}

impl Part {
    fn lock(&self) -> &Lock {
        match self {
            Self::Claim(it) => &it.lock,
            Self::Finish(it) => &it.lock,
            Self::Attempt(it) => &it.lock,
            Self::Settle(it) => &it.lock,
            Self::Register(it) => &it.lock,
            Self::BeginLedger(it) => &it.lock,
            Self::Reassert(it) => &it.grant.lock,
            Self::Replace(it) => &it.lock,
            Self::Report(_, lock) | Self::Ledger(_, lock) => lock,
        }
    }

    fn job(&self) -> Option<&JobName> {
        match self {
            Self::Claim(it) => it.what.job(),
            Self::Finish(it) => {
                let recorded = it.record.as_ref().map(|record| &record.job);
                it.job.as_ref().or(recorded)
            }
            Self::Attempt(it) => Some(&it.job),
            Self::Settle(it) => Some(&it.job),
            Self::Register(it) => Some(&it.job),
            Self::BeginLedger(it) => Some(&it.job),
            Self::Reassert(it) => it.run.as_ref().map(|run| &run.job),
            Self::Replace(it) => Some(&it.job),
            Self::Report(job, _) | Self::Ledger(job, _) => Some(job),
        }
    }

    /// In whose name it is made.
    pub(super) fn token(&self) -> Option<&Token> {
        match self {
            Self::Claim(it) => Some(&it.token),
            Self::Finish(it) => Some(&it.token),
            Self::Attempt(it) => Some(&it.token),
            Self::Reassert(it) => Some(&it.grant.token),
            Self::Settle(_)
            | Self::Register(_)
            | Self::BeginLedger(_)
            | Self::Report(..)
            | Self::Ledger(..)
            | Self::Replace(_) => None,
        }
    }

    /// Whether a holder reports on its own run.
    pub(super) fn reports(&self) -> bool {
        matches!(self, Self::Finish(_) | Self::Attempt(_) | Self::Reassert(_))
    }

    pub(super) fn target(&self, longest: Duration) -> RequestTarget {
        let ttl = match self {
            Self::Claim(it) => it.ttl,
            Self::Reassert(it) => it.grant.ttl,
            _ => Duration::ZERO,
        };
        RequestTarget {
            lock: self.lock().clone(),
            job: self.job().cloned(),
            ttl,
            longest: LongestTtl {
                listed: longest,
                ..LongestTtl::default()
            },
        }
    }

    pub(super) fn apply(
        &self,
        lock: &mut LockState,
        job: &mut Option<JobState>,
        clock: Clock,
    ) -> (PartReply, Vec<Effect>, bool) {
        let whole = PartReply::Whole;
        match self {
            Self::Claim(claim) => {
                let (reply, effects) = protocol::claim(lock, job, clock, claim);
                let taken = matches!(reply, ClaimReply::Granted { .. });
                (whole(Reply::Claim(reply)), effects, taken)
            }
            Self::Finish(finish) => {
                let (reply, effects) = protocol::finish(lock, job, clock, finish);
                let reply = match reply {
                    FinishReply::Moved { to } => PartReply::Follow(Box::new(Finish {
                        lock: to.lock(),
                        ..(**finish).clone()
                    })),
                    reply => whole(Reply::Finished(reply)),
                };
                (reply, effects, false)
            }
            Self::Attempt(attempt) => {
                let counted = protocol::note_attempt(job, attempt);
                (whole(Reply::Counted(counted)), Vec::new(), false)
            }
            Self::Settle(settle) => {
                let (done, effects) = protocol::settle(lock, job, clock, settle);
                (whole(Reply::Settled(done)), effects, false)
            }
            Self::Register(asked) => {
                let registered = protocol::register(lock, job, clock, asked);
                (
                    PartReply::Registered(Box::new(registered)),
                    Vec::new(),
                    false,
                )
            }
            Self::BeginLedger(asked) => {
                protocol::begin(job, clock, asked);
                (PartReply::LedgerBegun, Vec::new(), false)
            }
            Self::Reassert(renewal) => {
                let (_, effects) = protocol::reassert(lock, job, clock, renewal);
                (PartReply::Nothing, effects, false)
            }
            Self::Report(name, on) => {
                let report = protocol::report(name, lock, on.exclusive, job.as_ref(), clock);
                (whole(Reply::Report(Box::new(report))), Vec::new(), false)
            }
            Self::Ledger(..) => {
                let ledger = protocol::ledger(lock, job.as_ref(), clock);
                (whole(Reply::Ledger(Box::new(ledger))), Vec::new(), false)
            }
            Self::Replace(asked) => {
                let replaced = protocol::replace(lock, job, clock, asked);
                (whole(Reply::Replaced(replaced)), Vec::new(), false)
            }
        }
    }
}
