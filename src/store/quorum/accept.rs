//! Phase 2: proposes a result to all nodes, and withdraws what no majority accepted.

use std::sync::Arc;
use std::time::Duration;

use super::backfill::backfill;
use super::prepare::{VOTE, limit};
use super::proposer::Proposer;
use super::trust::Trust;
use crate::ground::tasks;
use crate::store::StoreError;
use crate::store::redis::node::{
    AcceptStatus, Ballot, PrepareMode, Proposal, QuorumNode, RequestTarget,
};

/// Whether a proposer still has its vote. A node releases the vote when it accepts the proposal.
#[derive(PartialEq, Eq)]
pub(super) enum VoteState {
    Released,
    Kept,
}

/// The outcome of the accept phase.
pub(super) enum AcceptOutcome {
    /// A majority accepted the proposal.
    Chosen,
    Preempted,
    TooFew(StoreError),
}

impl Proposer {
    /// Proposes to all nodes. Returns as soon as a majority has accepted.
    pub(super) async fn propose(&self, proposal: &Proposal, trust: Trust) -> AcceptOutcome {
        let proposal = Arc::new(proposal.clone());
        let limit = limit(proposal.target.ttl);
        let mut answers = self.nodes.ask(0..self.nodes.len(), |node| {
            let (proposal, all) = (Arc::clone(&proposal), self.nodes.all());
            async move {
                let accepted = node.accept(&proposal, limit).await?;
                if let (Some(lacks), Some(job)) = (accepted.lacks, proposal.target.job.clone()) {
                    let lock = proposal.target.lock.clone();
                    tasks::spawn(backfill(all, node, (job, lock), lacks));
                }
                Ok(accepted.status)
            }
        });
        let (mut taken, mut answered, mut preempted) = (0, 0, false);
        let mut errors = Vec::new();
        while let Some((at, answer)) = answers.recv().await {
            match answer {
                Ok(said) => {
                    answered += 1;
                    taken += usize::from(trust.counts(said));
                    preempted |= matches!(said, AcceptStatus::Preempted | AcceptStatus::Held);
                }
                Err(error) => errors.push((at, Err(error))),
            }
            if taken >= self.nodes.quorum() {
                return AcceptOutcome::Chosen;
            }
        }
        if preempted {
            AcceptOutcome::Preempted
        } else {
            AcceptOutcome::TooFew(self.few(answered, &errors))
        }
    }

    pub(super) fn withdraw(&self, proposal: &Proposal) {
        let (lock, ballot) = (proposal.target.lock.clone(), proposal.ballot);
        let Some(token) = proposal.lock.token.clone() else {
            return;
        };
        // Not awaited: a lock that cannot be withdrawn expires with its TTL.
        drop(self.nodes.ask(0..self.nodes.len(), |node| {
            let (lock, token) = (lock.clone(), token.clone());
            async move { node.withdraw(&lock, ballot, &token).await }
        }));
    }

    pub(super) fn yield_vote(&self, first: usize, target: &RequestTarget, ballot: Ballot) {
        drop(
            self.nodes
                .ask(std::iter::once(first), |node: Arc<QuorumNode>| {
                    let target = target.clone();
                    async move {
                        node.prepare(
                            &target,
                            (PrepareMode::Yield, ballot),
                            VOTE,
                            QuorumNode::RESPONSE_TIMEOUT,
                        )
                        .await
                        .map(drop)
                    }
                }),
        );
    }
}

/// Returns how long it may take to acquire a lease: its TTL minus the drift of clocks (1 % and 2 ms).
/// Source: the description of Redlock, "Is the algorithm asynchronous?".
pub(super) fn validity(ttl: Duration) -> Duration {
    ttl.saturating_sub(ttl / 100 + Duration::from_millis(2))
}
