//! A request on its way through the phases of a majority, as `store::quorum::transact` takes it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use cronlatch::store::quorum::{
    AcceptStatus, Ballot, Decision, PrepareMode, PrepareReply, PrepareStatus, Proposal,
    QuorumCheck, Requester, Transition, Trust, check_quorum, decide, is_preempted, merge,
};

use super::node::{Answer, Ask};
use super::part::{Part, PartReply};
use super::turns::Queue;
use crate::message::Message;
use crate::plan::millis;

/// Clocks that differ by more than this are wrong; then all nodes are asked.
const APART: u64 = 1_000_000;

/// A request, and how far it is.
#[derive(Debug)]
pub(super) struct Op {
    /// To be answered; `None` for what a store does by itself.
    pub(super) message: Option<Message>,
    pub(super) host: usize,
    /// The daemon, or the `trigger`, that makes the request.
    pub(super) life: u32,
    pub(super) parts: VecDeque<Part>,
    pub(super) replies: Vec<PartReply>,
    pub(super) step: u32,
    pub(super) phase: Phase,
    pub(super) failures: u32,
    pub(super) floor: u64,
    pub(super) began: i64,
    /// When this try began.
    pub(super) sent: i64,
    pub(super) longest: i64,
    /// The node whose vote it has, and under which proposal.
    pub(super) vote: Option<(usize, Ballot)>,
}

#[derive(Debug)]
pub(super) enum Phase {
    Pause,
    /// The nodes in this order are asked for a vote, one after the other.
    First {
        ballot: Ballot,
        asked: Option<usize>,
        rest: VecDeque<usize>,
    },
    /// The others are asked; with a ballot for promises, else to read.
    Others {
        ballot: Option<Ballot>,
        replies: Vec<PrepareReply>,
        silent: BTreeSet<usize>,
        contended: u64,
    },
    Propose {
        proposal: Box<Proposal>,
        trust: Trust,
        granted: bool,
        reply: PartReply,
        taken: usize,
        answered: usize,
        preempted: bool,
        silent: BTreeSet<usize>,
    },
}

/// What follows from an answer.
#[derive(Debug)]
pub(super) enum Next {
    Wait,
    /// The next node is asked for its vote.
    AnotherVote,
    /// These are asked.
    Ask(Vec<(usize, Ask)>),
    /// The part is done.
    Done(PartReply, Option<Box<Proposal>>),
    /// How long nothing is decided.
    Recovering(std::time::Duration),
    Contended(u64),
    Failed,
}

impl Op {
    /// Whose turn it takes: a process makes one request about a lock after the other.
    pub(super) fn queue(&self) -> Queue {
        let lock = self.part().target(Duration::ZERO).lock;
        (self.host, self.life, lock.name)
    }

    pub(super) fn part(&self) -> &Part {
        &self.parts[0]
    }

    /// Something came from a node; `None` when no more answers are waited for.
    pub(super) fn hear(
        &mut self,
        (node, answer): (usize, Option<Answer>),
        (nodes, spares): (usize, i64),
        (now, shunned): (i64, &BTreeSet<usize>),
    ) -> Next {
        match &mut self.phase {
            Phase::Pause => Next::Wait,
            Phase::First { ballot, .. } => match answer {
                Some(Answer::Prepare(reply)) => {
                    let ballot = *ballot;
                    self.after_vote(node, *reply, ballot, nodes)
                }
                _ => Next::AnotherVote,
            },
            Phase::Others {
                replies, silent, ..
            } => {
                match answer {
                    Some(Answer::Prepare(reply)) => {
                        replies.push(*reply);
                        silent.remove(&node);
                    }
                    Some(_) => {
                        silent.remove(&node);
                    }
                    None => silent.clear(),
                }
                self.look_on((nodes, spares), shunned)
            }
            Phase::Propose {
                trust,
                taken,
                answered,
                preempted,
                silent,
                ..
            } => {
                match answer {
                    Some(Answer::Accept(said)) => {
                        silent.remove(&node);
                        *answered += 1;
                        *taken += usize::from(trust.counts(said));
                        *preempted |= matches!(said, AcceptStatus::Preempted | AcceptStatus::Held);
                    }
                    Some(_) => {
                        silent.remove(&node);
                    }
                    None => silent.clear(),
                }
                self.proposed(nodes / 2 + 1, now)
            }
        }
    }

    fn after_vote(
        &mut self,
        first: usize,
        reply: PrepareReply,
        ballot: Ballot,
        nodes: usize,
    ) -> Next {
        let others: BTreeSet<usize> = (0..nodes).filter(|it| *it != first).collect();
        let target = self.part().target(millis(self.longest));
        let busy = reply.status == PrepareStatus::Busy;
        let promised = Ballot {
            number: reply.promised,
            ..ballot
        };
        let question = if busy {
            (PrepareMode::Read, Ballot::default())
        } else {
            (PrepareMode::Promise, promised)
        };
        let contended = reply.promised;
        self.vote = (!busy).then_some((first, promised));
        let reply = PrepareReply {
            status: if busy {
                PrepareStatus::Read
            } else {
                reply.status
            },
            ..reply
        };
        let asks = others.iter();
        let asks = asks.map(|node| (*node, Ask::Prepare(target.clone(), question)));
        let asks = asks.collect();
        self.phase = Phase::Others {
            ballot: (!busy).then_some(promised),
            replies: vec![reply],
            silent: others,
            contended,
        };
        Next::Ask(asks)
    }

