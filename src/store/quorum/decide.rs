//! Decides what follows from the replies of phase 1. Pure, no I/O: the model checker and the
//! simulated fleets run this function between nodes and messages of their own.

use std::time::Duration;

use super::apply::apply_rules;
use super::merge::{MergedState, QuorumCheck, check_quorum, check_quorum_for_holder, merge};
use super::proposal::build_proposal;
use super::request::Transition;
use super::trust::Trust;
use crate::names::Token;
use crate::store::protocol::{Clock, JobState, LockState};
use crate::store::redis::node::{Ballot, PrepareReply, PrepareStatus, Proposal, RequestTarget};

/// Who makes a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Requester<'a> {
    /// The token of the request, if it has one.
    pub token: Option<&'a Token>,
    /// The request reports on its own run. Nodes that recover from a loss of data count for it:
    /// otherwise another host could judge the run before its holder has reported.
    pub reports: bool,
    /// How much longer no run of another token is closed, because its holder could not report while
    /// a majority was unreachable. Zero if there was no outage.
    pub spares: Duration,
}

impl<'a> Requester<'a> {
    /// A request that reports on no run, when there was no outage.
    pub fn new(token: Option<&'a Token>) -> Self {
        Self {
            token,
            ..Self::default()
        }
    }

    /// A request of a run's holder.
    pub fn holder(token: &'a Token) -> Self {
        Self {
            reports: true,
            ..Self::new(Some(token))
        }
    }
}

/// What follows from the replies of phase 1.
#[derive(Debug)]
pub enum Decision<R> {
    /// A majority agrees on a state from which the reply follows as it is.
    Reply(R),
    /// A majority must accept this first.
    Propose {
        proposal: Box<Proposal>,
        /// It takes the lock.
        taken: bool,
        /// Which accepting nodes count.
        trust: Trust,
        reply: R,
    },
    /// Too many nodes lost their data, or a run waits for the report of its holder. Decide again
    /// after this time.
    Recovering(Duration),
    /// Too few nodes promised, or their replies about the lock do not suffice while another host
    /// proposes.
    TooFew,
}

/// Applies the rules to the merged replies.
pub fn decide<R>(
    (target, ballot): (&RequestTarget, Ballot),
    replies: &[PrepareReply],
    quorum: usize,
    requester: Requester<'_>,
    rules: impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Transition<R>,
) -> Decision<R> {
    let counting = match check_quorum(replies, quorum) {
        QuorumCheck::Recovering(_) if requester.reports => {
            (check_quorum_for_holder(replies, quorum), Trust::Recovering)
        }
        counting => (counting, Trust::Sound),
    };
    let (counted, horizon, trust) = match counting {
        (QuorumCheck::Met { counted, horizon }, Trust::Sound) if horizon.is_some() => {
            (counted, horizon, Trust::Forgetful)
        }
        (QuorumCheck::Met { counted, horizon }, trust) => (counted, horizon, trust),
        (QuorumCheck::Recovering(left), _) => return Decision::Recovering(left),
        (QuorumCheck::TooFew, _) => return Decision::TooFew,
    };
    let exclusive = target.lock.exclusive;
    let mut merged = merge(replies, &counted, quorum, (exclusive, requester.token));
    merged.forget_before(horizon);
    // The other host is deciding who has the lock. A verdict from here would be recorded as well.
    if merged.torn
        && replies
            .iter()
            .any(|reply| reply.status == PrepareStatus::Preempted)
    {
        return Decision::TooFew;
    }
    let applied = apply_rules(&merged, &rules);
    if !requester.spares.is_zero() && closes_anothers_run(&merged, applied.job.as_ref(), requester)
    {
        return Decision::Recovering(requester.spares);
    }
    // A node that lost its data receives the state, so that it counts again.
    let forgetful = |reply: &PrepareReply| reply.recovering.is_zero() && !reply.remembers;
    if !applied.changed && merged.agreed && !replies.iter().any(forgetful) {
        return Decision::Reply(applied.transition.reply);
    }
    Decision::Propose {
        proposal: Box::new(build_proposal(
            target, ballot, &merged, &applied, target.ttl,
        )),
        taken: applied.transition.taken,
        trust,
        reply: applied.transition.reply,
    }
}

/// Whether the rules end the open run of another token.
fn closes_anothers_run(
    merged: &MergedState,
    after: Option<&JobState>,
    requester: Requester<'_>,
) -> bool {
    let token = |job: Option<&JobState>| Some(job?.open.as_ref()?.token.clone());
    let before = token(merged.job.as_ref());
    before.is_some() && before.as_ref() != requester.token && before != token(after)
}
