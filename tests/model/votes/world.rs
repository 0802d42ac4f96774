//! A state of the world: nodes, hosts, network, and what an onlooker remembers.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use crate::acceptor::{Acceptor, JobRegister, ServerNow};
use cronlatch::store::GapAnswer;
use cronlatch::store::protocol::{JobState, Key};
use cronlatch::store::quorum::{
    Ballot, ExtendReply, LongestTtl, PrepareReply, Proposal, RequestTarget, Trust,
};

use crate::ids::{self, Tick, Ticket, clock, fingerprint, instant, ticks};
use crate::votes::rules::{Budget, Defect, NODES, Rules, TTL};

/// Something that many states share, and its digest.
#[derive(Debug)]
pub(super) struct Shared<T> {
    it: Arc<T>,
    digest: u64,
}

impl<T: Hash> Shared<T> {
    pub(super) fn new(it: T) -> Self {
        let mut hasher = DefaultHasher::new();
        it.hash(&mut hasher);
        Self {
            digest: hasher.finish(),
            it: Arc::new(it),
        }
    }
}

impl<T: Hash + Clone> Shared<T> {
    /// Changes it for this state alone.
    pub(super) fn change<R>(&mut self, how: impl FnOnce(&mut T) -> R) -> R {
        let mut it = T::clone(&self.it);
        let answer = how(&mut it);
        *self = Self::new(it);
        answer
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self {
            it: Arc::clone(&self.it),
            digest: self.digest,
        }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.it
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.it == other.it
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// What a host wants a majority to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Wish {
    Claim,
    /// Its job is done, and this is the verdict.
    Finish,
}

/// An answer to a gap, as it can be compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Gap {
    pub(super) last: Tick,
    pub(super) unknown: Vec<Tick>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    /// It waits for promises.
    Asking {
        wish: Wish,
        ballot: Ballot,
        sent: Tick,
        heard: Vec<(usize, Shared<PrepareReply>)>,
    },
    /// It waits for a majority to take what it proposed.
    Proposing {
        wish: Wish,
        ballot: Ballot,
        sent: Tick,
        taken: usize,
        /// Which nodes count that take it.
        trust: Trust,
        then: Then,
    },
}

/// What a host does when it has its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Then {
    Start {
        fence: u64,
    },
    /// The occurrence is decided, or its verdict delivered.
    On,
    Wait,
    Fill(Gap),
}

/// A run on a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) index: usize,
    /// The host's own end of the lease.
    pub(super) end: Tick,
    /// When the renewal under way was sent, and the nodes that renewed.
    pub(super) renewing: Option<(Tick, u8)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Host {
    pub(super) up: bool,
    pub(super) phase: Phase,
    /// The occurrence it claims next.
    pub(super) next: usize,
    /// What it began, of all: no two proposals share a number.
    pub(super) begun: u64,
    /// How often it tried to claim the next occurrence.
    pub(super) tried: u8,
    pub(super) gap: Option<Gap>,
    pub(super) run: Option<Run>,
    /// The run whose verdict is on the way.
    pub(super) ended: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    Promise(Ballot),
    Propose(Shared<Proposal>),
    Withdraw(Ballot),
    /// Sent then; with `true`, to set the lock again where it is gone.
    Extend(Tick, bool),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) host: usize,
    pub(super) node: usize,
    pub(super) ticket: Ticket,
    pub(super) ask: Ask,
}

impl Message {
    pub(super) fn ballot(&self) -> Option<Ballot> {
        match &self.ask {
            Ask::Promise(ballot) | Ask::Withdraw(ballot) => Some(*ballot),
            Ask::Propose(proposal) => Some(proposal.ballot),
            Ask::Extend(..) => None,
        }
    }

    fn rank(&self) -> (Option<Ballot>, usize, u8, Tick) {
        let (kind, sent) = match &self.ask {
            Ask::Promise(_) => (0, 0),
            Ask::Propose(_) => (1, 0),
            Ask::Withdraw(_) => (2, 0),
            Ask::Extend(sent, again) => (3 + u8::from(*again), *sent),
        };
        (self.ballot(), self.node, kind, sent)
    }
}

