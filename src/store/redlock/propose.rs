//! Phase 2: the outcome is proposed to all nodes, and what found no majority is taken back.

use std::sync::Arc;
use std::time::Duration;

use super::hear::{VOTE, limit};
use super::judge::Judged;
use super::mend::mend;
use super::transact::Proposer;
use super::trust::Trust;
use super::view::Merged;
use crate::store::StoreError;
use crate::store::protocol::Effect;
use crate::store::redis::node::{Ballot, JobView, Lease, Mode, Node, Place, Proposal, Taken};

/// Whether a majority took a proposal, and with it the vote is given back.
#[derive(PartialEq, Eq)]
pub(super) enum Proposed {
    Yes,
    No,
}

pub(super) enum Verdict {
    Taken,
    Outbid,
    TooFew(StoreError),
}

impl Proposer {
    /// Proposes to all nodes; done as soon as a majority took it.
    pub(super) async fn propose(&self, proposal: &Proposal, trust: Trust) -> Verdict {
        let proposal = Arc::new(proposal.clone());
        let limit = limit(proposal.place.ttl);
        let mut answers = self.nodes.ask(0..self.nodes.len(), |node| {
            let (proposal, all) = (Arc::clone(&proposal), self.nodes.all());
            async move {
                let accepted = node.propose(&proposal, limit).await?;
                if let (Some(lacks), Some(job)) = (accepted.lacks, proposal.place.job.clone()) {
                    let lock = proposal.place.lock.clone();
                    tokio::spawn(mend(all, node, (job, lock), lacks));
                }
                Ok(accepted.taken)
            }
        });
        let (mut taken, mut answered, mut outbid) = (0, 0, false);
        let mut errors = Vec::new();
        while let Some((at, answer)) = answers.recv().await {
            match answer {
                Ok(said) => {
                    answered += 1;
                    taken += usize::from(trust.counts(said));
                    outbid |= matches!(said, Taken::Outbid | Taken::Held);
                }
                Err(error) => errors.push((at, Err(error))),
            }
            if taken >= self.nodes.quorum() {
                return Verdict::Taken;
            }
        }
        if outbid {
            Verdict::Outbid
        } else {
            Verdict::TooFew(self.few(answered, &errors))
        }
    }

    pub(super) fn withdraw(&self, proposal: &Proposal) {
        let (lock, ballot) = (proposal.place.lock.clone(), proposal.ballot);
        let Some(token) = proposal.lock.token.clone() else {
            return;
        };
        // Nobody waits for it: what cannot be withdrawn ends with its TTL.
        drop(self.nodes.ask(0..self.nodes.len(), |node| {
            let (lock, token) = (lock.clone(), token.clone());
            async move { node.withdraw(&lock, ballot, &token).await }
        }));
    }

    pub(super) fn yield_vote(&self, first: usize, place: &Place, ballot: Ballot) {
        drop(self.nodes.ask(std::iter::once(first), |node: Arc<Node>| {
            let place = place.clone();
            async move {
                node.look(&place, (Mode::Yield, ballot), VOTE, Node::RESPONSE_TIMEOUT)
                    .await
                    .map(drop)
            }
        }));
    }
}

/// The proposal that makes the nodes know what was judged.
pub(super) fn proposal<R>(
    place: &Place,
    ballot: Ballot,
    merged: &Merged,
    judged: &Judged<R>,
    ttl: Duration,
) -> Proposal {
    let brought_back = judged.lock.token.is_some() && judged.lock.token != merged.lock.token;
    let mut proposal = Proposal {
        ballot,
        place: place.clone(),
        lock: judged.lock.clone(),
        lease: if judged.outcomes.taken {
            Lease::Take(ttl)
        } else if brought_back {
            // Its holder has renewed it on a majority just now.
            Lease::Stay(ttl)
        } else if merged.left.is_zero() {
            Lease::Over(merged.over_for)
        } else {
            Lease::Stay(merged.left)
        },
        job: judged.job.clone().map(|state| JobView {
            ballot,
            state,
            doubt: judged.doubt,
            horizon: merged.clock.past.horizon,
        }),
        base: merged.base,
        records: Vec::new(),
        keep: None,
        released: false,
    };
    for effect in &judged.outcomes.effects {
        match effect {
            Effect::Append {
                record,
                keep,
                follows,
                replaces: _,
            } => {
                proposal.records.push(((**record).clone(), *follows));
                proposal.keep = proposal.keep.or(*keep);
            }
            Effect::Released => proposal.released = true,
        }
    }
    proposal
}

/// How long a lease may have been in the making: its TTL less what clocks drift apart, 1 % and
/// 2 ms. Source: the description of Redlock, "Is the algorithm asynchronous?".
pub(super) fn validity(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / 100 + Duration::from_millis(2))
}
