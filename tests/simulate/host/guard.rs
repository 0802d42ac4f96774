//! The guard of a host: it starts processes and ends those whose deadline passes.

use std::collections::BTreeMap;

use crate::trace::{Ended, Start};
use crate::world::{Item, Sim};

use super::Timer;

/// Something that the guard does by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GuardStep {
    /// A process begins.
    StartProcess(u64),
    /// A process may have come to its end.
    CheckProcess(u64),
}

/// What a daemon receives about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// How it ended, and when.
    Ended(Ended, i64),
    /// It was not started: its lease was about to end, or it was to end itself.
    TooLate,
    /// It was not started: the machine lacks the resources.
    NoResources,
    /// It was not started: it was withdrawn before its instant.
    Withdrawn,
}

/// What the guard reports when it is done with a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessReport {
    pub(crate) exit: Exit,
    /// When it began, by the true clock.
    pub(crate) began: Option<i64>,
}

/// A process; instants by the true clock.
#[derive(Debug)]
pub(crate) struct Process {
    /// The daemon, or the `trigger`, that it belongs to.
    pub(crate) life: u32,
    /// What is noted of it.
    pub(crate) start: Start,
    /// Prepared before, it begins then.
    pub(crate) not_before: Option<i64>,
    /// It does not begin then or later.
    pub(crate) start_until: Option<i64>,
    /// SIGKILL at the latest.
    pub(crate) deadline: Option<i64>,
    /// How long it works.
    pub(crate) work: i64,
    pub(crate) code: i32,
    pub(crate) grace: i64,
    pub(crate) stubborn: bool,
}

#[derive(Debug)]
struct Living {
    process: Process,
    /// Its place in the trace, once it has begun.
    noted: Option<usize>,
    /// When it ends unless something else happens, and why then.
    end: (i64, Ended),
    /// It was sent a signal.
    told: bool,
}

#[derive(Debug)]
pub(crate) struct Guard {
    host: usize,
    living: BTreeMap<u64, Living>,
    /// Until when it can start nothing.
    short_until: i64,
    /// The daemon that is to be told of its next start.
    pub(crate) watched: Option<u32>,
}

impl Guard {
    pub(super) fn new(host: usize) -> Self {
        Self {
            host,
            living: BTreeMap::new(),
            short_until: 0,
            watched: None,
        }
    }

    /// The machine lacks the resources to start processes.
    pub(super) fn run_short(&mut self, until: i64) {
        self.short_until = self.short_until.max(until);
    }

    /// Whether a process waits for its instant.
    pub(super) fn has_prepared(&self, now: i64) -> bool {
        let waits = |it: &Living| it.noted.is_none() && it.process.not_before > Some(now);
        self.living.values().any(waits)
    }

    pub(crate) fn spawn(&mut self, sim: &mut Sim, process: Process) -> u64 {
        let id = sim.fresh();
        let host = self.host;
        let begins = sim.now + sim.dice.range(1, 4);
        let begins = begins.max(process.not_before.unwrap_or(begins));
        let living = Living {
            end: (i64::MAX, Ended::Itself(process.code)),
            process,
            noted: None,
            told: false,
        };
        self.living.insert(id, living);
        let step = GuardStep::StartProcess(id);
        sim.at(begins, Item::Guard { host, step });
        id
    }

    /// The lease was renewed.
    pub(crate) fn extend(&mut self, sim: &mut Sim, id: u64, deadline: i64) {
        if let Some(living) = self.living.get_mut(&id) {
            living.process.deadline = Some(deadline);
            self.arm(sim, id);
        }
    }

    /// The daemon withdraws a process that waits for its instant. Returns whether it had not begun.
    pub(crate) fn withdraw(&mut self, sim: &mut Sim, id: u64) -> bool {
        let waits = |it: &Living| it.noted.is_none() && it.process.not_before.is_some();
        let Some(living) = self.living.get(&id).filter(|it| waits(it)) else {
            return false;
        };
        let life = living.process.life;
        self.living.remove(&id);
        self.tell(sim, life, id, Exit::Withdrawn);
        true
    }

    /// The daemon wants the process to end.
    pub(crate) fn end(&mut self, sim: &mut Sim, id: u64, why: Ended) {
        let now = sim.now;
        let Some(living) = self.living.get_mut(&id).filter(|living| !living.told) else {
            return;
        };
        living.told = true;
        let process = &living.process;
        let last = if process.stubborn {
            now + process.grace
        } else {
            now + 10
        };
        let last = process.deadline.map_or(last, |deadline| last.min(deadline));
        if last < living.end.0 {
            living.end = (last, why);
        }
        self.arm(sim, id);
    }

