//! Phase 1: the vote of one node, and the promises of the others. Each reply also contains what the
//! node knows about lock and job.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::clock;
use super::merge::{QuorumCheck, check_quorum, is_preempted, merge};
use super::nodes::NodeReply;
use super::proposer::Proposer;
use super::request::{QuorumRequest, QuorumWait};
use crate::ground::timing;
use crate::store::StoreError;
use crate::store::redis::node::{Ballot, PrepareMode, PrepareReply, QuorumNode, RequestTarget};

/// How long a vote lasts. Until then other hosts let its holder finish.
pub(super) const VOTE: Duration = Duration::from_millis(1500);

/// The shortest response time-out of a node.
const SHORTEST_LIMIT: Duration = Duration::from_millis(100);

/// The replies of the nodes.
#[derive(Debug)]
pub(super) struct PrepareReplies {
    pub(super) replies: Vec<PrepareReply>,
    /// The nodes that replied.
    pub(super) at: Vec<usize>,
    pub(super) errors: Vec<NodeReply<()>>,
}

impl PrepareReplies {
    pub(super) fn knows(&self, node: usize) -> bool {
        self.at.contains(&node) || self.errors.iter().any(|(at, _)| *at == node)
    }
}

impl Proposer {
    /// Asks for the vote of the first node that replies. The inner error means that too few nodes are
    /// reachable.
    pub(super) async fn request_vote(
        &self,
        target: &RequestTarget,
        ballot: Ballot,
    ) -> Result<Result<(usize, PrepareReply), StoreError>, StoreError> {
        let mut errors: Vec<NodeReply<()>> = Vec::new();
        let limit = limit(target.ttl);
        for at in self.nodes.order(&target.lock.name) {
            let node = self.nodes.get(at);
            match node
                .prepare(target, (PrepareMode::Vote, ballot), VOTE, limit)
                .await
            {
                Ok(reply) => {
                    self.longest.told(at, reply.longest);
                    self.nodes.note(at, &reply)?;
                    return Ok(Ok((at, reply)));
                }
                Err(error) => {
                    self.nodes.note_failure(at, &error)?;
                    errors.push((at, Err(error)));
                    // Without a majority a vote is useless.
                    if errors.len() > self.nodes.len() - self.nodes.quorum() {
                        break;
                    }
                }
            }
        }
        let answered = self.nodes.len() - errors.len();
        Ok(Err(self.few(answered, &errors)))
    }

    /// Whether the replies of further nodes may change the outcome.
    pub(super) fn is_in_doubt(
        &self,
        replies: &[PrepareReply],
        request: &QuorumRequest<'_>,
    ) -> bool {
        let quorum = self.nodes.quorum();
        let QuorumCheck::Met { counted, .. } = check_quorum(replies, quorum) else {
            return false;
        };
        if replies.len() == self.nodes.len() {
            return false;
        }
        let exclusive = request.lock.exclusive;
        let merged = merge(replies, &counted, quorum, (exclusive, request.me));
        merged.needs_more(exclusive, request.me.filter(|_| request.reports))
    }

    /// Asks many nodes at once, and returns when enough of them replied for a decision.
    pub(super) async fn prepare(
        &self,
        target: &RequestTarget,
        which: impl Iterator<Item = usize>,
        question: (PrepareMode, Ballot),
        replies: Vec<PrepareReply>,
    ) -> Result<PrepareReplies, StoreError> {
        // The first request waits for all nodes, so that a wrong list of nodes is noticed.
        let wait = if self.looked.load(Ordering::Relaxed) {
            QuorumWait::Enough
        } else {
            QuorumWait::All
        };
        let heard = self
            .collect_replies(target, which, question, replies, wait)
            .await?;
        if wait == QuorumWait::All && heard.replies.len() >= self.nodes.quorum() {
            self.say_missing(&heard.errors);
            self.looked.store(true, Ordering::Relaxed);
        }
        Ok(heard)
    }

    /// As [`Self::prepare`], with a choice of how many replies to wait for.
    pub(super) async fn collect_replies(
        &self,
        target: &RequestTarget,
        which: impl Iterator<Item = usize>,
        question: (PrepareMode, Ballot),
        mut replies: Vec<PrepareReply>,
        wait: QuorumWait,
    ) -> Result<PrepareReplies, StoreError> {
        let limit = limit(target.ttl);
        let mut silent: BTreeSet<usize> = which.collect();
        let mut answers = self.nodes.ask(silent.clone().into_iter(), |node| {
            let target = target.clone();
            async move { node.prepare(&target, question, VOTE, limit).await }
        });
        let (mut errors, mut heard_at) = (Vec::new(), Vec::new());
        let quorum = self.nodes.quorum();
        let enough = |replies: &[PrepareReply], silent: &BTreeSet<usize>| {
            // A node that has forgotten the ballots of the others may have chosen too low a number. The next
            // try has a greater one, and need not wait for a node that is silent.
            if wait == QuorumWait::Enough && is_preempted(replies, silent.len(), quorum) {
                return true;
            }
            let QuorumCheck::Met {
                counted,
                horizon: None,
            } = check_quorum(replies, quorum)
            else {
                return false;
            };
            let clocks = counted.iter().map(|at| replies[*at].micros);
            wait == QuorumWait::Enough && (clock::agree(clocks) || self.nodes.are_shunned(silent))
        };
        while !enough(&replies, &silent) {
            let Some((at, answer)) = answers.recv().await else {
                break;
            };
            silent.remove(&at);
            match answer {
                Ok(reply) => {
                    self.longest.told(at, reply.longest);
                    self.nodes.note(at, &reply)?;
                    heard_at.push(at);
                    replies.push(reply);
                }
                Err(error) => {
                    self.nodes.note_failure(at, &error)?;
                    errors.push((at, Err(error)));
                }
            }
        }
        if replies.len() >= quorum {
            self.outage.answered();
        }
        Ok(PrepareReplies {
            replies,
            at: heard_at,
            errors,
        })
    }

    fn say_missing(&self, errors: &[NodeReply<()>]) {
        if errors.is_empty() || self.looked.load(Ordering::Relaxed) {
            return;
        }
        tracing::warn!(
            "{} of {} nodes cannot be used: {}; continuing with the majority",
            errors.len(),
            self.nodes.len(),
            self.nodes.reasons(errors)
        );
    }
}

/// Returns the response time-out of one node.
pub(super) fn limit(ttl: Duration) -> Duration {
    if ttl.is_zero() {
        return QuorumNode::RESPONSE_TIMEOUT;
    }
    timing::response_timeout(ttl).max(SHORTEST_LIMIT)
}
