//! One change of a lock and its job: a majority of the nodes accepts it, or no node keeps it.
//!
//! This is single-decree ballot voting in the style of `CASPaxos`: each change reads a register (lock
//! and job) from a majority, applies a function to it, and writes the result under the same ballot.
//!
//! 1. **Prepare.** The proposer asks one node for its *vote*; all hosts try the nodes in the same
//!    order. The node chooses the number of the ballot. With the vote, the proposer asks all other
//!    nodes to *promise* that they accept no lower ballot; their replies contain what they know.
//! 2. **Decide.** The rules of the protocol are applied to what a majority knows together.
//! 3. **Accept.** The result is proposed to all nodes. A node accepts it unless it has promised a
//!    higher ballot since, or the proposal takes the lock and the node has it for another token.
//!
//! What a majority accepted is *chosen*: every later ballot reads from at least one of those nodes.
//!
//! It differs from `CASPaxos` in three ways. The vote makes two hosts that fire at the same instant
//! take turns instead of preempting each other. The host without the vote only reads, and returns
//! if a majority agrees on a state that already decides its request. The lock itself and its lease
//! are not part of the register: they expire on each node, so they are counted instead (`merge`).

use std::time::{Duration, Instant};

use super::accept::{AcceptOutcome, VoteState, validity};
use super::apply::apply_rules;
use super::decide::{Decision, Requester, decide};
use super::merge::{QuorumCheck, check_quorum, merge};
use super::prepare::PrepareReplies;
use super::proposer::Proposer;
use super::request::{QuorumReply, QuorumRequest, QuorumWait, Transition};
use crate::store::StoreError;
use crate::store::protocol::{Clock, JobState, LockState};
use crate::store::redis::node::{Ballot, PrepareMode, PrepareReply, PrepareStatus, RequestTarget};

/// How long a request gives way to those of other hosts before it fails.
const CONTENTION_LIMIT: Duration = Duration::from_secs(10);

/// The outcome of one round: prepare, decide, accept.
enum Round<R> {
    Done(QuorumReply<R>),
    /// Another host proposes. The next ballot must be greater than this.
    Contended(u64),
    /// Too few nodes replied.
    Failed(StoreError),
}

