//! What the views of a majority lead to, without asking anybody: the middle of a change, between
//! its two phases, in plain form. The model checker puts it between nodes and messages of its own.

use std::time::Duration;

use super::judge::judge;
use super::propose::proposal;
use super::transact::Outcomes;
use super::view::{Counting, count, merge};
use crate::names::Token;
use crate::store::protocol::{Clock, Effect, JobState, LockState};
use crate::store::redis::node::{Ballot, Place, Proposal, View};

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
        /// Nodes that forgot count, too.
        forgotten: bool,
        reply: R,
    },
    /// Too many nodes lost their data; so long yet.
    Recovering(Duration),
    /// Too few nodes promised.
    TooFew,
}

/// Applies the rules to what `views` say together of a place. `rules` answers with the reply and
/// the records, and whether the lock is taken.
pub fn resolve<R>(
    (place, ballot): (&Place, Ballot),
    views: &[View],
    quorum: usize,
    me: Option<&Token>,
    rules: impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> (R, Vec<Effect>, bool),
) -> Resolved<R> {
    let (counted, horizon) = match count(views, quorum) {
        Counting::On { counted, horizon } => (counted, horizon),
        Counting::Recovering(left) => return Resolved::Recovering(left),
        Counting::TooFew => return Resolved::TooFew,
    };
    let mut merged = merge(views, &counted, quorum, (place.lock.exclusive, me));
    merged.forget_before(horizon);
    let judged = judge(&merged, &|lock: &mut _, job: &mut _, clock| {
        let (reply, effects, taken) = rules(lock, job, clock);
        Outcomes {
            reply,
            effects,
            taken,
        }
    });
    // One that forgot is told, so that it counts again.
    let forgetful = |view: &View| view.recovering.is_zero() && !view.remembers;
    if !judged.changed && merged.agreed && !views.iter().any(forgetful) {
        return Resolved::Reply(judged.outcomes.reply);
    }
    Resolved::Propose {
        proposal: Box::new(proposal(place, ballot, &merged, &judged, place.ttl)),
        taken: judged.outcomes.taken,
        forgotten: horizon.is_some(),
        reply: judged.outcomes.reply,
    }
}
