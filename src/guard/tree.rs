//! Process trees as `/proc` shows them: children, descendants, and which run a stray belongs to.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;

use super::sys;

/// The variable in a job's environment that names its run.
pub(super) const MARKER: &str = "CRONLATCH_RUN_ID";

/// The fields of `/proc/PID/stat` that the guard needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// In clock ticks since boot; with `pid` it names a process for good.
    pub(super) started: u64,
    pub(super) dead: bool,
}

impl Process {
    /// Reads the process; `None` when there is none of that number.
    pub(super) fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: i32, stat: &[u8]) -> Option<Self> {
        // The second field is the program's name in brackets and may hold anything.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        Some(Self {
            pid,
            parent,
            group,
            started: fields.nth(16)?.parse().ok()?,
            dead: matches!(state, "Z" | "X" | "x"),
        })
    }

    /// Signals exactly this process, never one that got its number since.
    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        let pidfd = match sys::pidfd_open(self.pid) {
            Ok(pidfd) => pidfd,
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                // Before Linux 5.3: the number has just been read, that must do.
                // SAFETY: kill takes plain integers and touches no memory.
                return match unsafe { libc::kill(self.pid, signal) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                };
            }
            Err(error) => return Err(error),
        };
        match Self::read(self.pid) {
            Some(now) if now.started == self.started => sys::pidfd_signal(pidfd.as_fd(), signal),
            _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }
}

/// The children of a process, of all its threads. Some are left out if one of its threads ends
/// meanwhile; where that matters, [`children_by_parent`] finds all.
pub(super) fn children(pid: i32) -> Vec<i32> {
    // The file needs CONFIG_PROC_CHILDREN, which nearly every kernel has.
    if !fs::exists("/proc/thread-self/children").unwrap_or(false) {
        return children_by_parent(pid);
    }
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        // A thread that has just ended has no file and no children.
        if let Ok(list) = fs::read_to_string(thread.path().join("children")) {
            found.extend(
                list.split_ascii_whitespace()
                    .filter_map(|p| p.parse::<i32>().ok()),
            );
        }
    }
    found
}

/// The children of a process, found by looking at all processes.
///
/// Slower than [`children`], and right also while threads of the process end: Linux then cuts the
/// list of its threads short (`next_tid` in `fs/proc/base.c`; 7 of 145,000 looks while threads ended
/// one after another) and gives the children of such a thread to another one.
pub(super) fn children_by_parent(pid: i32) -> Vec<i32> {
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    all.flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(Process::read)
        .filter(|process| process.parent == pid)
        .map(|process| process.pid)
        .collect()
}

/// Adds all living descendants of a process, parents before their children.
pub(super) fn descendants(root: i32, into: &mut Vec<Process>) {
    let mut next = into.len();
    let mut parent = root;
    loop {
        for pid in children(parent) {
            let process = Process::read(pid).filter(|process| !process.dead);
            // A PID seen twice was reused during the scan; the next scan finds it.
            if let Some(process) = process.filter(|p| !into.iter().any(|q| q.pid == p.pid)) {
                into.push(process);
            }
        }
        let Some(process) = into.get(next) else {
            return;
        };
        parent = process.pid;
        next += 1;
    }
}

/// The run that a process's environment names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RunMarker {
    /// It belongs to the run of this name.
    Run(Vec<u8>),
    /// It has an environment without the marker, or one we may not read.
    None,
    /// It has no environment: cleared, or the process is just being replaced by `exec`.
    Empty,
}

/// Reads the marker of a process.
pub(super) fn marker(pid: i32) -> RunMarker {
    match fs::read(format!("/proc/{pid}/environ")) {
        Ok(environ) if environ.is_empty() => RunMarker::Empty,
        Ok(environ) => {
            value_in(&environ, MARKER).map_or(RunMarker::None, |run| RunMarker::Run(run.to_vec()))
        }
        Err(_) => RunMarker::None,
    }
}

/// Whether the process was started with this value of a variable. False if its environment may
/// not be read.
pub(super) fn has_variable(pid: i32, name: &str, value: &[u8]) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ"));
    environ.is_ok_and(|environ| value_in(&environ, name) == Some(value))
}

fn value_in<'a>(environ: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let value = |entry: &'a [u8]| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=");
    environ.split(|byte| *byte == 0).find_map(value)
}

/// This machine's clock ticks since boot, as [`Process::started`] counts them, rounded down.
pub(super) fn ticks_now() -> u64 {
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|ticks| u128::try_from(ticks).ok())
        .unwrap_or(100);
    let since_boot = crate::time::BootInstant::now().to_duration();
    u64::try_from(since_boot.as_nanos() * per_second / 1_000_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;

    use super::*;

    #[test]
    fn a_program_named_like_the_end_of_its_field_is_read_right() {
        let stat = b"42 (a) Z 1 (b) S 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 1 2";
        let process = Process::parse(42, stat).expect("well formed");
        assert_eq!(
            process,
            Process {
                pid: 42,
                parent: 7,
                group: 8,
                started: 12345,
                dead: false
            }
        );
    }

    #[test]
    fn a_child_is_found_below_its_parent_and_carries_the_marker_of_its_run() {
        // A shell that has printed has its environment: just after `spawn`, `/proc` may still
        // show it empty. And it has one thread, where threads of this process end all the time.
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .env("CRONLATCH_RUN_ID", "some-run")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh runs");
        let parent = i32::try_from(shell.id()).expect("a pid");
        let mut line = String::new();
        let stdout = shell.stdout.take().expect("it is piped");
        io::BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the shell prints the number of its child");
        let pid = line.trim().parse().expect("a pid");

        assert_eq!(children(parent), [pid]);
        assert_eq!(children_by_parent(parent), [pid]);
        assert_eq!(marker(parent), RunMarker::Run(b"some-run".to_vec()));
        let process = Process::read(pid).expect("it lives");
        assert_eq!(process.parent, parent);
        assert!(process.started <= ticks_now());
        process.signal(libc::SIGKILL).expect("ours to kill");
        shell.wait().expect("it ends");
        assert_eq!(Process::read(pid), None);
    }
}
