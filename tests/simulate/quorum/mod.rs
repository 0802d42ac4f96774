//! The store on several nodes, of which a majority decides.
//!
//! Each node is the product's own plain form of one, and what a majority says together is decided
//! by the product's own functions. Written again here is what lies around them, as
//! `store::quorum::transact` has it on real connections: who is asked when, and when a request is
//! tried again.
//!
//! | file | tells |
//! | --- | --- |
//! | [`node`] | one node, and what befalls it |
//! | [`wire`] | what passes between clients and nodes |
//! | [`part`] | the requests that a majority decides on |
//! | [`op`], [`drive`] | the phases of a request, and what follows from them |
//! | [`turns`] | the requests of one process about one lock, one after the other |
//! | [`renew`] | renewals, which all nodes get at once |
//! | [`history`] | what is on record |

mod drive;
mod history;
mod node;
mod op;
mod part;
mod renew;
mod turns;
mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cronlatch::store::StoreError;
use cronlatch::store::protocol::Key;

pub(crate) use self::node::Kept;
use self::node::{Answer, Ask, Node};
use self::op::{Op, Phase};
use self::part::Part;
use self::renew::Renewing;
use self::turns::Turns;
use self::wire::Envelope;
pub(crate) use self::wire::NodeItem;
use crate::gate::{Passage, State};
use crate::message::{Message, Reply, Request};
use crate::registry::StoreRegistry;
use crate::store::note_foreign;
use crate::trace::Span;
use crate::world::{Item, Sim};

/// How long one node may take to answer, in milliseconds.
const LIMIT: i64 = 300;
/// How long a node that failed is not asked first.
const SHUNNED: i64 = 5_000;

/// No request waits for the answer.
const NOBODY: (u64, u32) = (0, 0);

/// What one host's client has seen.
#[derive(Debug, Default)]
struct Seen {
    away: bool,
    back: Option<i64>,
    /// When each node last failed.
    failed: BTreeMap<usize, i64>,
}

#[derive(Debug)]
pub(crate) struct Quorum {
    nodes: Vec<Node>,
    ops: BTreeMap<u64, Op>,
    turns: Turns,
    renewals: BTreeMap<u64, Renewing>,
    seen: BTreeMap<usize, Seen>,
    /// Until when nothing passes between a host and a node.
    cuts: BTreeMap<(usize, usize), i64>,
    registry: StoreRegistry,
    ids: u64,
    /// How many records there were, and the registry, when the nodes saved their data.
    saved: (usize, StoreRegistry),
}

