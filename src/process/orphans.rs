//! What the daemon does about processes that become its children: ending the jobs of a guard
//! that is gone, and reaping as process 1 of a container.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

use super::tree::{self, Marker, Process};
use super::{cgroup, sys};
use crate::names::RunId;

/// How long to wait for what resists SIGKILL.
const PATIENCE: Duration = Duration::from_secs(30);

/// A run whose guard is gone.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) run: RunId,
    /// Its main process, if it had been started.
    pub(super) main: Option<i32>,
}

/// Ends all that is left of these runs, whose main processes the guard's death has killed
/// already. Answers for each how many processes were ended, and how many could not be.
///
/// It relies on this process being the sub-reaper next to the guard: what the guard owned is now
/// among our children. Children of other origin are not touched.
pub(super) fn end_all(guard: i32, runs: &[Left]) -> Vec<(usize, usize)> {
    let me = std::process::id().cast_signed();
    let start = Instant::now();
    let mut ended = vec![HashSet::new(); runs.len()];
    let mut denied = vec![HashSet::new(); runs.len()];
    let mut pause = Duration::from_millis(1);
    loop {
        let mut left = usize::from(!cgroup::end_all_of(guard));
        for child in tree::children(me) {
            let Some(process) = Process::read(child) else {
                continue;
            };
            let Some(index) = runs.iter().position(|left| left.owns(&process)) else {
                continue;
            };
            let mut family = vec![process];
            tree::descendants(child, &mut family);
            for process in family.into_iter().filter(|process| !process.dead) {
                let identity = (process.pid, process.started);
                match process.signal(libc::SIGKILL) {
                    Ok(()) => {
                        ended[index].insert(identity);
                        left += 1;
                    }
                    Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                        denied[index].insert(identity);
                    }
                    Err(_) => left += 1,
                }
            }
        }
        let known = ended.iter().flatten().map(|(pid, _)| *pid);
        for pid in known.chain(runs.iter().filter_map(|left| left.main)) {
            sys::reap(pid);
        }
        if left == 0 || start.elapsed() > PATIENCE {
            break;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    let counts = ended.iter().zip(&denied);
    counts
        .map(|(ended, denied)| (ended.len(), denied.len()))
        .collect()
}

impl Left {
    fn owns(&self, process: &Process) -> bool {
        if let Some(main) = self.main
            && (process.pid == main || process.group == main)
        {
            return true;
        }
        tree::marker(process.pid) == Marker::Run(self.run.as_str().as_bytes().to_vec())
    }
}

/// Reaps what becomes a child of process 1, until the runtime ends. The guard itself is left to
/// the task that serves it.
pub(super) async fn reap_as_init(guard: i32) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut children) = signal(SignalKind::child()) else {
        return;
    };
    loop {
        while let Some(pid) = next_zombie().filter(|pid| *pid != guard) {
            sys::reap(pid);
        }
        if children.recv().await.is_none() {
            return;
        }
    }
}

fn next_zombie() -> Option<i32> {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::All, peek) {
        Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) => Some(pid.as_raw()),
        _ => None,
    }
}
