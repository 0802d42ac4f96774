//! Signals to whole trees, and the question whether anything of a tree is left.
//!
//! What a main process leaves behind becomes a child of the guard, the sub-reaper. Such a stray
//! belongs to the run its environment names; else to the run whose process group it is in; else,
//! with its environment cleared too, to the runs it can come from, as soon as the main process
//! of each has ended.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::Keeper;
use super::run::{Group, Main, Run, Send};
use crate::process::tree::{self, Marker, Process};

/// A process for good: its number and when it started.
type Identity = (i32, u64);

/// What is remembered about adopted processes.
#[derive(Debug, Default)]
pub(super) struct Strays {
    /// The runs they named; a process may clear its environment later.
    named: HashMap<Identity, Vec<u8>>,
    /// Those we were not permitted to kill.
    given_up: HashSet<Identity>,
}

/// An adopted process and what it says of itself.
struct Stray {
    process: Process,
    says: Marker,
}

impl Strays {
    fn identify(&mut self, process: Process) -> Stray {
        let identity = (process.pid, process.started);
        let says = match self.named.get(&identity) {
            Some(name) => Marker::Run(name.clone()),
            None => tree::marker(process.pid),
        };
        if let Marker::Run(name) = &says {
            self.named.insert(identity, name.clone());
        }
        Stray { process, says }
    }
}

impl Keeper {
    /// All adopted processes. Costs one small read while there are none.
    fn look(&mut self) -> Vec<Stray> {
        let children = tree::children(self.me.as_raw());
        if children.len() == self.mains.len() {
            self.strays = Strays::default();
            return Vec::new();
        }
        let strays: Vec<Stray> = children
            .into_iter()
            .filter(|pid| !self.mains.contains_key(pid))
            .filter_map(Process::read)
            .filter(|process| !process.dead)
            .map(|process| self.strays.identify(process))
            .collect();
        let present: HashSet<Identity> = strays
            .iter()
            .map(|stray| (stray.process.pid, stray.process.started))
            .collect();
        self.strays.named.retain(|stray, _| present.contains(stray));
        self.strays.given_up.retain(|stray| present.contains(stray));
        strays
    }

    fn belongs(&self, stray: &Stray, run: &Run) -> bool {
        let process = &stray.process;
        if let Marker::Run(name) = &stray.says
            && self.runs.values().any(|run| run.name == *name)
        {
            return run.name == *name;
        }
        if let Group::Own(group) = run.group
            && group == process.group
        {
            return true;
        }
        run.born <= process.started
            && self
                .runs
                .values()
                .filter(|run| run.born <= process.started)
                .all(|run| matches!(run.main, Main::Ended(_)))
    }

    pub(super) fn send_to_trees(&mut self, sends: impl IntoIterator<Item = (u64, Send)>) {
        let mut sends = sends.into_iter().peekable();
        if sends.peek().is_none() {
            return;
        }
        let strays = self.look();
        for (serial, send) in sends {
            let Some(run) = self.runs.get(&serial) else {
                continue;
            };
            let targets = self.targets(run, &strays);
            if let Some(run) = self.runs.get_mut(&serial) {
                send_to_tree(run, send, &targets, &mut self.strays.given_up);
            }
        }
    }

    /// Every process of the run's tree but its main one.
    fn targets(&self, run: &Run, strays: &[Stray]) -> Vec<Process> {
        let mut targets = Vec::new();
        if let Some(main) = run.main.pid() {
            tree::descendants(main, &mut targets);
        }
        for stray in strays {
            if self.belongs(stray, run) {
                targets.push(stray.process);
                tree::descendants(stray.process.pid, &mut targets);
            }
        }
        let known: HashSet<i32> = targets.iter().map(|process| process.pid).collect();
        let members = run.cgroup.iter().flat_map(super::Cgroup::processes);
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
        let ended = |run: &&Run| matches!(run.main, Main::Ended(_));
        if !self.runs.values().any(|run| ended(&run)) {
            return Vec::new();
        }
        let strays = self.look();
        let left = |run: &Run| {
            strays.iter().any(|stray| {
                let identity = (stray.process.pid, stray.process.started);
                // A process in the middle of an exec shows no environment for a moment.
                let unsure = run.is_lingering()
                    && stray.says == Marker::Empty
                    && run.born <= stray.process.started;
                !self.strays.given_up.contains(&identity) && (unsure || self.belongs(stray, run))
            }) || run.cgroup.as_ref().is_some_and(super::Cgroup::is_populated)
        };
        self.runs
            .values()
            .filter(ended)
            .filter(|run| !left(run))
            .map(|run| run.serial)
            .collect()
    }

    /// The guard's last act: what no run accounts for goes with it.
    pub(super) fn kill_strays(&mut self) {
        for _ in 0..100 {
            let strays = self.look();
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

fn send_to_tree(run: &mut Run, send: Send, targets: &[Process], given_up: &mut HashSet<Identity>) {
    let signal = match send {
        Send::First => run.signal,
        Send::Kill => libc::SIGKILL,
    };
    if send == Send::Kill
        && let Some(cgroup) = &run.cgroup
    {
        cgroup.kill();
    }
    let group_signalled = signal_main(run, signal);
    let one_by_one = targets
        .iter()
        .filter(|process| !group_signalled || run.group != Group::Own(process.group));
    for process in one_by_one {
        let identity = (process.pid, process.started);
        match process.signal(signal) {
            Err(error)
                if error.raw_os_error() == Some(libc::EPERM)
                    && send == Send::Kill
                    && given_up.insert(identity) =>
            {
                run.survivors += 1;
            }
            Ok(())
                if matches!(run.main, Main::Ended(_)) && !run.left_behind.contains(&identity) =>
            {
                run.left_behind.push(identity);
            }
            _ => {}
        }
    }
    if send == Send::First {
        // A stopped process sees its signal only once it goes on.
        signal_main(run, libc::SIGCONT);
        for process in targets {
            let _ = process.signal(libc::SIGCONT);
        }
    }
}

/// Signals the main process, and its group where it has one of its own; says whether the whole
/// group got it. Nothing is sent once the main process was reaped: its number may be another's.
pub(super) fn signal_main(run: &Run, signal: i32) -> bool {
    let Some(main) = run.main.pid() else {
        return false;
    };
    if let Group::Own(group) = run.group {
        // SAFETY: plain integers; the group is that of a child we have not reaped.
        if unsafe { libc::kill(-group, signal) } == 0 {
            return true;
        }
    }
    // SAFETY: plain integers; the process is a child we have not reaped.
    unsafe { libc::kill(main, signal) };
    false
}
