//! A request on its way through the phases of a majority, as `store::redlock::transact` takes it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use cronlatch::store::majority::{
    Asker, Ballot, Counting, LookAnswer, Mode, Proposal, Resolved, Taken, Trust, View, count,
    merge, resolve,
};

use super::node::{Answer, Ask};
use super::part::{Part, PartReply};
use super::turns::Queue;
use crate::message::Message;
use crate::plan::millis;

/// Clocks that differ by more are wrong: then all nodes are heard.
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
        views: Vec<View>,
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
        outbid: bool,
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
    /// For so long nothing is decided.
    Recovering(std::time::Duration),
    Contended(u64),
    Failed,
}

impl Op {
    /// Whose turn it takes: a process makes one request about a lock after the other.
    pub(super) fn queue(&self) -> Queue {
        let lock = self.part().place(Duration::ZERO).lock;
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
                Some(Answer::View(view)) => {
                    let ballot = *ballot;
                    self.after_vote(node, *view, ballot, nodes)
                }
                _ => Next::AnotherVote,
            },
            Phase::Others { views, silent, .. } => {
                match answer {
                    Some(Answer::View(view)) => {
                        views.push(*view);
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
                outbid,
                silent,
                ..
            } => {
                match answer {
                    Some(Answer::Taken(said)) => {
                        silent.remove(&node);
                        *answered += 1;
                        *taken += usize::from(trust.counts(said));
                        *outbid |= matches!(said, Taken::Outbid | Taken::Held);
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

    fn after_vote(&mut self, first: usize, view: View, ballot: Ballot, nodes: usize) -> Next {
        let others: BTreeSet<usize> = (0..nodes).filter(|it| *it != first).collect();
        let place = self.part().place(millis(self.longest));
        let busy = view.said == LookAnswer::Busy;
        let promised = Ballot {
            number: view.promised,
            ..ballot
        };
        let question = if busy {
            (Mode::Read, Ballot::default())
        } else {
            (Mode::Promise, promised)
        };
        let contended = view.promised;
        self.vote = (!busy).then_some((first, promised));
        let view = View {
            said: if busy { LookAnswer::Read } else { view.said },
            ..view
        };
        let asks = others.iter();
        let asks = asks.map(|node| (*node, Ask::Look(place.clone(), question)));
        let asks = asks.collect();
        self.phase = Phase::Others {
            ballot: (!busy).then_some(promised),
            views: vec![view],
            silent: others,
            contended,
        };
        Next::Ask(asks)
    }

    /// Decides, once enough nodes have answered.
    fn look_on(&mut self, (nodes, spares): (usize, i64), shunned: &BTreeSet<usize>) -> Next {
        let quorum = nodes / 2 + 1;
        let part = self.part().clone();
        let place = part.place(millis(self.longest));
        let Phase::Others {
            ballot,
            views,
            silent,
            contended,
            ..
        } = &self.phase
        else {
            return Next::Wait;
        };
        let hopeless = silent.is_subset(shunned);
        if !silent.is_empty() && !is_enough(views, quorum, (&part, hopeless)) {
            return Next::Wait;
        }
        let asker = Asker {
            token: part.token(),
            reports: part.reports(),
            spares: millis(spares),
        };
        let at = (&place, ballot.unwrap_or_default());
        let resolved = resolve(at, views, quorum, asker, |lock, job, clock| {
            part.apply(lock, job, clock)
        });
        let contended = *contended;
        match resolved {
            Resolved::Reply(reply) => Next::Done(reply, None),
            Resolved::Recovering(left) => self.recovering(left, quorum),
            Resolved::TooFew => {
                let later = views.iter().filter(|view| view.said == LookAnswer::Outbid);
                match later.map(|view| view.promised).max() {
                    Some(seen) => Next::Contended(seen),
                    None => Next::Failed,
                }
            }
            Resolved::Propose { reply, .. } if matches!(part, Part::Report(..)) => {
                Next::Done(reply, None)
            }
            Resolved::Propose { .. } if ballot.is_none() => Next::Contended(contended),
            Resolved::Propose {
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
                    outbid: false,
                    silent: (0..nodes).collect(),
                };
                Next::Ask(asks)
            }
        }
    }

    /// What a job is registered as while too many nodes recover; nothing is written.
    fn recovering(&self, left: std::time::Duration, quorum: usize) -> Next {
        let (Phase::Others { views, .. }, part) = (&self.phase, self.part()) else {
            return Next::Recovering(left);
        };
        if !matches!(part, Part::Register(_) | Part::Report(..)) {
            return Next::Recovering(left);
        }
        let all: Vec<usize> = (0..views.len()).collect();
        let exclusive = part.place(left).lock.exclusive;
        let mut merged = merge(views, &all, quorum, (exclusive, None));
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
            outbid,
            silent,
            ..
        } = &self.phase
        else {
            return Next::Wait;
        };
        if *taken >= quorum {
            let ttl = i64::try_from(proposal.place.ttl.as_millis()).unwrap_or(i64::MAX);
            if *granted && now - self.sent >= ttl - ttl / 100 - 2 {
                return Next::Failed;
            }
            return Next::Done(reply.clone(), Some(proposal.clone()));
        }
        match (silent.is_empty(), outbid) {
            (false, _) => Next::Wait,
            (true, true) => Next::Contended(proposal.ballot.number),
            (true, false) => Next::Failed,
        }
    }

    /// Gives the vote back that led to no decision.
    pub(super) fn yielding(&mut self) -> Option<(usize, Ask)> {
        let (node, ballot) = self.vote.take()?;
        let place = self.part().place(millis(self.longest));
        Some((node, Ask::Look(place, (Mode::Yield, ballot))))
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
        let lock = proposal.place.lock.clone();
        Some(Ask::Withdraw(lock, proposal.ballot, token))
    }
}

/// Whether a majority counts, agrees about the time, and knows of the open run and the lock.
/// The nodes that failed a moment ago are not worth waiting for because of a clock.
fn is_enough(views: &[View], quorum: usize, (part, hopeless): (&Part, bool)) -> bool {
    let Counting::On {
        counted,
        horizon: None,
    } = count(views, quorum)
    else {
        return false;
    };
    let clocks = || counted.iter().map(|at| views[*at].micros);
    let apart = clocks().max().unwrap_or(0) - clocks().min().unwrap_or(0);
    let exclusive = part.place(std::time::Duration::ZERO).lock.exclusive;
    let merged = merge(views, &counted, quorum, (exclusive, part.token()));
    let reporter = part.token().filter(|_| part.reports());
    (apart <= APART || hopeless) && !merged.needs_more(exclusive, reporter)
}
