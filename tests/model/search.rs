//! Steps, and claims about every state.

use std::fmt::Write as _;

use cronlatch::store::protocol::Key;
use stateright::{Expectation, Model, Property};

use crate::check::{self, Told};
use crate::ids::{Tick, tick_of};
use crate::rules::{CatchUp, Net, Rules};
use crate::world::{As, Kept, Phase, Word, World, verdict};

pub(crate) const G1: &str = "G1: two runs under one lock never overlap";
pub(crate) const G2: &str = "G2: an occurrence starts once, and once more for each rerun allowed";
pub(crate) const G3: &str = "G3: when all is quiet, every occurrence that was due has its verdict";
pub(crate) const G5: &str = "G5: no request changes a lock that is another's";
pub(crate) const G6: &str = "G6: the fencing token of every grant is above all before";
pub(crate) const G7: &str = "G7: what the ledger has passed has a record or an open run";
pub(crate) const TRUE_WORD: &str = "what started is never recorded as skipped or missed";
pub(crate) const ENDED: &str = "a claim that finished never has the lock again";

/// One step of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Tick,
    /// A host claims.
    Claim(usize, usize, Tick, As),
    /// A request is served, or an answer arrives.
    Deliver(usize),
    /// A request is served and stays in the network; its answer is lost.
    Copy(usize),
    /// A host asks the ledger again.
    Register(usize, usize),
    Resend(usize, usize),
    GiveUp(usize, usize),
    Renew(usize, usize),
    /// A job is done.
    Done(usize, usize),
    /// A run is withdrawn before its instant.
    Withdraw(usize, usize),
    Crash(usize),
    Restart(usize),
    Evict,
    /// A snapshot is taken.
    Save,
    /// The server starts again.
    Lose(Kept),
}

/// The protocol in a world.
#[derive(Debug)]
pub(crate) struct Protocol(pub(crate) Rules);

impl Protocol {
    fn steps_of_hosts(&self, world: &World, steps: &mut Vec<Step>) {
        let (rules, left) = (&self.0, &world.left);
        for (host, me) in world.hosts.iter().enumerate() {
            if !me.up {
                if left.restarts > 0 {
                    steps.push(Step::Restart(host));
                }
                continue;
            }
            for (job, lane) in me.lanes.iter().enumerate() {
                if let Some((at, what)) = world.to_claim(rules, host, job) {
                    steps.push(Step::Claim(host, job, at, what));
                }
                let is_free = matches!(lane.phase, Phase::Free { .. });
                if lane.stale && is_free {
                    steps.push(Step::Register(host, job));
                }
                if let Phase::Claiming { sent, .. } = lane.phase {
                    if left.resends > 0 && sent < world.now {
                        steps.push(Step::Resend(host, job));
                    }
                    if left.give_ups > 0 && sent < world.now {
                        steps.push(Step::GiveUp(host, job));
                    }
                }
            }
            for (index, run) in me.runs.iter().enumerate() {
                if run.alive && run.begins == 0 {
                    steps.push(Step::Done(host, index));
                }
                if run.alive && run.begins > 0 && left.give_ups > 0 {
                    steps.push(Step::Withdraw(host, index));
                }
                let renewed = run.end == world.now + rules.ttl;
                if left.renewals > 0 && !renewed && run.renewing.is_none_or(|at| at < world.now) {
                    steps.push(Step::Renew(host, index));
                }
            }
            if left.crashes > 0 {
                steps.push(Step::Crash(host));
            }
        }
    }

    fn deliver(&self, world: &mut World, index: usize) {
        let mut message = world.net.remove(index);
        let arrives = message.answer.take();
        let is_slow = arrives.is_none() && self.0.net == Net::Slow;
        let answer = arrives.unwrap_or_else(|| world.serve(&self.0, &message));
        if is_slow {
            message.answer = Some(answer);
            world.net.push(message);
            return;
        }
        world.hear(&self.0, &message, &answer);
    }

