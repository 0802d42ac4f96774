//! Signals to whole trees, and the question whether anything of a tree is left.
//!
//! The tree of a run with a reaper is what descends from the reaper, and is gone when the reaper
//! has no child. What the main process of any other run leaves behind becomes a child of the guard.
//! Such a stray belongs to the run whose control group it is in; else to the run that its
//! environment names; else to the run whose process group it is in. A stray that has cleared its
//! environment, too, belongs to the runs without a reaper that it can come from, as soon as the
//! main process of each has ended.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::EventLoop;
use super::run::{Containment, KillStep, Main, StartedRun};
use crate::guard::cgroup::Delegated;
use crate::guard::tree::{self, Process, RunMarker};

/// A process for good: its number and when it started.
type ProcessId = (i32, u64);

/// What is remembered about adopted processes.
#[derive(Debug, Default)]
pub(super) struct Strays {
    /// The runs they named; a process may clear its environment later.
    named: HashMap<ProcessId, Vec<u8>>,
    /// Those we were not permitted to kill.
    given_up: HashSet<ProcessId>,
}

/// An adopted process, and the run that its environment names.
struct Stray {
    process: Process,
    says: RunMarker,
    /// The run whose control group it is in.
    home: Option<u64>,
}

impl Strays {
    fn identify(&mut self, process: Process, delegated: Option<&Delegated>) -> Stray {
        let identity = (process.pid, process.started);
        let says = match self.named.get(&identity) {
            Some(name) => RunMarker::Run(name.clone()),
            None => tree::marker(process.pid),
        };
        if let RunMarker::Run(name) = &says {
            self.named.insert(identity, name.clone());
        }
        let home = delegated.and_then(|delegated| delegated.serial_of(process.pid));
        Stray {
            process,
            says,
            home,
        }
    }
}

impl EventLoop {
    /// All adopted processes that a run may have lost. Costs nothing while all runs have reapers.
    fn look(&mut self) -> Vec<Stray> {
        if self.lost_reaper || self.runs.any_is_leaky() {
            self.all_strays()
        } else {
            Vec::new()
        }
    }

    /// All adopted processes. Costs one small read while there are none.
    fn all_strays(&mut self) -> Vec<Stray> {
        let children = tree::children(self.me.as_raw());
        let is_stray = |pid: &i32| !self.mains.contains_key(pid) && !self.reapers.contains(*pid);
        let children: Vec<i32> = children.into_iter().filter(is_stray).collect();
        if children.is_empty() {
            self.strays = Strays::default();
            return Vec::new();
        }
        let strays: Vec<Stray> = children
            .into_iter()
            .filter_map(Process::read)
            .filter(|process| !process.dead)
            .map(|process| self.strays.identify(process, self.delegated.as_ref()))
            .collect();
        let present: HashSet<ProcessId> = strays
            .iter()
            .map(|stray| (stray.process.pid, stray.process.started))
            .collect();
        self.strays.named.retain(|stray, _| present.contains(stray));
        self.strays.given_up.retain(|stray| present.contains(stray));
        strays
    }

    fn belongs(&self, stray: &Stray, run: &StartedRun) -> bool {
        let process = &stray.process;
        if let Some(home) = stray.home.filter(|home| self.runs.contains(*home)) {
            return home == run.serial;
        }
        if let RunMarker::Run(name) = &stray.says
            && self.runs.values().any(|run| run.name == *name)
        {
            return run.name == *name;
        }
        if run.own_group() == Some(process.group) {
            return true;
        }
        // A living reaper has all that comes from its run.
        let can_be_from =
            |run: &StartedRun| run.place.lets_strays_out() && run.born <= process.started;
        can_be_from(run)
            && self
                .runs
                .values()
                .filter(|run| can_be_from(run))
                .all(|run| matches!(run.main, Main::Ended(_)))
    }

    pub(super) fn send_to_trees(&mut self, sends: impl IntoIterator<Item = (u64, KillStep)>) {
        let mut sends = sends.into_iter().peekable();
        if sends.peek().is_none() {
            return;
        }
        let strays = self.look();
        for (serial, send) in sends {
            let Some(run) = self.runs.get(serial) else {
                continue;
            };
            let targets = self.targets(run, &strays);
            if let Some(run) = self.runs.get_mut(serial) {
                send_to_tree(run, send, &targets, &mut self.strays.given_up);
            }
        }
    }

    /// Every process of the run's tree but its main one.
    fn targets(&self, run: &StartedRun, strays: &[Stray]) -> Vec<Process> {
        let mut targets = Vec::new();
        if let Some(reaper) = run.place.reaper() {
            tree::descendants(reaper.pid, &mut targets);
            targets.retain(|process| run.main.pid() != Some(process.pid));
        } else if let Some(main) = run.main.pid() {
            tree::descendants(main, &mut targets);
        }
        for stray in strays {
            if self.belongs(stray, run) {
                targets.push(stray.process);
                tree::descendants(stray.process.pid, &mut targets);
            }
        }
        let known: HashSet<i32> = targets.iter().map(|process| process.pid).collect();
        let members = run.place.cgroup().map(super::Cgroup::processes);
        let members = members.into_iter().flatten();
        let others = members.filter(|pid| !known.contains(pid) && run.main.pid() != Some(*pid));
        targets.extend(
            others
                .filter_map(Process::read)
                .filter(|process| !process.dead),
        );
        targets
    }

