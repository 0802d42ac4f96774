//! Takes a request through its phases, and tries it again when nodes or other hosts are in the way.

use std::collections::VecDeque;

use cronlatch::store::quorum::{Ballot, PrepareMode};
use cronlatch::store::{ClaimReply, Replaced, StoreError};

use super::node::{Answer, Ask};
use super::op::{Next, Phase};
use super::part::{Part, PartReply};
use super::turns::Queue;
use super::wire::NodeItem;
use super::{LIMIT, NOBODY, Quorum, history};
use crate::message::Reply;
use crate::plan::millis;
use crate::world::{Item, Sim};

/// How often a request is tried that finds too few nodes.
const TRIES: u32 = 3;
/// How long hosts step aside for one another.
const CONTENTION: i64 = 10_000;
/// The bits of a ballot's id that count the requests of a process.
const SERIAL_BITS: u32 = 20;

impl Quorum {
    /// A request is tried as soon as no other of its process about this lock is.
    pub(super) fn wait_for_turn(&mut self, sim: &mut Sim, id: u64) {
        if let Some(op) = self.ops.get(&id)
            && self.turns.take(op.queue(), id)
        {
            self.start_phase_1(sim, id);
        }
    }

    /// A try is over: the next request about this lock has its turn.
    fn end_turn(&mut self, sim: &mut Sim, id: u64, queue: &Queue) {
        if let Some(next) = self.turns.end(queue, id) {
            self.start_phase_1(sim, next);
        }
    }

    /// Phase 1 begins.
    fn start_phase_1(&mut self, sim: &mut Sim, id: u64) {
        let len = self.nodes.len();
        self.ids += 1;
        let Some((host, life)) = self.ops.get(&id).map(|op| (op.host, op.life)) else {
            return;
        };
        let shunned = self.shunned(sim.now, host);
        let Some(op) = self.ops.get_mut(&id) else {
            return;
        };
        let process = (u64::try_from(host).unwrap_or(0) + 1) << 10 | u64::from(life);
        let ballot = Ballot {
            number: op.floor + 1,
            // Requests of one process supersede one another.
            id: process << SERIAL_BITS | self.ids,
        };
        let lock = op.part().target(millis(0)).lock.name;
        let start: usize = lock.bytes().map(usize::from).sum();
        let ring = (0..len).map(|it| (start + it) % len);
        let (last, mut rest): (VecDeque<usize>, VecDeque<usize>) =
            ring.partition(|it| shunned.contains(it));
        rest.extend(last);
        op.sent = sim.now;
        op.phase = Phase::First {
            ballot,
            asked: None,
            rest,
        };
        self.ask_first(sim, id);
    }

    fn ask_first(&mut self, sim: &mut Sim, id: u64) {
        let len = self.nodes.len();
        let Some(op) = self.ops.get_mut(&id) else {
            return;
        };
        let target = op.part().target(millis(op.longest));
        let Phase::First {
            ballot,
            asked,
            rest,
        } = &mut op.phase
        else {
            return;
        };
        let ballot = *ballot;
        // Without a majority there is no use in a vote.
        let too_few = rest.len() < len / 2 + 1;
        match rest.pop_front().filter(|_| !too_few) {
            Some(node) => {
                *asked = Some(node);
                let vote = (PrepareMode::Vote, ballot);
                self.send(sim, id, vec![(node, Ask::Prepare(target, vote))]);
            }
            None => self.follow(sim, id, Next::Failed),
        }
    }

    /// Asks nodes, and waits for them for a while.
    fn send(&mut self, sim: &mut Sim, id: u64, asks: Vec<(usize, Ask)>) {
        let Some(op) = self.ops.get_mut(&id) else {
            return;
        };
        op.step += 1;
        let (host, step, longest) = (op.host, op.step, op.longest);
        for (node, ask) in asks {
            self.ask(sim, (host, longest), (id, step), (node, ask));
        }
        let limit = NodeItem::Limit { op: id, step };
        sim.at(sim.now + LIMIT, Item::Node(limit));
    }

    pub(super) fn time_limit_reached(&mut self, sim: &mut Sim, id: u64, step: u32) {
        let Some(op) = self.ops.get(&id).filter(|op| op.step == step) else {
            return;
        };
        let (host, silent) = match &op.phase {
            Phase::Others { silent, .. } | Phase::Propose { silent, .. } => {
                (op.host, silent.iter().copied().collect())
            }
            Phase::First { asked, .. } => (op.host, asked.iter().copied().collect()),
            Phase::Pause => (op.host, Vec::new()),
        };
        for node in silent {
            self.note(sim.now, host, node, true);
        }
        self.hear(sim, (id, step), 0, None);
    }

    pub(super) fn hear(
        &mut self,
        sim: &mut Sim,
        (id, step): (u64, u32),
        node: usize,
        answer: Option<Answer>,
    ) {
        let nodes = self.nodes.len();
        let now = sim.now;
        let Some(op) = self.ops.get(&id).filter(|op| op.step == step) else {
            return;
        };
        let spares = self.spares(now, op);
        let shunned = self.shunned(now, op.host);
        let Some(op) = self.ops.get_mut(&id) else {
            return;
        };
        let next = op.hear((node, answer), (nodes, spares), (now, &shunned));
        self.follow(sim, id, next);
    }

