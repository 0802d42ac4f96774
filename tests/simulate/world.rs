//! Virtual time: the queue of events, the network, and what a plan does to the fleet.

use std::collections::BTreeMap;
use std::rc::Rc;

use cronlatch::config::Scope;
use cronlatch::names::JobName;
use cronlatch::store::StoreError;
use cronlatch::time::{BootInstant, Timestamp};

use crate::chance::Dice;
use crate::gate::State;
use crate::host::{GuardStep, Host, Timer};
use crate::message::{Message, Reply};
use crate::plan::{Act, Left, Plan, millis};
use crate::quorum::NodeItem;
use crate::store::Store;
use crate::trace::{ClockStep, Hindered, Span, Trace, Trouble};

/// The boot clock of every host when the simulation begins, in milliseconds.
const BOOTED: i64 = 1_000_000;

/// How many requests a store may have to get through before it replies to a host in time.
const MOST_AT_ONCE: i64 = 400;
/// How often the host of a run is looked for, in milliseconds.
const LOOKS_AGAIN: i64 = 50;
/// How often the host of a process that waits for its instant is looked for: most wait for some milliseconds only.
const LOOKS_AGAIN_AHEAD: i64 = 3;

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Item {
    Act(Act),
    /// A message reaches the store.
    Arrive(Box<Message>),
    /// The store's answer, or a refused connection, reaches a process of a host.
    Answer {
        host: usize,
        life: u32,
        id: u64,
        result: Result<Box<Reply>, StoreError>,
    },
    /// The store gets to a message that has waited for its turn.
    Serve(Box<Message>),
    /// A host returned an occurrence of the job undecided.
    Returned {
        host: usize,
        job: JobName,
    },
    /// The message that a lock was released.
    Released {
        host: usize,
        lock: String,
    },
    /// A timer of a process.
    Timer {
        host: usize,
        life: u32,
        timer: Timer,
    },
    /// A timer of a guard, which goes on while its daemon is stopped.
    Guard {
        host: usize,
        step: GuardStep,
    },
    /// The end of a pause.
    Wake {
        host: usize,
    },
    /// The store is no longer paused, or is reachable again.
    StoreUp,
    /// Something reaches a node, or a request to the nodes.
    Node(NodeItem),
}

/// Everything but hosts and store.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) now: i64,
    pub(crate) plan: Rc<Plan>,
    pub(crate) dice: Dice,
    pub(crate) trace: Trace,
    queue: BTreeMap<(i64, u64), Item>,
    number: u64,
}

impl Sim {
    /// Puts something into the queue.
    pub(crate) fn at(&mut self, at: i64, item: Item) {
        self.number += 1;
        self.queue.insert((at.max(self.now), self.number), item);
    }

    /// Returns a number that nothing else in this run has.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(crate) fn boot(&self) -> BootInstant {
        self.boot_of(self.now)
    }

    pub(crate) fn boot_of(&self, at: i64) -> BootInstant {
        BootInstant::from_duration(millis(at - self.plan.start + BOOTED))
    }

    /// Returns the true time at which a boot clock shows this.
    pub(crate) fn of_boot(&self, boot: BootInstant) -> i64 {
        let since = boot.to_duration();
        // Timers fire once their time has come, never before.
        let up = since.as_nanos().div_ceil(1_000_000);
        i64::try_from(up).unwrap_or(i64::MAX / 2) - BOOTED + self.plan.start
    }

    pub(crate) fn utc(&self, offset: i64) -> Timestamp {
        Timestamp::from_millis(self.now + offset)
    }
}

/// So many events are a loop: the busiest plans take less than a tenth of it.
const MAX_STEPS: u32 = 5_000_000;

/// A fleet, its store, and time.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) hosts: Vec<Host>,
    pub(crate) store: Store,
}

impl World {
    pub(crate) fn new(plan: &Plan, wants_lines: bool) -> Self {
        let plan = Rc::new(plan.clone());
        let mut sim = Sim {
            now: plan.start,
            dice: Dice::new(plan.seed ^ 0x51AB),
            trace: Trace {
                wants_lines,
                ..Trace::default()
            },
            queue: BTreeMap::new(),
            number: 0,
            plan: Rc::clone(&plan),
        };
        for (at, act) in &plan.acts {
            sim.at(plan.start + at, Item::Act(act.clone()));
        }
        let hosts = (0..plan.hosts.len())
            .map(|ix| Host::new(ix, &plan))
            .collect();
        for (ix, host) in plan.hosts.iter().enumerate() {
            sim.trace.clocks.push(ClockStep {
                at: plan.start,
                host: ix,
                ahead: host.offset,
            });
        }
        Self {
            store: Store::new(&sim),
            sim,
            hosts,
        }
    }

    /// Runs the plan to its end, or until more has happened than any fleet needs.
    pub(crate) fn run(&mut self) {
        let end = self.sim.plan.start + self.sim.plan.end;
        let mut steps = 0;
        while let Some(entry) = self.sim.queue.first_entry()
            && entry.key().0 <= end
        {
            let ((at, _), item) = entry.remove_entry();
            self.sim.now = at;
            steps += 1;
            if steps > MAX_STEPS {
                self.sim.trace.endless = Some(at);
            }
            if self.sim.trace.endless.is_some() {
                return;
            }
            self.happen(item);
        }
        self.sim.now = end;
    }

