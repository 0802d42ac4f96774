//! Three nodes, two hosts, one job: the phases of a claim that a majority decides.
//!
//! What the answers of several nodes mean is decided by the product's own functions (`count`,
//! `merge`, and the claim of `store::protocol`); a node is that of [`crate::node`]. A request to a
//! node comes at any time or never, its answer at once; a host that waits no longer makes it late.

use cronlatch::store::majority::{Ballot, Counting, Taken, View, count, merge, quorum};
use cronlatch::store::protocol::{self, Key};
use cronlatch::store::{Claim, ClaimReply, Due, Kind, Overlap, What};
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::ids::{self, Tick, Ticket, clock, fingerprint, instant, ticks};
use crate::node::{Ledger, Node, Proposal};
use crate::search::{G1, G2, G6};

const NODES: usize = 3;
const TTL: Tick = 2;

/// A world of several nodes.
#[derive(Debug, Clone)]
struct Votes {
    occurrences: Vec<Tick>,
    end: Tick,
    /// How often a host begins a claim.
    attempts: u64,
    /// How many hosts die, and how many nodes come back empty.
    crashes: u8,
    wipes: u8,
    /// A majority of votes, which take the lock, is enough: the job starts, and ledger and fence
    /// are written when they are.
    single_phase: bool,
}