impl Proposer {
    /// Changes lock and job by the rules. The rules may be applied several times, each time to the
    /// current state; only the last result counts.
    pub(super) async fn transact<R>(
        &self,
        request: &QuorumRequest<'_>,
        rules: impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Transition<R>,
    ) -> Result<QuorumReply<R>, StoreError> {
        let began = Instant::now();
        let (mut failures, mut floor) = (0, 0);
        loop {
            let turn = self.turns.take(&request.lock.name).await;
            let round = self.run_round(request, &rules, floor).await?;
            drop(turn);
            match round {
                Round::Done(done) => return Ok(done),
                Round::Contended(seen) if began.elapsed() < CONTENTION_LIMIT => {
                    floor = floor.max(seen);
                }
                Round::Contended(_) => {
                    return Err(StoreError::unreachable(format!(
                        "the nodes are busy with other hosts' requests for lock {} since \
                         {CONTENTION_LIMIT:?}",
                        request.lock.name
                    )));
                }
                Round::Failed(error) => {
                    failures += 1;
                    if failures >= self.tries {
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(self.jittered()).await;
        }
    }

    /// As [`Self::transact`], for requests that usually change nothing: it first only reads, and
    /// proposes if the rules change the state.
    pub(super) async fn transact_lazily<R>(
        &self,
        request: &QuorumRequest<'_>,
        rules: impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Transition<R>,
    ) -> Result<QuorumReply<R>, StoreError> {
        let target = self.target(request);
        let all = 0..self.nodes.len();
        let heard = self
            .prepare(
                &target,
                all,
                (PrepareMode::Read, Ballot::default()),
                Vec::new(),
            )
            .await?;
        if let Some(reply) = self.settled(&heard.replies, request, &rules) {
            return Ok(QuorumReply::Reply(reply));
        }
        self.transact(request, rules).await
    }

    async fn run_round<R>(
        &self,
        request: &QuorumRequest<'_>,
        rules: &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Transition<R>,
        floor: u64,
    ) -> Result<Round<R>, StoreError> {
        let target = self.target(request);
        let ballot = Ballot {
            number: floor.saturating_add(1),
            id: self.ids.next(),
        };
        let sent = Instant::now();
        let (first, reply) = match self.request_vote(&target, ballot).await? {
            Ok(first) => first,
            Err(error) => return Ok(Round::Failed(error)),
        };
        let others = (0..self.nodes.len()).filter(|at| *at != first);
        if reply.status == PrepareStatus::Busy {
            let replies = self.read_after_vote(&target, first, reply).await?;
            return Ok(match self.settled(&replies, request, rules) {
                Some(reply) => Round::Done(QuorumReply::Reply(reply)),
                None => Round::Contended(replies[0].promised),
            });
        }
        let ballot = Ballot {
            number: reply.promised,
            ..ballot
        };
        let promise = (PrepareMode::Promise, ballot);
        let mut heard = match request.wait {
            QuorumWait::Enough => self.prepare(&target, others, promise, vec![reply]).await?,
            QuorumWait::All => {
                self.collect_replies(&target, others, promise, vec![reply], QuorumWait::All)
                    .await?
            }
        };
        if self.is_in_doubt(&heard.replies, request) {
            heard = self.ask_the_rest(&target, first, promise, heard).await?;
        }
        let outcome = self
            .run_accept_phase(&target, ballot, &heard, (request, rules), sent)
            .await;
        if !matches!(outcome, Ok((_, VoteState::Released))) {
            self.yield_vote(first, &target, ballot);
        }
        outcome.map(|(round, _)| round)
    }

    /// Reads from the other nodes after another host got the vote of `first`. Its reply comes first.
    async fn read_after_vote(
        &self,
        target: &RequestTarget,
        first: usize,
        reply: PrepareReply,
    ) -> Result<Vec<PrepareReply>, StoreError> {
        let others = (0..self.nodes.len()).filter(|at| *at != first);
        let reply = PrepareReply {
            status: PrepareStatus::Read,
            ..reply
        };
        let read = (PrepareMode::Read, Ballot::default());
        let heard = self.prepare(target, others, read, vec![reply]).await?;
        Ok(heard.replies)
    }

    /// Asks the nodes that have not been asked yet, and adds their replies.
    async fn ask_the_rest(
        &self,
        target: &RequestTarget,
        first: usize,
        promise: (PrepareMode, Ballot),
        mut heard: PrepareReplies,
    ) -> Result<PrepareReplies, StoreError> {
        let rest: Vec<usize> = (0..self.nodes.len())
            .filter(|at| *at != first && !heard.knows(*at))
            .collect();
        let replies = std::mem::take(&mut heard.replies);
        let rest = rest.into_iter();
        let more = self.collect_replies(target, rest, promise, replies, QuorumWait::All);
        let more = more.await?;
        heard.replies = more.replies;
        heard.at.extend(more.at);
        heard.errors.extend(more.errors);
        Ok(heard)
    }

    /// Decides, and runs phase 2 if there is something to propose.
    async fn run_accept_phase<R>(
        &self,
        target: &RequestTarget,
        ballot: Ballot,
        heard: &PrepareReplies,
        (request, rules): (
            &QuorumRequest<'_>,
            &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Transition<R>,
        ),
        sent: Instant,
    ) -> Result<(Round<R>, VoteState), StoreError> {
        let quorum = self.nodes.quorum();
        let requester = Requester {
            token: request.me,
            reports: request.reports,
            spares: self.outage.spares(&request.lock.name),
        };
        let (proposal, taken, trust, reply) =
            match decide((target, ballot), &heard.replies, quorum, requester, rules) {
                Decision::Reply(reply) => {
                    return Ok((Round::Done(QuorumReply::Reply(reply)), VoteState::Kept));
                }
                Decision::Recovering(left) => {
                    return Ok((Round::Done(QuorumReply::Recovering(left)), VoteState::Kept));
                }
                Decision::TooFew => return Ok((self.too_few(heard), VoteState::Kept)),
                Decision::Propose {
                    proposal,
                    taken,
                    trust,
                    reply,
                } => (proposal, taken, trust, reply),
            };
        let outcome = self.propose(&proposal, trust).await;
        let over = taken && sent.elapsed() >= validity(request.ttl);
        let round = match outcome {
            AcceptOutcome::Chosen if !over => Round::Done(QuorumReply::Reply(reply)),
            AcceptOutcome::Chosen => Round::Failed(StoreError::unreachable(format!(
                "the nodes took {:?} to grant a lease of {:?}",
                sent.elapsed(),
                request.ttl
            ))),
            AcceptOutcome::Preempted => Round::Contended(ballot.number),
            AcceptOutcome::TooFew(error) => Round::Failed(error),
        };
        if taken && !matches!(round, Round::Done(_)) {
            self.withdraw(&proposal);
        }
        let over = matches!(round, Round::Done(_));
        Ok((
            round,
            if over {
                VoteState::Released
            } else {
                VoteState::Kept
            },
        ))
    }

    fn too_few<R>(&self, heard: &PrepareReplies) -> Round<R> {
        let later = heard
            .replies
            .iter()
            .filter(|reply| reply.status == PrepareStatus::Preempted);
        match later.map(|reply| reply.promised).max() {
            Some(seen) => Round::Contended(seen),
            None => Round::Failed(self.few(heard.replies.len(), &heard.errors)),
        }
    }

    /// Returns the reply if a majority agrees on a state that already decides the request.
    fn settled<R>(
        &self,
        replies: &[PrepareReply],
        request: &QuorumRequest<'_>,
        rules: &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Transition<R>,
    ) -> Option<R> {
        let quorum = self.nodes.quorum();
        let QuorumCheck::Met {
            counted,
            horizon: None,
        } = check_quorum(replies, quorum)
        else {
            return None;
        };
        let exclusive = request.lock.exclusive;
        let merged = merge(replies, &counted, quorum, (exclusive, request.me));
        if !merged.agreed {
            return None;
        }
        let applied = apply_rules(&merged, rules);
        (!applied.changed).then_some(applied.transition.reply)
    }
}
