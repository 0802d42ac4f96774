//! Steps, and claims about every state.

use std::fmt::Write as _;

use cronlatch::store::quorum::{Ballot, PrepareMode, PrepareReply, merge};
use stateright::{Expectation, Model, Property};

use crate::acceptor::{Acceptor, ServerNow};
use crate::check::{self, Told};
use crate::ids::{clock, tick_of};
use crate::search::{G1, G2, G5, G6, G7};
use crate::votes::host::Asked;
use crate::votes::rules::{Defect, NODES, Promises, QUORUM, Rules};
use crate::votes::world::{Ask, Phase, Shared, Then, Wish, World, target};

/// One step of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Tick,
    /// A host begins to claim, or to deliver a verdict.
    Begin(usize, Wish, Asked),
    /// A request reaches its node, and the answer its host.
    Deliver(usize),
    /// As [`Self::Deliver`], and a copy of the request stays in the network.
    Copy(usize),
    /// A host waits for no more answers and decides on those it has.
    Decide(usize),
    /// A host waits no longer for a majority, and takes back what it proposed.
    GiveUp(usize),
    Renew(usize),
    /// A job is done.
    End(usize),
    Crash(usize),
    /// A node dies and comes back empty.
    Wipe(usize),
}

/// Several nodes in a world.
#[derive(Debug)]
pub(super) struct Votes(pub(super) Rules);

impl Votes {
    fn steps_of(&self, world: &World, host: usize, steps: &mut Vec<Step>) {
        let rules = &self.0;
        let me = &world.hosts[host];
        if let Some(wish) = world.wish(rules, host) {
            let begin = |first, others| Step::Begin(host, wish, Asked { first, others });
            match rules.promises {
                Promises::Late => steps.push(begin(host, 0)),
                Promises::Prompt => {
                    // One of the two others, or both.
                    let others = (1..1_u8 << NODES).filter(|set| set & (1 << host) == 0);
                    steps.extend(others.map(|others| begin(host, others)));
                }
            }
        }
        match &me.phase {
            Phase::Asking { heard, .. } if heard.len() >= QUORUM => steps.push(Step::Decide(host)),
            Phase::Proposing {
                wish: Wish::Claim,
                sent,
                then: Then::Start { .. },
                ..
            } if me.up && world.left.give_ups > 0 && *sent < world.now => {
                steps.push(Step::GiveUp(host));
            }
            _ => {}
        }
        if let Some(run) = &me.run {
            let again = run.renewing.is_none_or(|(at, _)| at < world.now);
            if world.left.renewals > 0 && again {
                steps.push(Step::Renew(host));
            }
            if world.left.ends > 0 {
                steps.push(Step::End(host));
            }
        }
        // To die at rest is never to claim.
        if me.up && (me.phase != Phase::Idle || me.run.is_some()) && world.left.crashes > 0 {
            steps.push(Step::Crash(host));
        }
    }

    /// Whether a request changes anything; one that is refused is as good as lost.
    fn is_welcome(&self, world: &World, index: usize) -> bool {
        let message = &world.net[index];
        let node = &world.nodes[message.node];
        let promised = node.register.promised;
        // It notices the loss at least.
        node.marker.is_none()
            || match &message.ask {
                Ask::Promise(ballot) => promised <= *ballot,
                Ask::Propose(proposal) => {
                    promised == proposal.ballot || self.0.is(Defect::NoPromise)
                }
                Ask::Withdraw(ballot) => node.register.ballot == *ballot,
                Ask::Extend(..) => true,
            }
    }
}