    /// All processes of a daemon or `trigger` that is gone are ended.
    pub(super) fn end_all_of(&mut self, sim: &mut Sim, life: u32, why: Ended) {
        let of_it = self.living.iter().filter(|(_, l)| l.process.life == life);
        let ids: Vec<u64> = of_it.map(|(id, _)| *id).collect();
        for id in ids {
            self.end(sim, id, why);
        }
    }

    /// The machine is gone.
    pub(super) fn crash(&mut self, sim: &mut Sim) {
        for living in std::mem::take(&mut self.living).into_values() {
            note_end(sim, &living, Ended::WithMachine);
        }
    }

    /// The machine was suspended for this long, and its processes did no work.
    pub(super) fn slept(&mut self, sim: &mut Sim, lasted: i64) {
        let ids: Vec<u64> = self.living.keys().copied().collect();
        for id in ids {
            if let Some(living) = self.living.get_mut(&id)
                && !living.told
                && living.end.0 < i64::MAX
            {
                living.end.0 += lasted;
            }
            self.arm(sim, id);
        }
    }

    pub(super) fn step(&mut self, sim: &mut Sim, step: GuardStep) {
        match step {
            GuardStep::StartProcess(id) => self.begin(sim, id),
            GuardStep::CheckProcess(id) => self.check(sim, id),
        }
    }

    fn begin(&mut self, sim: &mut Sim, id: u64) {
        let now = sim.now;
        let Some(living) = self.living.get_mut(&id) else {
            return;
        };
        let process = &mut living.process;
        let limits = [process.start_until, process.deadline];
        if living.told || limits.into_iter().flatten().any(|at| at <= now) {
            let life = process.life;
            self.living.remove(&id);
            self.tell(sim, life, id, Exit::TooLate);
            return;
        }
        let life = process.life;
        if now < self.short_until {
            self.living.remove(&id);
            self.tell(sim, life, id, Exit::NoResources);
            return;
        }
        if self.watched.take_if(|by| *by == life).is_some() {
            let (host, timer) = (self.host, Timer::Started);
            sim.at(now + 1, Item::Timer { host, life, timer });
        }
        process.start.begin = now;
        living.noted = Some(sim.trace.starts.len());
        living.end = (now + process.work, Ended::Itself(process.code));
        let start = process.start.clone();
        sim.trace.line(now, || {
            let Start {
                job,
                run_id,
                at,
                attempt,
                host,
                ..
            } = &start;
            format!("BEGIN host-{host} {job} of {at:?} attempt {attempt} run {run_id}")
        });
        sim.trace.starts.push(start);
        self.arm(sim, id);
    }

    fn check(&mut self, sim: &mut Sim, id: u64) {
        let now = sim.now;
        let Some(living) = self.living.get_mut(&id) else {
            return;
        };
        if living.noted.is_none() {
            return;
        }
        if let Some(deadline) = living.process.deadline
            && now < living.end.0
        {
            if deadline <= now {
                living.end = (now, Ended::AtDeadline);
            } else if deadline - living.process.grace <= now && !living.told {
                living.told = true;
                if !living.process.stubborn {
                    living.end = (living.end.0.min(now + 10), Ended::AtDeadline);
                }
            }
        }
        if living.end.0 > now {
            self.arm(sim, id);
            return;
        }
        if let Some(living) = self.living.remove(&id) {
            note_end(sim, &living, living.end.1);
            let process = &living.process;
            let report = ProcessReport {
                exit: Exit::Ended(living.end.1, now),
                began: Some(process.start.begin),
            };
            self.report(sim, process.life, id, report);
        }
    }

    /// Reports a process that has not begun.
    fn tell(&self, sim: &mut Sim, life: u32, id: u64, exit: Exit) {
        let began = None;
        self.report(sim, life, id, ProcessReport { exit, began });
    }

    fn report(&self, sim: &mut Sim, life: u32, id: u64, report: ProcessReport) {
        let (host, timer) = (self.host, Timer::Exited(id, report));
        sim.at(sim.now + 1, Item::Timer { host, life, timer });
    }

    fn arm(&self, sim: &mut Sim, id: u64) {
        let Some(living) = self.living.get(&id) else {
            return;
        };
        let mut next = living.end.0;
        if let Some(deadline) = living.process.deadline {
            next = next.min(deadline);
            if !living.told {
                next = next.min(deadline - living.process.grace);
            }
        }
        let (host, step) = (self.host, GuardStep::CheckProcess(id));
        sim.at(next, Item::Guard { host, step });
    }
}

fn note_end(sim: &mut Sim, living: &Living, why: Ended) {
    let now = sim.now;
    if let Some(noted) = living.noted {
        let start = &mut sim.trace.starts[noted];
        (start.end, start.ended) = (Some(now), Some(why));
        let (host, run) = (start.host, start.run_id.clone());
        sim.trace
            .line(now, || format!("END host-{host} run {run} {why:?}"));
    }
}
