//! What the views of a majority lead to, without asking anybody: the middle of a change, between
//! its two phases, in plain form. The model checker puts it between nodes and messages of its own.

use std::time::Duration;

use super::judge::judge;
use super::propose::proposal;
use super::transact::Outcomes;
use super::trust::Trust;
use super::view::{Counting, Merged, count, count_recovering, merge};
use crate::names::Token;
use crate::store::protocol::{Clock, Effect, JobState, LockState};
use crate::store::redis::node::{Ballot, LookAnswer, Place, Proposal, View};

/// In whose name a request is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asker<'a> {
    /// The token of the request, if it has one.
    pub token: Option<&'a Token>,
    /// It reports on its own run. Nodes that recover from a loss of data count for that: they must
    /// not wait until the run has been judged without its holder.
    pub reports: bool,
    /// For how long yet no run of another token is closed, because its holder may have been unable
    /// to report while a majority was away. Zero if there was no outage.
    pub spares: Duration,
}

impl<'a> Asker<'a> {
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

/// What follows from the views.
#[derive(Debug)]
pub enum Resolved<R> {
    /// A majority agrees on a state that answers the request as it is.
    Reply(R),
    /// This must be taken by a majority first.
    Propose {
        proposal: Box<Proposal>,
        /// The lock is taken with it.
        taken: bool,
        /// Which nodes count that take it.
        trust: Trust,
        reply: R,
    },
    /// Too many nodes lost their data, or another's run is left to its holder; so long yet.
    Recovering(Duration),
    /// Too few nodes promised, or what they say of the lock is not enough and another host proposes.
    TooFew,
}

/// Applies the rules to what `views` say together of a place. `rules` answers with the reply and
/// the records, and whether the lock is taken.
pub fn resolve<R>(
    (place, ballot): (&Place, Ballot),
    views: &[View],
    quorum: usize,
    asker: Asker<'_>,
    rules: impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> (R, Vec<Effect>, bool),
) -> Resolved<R> {
    let counting = match count(views, quorum) {
        Counting::Recovering(_) if asker.reports => {
            (count_recovering(views, quorum), Trust::Recovering)
        }
        counting => (counting, Trust::Sound),
    };
    let (counted, horizon, trust) = match counting {
        (Counting::On { counted, horizon }, Trust::Sound) if horizon.is_some() => {
            (counted, horizon, Trust::Forgetful)
        }
        (Counting::On { counted, horizon }, trust) => (counted, horizon, trust),
        (Counting::Recovering(left), _) => return Resolved::Recovering(left),
        (Counting::TooFew, _) => return Resolved::TooFew,
    };
    let exclusive = place.lock.exclusive;
    let mut merged = merge(views, &counted, quorum, (exclusive, asker.token));
    merged.forget_before(horizon);
    // Who has the lock is about to be decided there; a verdict beside it would be recorded twice.
    if merged.torn && views.iter().any(|view| view.said == LookAnswer::Outbid) {
        return Resolved::TooFew;
    }
    let judged = judge(&merged, &|lock: &mut _, job: &mut _, clock| {
        let (reply, effects, taken) = rules(lock, job, clock);
        Outcomes {
            reply,
            effects,
            taken,
        }
    });
    if !asker.spares.is_zero() && closes_anothers_run(&merged, judged.job.as_ref(), asker) {
        return Resolved::Recovering(asker.spares);
    }
    // One that forgot is told, so that it counts again.
    let forgetful = |view: &View| view.recovering.is_zero() && !view.remembers;
    if !judged.changed && merged.agreed && !views.iter().any(forgetful) {
        return Resolved::Reply(judged.outcomes.reply);
    }
    Resolved::Propose {
        proposal: Box::new(proposal(place, ballot, &merged, &judged, place.ttl)),
        taken: judged.outcomes.taken,
        trust,
        reply: judged.outcomes.reply,
    }
}

/// Whether the rules end the open run of another token.
fn closes_anothers_run(merged: &Merged, after: Option<&JobState>, asker: Asker<'_>) -> bool {
    let token = |job: Option<&JobState>| Some(job?.open.as_ref()?.token.clone());
    let before = token(merged.job.as_ref());
    before.is_some() && before.as_ref() != asker.token && before != token(after)
}