impl Model for Votes {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::begin(&self.0)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.now < self.0.end {
            steps.push(Step::Tick);
        }
        for host in 0..world.hosts.len() {
            self.steps_of(world, host, steps);
        }
        for index in 0..world.net.len() {
            if self.is_welcome(world, index) {
                steps.push(Step::Deliver(index));
                if world.left.copies > 0 {
                    steps.push(Step::Copy(index));
                }
            }
        }
        if world.left.wipes > 0 {
            steps.extend(self.0.frail.iter().copied().map(Step::Wipe));
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let rules = &self.0;
        let mut world = before.clone();
        match step {
            Step::Tick => world.tick(rules),
            Step::Begin(host, wish, asked) => world.begin_change(rules, host, wish, asked),
            Step::Deliver(index) => {
                let message = world.net.remove(index);
                world.serve(rules, &message);
            }
            Step::Copy(index) => {
                world.left.copies -= 1;
                let message = world.net[index].clone();
                world.serve(rules, &message);
            }
            Step::Decide(host) => world.decide(rules, host),
            Step::GiveUp(host) => {
                world.left.give_ups -= 1;
                world.give_up(host);
            }
            Step::Renew(host) => {
                world.left.renewals -= 1;
                world.renew(host);
            }
            Step::End(host) => {
                world.left.ends -= 1;
                world.end_run(rules, host);
            }
            Step::Crash(host) => {
                world.left.crashes -= 1;
                let me = &mut world.hosts[host];
                (me.up, me.run, me.ended, me.phase) = (false, None, None, Phase::Idle);
            }
            Step::Wipe(node) => {
                world.left.wipes -= 1;
                world.servers[node] += 1;
                let mut empty = Acceptor::default();
                if rules.is(Defect::NoWait) {
                    empty.declare_new(&world.servers[node].to_string());
                }
                world.nodes[node] = Shared::new(empty);
                if rules.is(Defect::NoEpoch) {
                    // Somebody asks it at once, so that its wait begins.
                    world.at_node(rules, (node, None), |it, here| {
                        let read = (PrepareMode::Read, Ballot::default());
                        it.prepare(here, &target(Wish::Claim), read, std::time::Duration::ZERO)
                    });
                }
            }
        }
        world.tidy(rules);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(G1, |_, world: &World| {
                world.hosts.iter().filter(|host| host.run.is_some()).count() <= 1
            }),
            Property::always(G2, |_, world: &World| {
                world.seen.starts.iter().all(|starts| *starts <= 1)
            }),
            Property::always(G5, |_, world: &World| !world.seen.trespass),
            Property::always(G6, |_, world: &World| !world.seen.fence_fell),
            Property::always(G7, |Self(rules), world: &World| {
                nothing_silent(rules, world)
            }),
        ];
        all.extend(self.0.sights.iter().map(|(name, condition)| Property {
            expectation: Expectation::Sometimes,
            name,
            condition: *condition,
        }));
        all
    }
}

/// What the nodes' ledgers have passed, taken together, has a record on one of them, or is the run
/// that is open. One that was wiped had the records too.
fn nothing_silent(rules: &Rules, world: &World) -> bool {
    let replies: Vec<PrepareReply> = (0..NODES)
        .map(|node| {
            let server = world.servers[node].to_string();
            let here = ServerNow {
                micros: clock(world.now).micros,
                server: &server,
            };
            let read = (PrepareMode::Read, Ballot::default());
            let mut node = Acceptor::clone(&world.nodes[node]);
            node.prepare(here, &target(Wish::Claim), read, std::time::Duration::ZERO)
        })
        .collect();
    let merged = merge(&replies, &[0, 1, 2], QUORUM, (true, None));
    let Some(job) = merged.job else {
        return true;
    };
    let open = job.open.as_ref().and_then(|open| open.scheduled_at);
    let last = tick_of(job.last);
    rules.occurrences.iter().enumerate().all(|(index, at)| {
        *at > last || world.seen.verdicts[index] != 0 || open.map(tick_of) == Some(*at)
    })
}

impl Told for Votes {
    fn tell(told: &mut String, world: &World, step: Option<&Step>) -> std::fmt::Result {
        writeln!(told, "t={} {step:?}", world.now)?;
        match step {
            Some(_) => Ok(()),
            None => writeln!(told, "{world:#?}"),
        }
    }
}

/// A counterexample: its states, and the step out of each.
pub(super) type Story = check::Story<Votes>;

/// As [`check::holds`], for as many steps as there are.
pub(super) fn holds(rules: Rules, floor: usize) {
    holds_for(rules, usize::MAX, floor);
}

/// As [`holds`], but for so many steps only.
pub(super) fn holds_for(rules: Rules, steps: usize, floor: usize) {
    check::holds(Votes(rules), steps, floor);
}

/// As [`check::fails`].
pub(super) fn fails(rules: Rules, claim: &'static str, shape: impl Fn(&Story) -> bool) {
    check::fails(Votes(rules), claim, shape);
}