    fn happen(&mut self, item: Item) {
        let Self { sim, hosts, store } = self;
        match item {
            Item::Act(act) => self.act(&act),
            Item::Arrive(message) => store.arrive(sim, *message),
            Item::Serve(message) => store.take_turn(sim, *message),
            Item::StoreUp => store.up(sim),
            Item::Node(item) => store.at_node(sim, item),
            Item::Wake { host } => {
                for item in hosts[host].wake(sim) {
                    self.happen(item);
                }
            }
            Item::Guard { host, step } => hosts[host].guard_step(sim, step),
            Item::Answer { host, .. }
            | Item::Released { host, .. }
            | Item::Returned { host, .. }
            | Item::Timer { host, .. } => hosts[host].take(sim, item),
        }
    }

    fn act(&mut self, act: &Act) {
        let Self { sim, hosts, store } = self;
        let now = sim.now;
        sim.trace.line(now, || format!("ACT {act:?}"));
        let span = Span {
            from: now,
            until: now + act.lasts(),
        };
        let trouble = |host: usize, how: Hindered| Trouble { host, span, how };
        match act {
            Act::Start { host, list } => hosts[*host].start(sim, *list),
            Act::Drain { host, then } => hosts[*host].drain(sim, *then),
            Act::Reload { host, list } => hosts[*host].reload(sim, *list),
            Act::Kill { host } => hosts[*host].kill(sim),
            Act::Crash { host } => hosts[*host].crash(sim),
            Act::Pause { host, .. } | Act::Suspend { host, .. } => {
                let whole = matches!(act, Act::Suspend { .. });
                if hosts[*host].freeze(sim, span.until, whole) {
                    let how = if whole {
                        Hindered::Suspended
                    } else {
                        Hindered::Stopped
                    };
                    sim.trace.troubles.push(trouble(*host, how));
                }
            }
            Act::Step { host, by } => hosts[*host].step_clock(sim, *by),
            Act::Cut { host, .. } => {
                sim.trace.troubles.push(trouble(*host, Hindered::Network));
                let link = &mut hosts[*host].link;
                link.cut_until = link.cut_until.max(span.until);
            }
            Act::Net {
                host,
                loss,
                late,
                copies,
                ..
            } => {
                sim.trace.troubles.push(trouble(*host, Hindered::Lossy));
                hosts[*host].link.bad = (span.until, *loss, *late, *copies);
            }
            Act::StoreDown { refuses, .. } => {
                store.away(sim, span, State::Down { refuses: *refuses });
            }
            Act::StoreFreeze { .. } => store.away(sim, span, State::Frozen),
            Act::StoreWipe => store.wipe(sim),
            Act::StoreSnapshot => store.snapshot(sim),
            Act::StoreRestore => store.restore(sim),
            Act::ReplicaStops => store.replica_stops(sim),
            Act::Failover => store.failover(sim),
            Act::LossUnderHolder { lasts, left } => self.lose_under_holder(*lasts, *left),
            Act::StoreSlow { each, .. } => {
                store.slow_down(span.until, *each);
                let strained = each * MOST_AT_ONCE > 1_000_000;
                for host in (0..hosts.len()).filter(|_| strained) {
                    sim.trace.troubles.push(trouble(host, Hindered::Slow));
                }
            }
            Act::Seize { lock, key } => store.seize(sim, lock, *key),
            Act::Unseize { lock } => store.unseize(sim, lock),
            Act::Short { host, .. } => {
                sim.trace.troubles.push(trouble(*host, Hindered::Short));
                hosts[*host].run_short(span.until);
            }
            Act::Node { node, how } => store.node_act(sim, *node, how),
            Act::Trigger { host, job } => hosts[*host].trigger(sim, job),
            Act::Order { host, job, order } => {
                if let Some((lock, job)) = hosts[*host].place_of(sim, job) {
                    store.order(sim, (&lock, &job), *order);
                }
            }
            Act::KillTrigger { host } => hosts[*host].kill_trigger(sim),
        }
    }

    /// Cuts off the host of a run that has just begun, or is about to, and takes the store's data away, so that
    /// neither knows of the other; or looks for such a host again a moment later.
    fn lose_under_holder(&mut self, lasts: i64, left: Left) {
        let Self { sim, hosts, store } = self;
        let now = sim.now;
        let (found, again) = if sim.plan.loses_before_the_instant() {
            let prepared = hosts.iter().position(|host| host.has_prepared(now));
            (prepared, LOOKS_AGAIN_AHEAD)
        } else {
            (holder(sim), LOOKS_AGAIN)
        };
        let Some(holder) = found else {
            if now + lasts < sim.plan.start + sim.plan.calm {
                let act = Act::LossUnderHolder { lasts, left };
                sim.at(now + again, Item::Act(act));
            }
            return;
        };
        let span = Span {
            from: now,
            until: now + lasts,
        };
        let how = Hindered::Network;
        let host = holder;
        sim.trace.troubles.push(Trouble { host, span, how });
        let link = &mut hosts[host].link;
        link.cut_until = link.cut_until.max(span.until);
        match left {
            Left::Nothing => store.wipe(sim),
            Left::Saved => store.restore(sim),
            Left::Replica => store.failover(sim),
        }
    }
}

/// The host of the newest run that goes on under a lock which keeps others out.
fn holder(sim: &Sim) -> Option<usize> {
    let takes_no_lock = |job: &str| {
        let mut jobs = sim.plan.lists.iter().flat_map(|list| &list.jobs);
        jobs.any(|it| it.name == job && it.scope == Scope::None)
    };
    let mut runs = sim.trace.starts.iter().rev();
    let run = runs.find(|it| it.end.is_none() && it.fence.is_some() && !takes_no_lock(&it.job));
    run.map(|run| run.host)
}