impl Quorum {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            nodes: (0..nodes).map(Node::new).collect(),
            ops: BTreeMap::new(),
            turns: Turns::default(),
            renewals: BTreeMap::new(),
            seen: BTreeMap::new(),
            cuts: BTreeMap::new(),
            registry: StoreRegistry::default(),
            ids: 0,
            saved: (0, StoreRegistry::default()),
        }
    }

    fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// A host's client is given a request.
    pub(crate) fn arrive(&mut self, sim: &mut Sim, message: Message) {
        let parts: VecDeque<Part> = match &message.request {
            Request::Claim(claim) => [Part::Claim(claim.clone())].into(),
            Request::Finish(finish) => [Part::Finish(finish.clone())].into(),
            Request::Attempt(attempt) => [Part::Attempt(attempt.clone())].into(),
            Request::Settle(settle) => [Part::Settle(settle.clone())].into(),
            Request::Jobs(job, lock) => [Part::Report(job.clone(), lock.clone())].into(),
            Request::Ledger(job, lock) => [Part::Ledger(job.clone(), lock.clone())].into(),
            Request::Replace(asked) => [Part::Replace(asked.clone())].into(),
            Request::Register(all) => all
                .iter()
                .cloned()
                .map(Box::new)
                .map(Part::Register)
                .collect(),
            Request::BeginLedgers(all) => all
                .iter()
                .cloned()
                .map(Box::new)
                .map(Part::BeginLedger)
                .collect(),
            Request::Renew(_) => return self.renew(sim, message),
            Request::Announce { .. }
            | Request::Now
            | Request::Hosts
            | Request::Listings(_)
            | Request::Enlist(..)
            | Request::ListedBy(_)
            | Request::NoteManual(_)
            | Request::ManualRuns
            | Request::ForgetManual(_) => return self.simple(sim, &message),
        };
        if parts.is_empty() {
            // No node is asked about no job.
            let reply = match &message.request {
                Request::Register(_) => Reply::Registered(Vec::new()),
                _ => Reply::LedgersBegun,
            };
            return crate::store::answer(sim, &message, Ok(Box::new(reply)));
        }
        let life = message.life;
        self.begin(sim, (requester(&message), life), parts, Some(message));
    }

    fn begin(
        &mut self,
        sim: &mut Sim,
        ((host, longest), life): ((usize, i64), u32),
        parts: VecDeque<Part>,
        message: Option<Message>,
    ) {
        let id = sim.fresh();
        let op = Op {
            message,
            host,
            life,
            parts,
            replies: Vec::new(),
            step: 0,
            phase: Phase::Pause,
            failures: 0,
            floor: 0,
            began: sim.now,
            sent: sim.now,
            longest,
            vote: None,
        };
        self.ops.insert(id, op);
        self.wait_for_turn(sim, id);
    }

    /// Registry and clocks: what a majority has, together.
    fn simple(&mut self, sim: &mut Sim, message: &Message) {
        if let Request::Announce { .. } = message.request {
            let up = |node: &&mut Node| node.gate.state() == State::Up;
            for node in self.nodes.iter_mut().filter(up) {
                node.notice(sim, message.longest);
            }
        }
        let there = |node: &&Node| node.gate.state() == State::Up;
        let up: Vec<&Node> = self.nodes.iter().filter(there).collect();
        if up.len() < self.quorum() {
            self.seen.entry(message.host).or_default().away = true;
            if self
                .nodes
                .iter()
                .all(|node| node.gate.state() == State::Frozen)
            {
                return;
            }
            let error = StoreError::Unreachable("too few nodes answer".into());
            return crate::store::answer(sim, message, Err(error));
        }
        let mut clocks: Vec<_> = up.iter().map(|node| node.utc(sim)).collect();
        clocks.sort();
        let clock = clocks[(clocks.len() - 1) / 2];
        let reply = match &message.request {
            Request::Now => Reply::Now(clock),
            request => self.registry.serve(sim.now, clock, request),
        };
        self.answered(sim.now, message.host);
        crate::store::answer(sim, message, Ok(Box::new(reply)));
    }

    fn answered(&mut self, now: i64, host: usize) {
        let seen = self.seen.entry(host).or_default();
        if std::mem::take(&mut seen.away) {
            seen.back = Some(now);
        }
    }

    /// The nodes that failed a moment ago.
    fn shunned(&self, now: i64, host: usize) -> BTreeSet<usize> {
        let failed = self.seen.get(&host).into_iter().flat_map(|it| &it.failed);
        let fresh = failed.filter(|(_, at)| now - **at < SHUNNED);
        fresh.map(|(node, _)| *node).collect()
    }

    /// For how long yet a host leaves the runs of others to their holders.
    fn spares(&self, now: i64, op: &Op) -> i64 {
        let back = self.seen.get(&op.host).and_then(|seen| seen.back);
        back.map_or(0, |back| (back + op.longest - now).max(0))
    }

    fn passes(&self, now: i64, host: usize, node: usize) -> bool {
        self.cuts
            .get(&(host, node))
            .is_none_or(|until| *until <= now)
    }

    /// Sends a question to a node; `op` waits for the answer at this step, or nobody does.
    fn ask(
        &self,
        sim: &mut Sim,
        (host, longest): (usize, i64),
        (op, step): (u64, u32),
        (node, ask): (usize, Ask),
    ) {
        if self.passes(sim.now, host, node) {
            let envelope = Envelope {
                host,
                op,
                step,
                node,
                ask,
                longest,
            };
            let at = sim.now + sim.dice.range(1, 4);
            sim.at(at, Item::Node(NodeItem::Reach(Box::new(envelope))));
        }
    }

    pub(crate) fn happen(&mut self, sim: &mut Sim, item: NodeItem) {
        match item {
            NodeItem::Reach(envelope) => self.reach(sim, *envelope),
            NodeItem::Back {
                op,
                step,
                node,
                answer,
            } => {
                if self.renewals.contains_key(&op) {
                    return self.extended(sim, op, node, Some(answer));
                }
                let host = self.ops.get(&op).map_or(0, |op| op.host);
                let failed = matches!(answer, Answer::Refused);
                self.note(sim.now, host, node, failed);
                self.hear(sim, (op, step), node, Some(answer));
            }
            NodeItem::Limit { op, step } => {
                if self.renewals.contains_key(&op) {
                    return self.extended(sim, op, 0, None);
                }
                self.time_limit_reached(sim, op, step);
            }
            NodeItem::Again { op, step } => {
                if self.ops.get(&op).is_some_and(|op| op.step == step) {
                    self.wait_for_turn(sim, op);
                }
            }
            NodeItem::Up { node } => self.up(sim, node),
        }
    }

    fn note(&mut self, now: i64, host: usize, node: usize, failed: bool) {
        let seen = self.seen.entry(host).or_default();
        if failed {
            seen.failed.insert(node, now);
        } else {
            seen.failed.remove(&node);
        }
    }

    fn reach(&mut self, sim: &mut Sim, envelope: Envelope) {
        let node = &mut self.nodes[envelope.node];
        let (envelope, answer) = match node.gate.pass(envelope) {
            Passage::Served(envelope) => {
                let answer = node.serve(sim, &envelope.ask, envelope.longest);
                let trespass = node.trespass.take().map(|text| (sim.now, text));
                sim.trace.trespasses.extend(trespass);
                (envelope, answer)
            }
            Passage::Refused(envelope) => (envelope, Answer::Refused),
            Passage::Unanswered => return,
        };
        if let (Ask::Propose(proposal), Answer::Accept(said)) = (&envelope.ask, &answer) {
            history::note(sim, proposal, *said);
        }
        if !self.passes(sim.now, envelope.host, envelope.node) {
            return;
        }
        let item = NodeItem::Back {
            op: envelope.op,
            step: envelope.step,
            node: envelope.node,
            answer,
        };
        let at = sim.now + sim.dice.range(1, 4);
        sim.at(at, Item::Node(item));
    }

    fn up(&mut self, sim: &mut Sim, node: usize) {
        let Some(waiting) = self.nodes[node].gate.open(sim.now) else {
            return;
        };
        sim.trace.line(sim.now, || format!("NODE {node} up"));
        for envelope in waiting {
            self.reach(sim, envelope);
        }
    }

    /// A node is paused or unreachable.
    pub(crate) fn away(&mut self, sim: &mut Sim, node: usize, until: i64, how: State) {
        let until = self.nodes[node].gate.close(how, until);
        sim.at(until, Item::Node(NodeItem::Up { node }));
    }

    pub(crate) fn cut(&mut self, host: usize, node: usize, until: i64) {
        self.cuts.insert((host, node), until);
    }

    pub(crate) fn set_clock(&mut self, node: usize, offset: i64) {
        self.nodes[node].offset = offset;
    }

    pub(crate) fn save(&mut self, node: usize) {
        self.nodes[node].save();
    }

    pub(crate) fn save_all(&mut self, sim: &Sim) {
        self.saved = (sim.trace.added.len(), self.registry.clone());
        for node in &mut self.nodes {
            node.save();
        }
    }

    /// Another program writes a lock's key on all nodes, or deletes the one that it wrote.
    pub(crate) fn write_key(&mut self, lock: &str, key: &Key) {
        for node in &mut self.nodes {
            node.write_key(lock, key);
        }
    }

    pub(crate) fn restart(&mut self, node: usize, with: Kept) {
        self.nodes[node].restart(with);
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// All nodes are another process at once.
    pub(crate) fn restart_all(&mut self, sim: &mut Sim, with: Kept) {
        for node in &mut self.nodes {
            node.restart(with);
        }
        if with != Kept::All {
            // Other programs wrote their keys on all nodes alike; a majority is what counts.
            let has = |it: &(&String, &Key)| {
                let same = |node: &&Node| node.keys().any(|theirs| theirs == *it);
                self.nodes.iter().filter(same).count() >= self.quorum()
            };
            let keys = self.nodes.iter().flat_map(Node::keys).filter(has);
            note_foreign(sim, keys.collect::<BTreeMap<_, _>>());
        }
        let kept = match with {
            Kept::All => sim.trace.added.len(),
            Kept::Saved => {
                self.registry = self.saved.1.clone();
                self.saved.0
            }
            Kept::Nothing => {
                self.registry = StoreRegistry::default();
                0
            }
        };
        history::lost(sim, kept);
        let span = Span {
            from: sim.plan.start,
            until: sim.now + sim.plan.longest_ttl() + 3_000,
        };
        sim.trace.losses.push(span);
    }
}

/// The host of a request, and the longest TTL that it knows of, in milliseconds.
fn requester(message: &Message) -> (usize, i64) {
    let longest = i64::try_from(message.longest.as_millis());
    (message.host, longest.unwrap_or(0))
}
