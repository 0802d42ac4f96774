//! Builds the proposal of a ballot from the state that a majority knows and the rules' result.

use std::time::Duration;

use super::apply::AppliedRules;
use super::merge::MergedState;
use crate::store::protocol::Effect;
use crate::store::redis::node::{
    Ballot, JobView, Proposal, ProposedLease, ProposedRecord, RequestTarget,
};

/// Returns the proposal with the result of the rules.
pub(super) fn build_proposal<R>(
    target: &RequestTarget,
    ballot: Ballot,
    merged: &MergedState,
    applied: &AppliedRules<R>,
    ttl: Duration,
) -> Proposal {
    let brought_back = applied.lock.token.is_some() && applied.lock.token != merged.lock.token;
    let mut proposal = Proposal {
        ballot,
        target: target.clone(),
        lock: applied.lock.clone(),
        lease: if applied.transition.taken {
            ProposedLease::Take(ttl)
        } else if brought_back {
            // Its holder has renewed it on a majority just now.
            ProposedLease::Stay(ttl)
        } else if merged.left.is_zero() {
            ProposedLease::Over(merged.over_for)
        } else {
            ProposedLease::Stay(merged.left)
        },
        job: applied.job.clone().map(|state| JobView {
            ballot,
            state,
            doubt: applied.doubt,
            horizon: merged.clock.past.horizon,
        }),
        base: merged.base,
        records: Vec::new(),
        keep: None,
        released: false,
    };
    for effect in &applied.transition.effects {
        match effect {
            Effect::Append {
                record,
                keep,
                follows,
                replaces,
            } => {
                proposal.records.push(ProposedRecord {
                    record: (**record).clone(),
                    follows: *follows,
                    replaces: *replaces,
                });
                proposal.keep = proposal.keep.or(*keep);
            }
            Effect::Released => proposal.released = true,
        }
    }
    proposal
}