/// What an onlooker remembers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Onlooker {
    /// Per occurrence, how often it started.
    pub(super) starts: Vec<u8>,
    /// Per occurrence, what records any node got, as bits of [`crate::world::verdict`].
    pub(super) verdicts: Vec<u8>,
    /// The highest fencing token a job was started with.
    pub(super) fence: u64,
    pub(super) fence_fell: bool,
    /// A request changed a lock that was another's.
    pub(super) trespass: bool,
    /// A lease was renewed.
    pub(super) renewed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) now: Tick,
    pub(super) nodes: Vec<Shared<Acceptor>>,
    /// How often each node came back empty: another process.
    pub(super) servers: [u8; NODES],
    pub(super) hosts: Vec<Host>,
    pub(super) net: Vec<Message>,
    pub(super) left: Budget,
    pub(super) seen: Onlooker,
}

pub(super) fn ticket(host: usize, number: usize) -> Ticket {
    Ticket { host, number }
}

/// What every request says of TTLs.
pub(super) fn longest() -> LongestTtl {
    LongestTtl {
        listed: ticks(TTL),
        ..LongestTtl::default()
    }
}

/// The job and its lock.
pub(super) fn target(wish: Wish) -> RequestTarget {
    RequestTarget {
        lock: ids::lock(),
        job: Some(ids::job(0)),
        ttl: match wish {
            Wish::Claim => ticks(TTL),
            Wish::Finish => std::time::Duration::ZERO,
        },
        longest: longest(),
    }
}

impl Gap {
    pub(super) fn answer(&self) -> GapAnswer {
        use cronlatch::store::protocol::REASON_UNKNOWN;
        use cronlatch::store::{DroppedRange, Outcome, Range};
        let ends = self.unknown.first().zip(self.unknown.last());
        GapAnswer {
            if_last: instant(self.last),
            drop: ends
                .map(|(from, until)| DroppedRange {
                    range: Range {
                        from: instant(*from),
                        until: instant(*until),
                        count: self.unknown.len() as u64,
                    },
                    outcome: Outcome::Unknown,
                    reason: REASON_UNKNOWN.to_owned(),
                })
                .into_iter()
                .collect(),
        }
    }
}

impl World {
    pub(super) fn begin(rules: &Rules) -> Self {
        let mut node = Acceptor::default();
        node.declare_new("0");
        let mut state = JobState::starting_after(instant(0));
        state.fingerprints.push((fingerprint(0), instant(0)));
        let ledger = JobRegister {
            ballot: Ballot::default(),
            state,
            doubt: false,
            horizon: None,
            epoch: None,
        };
        node.ledgers.insert(ids::job(0), ledger);
        let host = Host {
            up: true,
            phase: Phase::Idle,
            next: 0,
            begun: 0,
            tried: 0,
            gap: None,
            run: None,
            ended: None,
        };
        Self {
            now: 1,
            nodes: vec![Shared::new(node); NODES],
            servers: [0; NODES],
            hosts: vec![host; rules.hosts],
            net: Vec::new(),
            left: rules.budget,
            seen: Onlooker {
                starts: vec![0; rules.occurrences.len()],
                verdicts: vec![0; rules.occurrences.len()],
                fence: 0,
                fence_fell: false,
                trespass: false,
                renewed: false,
            },
        }
    }