    /// The runs whose main process has ended and of which nothing is left.
    pub(super) fn trees_gone(&mut self) -> Vec<u64> {
        let ended = self.runs.ended();
        if ended.is_empty() {
            return Vec::new();
        }
        let strays = self.look();
        let stray_left = |run: &StartedRun| {
            strays.iter().any(|stray| {
                let identity = (stray.process.pid, stray.process.started);
                // A process in the middle of an exec shows no environment for a moment.
                let unsure = run.is_lingering()
                    && run.place.lets_strays_out()
                    && stray.says == RunMarker::Empty
                    && run.born <= stray.process.started;
                !self.strays.given_up.contains(&identity) && (unsure || self.belongs(stray, run))
            })
        };
        let left = |run: &StartedRun| {
            let in_place = match &run.place {
                Containment::Cgroup(cgroup) => cgroup.is_populated(),
                Containment::Reaper(reaper) => !only_survivors(run, reaper.pid),
                Containment::Empty | Containment::Nowhere => false,
            };
            in_place || stray_left(run)
        };
        ended
            .into_iter()
            .filter(|serial| self.runs.get(*serial).is_some_and(|run| !left(run)))
            .collect()
    }

    /// Kills what has left the daemon's control group. It gets no grace: when the daemon dies,
    /// systemd kills all that is in that group, this process included, and nothing else.
    pub(super) fn kill_migrants(&self) {
        let Some(delegated) = &self.delegated else {
            return;
        };
        let mut all = Vec::new();
        tree::descendants(self.me.as_raw(), &mut all);
        for process in all {
            if delegated.is_left_by(process.pid) {
                let _ = process.signal(libc::SIGKILL);
            }
        }
    }

    /// The guard's last act: what no run accounts for goes with it.
    pub(super) fn kill_strays(&mut self) {
        for _ in 0..100 {
            let strays = self.all_strays();
            if strays.is_empty() {
                return;
            }
            let mut all = Vec::new();
            for stray in &strays {
                all.push(stray.process);
                tree::descendants(stray.process.pid, &mut all);
            }
            for process in all {
                let _ = process.signal(libc::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(10));
            self.reap();
        }
    }
}

/// Whether all that descends from the reaper is what we were not permitted to kill.
fn only_survivors(run: &StartedRun, reaper: i32) -> bool {
    if run.survivors.is_empty() {
        return false;
    }
    let mut left = Vec::new();
    tree::descendants(reaper, &mut left);
    left.iter()
        .all(|process| run.survivors.contains(&(process.pid, process.started)))
}

fn send_to_tree(
    run: &mut StartedRun,
    send: KillStep,
    targets: &[Process],
    given_up: &mut HashSet<ProcessId>,
) {
    let signal = match send {
        KillStep::First => run.signal,
        KillStep::Kill => libc::SIGKILL,
    };
    if send == KillStep::Kill
        && let Some(cgroup) = run.place.cgroup()
    {
        cgroup.kill();
    }
    if let Some(reaper) = run.place.reaper() {
        reaper.go_on();
        if run.resists() && matches!(run.main, Main::Starting(None, _)) {
            // It does not read its order.
            reaper.kill();
        }
    }
    let group_signalled = signal_main(run, signal);
    let group = run.own_group().filter(|_| group_signalled);
    let one_by_one = targets
        .iter()
        .filter(|process| group != Some(process.group));
    for process in one_by_one {
        let identity = (process.pid, process.started);
        match process.signal(signal) {
            Err(error)
                if error.raw_os_error() == Some(libc::EPERM)
                    && send == KillStep::Kill
                    && given_up.insert(identity)
                    && !run.survivors.contains(&identity) =>
            {
                run.survivors.push(identity);
            }
            Ok(())
                if matches!(run.main, Main::Ended(_)) && !run.left_behind.contains(&identity) =>
            {
                run.left_behind.push(identity);
            }
            _ => {}
        }
    }
    if send == KillStep::First {
        // A stopped process handles its signal only once it is continued.
        signal_main(run, libc::SIGCONT);
        for process in targets {
            let _ = process.signal(libc::SIGCONT);
        }
    }
}

/// Signals the main process, and its group where it has one of its own; says whether the whole
/// group got it. Nothing is sent once the main process was reaped, or may be: its number may be
/// another's.
pub(super) fn signal_main(run: &StartedRun, signal: i32) -> bool {
    let Some(main) = run.main.pid() else {
        return false;
    };
    if let Some(group) = run.own_group() {
        // SAFETY: plain integers; the group is that of a child we have not reaped.
        if unsafe { libc::kill(-group, signal) } == 0 {
            return true;
        }
    }
    // SAFETY: plain integers; the process is a child we have not reaped.
    unsafe { libc::kill(main, signal) };
    false
}
