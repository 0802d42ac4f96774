//! The condition of every node, for `status` and `doctor`.

use std::time::Duration;

use super::QuorumStore;
use super::clock::offsets;
use super::proposer::Proposer;
use crate::ground::sorting::SortShort as _;
use crate::names::JobName;
use crate::store::redis::node::{LedgerPresence, NodeState};
use crate::store::{Condition, Lock, NodeCondition, NodeStanding, StoreError};

impl QuorumStore {
    /// Returns the condition of every node. A node that does not respond is reported, not an error.
    pub(super) async fn look_at_nodes(&self, jobs: &[(JobName, Lock)]) -> Condition {
        let nodes = &self.proposer.nodes;
        let said = self.proposer.standings(jobs).await;
        let shown = (0..nodes.len()).map(|at| nodes.get(at).shown()).collect();
        judge(shown, &said, nodes.quorum())
    }
}

impl Proposer {
    /// Returns what each node reports about itself and these jobs.
    pub(super) async fn standings(
        &self,
        jobs: &[(JobName, Lock)],
    ) -> Vec<Result<NodeState, StoreError>> {
        let longest = self.longest.with(Duration::ZERO);
        let longest = longest.listed.max(longest.elsewhere);
        let said = self.standings_under(jobs, longest).await;
        let known = said.iter().flatten().map(|standing| standing.longest).max();
        match known.filter(|known| *known > longest) {
            // A node that lost its data does not know how long the forgotten leases were.
            Some(known) => self.standings_under(jobs, known).await,
            None => said,
        }
    }

    async fn standings_under(
        &self,
        jobs: &[(JobName, Lock)],
        longest: Duration,
    ) -> Vec<Result<NodeState, StoreError>> {
        let mut answers = self.nodes.ask(0..self.nodes.len(), |node| {
            let jobs = jobs.to_vec();
            async move { node.standing(&jobs, longest).await }
        });
        let mut said: Vec<Result<NodeState, StoreError>> = Vec::new();
        said.resize_with(self.nodes.len(), || {
            Err(StoreError::unreachable("no request was sent".to_owned()))
        });
        while let Some((at, answer)) = answers.recv().await {
            said[at] = answer;
        }
        said
    }
}

/// Combines the standings of all nodes.
pub(super) fn judge(
    shown: Vec<String>,
    said: &[Result<NodeState, StoreError>],
    quorum: usize,
) -> Condition {
    let mut waits: Vec<&NodeState> = said.iter().flatten().collect();
    waits.sort_short_by_key(|standing| standing.recovering);
    // A majority needs that many nodes, so the slowest of them decides.
    let waited = waits
        .get(quorum - 1)
        .filter(|standing| !standing.recovering.is_zero());
    Condition {
        lost_at: waited.and_then(|standing| standing.lost_at),
        recovering: waited.map_or(Duration::ZERO, |standing| standing.recovering),
        nodes: shown
            .into_iter()
            .zip(said)
            .zip(offsets(said))
            .map(|((node, answer), clock)| NodeCondition {
                node,
                clock,
                unusable: answer
                    .as_ref()
                    .map_or_else(|_| Vec::new(), |it| it.unusable.clone()),
                standing: match answer {
                    Ok(standing) => of_one(standing, said),
                    Err(error) => NodeStanding::Away {
                        error: error.to_string(),
                    },
                },
            })
            .collect(),
    }
}

fn of_one(standing: &NodeState, all: &[Result<NodeState, StoreError>]) -> NodeStanding {
    let Some(lost_at) = standing.lost_at else {
        return NodeStanding::Counts;
    };
    // If other nodes are in use, a node without any trace of use has lost its data.
    if standing.new && all.iter().flatten().all(|other| other.new) {
        return NodeStanding::New;
    }
    if !standing.recovering.is_zero() {
        return NodeStanding::Recovering {
            lost_at,
            remaining: standing.recovering,
        };
    }
    let heard: Vec<&NodeState> = all.iter().flatten().collect();
    match missing(standing, &heard).len() {
        0 => NodeStanding::Counts,
        jobs => NodeStanding::Repairing { lost_at, jobs },
    }
}

/// Returns the indices of the jobs that a node has not received since it lost its data. A job that
/// no node knows is missing nowhere.
pub(super) fn missing(standing: &NodeState, all: &[&NodeState]) -> Vec<usize> {
    let somewhere = |job: usize| {
        all.iter().any(|other| {
            matches!(
                other.ledgers.get(job),
                Some(LedgerPresence::Known | LedgerPresence::Forgotten)
            )
        })
    };
    standing
        .ledgers
        .iter()
        .enumerate()
        .filter(|(_, ledger)| matches!(ledger, LedgerPresence::Forgotten | LedgerPresence::Absent))
        .map(|(job, _)| job)
        .filter(|job| somewhere(*job))
        .collect()
}