    /// Has a node do something, and watches that no lock of a living run is changed by another.
    pub(super) fn at_node<R>(
        &mut self,
        rules: &Rules,
        (node, by): (usize, Option<Ticket>),
        what: impl FnOnce(&mut Acceptor, ServerNow<'_>) -> R,
    ) -> R {
        let micros = clock(self.now + rules.clocks[node]).micros;
        let server = self.servers[node].to_string();
        let here = ServerNow {
            micros,
            server: &server,
        };
        let before = self.nodes[node].key.clone();
        let no_epoch = rules.is(Defect::NoEpoch);
        let answer = self.nodes[node].change(|it| {
            if no_epoch && let Some(marker) = &mut it.marker {
                marker.lost_at = marker.lost_at.filter(|_| marker.until > micros / 1000);
            }
            let answer = what(it, here);
            // Here nobody keeps to another's vote.
            it.register.vote = None;
            // All requests have one TTL: when it was last in use makes no difference.
            for listed in it.marker.iter_mut().flat_map(|it| &mut it.listed.0) {
                listed.until = 0;
            }
            answer
        });
        if let Key::Value { text, .. } = &before
            && self.nodes[node].key != before
        {
            let of = Ticket::of_token(text);
            self.seen.trespass |= by != Some(of) && self.is_running(of);
        }
        answer
    }

    fn is_running(&self, ticket: Ticket) -> bool {
        let run = self.hosts[ticket.host].run.as_ref();
        run.is_some_and(|run| run.index == ticket.number)
    }

    pub(super) fn tick(&mut self, rules: &Rules) {
        self.now += 1;
        let now = self.now;
        for (node, clock_ahead) in rules.clocks.iter().enumerate() {
            let lease = clock(now + clock_ahead).lease;
            let ends =
                |key: &Key| matches!(key, Key::Value { end: Some(end), .. } if *end <= lease);
            let it = &self.nodes[node];
            if ends(&it.key) || (it.register.lease_end > 0 && it.register.lease_end <= lease) {
                self.nodes[node].change(|it| {
                    if ends(&it.key) {
                        it.key = Key::Absent;
                    }
                    if it.register.lease_end <= lease {
                        it.register.lease_end = 0;
                    }
                });
            }
        }
        for host in &mut self.hosts {
            host.run = host.run.take().filter(|run| run.end > now);
        }
    }

    /// A node's answer to a renewal.
    pub(super) fn hear_extended(
        &mut self,
        (host, node): (usize, usize),
        sent: Tick,
        said: ExtendReply,
    ) {
        let Some(run) = &mut self.hosts[host].run else {
            return;
        };
        let (Some((at, nodes)), ExtendReply::Renewed | ExtendReply::Unrecorded) =
            (&mut run.renewing, said)
        else {
            return;
        };
        if *at != sent {
            return;
        }
        *nodes |= 1 << node;
        if nodes.count_ones() as usize == super::rules::QUORUM {
            run.end = run.end.max(sent + TTL);
            self.seen.renewed = true;
        }
    }

    /// Makes one state of those that differ in nothing that matters.
    pub(super) fn tidy(&mut self, rules: &Rules) {
        self.net.sort_by_key(Message::rank);
        self.net.dedup();
        if self.left.wipes == 0 && !rules.is(Defect::NoPromise) {
            // A node that promised a later proposal rejects it for ever.
            let nodes = &self.nodes;
            self.net.retain(|it| {
                let refused = |ballot: Ballot| match &it.ask {
                    Ask::Withdraw(_) => nodes[it.node].register.ballot > ballot,
                    _ => nodes[it.node].register.promised > ballot,
                };
                !it.ballot().is_some_and(refused) || nodes[it.node].marker.is_none()
            });
        }
        // A promise that nobody waits for, and no proposal follows, only refuses.
        let asked = |host: &Host| match &host.phase {
            Phase::Asking { ballot, .. } => Some(*ballot),
            Phase::Idle | Phase::Proposing { .. } => None,
        };
        let asked: Vec<Ballot> = self.hosts.iter().filter_map(asked).collect();
        let proposed: Vec<_> = self
            .net
            .iter()
            .filter(|it| matches!(it.ask, Ask::Propose(_)))
            .map(|it| (it.node, it.ballot()))
            .collect();
        let hosts = &self.hosts;
        let runs = |ticket: Ticket| {
            let run = hosts[ticket.host].run.as_ref();
            run.is_some_and(|run| run.index == ticket.number)
        };
        self.net.retain(|it| match it.ask {
            Ask::Promise(ballot) => {
                asked.contains(&ballot) || proposed.contains(&(it.node, Some(ballot)))
            }
            Ask::Propose(_) | Ask::Withdraw(_) => true,
            // One that comes after its run is over is refused or sets a dead lock again.
            Ask::Extend(..) => runs(it.ticket) || self.left.copies > 0,
        });
        for host in &mut self.hosts {
            if let Phase::Asking { heard, .. } = &mut host.phase {
                heard.sort_by_key(|(node, _)| *node);
            }
        }
    }
}