    /// What follows from an answer.
    fn follow(&mut self, sim: &mut Sim, id: u64, next: Next) {
        match next {
            Next::Wait => {}
            Next::AnotherVote => self.ask_first(sim, id),
            Next::Ask(asks) => self.send(sim, id, asks),
            Next::Done(reply, proposal) => {
                match proposal {
                    Some(proposal) => history::decided(sim, &proposal),
                    None => self.yield_vote(sim, id),
                }
                self.done(sim, id, Some(reply));
            }
            Next::Recovering(left) => {
                self.yield_vote(sim, id);
                let reply = match self.ops[&id].part() {
                    Part::Claim(_) => {
                        let remaining = left;
                        Some(Reply::Claim(ClaimReply::Recovering { remaining }))
                    }
                    Part::Settle(_) => Some(Reply::Settled(false)),
                    Part::Replace(_) => {
                        let remaining = left;
                        Some(Reply::Replaced(Replaced::Recovering { remaining }))
                    }
                    Part::BeginLedger(_) => {
                        return self.done(sim, id, Some(PartReply::LedgerBegun));
                    }
                    _ => None,
                };
                self.done(sim, id, reply.map(PartReply::Whole));
            }
            Next::Contended(seen) => {
                self.take_back(sim, id);
                self.yield_vote(sim, id);
                let Some(op) = self.ops.get_mut(&id) else {
                    return;
                };
                op.floor = op.floor.max(seen);
                if sim.now - op.began > CONTENTION {
                    return self.done(sim, id, None);
                }
                self.again(sim, id);
            }
            Next::Failed => {
                self.take_back(sim, id);
                self.yield_vote(sim, id);
                let Some(op) = self.ops.get_mut(&id) else {
                    return;
                };
                op.failures += 1;
                if op.failures >= TRIES {
                    let host = op.host;
                    self.seen.entry(host).or_default().away = true;
                    return self.done(sim, id, None);
                }
                self.again(sim, id);
            }
        }
    }

    fn yield_vote(&mut self, sim: &mut Sim, id: u64) {
        let Some(op) = self.ops.get_mut(&id) else {
            return;
        };
        let (host, longest) = (op.host, op.longest);
        if let Some(question) = op.yielding() {
            self.ask(sim, (host, longest), NOBODY, question);
        }
    }

    /// Who failed gives back the locks that it took.
    fn take_back(&mut self, sim: &mut Sim, id: u64) {
        let Some(op) = self.ops.get(&id) else {
            return;
        };
        let (host, longest) = (op.host, op.longest);
        let Some(ask) = op.withdrawal() else {
            return;
        };
        for node in 0..self.nodes.len() {
            self.ask(sim, (host, longest), NOBODY, (node, ask.clone()));
        }
    }

    fn again(&mut self, sim: &mut Sim, id: u64) {
        let Some(op) = self.ops.get_mut(&id) else {
            return;
        };
        op.phase = Phase::Pause;
        op.step += 1;
        let again = NodeItem::Again {
            op: id,
            step: op.step,
        };
        let queue = op.queue();
        self.end_turn(sim, id, &queue);
        let at = sim.now + sim.dice.range(20, 200);
        sim.at(at, Item::Node(again));
    }

    /// A part is answered, or given up.
    fn done(&mut self, sim: &mut Sim, id: u64, reply: Option<PartReply>) {
        let Some(op) = self.ops.get_mut(&id) else {
            return;
        };
        let host = op.host;
        let failed = reply.is_none();
        let queue = op.queue();
        op.vote = None;
        op.parts.pop_front();
        match reply {
            Some(PartReply::Follow(finish)) => op.parts.push_front(Part::Finish(finish)),
            reply => op.replies.extend(reply),
        }
        if !failed && !op.parts.is_empty() {
            (op.failures, op.floor, op.began) = (0, 0, sim.now);
            // What was asked for the part before is answered too late.
            op.phase = Phase::Pause;
            op.step += 1;
            self.answered(sim.now, host);
            self.end_turn(sim, id, &queue);
            return self.wait_for_turn(sim, id);
        }
        let Some(op) = self.ops.remove(&id) else {
            return;
        };
        self.end_turn(sim, id, &queue);
        if !failed {
            self.answered(sim.now, host);
        }
        let Some(message) = op.message else { return };
        let result = if failed {
            Err(StoreError::Unreachable("too few nodes answer".into()))
        } else {
            Ok(Box::new(whole(op.replies)))
        };
        crate::store::answer(sim, &message, result);
    }
}

/// The reply to a whole request.
fn whole(replies: Vec<PartReply>) -> Reply {
    let mut registered = Vec::new();
    let mut reply = Reply::LedgersBegun;
    for part in replies {
        match part {
            PartReply::Whole(whole) => return whole,
            PartReply::Registered(it) => {
                registered.push(*it);
                reply = Reply::Registered(Vec::new());
            }
            PartReply::LedgerBegun | PartReply::Nothing | PartReply::Follow(_) => {}
        }
    }
    match reply {
        Reply::Registered(_) => Reply::Registered(registered),
        other => other,
    }
}
