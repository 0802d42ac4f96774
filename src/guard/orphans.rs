//! What the daemon does about processes that become its children: ending the jobs of a guard
//! that is gone, and reaping as process 1 of a container.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

use super::tree::{self, Process, RunMarker};
use super::{cgroup, programs, sys};
use crate::names::RunId;

/// How long to wait for what resists SIGKILL.
const PATIENCE: Duration = Duration::from_secs(30);

/// A run whose guard is gone.
#[derive(Debug)]
pub(super) struct OrphanedRun {
    pub(super) run: RunId,
    /// Its main process, if it had been started.
    pub(super) main: Option<i32>,
}

/// Ends all that is left of these runs. Returns for each how many processes were ended from here,
/// and how many could not be.
///
/// It relies on this process being the sub-reaper next to the guard: the guard's children are now
/// ours. The reapers of its runs kill their trees by themselves, in case this process is stopped;
/// here it is made sure that they have done so. Children of other origin are not touched.
pub(super) fn end_all(guard: i32, runs: &[OrphanedRun]) -> Vec<(usize, usize)> {
    let me = std::process::id().cast_signed();
    let start = Instant::now();
    let owners = Owners::new(runs);
    let mut tally = KillCount {
        ended: vec![HashSet::new(); runs.len()],
        denied: vec![HashSet::new(); runs.len()],
    };
    let mut pause = Duration::from_millis(1);
    loop {
        let mut left = usize::from(!cgroup::end_all_of(guard));
        // Threads of this process end at any time; no child may be left out.
        for child in tree::children_by_parent(me)
            .into_iter()
            .filter_map(Process::read)
        {
            let mut family = vec![child];
            tree::descendants(child.pid, &mut family);
            let index = family.iter().find_map(|process| owners.of(process));
            if is_reaper(&child, guard) {
                sys::reap(child.pid);
                // It ends when its tree has, and cannot while somebody has stopped it.
                let _ = child.signal(libc::SIGCONT);
                left += usize::from(!child.dead);
                family.remove(0);
            } else if index.is_none() {
                continue;
            }
            left += tally.kill(index, &family);
        }
        let known = tally.ended.iter().flatten().map(|(pid, _)| *pid);
        for pid in known.chain(runs.iter().filter_map(|left| left.main)) {
            sys::reap(pid);
        }
        if left == 0 || start.elapsed() > PATIENCE {
            break;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    let counts = tally.ended.iter().zip(&tally.denied);
    counts
        .map(|(ended, denied)| (ended.len(), denied.len()))
        .collect()
}

/// Whether it is a reaper of this guard. All of them are in the guard's process group; commands
/// never are.
fn is_reaper(child: &Process, guard: i32) -> bool {
    child.group == guard && child.pid != guard
}

/// What was done to the processes of each run.
struct KillCount {
    ended: Vec<HashSet<(i32, u64)>>,
    denied: Vec<HashSet<(i32, u64)>>,
}

impl KillCount {
    /// Sends SIGKILL to these processes of a run. Returns how many of them may still live.
    fn kill(&mut self, run: Option<usize>, processes: &[Process]) -> usize {
        let mut left = 0;
        for process in processes.iter().filter(|process| !process.dead) {
            let identity = (process.pid, process.started);
            let counted = match process.signal(libc::SIGKILL) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => &mut self.denied,
                killed => {
                    left += 1;
                    if killed.is_err() {
                        continue;
                    }
                    &mut self.ended
                }
            };
            if let Some(run) = run {
                counted[run].insert(identity);
            }
        }
        left
    }
}

/// Which run, by its index, a process belongs to.
struct Owners<'a> {
    mains: HashMap<i32, usize>,
    names: HashMap<&'a [u8], usize>,
}

impl<'a> Owners<'a> {
    fn new(runs: &'a [OrphanedRun]) -> Self {
        let mains = runs.iter().enumerate();
        let names = runs.iter().enumerate();
        Self {
            mains: mains
                .filter_map(|(at, run)| Some((run.main?, at)))
                .collect(),
            names: names
                .map(|(at, run)| (run.run.as_str().as_bytes(), at))
                .collect(),
        }
    }

    fn of(&self, process: &Process) -> Option<usize> {
        let main = self.mains.get(&process.pid);
        if let Some(run) = main.or_else(|| self.mains.get(&process.group)) {
            return Some(*run);
        }
        match tree::marker(process.pid) {
            RunMarker::Run(name) => self.names.get(name.as_slice()).copied(),
            _ => None,
        }
    }
}

/// Reaps what becomes a child of process 1, until the runtime ends. The guard itself is left to
/// the task that serves it, and programs to the threads that wait for them.
pub(super) async fn reap_as_init(guard: i32) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut children) = signal(SignalKind::child()) else {
        return;
    };
    loop {
        while reap_one(guard) {}
        if children.recv().await.is_none() {
            return;
        }
    }
}

/// Reaps a child that has ended and that no task waits for. Returns false if there is none.
fn reap_one(guard: i32) -> bool {
    let programs = programs::known_programs();
    let is_free = |pid: &i32| *pid != guard && !programs.contains(pid);
    let zombie = next_zombie().filter(is_free);
    zombie.map(sys::reap).is_some()
}

fn next_zombie() -> Option<i32> {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::All, peek) {
        Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) => Some(pid.as_raw()),
        _ => None,
    }
}