    /// Decides, once enough nodes have answered.
    fn look_on(&mut self, (nodes, spares): (usize, i64), shunned: &BTreeSet<usize>) -> Next {
        let quorum = nodes / 2 + 1;
        let part = self.part().clone();
        let target = part.target(millis(self.longest));
        let Phase::Others {
            ballot,
            replies,
            silent,
            contended,
            ..
        } = &self.phase
        else {
            return Next::Wait;
        };
        let hopeless = silent.is_subset(shunned);
        let preempted = is_preempted(replies, silent.len(), quorum);
        if !silent.is_empty() && !preempted && !is_enough(replies, quorum, (&part, hopeless)) {
            return Next::Wait;
        }
        let requester = Requester {
            token: part.token(),
            reports: part.reports(),
            spares: millis(spares),
        };
        let at = (&target, ballot.unwrap_or_default());
        let resolved = decide(at, replies, quorum, requester, |lock, job, clock| {
            let (reply, effects, taken) = part.apply(lock, job, clock);
            Transition {
                reply,
                effects,
                taken,
            }
        });
        let contended = *contended;
        match resolved {
            Decision::Reply(reply) => Next::Done(reply, None),
            Decision::Recovering(left) => self.recovering(left, quorum),
            Decision::TooFew => {
                let later = replies
                    .iter()
                    .filter(|reply| reply.status == PrepareStatus::Preempted);
                match later.map(|reply| reply.promised).max() {
                    Some(seen) => Next::Contended(seen),
                    None => Next::Failed,
                }
            }
            Decision::Propose { reply, .. } if matches!(part, Part::Report(..)) => {
                Next::Done(reply, None)
            }
            Decision::Propose { .. } if ballot.is_none() => Next::Contended(contended),
            Decision::Propose {
                proposal,
                taken,
                trust,
                reply,
            } => {
                let asks = (0..nodes).map(|node| (node, Ask::Propose(proposal.clone())));
                let asks = asks.collect();
                self.phase = Phase::Propose {
                    proposal,
                    trust,
                    granted: taken,
                    reply,
                    taken: 0,
                    answered: 0,
                    preempted: false,
                    silent: (0..nodes).collect(),
                };
                Next::Ask(asks)
            }
        }
    }

    /// What a job is registered as while too many nodes recover; nothing is written.
    fn recovering(&self, left: std::time::Duration, quorum: usize) -> Next {
        let (Phase::Others { replies, .. }, part) = (&self.phase, self.part()) else {
            return Next::Recovering(left);
        };
        if !matches!(part, Part::Register(_) | Part::Report(..)) {
            return Next::Recovering(left);
        }
        let all: Vec<usize> = (0..replies.len()).collect();
        let exclusive = part.target(left).lock.exclusive;
        let mut merged = merge(replies, &all, quorum, (exclusive, None));
        let horizon = cronlatch::store::protocol::horizon_of(merged.clock.utc());
        merged.clock.past.horizon = Some(horizon);
        let (reply, ..) = part.apply(&mut merged.lock, &mut merged.job, merged.clock);
        Next::Done(
            match reply {
                PartReply::Registered(mut registered) => {
                    registered.recovering = left;
                    PartReply::Registered(registered)
                }
                other => other,
            },
            None,
        )
    }

    fn proposed(&mut self, quorum: usize, now: i64) -> Next {
        let Phase::Propose {
            proposal,
            granted,
            reply,
            taken,
            preempted,
            silent,
            ..
        } = &self.phase
        else {
            return Next::Wait;
        };
        if *taken >= quorum {
            let ttl = i64::try_from(proposal.target.ttl.as_millis()).unwrap_or(i64::MAX);
            if *granted && now - self.sent >= ttl - ttl / 100 - 2 {
                return Next::Failed;
            }
            return Next::Done(reply.clone(), Some(proposal.clone()));
        }
        match (silent.is_empty(), preempted) {
            (false, _) => Next::Wait,
            (true, true) => Next::Contended(proposal.ballot.number),
            (true, false) => Next::Failed,
        }
    }

    /// Gives the vote back that led to no decision.
    pub(super) fn yielding(&mut self) -> Option<(usize, Ask)> {
        let (node, ballot) = self.vote.take()?;
        let target = self.part().target(millis(self.longest));
        Some((node, Ask::Prepare(target, (PrepareMode::Yield, ballot))))
    }

    /// The lock of a proposal that found no majority, to be given back.
    pub(super) fn withdrawal(&self) -> Option<Ask> {
        let Phase::Propose {
            proposal,
            granted: true,
            ..
        } = &self.phase
        else {
            return None;
        };
        let token = proposal.lock.token.clone()?;
        let lock = proposal.target.lock.clone();
        Some(Ask::Withdraw(lock, proposal.ballot, token))
    }
}

/// Whether a majority counts, agrees about the time, and knows of the open run and the lock.
/// The nodes that failed a moment ago are not worth waiting for because of a clock.
fn is_enough(replies: &[PrepareReply], quorum: usize, (part, hopeless): (&Part, bool)) -> bool {
    let QuorumCheck::Met {
        counted,
        horizon: None,
    } = check_quorum(replies, quorum)
    else {
        return false;
    };
    let clocks = || counted.iter().map(|at| replies[*at].micros);
    let apart = clocks().max().unwrap_or(0) - clocks().min().unwrap_or(0);
    let exclusive = part.target(std::time::Duration::ZERO).lock.exclusive;
    let merged = merge(replies, &counted, quorum, (exclusive, part.token()));
    let reporter = part.token().filter(|_| part.reports());
    (apart <= APART || hopeless) && !merged.needs_more(exclusive, reporter)
}
