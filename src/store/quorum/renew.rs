//! Renewals go to all nodes at once; a majority decides.

use std::sync::Arc;
use std::time::Duration;

use super::nodes::NodeReply;
use super::proposer::Proposer;
use crate::store::protocol::longest_counted;
use crate::store::redis::node::{ExtendReply, LongestTtl};
use crate::store::{RenewReply, Renewal, StoreError};

/// How long to wait for slower nodes once all leases are decided. A node that replies within this time
/// and lacks the lease receives it again.
const GRACE: Duration = Duration::from_millis(5);

/// The replies of the nodes about one lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) renewed: usize,
    /// How many of those also know its grant.
    pub(super) recorded: usize,
    pub(super) taken: usize,
    pub(super) absent: usize,
}

impl Tally {
    fn add(&mut self, reply: ExtendReply) {
        match reply {
            ExtendReply::Renewed => {
                self.renewed += 1;
                self.recorded += 1;
            }
            ExtendReply::Unrecorded => self.renewed += 1,
            ExtendReply::Taken => self.taken += 1,
            ExtendReply::Absent => self.absent += 1,
        }
    }

    /// Returns the reply of a majority of `nodes`. A lease is lost only when no majority can renew it,
    /// whatever the missing nodes would reply. A failed renewal releases nothing.
    pub(super) fn verdict(self, nodes: usize, quorum: usize) -> RenewReply {
        let never = nodes - quorum + 1;
        if self.renewed >= quorum {
            RenewReply::Renewed
        } else if self.taken >= never {
            RenewReply::Taken
        } else if self.taken + self.absent >= never {
            RenewReply::Absent
        } else {
            RenewReply::Unanswered
        }
    }
}

impl Proposer {
    pub(super) async fn renew(
        self: &Arc<Self>,
        renewals: &[Renewal],
    ) -> Result<Vec<RenewReply>, StoreError> {
        let longest = self.longest.with(longest_counted(renewals));
        let (nodes, quorum) = (self.nodes.len(), self.nodes.quorum());
        let mut answers = self.nodes.ask(0..nodes, |node| {
            let renewals = renewals.to_vec();
            async move { node.extend(&renewals, longest, false).await }
        });
        let mut tallies = vec![Tally::default(); renewals.len()];
        let mut heard: Vec<(usize, Vec<ExtendReply>)> = Vec::new();
        let mut errors: Vec<NodeReply<()>> = Vec::new();
        loop {
            let decided =
                heard.len() >= quorum && tallies.iter().all(|tally| tally.renewed >= quorum);
            let next = if decided {
                tokio::time::timeout(GRACE, answers.recv())
                    .await
                    .unwrap_or(None)
            } else {
                answers.recv().await
            };
            match next {
                Some((at, Ok(replies))) => {
                    for (tally, reply) in tallies.iter_mut().zip(&replies) {
                        tally.add(*reply);
                    }
                    heard.push((at, replies));
                }
                Some((at, Err(error))) => {
                    self.nodes.note_failure(at, &error)?;
                    errors.push((at, Err(error)));
                }
                None => break,
            }
        }
        if heard.len() < quorum {
            return Err(self.few(heard.len(), &errors));
        }
        self.outage.answered();
        let verdicts: Vec<RenewReply> = tallies
            .iter()
            .map(|tally| tally.verdict(nodes, quorum))
            .collect();
        for (at, replies) in heard {
            self.set_again(at, renewals, &verdicts, &replies, longest);
        }
        for (renewal, (verdict, tally)) in renewals.iter().zip(verdicts.iter().zip(&tallies)) {
            if *verdict == RenewReply::Renewed && tally.recorded < quorum {
                self.reassert_run(renewal);
            }
        }
        Ok(verdicts)
    }

    /// Sets the lock again on a node that does not have it, because it was unreachable or restarted. A
    /// majority renewed the lease, so its holder has the lock.
    fn set_again(
        &self,
        at: usize,
        renewals: &[Renewal],
        verdicts: &[RenewReply],
        replies: &[ExtendReply],
        longest: LongestTtl,
    ) {
        let gone: Vec<Renewal> = renewals
            .iter()
            .zip(verdicts)
            .zip(replies)
            .filter(|((_, verdict), reply)| {
                **verdict == RenewReply::Renewed && **reply == ExtendReply::Absent
            })
            .map(|((renewal, _), _)| renewal.clone())
            .collect();
        if gone.is_empty() {
            return;
        }
        drop(self.nodes.ask(std::iter::once(at), |node| {
            let gone = gone.clone();
            async move { node.extend(&gone, longest, true).await.map(drop) }
        }));
    }
}
