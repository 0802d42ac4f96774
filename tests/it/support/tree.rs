//! Process trees: every process that a test started, wherever it went.
//!
//! Children of a test carry a mark in their environment, which survives `setsid`, double forks and the
//! death of parents.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::wait;

/// The variable that carries the mark.
pub(crate) const MARK_VARIABLE: &str = "TEST_TREE";

/// A mark unlike any other on this machine.
pub(crate) fn new_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // The boot clock distinguishes two test processes with a recycled process id.
    let now = cronlatch::time::BootInstant::now().to_duration().as_nanos();
    format!("{}-{number}-{now}", std::process::id())
}

/// The processes that carry the mark and are not zombies.
pub(crate) fn members(mark: &str) -> Vec<i32> {
    let entry = format!("{MARK_VARIABLE}={mark}");
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    all.filter_map(|found| found.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| carries(*pid, entry.as_bytes()))
        .collect()
}

fn carries(pid: i32, entry: &[u8]) -> bool {
    // The environment of a zombie reads as empty. A process of another user, or one that has not executed its
    // program yet, does not count.
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|b| *b == 0).any(|part| part == entry))
}

/// Ends every process with the mark, those that fork meanwhile included.
pub(crate) fn kill_all(mark: &str) {
    let gone = wait::try_for(|| {
        let members = members(mark);
        for pid in &members {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        members.is_empty().then_some(())
    });
    if gone.is_none() {
        eprintln!("processes {:?} cannot be killed", members(mark));
    }
}

/// Whether the process is there and not a zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = Path::new("/proc").join(pid.to_string()).join("stat");
    fs::read_to_string(stat).is_ok_and(|stat| {
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        !matches!(state, Some('Z' | 'X') | None)
    })
}
