//! The end of what a killed daemon's runs had in other control groups.
//!
//! When a daemon dies, systemd kills what is in the control group of its unit, the guard included.
//! A process that had moved to another group (`su -l` with `pam_systemd`, `systemd-run --scope`, a
//! write to `cgroup.procs`) lives on without its ancestors: it is a child of the service manager
//! now. It still carries in its environment which invocation of the unit it came from.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use super::tree::{self, Process};

/// The variable in which systemd gives each start of a unit an id of its own.
pub(crate) const INVOCATION: &str = "INVOCATION_ID";

/// The variable in which a job finds that id.
pub(crate) const INVOCATION_OF_RUN: &str = "CRONLATCH_INVOCATION_ID";

/// How long to wait for what resists SIGKILL.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// How many processes there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Processes that are dead now.
    pub(crate) killed: usize,
    /// Processes that survived: signalling them was not permitted, or they are in uninterruptible sleep.
    pub(crate) left: usize,
}

/// Kills what the runs of this invocation of the unit have left. The caller must be a child of the
/// service manager, as a command of the unit is.
///
/// Only children of the manager count, and what descends from them: a program like `at` repeats
/// the environment of a job in processes of its own.
pub(crate) fn sweep(invocation: &OsStr) -> Swept {
    let start = Instant::now();
    let mut signalled = HashSet::new();
    loop {
        let left = orphans(invocation);
        let mut denied = 0;
        for process in &left {
            match process.signal(libc::SIGKILL) {
                Ok(()) => {
                    signalled.insert((process.pid, process.started));
                }
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => denied += 1,
                Err(_) => {}
            }
        }
        if left.len() == denied || start.elapsed() > PATIENCE {
            let alive = |process: &&Process| signalled.contains(&(process.pid, process.started));
            return Swept {
                killed: signalled.len() - left.iter().filter(alive).count(),
                left: left.len(),
            };
        }
        std::thread::sleep(PAUSE);
    }
}

/// The children of the manager that came from a run of this invocation, and their descendants.
fn orphans(invocation: &OsStr) -> Vec<Process> {
    let manager = nix::unistd::getppid().as_raw();
    let children = tree::children_by_parent(manager).into_iter();
    let mut found: Vec<Process> = children
        .filter(|pid| tree::has_variable(*pid, INVOCATION_OF_RUN, invocation.as_bytes()))
        .filter_map(Process::read)
        .filter(|process| !process.dead)
        .collect();
    for root in found.clone() {
        tree::descendants(root.pid, &mut found);
    }
    found
}