/// What a node told, and when: a view, in a form that can be compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Heard {
    at: Tick,
    node: Node,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// It waits for promises.
    Asking {
        ballot: Ballot,
        sent: Tick,
        heard: Vec<Heard>,
    },
    /// It waits for a majority to take what it proposed.
    Proposing {
        ballot: Ballot,
        sent: Tick,
        taken: usize,
        /// Nodes that forgot count, too.
        forgotten: bool,
        fence: Option<u64>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Host {
    up: bool,
    phase: Phase,
    /// The occurrence it claims next.
    next: usize,
    attempts: u64,
    /// Until when its job runs.
    run: Option<Tick>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Ask {
    Promise(Ballot),
    Propose(Box<Proposal>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Message {
    host: usize,
    node: usize,
    token: Ticket,
    ask: Ask,
}

impl Message {
    fn ballot(&self) -> Ballot {
        match &self.ask {
            Ask::Promise(ballot) => *ballot,
            Ask::Propose(proposal) => proposal.ballot,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    now: Tick,
    nodes: Vec<Node>,
    hosts: Vec<Host>,
    net: Vec<Message>,
    crashes: u8,
    wipes: u8,
    /// Per occurrence, how often it started.
    starts: Vec<u8>,
    /// The highest fencing token a job was started with.
    fence: u64,
    fence_fell: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Tick,
    /// A host claims, asking this node first.
    Claim(usize, usize),
    /// A request reaches its node.
    Deliver(usize),
    /// A host waits for no more answers and decides on those it has.
    Decide(usize),
    Crash(usize),
    /// A node dies and comes back empty.
    Wipe(usize),
}

impl Votes {
    /// One occurrence; hosts die between the phases.
    fn deaths() -> Self {
        Self {
            occurrences: vec![1],
            end: 3,
            attempts: 1,
            crashes: 1,
            wipes: 0,
            single_phase: false,
        }
    }

    /// A node dies and comes back empty.
    fn wiped() -> Self {
        Self {
            end: 2,
            crashes: 0,
            wipes: 1,
            ..Self::deaths()
        }
    }

    fn claim_of(&self, host: usize, index: usize) -> Claim {
        let at = self.occurrences[index];
        let prev = index.checked_sub(1).map_or(0, |it| self.occurrences[it]);
        let ticket = ticket(host, index);
        Claim {
            lock: ids::lock(),
            token: ticket.token(),
            run_id: ticket.run_id(),
            ttl: ticks(TTL),
            what: What::Occurrence {
                job: ids::job(0),
                kind: Kind::Schedule,
                due: Due {
                    scheduled_at: instant(at),
                    not_before: instant(at),
                    deadline: instant(at + 100),
                    prev: Some(instant(prev)),
                    fingerprint: fingerprint(0),
                    gap: None,
                    max_reruns: 0,
                },
                overlap: Overlap::Skip,
                keep: 100,
            },
        }
    }

    fn may_claim(&self, world: &World, host: usize) -> bool {
        let me = &world.hosts[host];
        let waits = match &me.phase {
            Phase::Idle => false,
            Phase::Asking { sent, .. } | Phase::Proposing { sent, .. } => *sent == world.now,
        };
        let due = self.occurrences.get(me.next);
        me.up && !waits && me.attempts < self.attempts && due.is_some_and(|at| *at <= world.now)
    }

    /// Phase 1.
    fn claim(&self, world: &mut World, host: usize, first: usize) {
        let now = world.now;
        let me = &mut world.hosts[host];
        me.attempts += 1;
        let token = ticket(host, me.next);
        let id = me.attempts * 10 + u64::try_from(host).expect("few hosts");
        let ballot = world.nodes[first].vote(now, id);
        me.phase = Phase::Asking {
            ballot,
            sent: now,
            heard: Vec::new(),
        };
        let others = (0..NODES).filter(|node| *node != first);
        world.net.extend(others.map(|node| Message {
            host,
            node,
            token,
            ask: Ask::Promise(ballot),
        }));
        self.tell(world, (host, first), token, ballot);
    }

    /// A node has promised: it tells what it knows, if anybody still listens.
    fn tell(&self, world: &mut World, (host, node): (usize, usize), token: Ticket, ballot: Ballot) {
        let now = world.now;
        let _ = world.nodes[node].view(now, TTL);
        let told = Heard {
            at: now,
            node: world.nodes[node].clone(),
        };
        if self.single_phase && !take_lock(&mut world.nodes[node], now, token) {
            return;
        }
        let Phase::Asking {
            ballot: asked,
            heard,
            ..
        } = &mut world.hosts[host].phase
        else {
            return;
        };
        if *asked != ballot {
            return;
        }
        heard.push(told);
        let views = views(heard);
        let all = views.len() == NODES;
        let enough = match count(&views, quorum(NODES)) {
            Counting::On {
                counted,
                horizon: None,
            } => {
                let me = token.token();
                let merged = merge(&views, &counted, quorum(NODES), (true, Some(&me)));
                all || !merged.doubt
            }
            Counting::On { .. } | Counting::Recovering(_) | Counting::TooFew => all,
        };
        if enough {
            self.decide(world, host);
        }
    }

    /// The rules are applied to what a majority knows, and phase 2 begins.
    fn decide(&self, world: &mut World, host: usize) {
        let me = &mut world.hosts[host];
        let Phase::Asking {
            ballot,
            sent,
            heard,
        } = &me.phase
        else {
            return;
        };
        let (ballot, sent, views) = (*ballot, *sent, views(heard));
        let Counting::On { counted, horizon } = count(&views, quorum(NODES)) else {
            me.phase = Phase::Idle;
            return;
        };
        let claim = self.claim_of(host, me.next);
        let token = ticket(host, me.next);
        let mut merged = merge(&views, &counted, quorum(NODES), (true, Some(&claim.token)));
        merged.forget_before(horizon);
        let (mut lock, mut job) = (merged.lock.clone(), merged.job.clone());
        let (reply, effects) = protocol::claim(&mut lock, &mut job, merged.clock, &claim);
        let fence = match reply {
            ClaimReply::Granted { fence, .. } => Some(fence),
            ClaimReply::Early { .. } => {
                me.phase = Phase::Idle;
                return;
            }
            _ => None,
        };
        let same = lock == merged.lock && job == merged.job && effects.is_empty();
        if same && fence.is_none() && merged.agreed {
            me.next += 1;
            me.phase = Phase::Idle;
            return;
        }
        let open = |job: &Option<protocol::JobState>| {
            let open = job.as_ref().and_then(|job| job.open.as_ref());
            open.map(|open| open.token.clone())
        };
        let same_run = open(&job).is_some() && open(&job) == open(&merged.job);
        let proposal = Proposal {
            ballot,
            lock,
            take: fence.is_some(),
            left: merged.left,
            ledger: job.map(|state| Ledger {
                doubt: merged.doubt && same_run && fence.is_none(),
                horizon: merged.clock.past.horizon,
                ..Ledger::new(ballot, state)
            }),
        };
        me.phase = Phase::Proposing {
            ballot,
            sent,
            taken: 0,
            forgotten: horizon.is_some(),
            fence,
        };
        world.net.extend((0..NODES).map(|node| Message {
            host,
            node,
            token,
            ask: Ask::Propose(Box::new(proposal.clone())),
        }));
        if self.single_phase {
            world.answered(host, sent, fence);
        }
    }

    fn deliver(&self, world: &mut World, index: usize) {
        let message = world.net.remove(index);
        let now = world.now;
        let node = &mut world.nodes[message.node];
        match &message.ask {
            Ask::Promise(ballot) => {
                if node.promise(*ballot) {
                    self.tell(world, (message.host, message.node), message.token, *ballot);
                }
            }
            Ask::Propose(proposal) => {
                let answer = node.accept(now, TTL, proposal);
                world.hear(message.host, proposal.ballot, answer);
            }
        }
    }
}

fn ticket(host: usize, number: usize) -> Ticket {
    Ticket { host, number }
}

fn views(heard: &[Heard]) -> Vec<View> {
    let view = |told: &Heard| told.node.clone().view(told.at, TTL);
    heard.iter().map(view).collect()
}

/// A vote of the single phase: `SET lock token NX PX ttl`.
fn take_lock(node: &mut Node, now: Tick, token: Ticket) -> bool {
    let own = token.token();
    if matches!(&node.lock.key, Key::Value { text, .. } if text != own.as_str()) {
        return false;
    }
    node.lock.key = Key::Value {
        text: own.as_str().to_owned(),
        end: Some(clock(now + TTL).lease),
    };
    true
}

impl World {
    /// A node's answer to a proposal.
    fn hear(&mut self, host: usize, of: Ballot, answer: Taken) {
        let Phase::Proposing {
            ballot,
            sent,
            taken,
            forgotten,
            fence,
        } = &mut self.hosts[host].phase
        else {
            return;
        };
        if *ballot != of {
            return;
        }
        *taken += usize::from(match answer {
            Taken::Yes => true,
            Taken::Forgetful => *forgotten,
            Taken::Recovering | Taken::Outbid | Taken::Held => false,
        });
        if *taken >= quorum(NODES) {
            let (sent, fence) = (*sent, *fence);
            self.answered(host, sent, fence);
        }
    }

    /// The claim is answered; a grant whose lease is not over starts the job.
    fn answered(&mut self, host: usize, sent: Tick, fence: Option<u64>) {
        let me = &mut self.hosts[host];
        me.phase = Phase::Idle;
        let Some(fence) = fence else {
            me.next += 1;
            return;
        };
        if self.now >= sent + TTL {
            return;
        }
        self.starts[me.next] += 1;
        me.next += 1;
        me.run = Some(sent + TTL);
        self.fence_fell |= fence <= self.fence;
        self.fence = fence;
    }

    /// Makes one state of those that differ in nothing that matters.
    fn tidy(&mut self) {
        let key = |it: &Message| {
            let last = matches!(it.ask, Ask::Propose(_));
            (it.ballot(), it.node, last)
        };
        self.net.sort_unstable_by_key(key);
        if self.wipes == 0 {
            // Whoever promised something later refuses it for ever.
            let nodes = &self.nodes;
            self.net.retain(|it| it.ballot() >= nodes[it.node].promised);
        }
        // A promise that nobody waits for, and no proposal follows, only refuses.
        let asked = |host: &Host| match &host.phase {
            Phase::Asking { ballot, .. } => Some(*ballot),
            Phase::Idle | Phase::Proposing { .. } => None,
        };
        let proposed =
            |it: &Message| matches!(it.ask, Ask::Propose(_)).then(|| (it.node, it.ballot()));
        let asked: Vec<Ballot> = self.hosts.iter().filter_map(asked).collect();
        let proposed: Vec<_> = self.net.iter().filter_map(proposed).collect();
        self.net.retain(|it| {
            asked.contains(&it.ballot()) || proposed.contains(&(it.node, it.ballot()))
        });
        for host in &mut self.hosts {
            if let Phase::Asking { heard, .. } = &mut host.phase {
                heard.sort_by_cached_key(|told| format!("{told:?}"));
            }
        }
    }
}

impl Model for Votes {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let host = Host {
            up: true,
            phase: Phase::Idle,
            next: 0,
            attempts: 0,
            run: None,
        };
        vec![World {
            now: 1,
            nodes: vec![Node::new(); NODES],
            hosts: vec![host; 2],
            net: Vec::new(),
            crashes: self.crashes,
            wipes: self.wipes,
            starts: vec![0; self.occurrences.len()],
            fence: 0,
            fence_fell: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.now < self.end {
            steps.push(Step::Tick);
        }
        for (host, me) in world.hosts.iter().enumerate() {
            if self.may_claim(world, host) {
                steps.push(Step::Claim(host, host));
            }
            if let Phase::Asking { heard, .. } = &me.phase
                && heard.len() >= quorum(NODES)
            {
                steps.push(Step::Decide(host));
            }
            // To die at rest is never to claim.
            if me.phase != Phase::Idle && world.crashes > 0 {
                steps.push(Step::Crash(host));
            }
        }
        // What a node would refuse is as good as lost.
        let welcome = |it: &usize| {
            let message = &world.net[*it];
            let promised = world.nodes[message.node].promised;
            match &message.ask {
                Ask::Promise(ballot) => promised <= *ballot,
                Ask::Propose(proposal) => promised == proposal.ballot,
            }
        };
        steps.extend((0..world.net.len()).filter(welcome).map(Step::Deliver));
        if world.wipes > 0 {
            steps.extend((0..NODES).map(Step::Wipe));
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        match step {
            Step::Tick => {
                world.now += 1;
                let now = world.now;
                world.nodes.iter_mut().for_each(|node| node.tick(now));
                for host in &mut world.hosts {
                    host.run = host.run.filter(|end| *end > now);
                }
            }
            Step::Claim(host, first) => self.claim(&mut world, host, first),
            Step::Deliver(index) => self.deliver(&mut world, index),
            Step::Decide(host) => self.decide(&mut world, host),
            Step::Crash(host) => {
                world.crashes -= 1;
                let me = &mut world.hosts[host];
                (me.up, me.run, me.phase) = (false, None, Phase::Idle);
            }
            Step::Wipe(node) => {
                world.wipes -= 1;
                world.nodes[node] = Node::empty();
            }
        }
        world.tidy();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(G1, |_, world: &World| {
                world.hosts.iter().filter(|host| host.run.is_some()).count() <= 1
            }),
            Property::always(G2, |_, world: &World| {
                world.starts.iter().all(|starts| *starts <= 1)
            }),
            Property::always(G6, |_, world: &World| !world.fence_fell),
        ];
        if !self.single_phase {
            all.extend(sights(self));
        }
        all
    }
}

/// What must be seen, or the world proves nothing.
fn sights(world: &Votes) -> Vec<Property<Votes>> {
    let mut sights = vec![Property::sometimes(
        "every occurrence runs",
        |_, world: &World| world.starts.iter().all(|starts| *starts == 1),
    )];
    if world.crashes > 0 {
        sights.push(Property::sometimes(
            "a majority takes what a host that died before the start proposed",
            |_, world: &World| {
                let dead = world.hosts.iter().position(|host| !host.up);
                let of_dead = |node: &&Node| {
                    let open = node.ledger.as_ref().and_then(|it| it.state.open.as_ref());
                    open.map(|open| Ticket::of_token(open.token.as_str()).host) == dead
                };
                dead.is_some()
                    && world.starts[0] == 0
                    && world.nodes.iter().filter(of_dead).count() >= quorum(NODES)
            },
        ));
    }
    if world.wipes > 0 {
        sights.push(Property::sometimes(
            "a node that came back empty is written again",
            |_, world: &World| {
                let again = |node: &Node| node.lost_at.is_some() && node.ledger.is_some();
                world.nodes.iter().any(again)
            },
        ));
    }
    sights
}

fn story(path: stateright::Path<World, Step>) -> String {
    let tell = |(world, step): (World, Option<Step>)| format!("t={} {step:?}\n", world.now);
    path.into_vec().into_iter().map(tell).collect()
}

/// Searches to the end: every claim holds, every sight is seen.
fn holds(world: Votes, floor: usize) {
    let begun = std::time::Instant::now();
    let checker = world.checker().spawn_bfs().join();
    let states = checker.unique_state_count();
    eprintln!("{states} states, {:?}", begun.elapsed());
    assert!(checker.is_done(), "the search did not come to its end");
    for (name, path) in checker.discoveries() {
        let seen = !checker.model().is_promise(name);
        assert!(seen, "not so: {name}\n{}", story(path));
    }
    checker.assert_properties();
    assert!(
        states >= floor,
        "only {states} states: the world has shrunk"
    );
}

#[test]
fn on_three_nodes_an_occurrence_starts_once_whatever_is_late_and_whoever_dies_in_between() {
    holds(Votes::deaths(), 50_000);
}

#[test]
fn nor_does_a_node_that_comes_back_empty_let_it_start_twice() {
    holds(Votes::wiped(), 40_000);
}

#[test]
fn with_a_single_phase_an_occurrence_starts_twice() {
    let world = Votes {
        single_phase: true,
        ..Votes::deaths()
    };
    let until = HasDiscoveries::AnyOf([G2].into());
    let checker = world.checker().finish_when(until).spawn_bfs().join();
    let states = checker.unique_state_count();
    let Some(path) = checker.discovery(G2) else {
        panic!("{states} states, and no counterexample to: {G2}");
    };
    eprintln!("{states} states, not so: {G2}\n{}", story(path));
}

impl Votes {
    fn is_promise(&self, name: &str) -> bool {
        let always = |it: &Property<Self>| it.expectation == stateright::Expectation::Always;
        self.properties()
            .iter()
            .any(|it| it.name == name && always(it))
    }
}
