//! Renewals: to all nodes at once, and a majority is enough.

use std::sync::Arc;
use std::time::Duration;

use super::ask::Answer;
use super::transact::Proposer;
use crate::store::protocol::longest_counted;
use crate::store::redis::node::{Extended, LongestTtl};
use crate::store::{RenewReply, Renewal, StoreError};

/// How long the slower nodes are waited for once all leases are decided: the lease is set again
/// on those that do not have it.
const GRACE: Duration = Duration::from_millis(5);

/// What the nodes said of one lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) renewed: usize,
    /// Of those that renewed it, the nodes with a record of its grant.
    pub(super) recorded: usize,
    pub(super) taken: usize,
    pub(super) absent: usize,
}

impl Tally {
    fn add(&mut self, reply: Extended) {
        match reply {
            Extended::Renewed => {
                self.renewed += 1;
                self.recorded += 1;
            }
            Extended::Unrecorded => self.renewed += 1,
            Extended::Taken => self.taken += 1,
            Extended::Absent => self.absent += 1,
        }
    }

    /// What a majority of `nodes` says. A lease is lost only when no majority can renew it any
    /// more, whatever the silent nodes would say; a failed renewal unlocks nothing.
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
        let mut heard: Vec<(usize, Vec<Extended>)> = Vec::new();
        let mut errors: Vec<Answer<()>> = Vec::new();
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
                self.bring_back(renewal);
            }
        }
        Ok(verdicts)
    }

    /// A node that came back without the lock, or was away when it was taken, gets it again from
    /// its holder, who has a majority.
    fn set_again(
        &self,
        at: usize,
        renewals: &[Renewal],
        verdicts: &[RenewReply],
        replies: &[Extended],
        longest: LongestTtl,
    ) {
        let gone: Vec<Renewal> = renewals
            .iter()
            .zip(verdicts)
            .zip(replies)
            .filter(|((_, verdict), reply)| {
                **verdict == RenewReply::Renewed && **reply == Extended::Absent
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