    fn take(&self, world: &mut World, step: &Step) {
        let rules = &self.0;
        match *step {
            Step::Tick => world.tick(rules),
            Step::Claim(host, job, at, what) => world.claim(host, job, (at, what)),
            Step::Deliver(index) => self.deliver(world, index),
            Step::Copy(index) => {
                world.left.copies -= 1;
                let message = world.net[index].clone();
                let _ = world.serve(rules, &message);
            }
            Step::Register(host, job) => world.register(host, job),
            Step::Resend(host, job) => {
                world.left.resends -= 1;
                world.resend(host, job);
            }
            Step::GiveUp(host, job) => {
                world.left.give_ups -= 1;
                world.give_up(host, job);
            }
            Step::Renew(host, run) => {
                world.left.renewals -= 1;
                world.renew(host, run);
            }
            Step::Done(host, run) => world.end_run(host, run, Word::Succeeded),
            Step::Withdraw(host, run) => {
                world.left.give_ups -= 1;
                world.withdraw(host, run);
            }
            Step::Crash(host) => {
                world.left.crashes -= 1;
                world.crash(host);
            }
            Step::Restart(host) => {
                world.left.restarts -= 1;
                world.restart(rules, host);
            }
            Step::Lose(kept) => {
                world.left.losses -= 1;
                world.restart_server(rules, kept);
            }
            Step::Save => {
                world.left.saves -= 1;
                world.save();
            }
            Step::Evict => {
                world.left.evictions -= 1;
                world.lock.key = Key::Absent;
            }
        }
        while rules.net == Net::Instant && !world.net.is_empty() {
            self.deliver(world, 0);
        }
        world.tidy(rules);
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let mut world = World::begin(&self.0);
        while self.0.net == Net::Instant && !world.net.is_empty() {
            self.deliver(&mut world, 0);
        }
        vec![world]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let rules = &self.0;
        if world.now < rules.end {
            steps.push(Step::Tick);
        }
        self.steps_of_hosts(world, steps);
        for (index, message) in world.net.iter().enumerate() {
            steps.push(Step::Deliver(index));
            if world.left.copies > 0 && message.answer.is_none() {
                steps.push(Step::Copy(index));
            }
        }
        if world.left.losses > 0 {
            let snapshots = if rules.budget.saves > 0 {
                world.saved.as_ref().map(|_| Kept::Saved)
            } else {
                Some(Kept::Beginning)
            };
            let kept = [Kept::All, Kept::Nothing].into_iter().chain(snapshots);
            steps.extend(kept.map(Step::Lose));
            if world.left.saves > 0 {
                steps.push(Step::Save);
            }
        }
        if world.left.evictions > 0 && world.lock.key != Key::Absent {
            steps.push(Step::Evict);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        self.take(&mut next, &step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(G1, |_, world: &World| running(world) <= 1),
            Property::always(G2, once),
            Property::always(G3, |Self(rules), world: &World| {
                !is_quiet(rules, world) || all_decided(rules, world)
            }),
            Property::always(G5, |_, world: &World| !world.seen.trespass),
            Property::always(G6, |_, world: &World| !world.seen.fence_fell),
            Property::always(G7, |Self(rules), world: &World| {
                nothing_silent(rules, world)
            }),
            Property::always(TRUE_WORD, true_word),
            Property::always(ENDED, |_, world: &World| !world.seen.revived),
            Property::sometimes("all is quiet at the end", |Self(rules), world: &World| {
                is_quiet(rules, world)
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

/// How many runs are alive.
fn running(world: &World) -> usize {
    let runs = world.hosts.iter().flat_map(|host| &host.runs);
    runs.filter(|run| run.alive).count()
}

fn once(Protocol(rules): &Protocol, world: &World) -> bool {
    let mut fates = world.seen.fates.iter().flat_map(|fates| fates.values());
    fates.all(|fate| u32::from(fate.starts) <= 1 + rules.max_reruns)
}

fn true_word(_: &Protocol, world: &World) -> bool {
    let unstarted = verdict::SKIPPED | verdict::MISSED;
    let mut fates = world.seen.fates.iter().flat_map(|fates| fates.values());
    fates.all(|fate| fate.starts == 0 || fate.verdicts & unstarted == 0)
}

/// Time is over, nothing is under way, and nobody has anything left to do.
pub(crate) fn is_quiet(rules: &Rules, world: &World) -> bool {
    world.now == rules.end
        && world.net.is_empty()
        && world.hosts.iter().any(|host| host.up)
        && world.hosts.iter().filter(|host| host.up).all(|host| {
            host.runs.is_empty()
                && host.lanes.iter().enumerate().all(|(job, lane)| {
                    matches!(lane.phase, Phase::Free { .. })
                        && lane.watch.is_none()
                        && lane.wait.is_none()
                        && !lane.stale
                        && lane.next >= rules.schedules[job][host.version].len()
                })
        })
}

/// The occurrences after the ledger's beginning without a record.
fn undecided(rules: &Rules, world: &World) -> Vec<(usize, Tick)> {
    let mut rest = Vec::new();
    for (job, versions) in rules.schedules.iter().enumerate() {
        let Some(began) = world.seen.began[job].filter(|_| versions.len() == 1) else {
            continue;
        };
        // What was due before a loss of data, and did not come to the store, is its to forget.
        let began = began.max(world.seen.lost_at.unwrap_or(began));
        let fates = &world.seen.fates[job];
        let silent = |at: &Tick| fates.get(at).is_none_or(|fate| fate.verdicts == 0);
        let due = versions[0].iter().filter(|at| began < **at && silent(at));
        rest.extend(due.map(|at| (job, *at)));
    }
    rest
}

/// Whether all have their verdicts. With `latest` a run that began as its host was left alone, of
/// an occurrence that no other claimed, stays open until the next grant closes it.
fn all_decided(rules: &Rules, world: &World) -> bool {
    match rules.catch_up {
        CatchUp::All => undecided(rules, world).is_empty(),
        CatchUp::Latest => nothing_silent(rules, world),
    }
}

fn nothing_silent(rules: &Rules, world: &World) -> bool {
    undecided(rules, world).iter().all(|(job, at)| {
        world.jobs[*job].as_ref().is_none_or(|state| {
            let open = state.open.as_ref().and_then(|open| open.scheduled_at);
            let waits = (state.waiting.iter()).any(|entry| tick_of(entry.scheduled_at) == *at);
            let open = open.is_some_and(|open| tick_of(open) == *at);
            tick_of(state.last) < *at || open || waits
        })
    })
}

impl Told for Protocol {
    fn tell(told: &mut String, world: &World, step: Option<&Step>) -> std::fmt::Result {
        let net: Vec<_> = world.net.iter().collect();
        writeln!(told, "t={} net={net:?}", world.now)?;
        match step {
            Some(step) => writeln!(told, "  {step:?}"),
            None => writeln!(told, "{world:#?}"),
        }
    }
}

/// A counterexample: its states, and the step out of each.
pub(crate) type Story = check::Story<Protocol>;

/// As [`check::holds`], for as many steps as there are.
pub(crate) fn holds(rules: Rules, floor: usize) {
    check::holds(Protocol(rules), usize::MAX, floor);
}

/// As [`check::fails`].
pub(crate) fn fails(rules: Rules, claim: &'static str, shape: impl Fn(&Story) -> bool) {
    check::fails(Protocol(rules), claim, shape);
}
