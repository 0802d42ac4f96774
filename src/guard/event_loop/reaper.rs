//! The reaper: a small process of its own between the guard and one command.
//!
//! It is the nearest sub-reaper above the command, so every descendant whose parent ends becomes
//! its child, whatever that descendant did to its session, its group and its environment. The
//! kernel thereby keeps the trees of two runs apart, and the end of the reaper proves that
//! nothing of its tree is left. Runs with a control group need none.
//!
//! It is a fork of the guard that executes nothing, so it shares the guard's memory. It decides
//! nothing either: deadlines and signals stay with the guard. Only when the guard has died does
//! it act by itself, and kills its tree.
//!
//! Until the command is executed, it shares the reaper's memory (unless it runs as another user), so
//! the reaper sleeps that long, and wakes at once if the command is killed. A command that waits for the
//! instant of its start looks for the guard before it starts. A guard that dies after that leaves the
//! command running for the instant until its reaper wakes and kills it.
//!
//! Guard and reaper talk through two means. The reaper writes the wait status of the main process
//! to a pipe and leaves that process unreaped, so that its number and its group stay its own. The
//! guard replies with [`SEEN`] once it will signal neither any more.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::{set_child_subreaper, set_name, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpid, getppid, setpgid};

use super::child::{self, ChildContext, Failed};
use crate::guard::Status;
use crate::guard::sys::{self, Fork};
use crate::guard::tree::{self, Process};
use crate::guard::wire::{StartRequest, StartStep};

/// What the guard sends when it has read the status of the main process.
pub(super) const SEEN: i32 = libc::SIGUSR2;

/// How a reaper ends whose tree is gone. Any other end leaves its tree to the guard.
pub(super) const NOTHING_LEFT: Status = Status::Code(0);

/// What the kernel sends when the guard has died.
const GUARD_DIED: Signal = Signal::SIGUSR1;

/// How long a reaper without a guard tries to kill what resists SIGKILL (uninterruptible sleep).
const PATIENCE: Duration = Duration::from_secs(60);

/// The pauses between two looks at a tree that was sent SIGKILL.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(250);

/// A run's reaper, as the guard knows it.
#[derive(Debug)]
pub(super) struct Reaper {
    pub(super) pid: i32,
    /// Where the status of the main process arrives; closes with the reaper.
    pub(super) report: OwnedFd,
}

impl Reaper {
    /// Returns the wait status of the main process once the reaper has written it.
    pub(super) fn main_status(&self) -> Option<i32> {
        let mut status = [0_u8; 4];
        match nix::unistd::read(&self.report, &mut status) {
            Ok(4) => Some(i32::from_ne_bytes(status)),
            _ => None,
        }
    }

    /// Lets the reaper reap the main process.
    pub(super) fn confirm(&self) {
        self.signal(SEEN);
    }

    /// Continues a reaper that was stopped; no effect on any other.
    pub(super) fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        // SAFETY: plain integers; the reaper is a child of the guard that was not reaped.
        unsafe { libc::kill(self.pid, signal) };
    }
}

/// The reaper's own ends of its pipes.
pub(super) struct Pipes {
    /// For the status of the main process.
    pub(super) report: OwnedFd,
    /// For the step at which the start failed; see [`child::error_pipe`].
    pub(super) error: OwnedFd,
}

/// Becomes the reaper: forks the command, waits until nothing of its tree is left, and exits.
pub(super) fn become_reaper(order: &StartRequest, around: &ChildContext<'_>, pipes: Pipes) -> ! {
    let guard = around.parent;
    let set_up = || -> Result<SigSet, Errno> {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGCHLD, GUARD_DIED, Signal::SIGUSR2] {
            signals.add(signal);
        }
        signals.thread_block()?;
        set_pdeathsig(GUARD_DIED)?;
        set_child_subreaper(true)?;
        let _ = set_name(c"cronlatch-run");
        Ok(signals)
    };
    let signals = match set_up() {
        Ok(signals) if getppid() == guard => signals,
        Ok(_) => child::report(&Failed(StartStep::Parent, Errno::ESRCH), &pipes.error),
        Err(errno) => child::report(&Failed(StartStep::Parent, errno), &pipes.error),
    };
    let main = match fork_command(order, around, &pipes.error) {
        Ok(main) => main,
        Err(failed) => child::report(&failed, &pipes.error),
    };
    // The child does the same; whichever is first, a signal to the group finds it.
    let _ = setpgid(Pid::from_raw(main), around.group_of(main));
    // Without this the guard would not see the pipe close when the command starts.
    drop(pipes.error);
    close_all_but(&pipes.report);
    Tree {
        guard,
        main,
        report: pipes.report,
        main_is: MainProcess::Running,
    }
    .outlive(&signals)
}

fn fork_command(
    order: &StartRequest,
    around: &ChildContext<'_>,
    error: &OwnedFd,
) -> Result<i32, Failed> {
    let around = ChildContext {
        parent: getpid(),
        ..*around
    };
    let started = if order.user.is_some() {
        // What becomes another user must not share the memory of this one, not even for an instant.
        // SAFETY: this process is a fork of the guard and has one thread.
        match unsafe { sys::fork(None) } {
            Ok(Fork::Child) => run_command(order, &around, error),
            Ok(Fork::Parent(pid)) => Ok(pid),
            Err(error) => Err(error),
        }
    } else {
        // SAFETY: this process is a fork of the guard and has one thread. It does not depend on
        // anything that the child changes in its memory.
        unsafe { sys::vfork_on_own_stack(&mut || run_command(order, &around, error)) }
    };
    started.map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        Failed(StartStep::Fork, Errno::from_raw(errno))
    })
}

/// What the child does.
fn run_command(order: &StartRequest, around: &ChildContext<'_>, error: &OwnedFd) -> ! {
    child::announce(error);
    child::report(&child::become_command(order, around), error)
}

/// Closes what the guard had open: its socket and the output of the command must close when the
/// guard and the command end, not when this process does.
fn close_all_but(report: &OwnedFd) {
    let keep = report.as_raw_fd().unsigned_abs();
    let close = |first: u32, last: u32| {
        if first <= last {
            // SAFETY: plain integers. Nothing in this process uses the descriptors it inherited,
            // and nothing drops their owners, for it leaves by `_exit`.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    };
    close(3, keep - 1);
    close(keep + 1, u32::MAX);
}

/// What the reaper waits for.
struct Tree {
    guard: Pid,
    main: i32,
    report: OwnedFd,
    main_is: MainProcess,
}

/// How far the main process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MainProcess {
    Running,
    /// Its status was written; it must not be reaped until the guard has read it.
    Reported,
    /// The guard signals it no more.
    Confirmed,
}

impl Tree {
    fn outlive(mut self, signals: &SigSet) -> ! {
        loop {
            self.reap();
            match signals.wait() {
                Ok(Signal::SIGUSR2) => self.main_is = MainProcess::Confirmed,
                // The parent-death signal also comes from anybody who may send one.
                Ok(_) if getppid() == self.guard => {}
                _ => self.kill(),
            }
        }
    }

    /// Reaps what has ended; exits when nothing is left.
    fn reap(&mut self) {
        while let Some(pid) = next_zombie() {
            if pid == self.main && self.main_is != MainProcess::Confirmed {
                self.report_main();
                if self.main_is != MainProcess::Confirmed {
                    return;
                }
            }
            sys::reap(pid);
        }
    }

    fn report_main(&mut self) {
        if self.main_is == MainProcess::Reported {
            return;
        }
        let Some(status) = sys::peek_status(self.main) else {
            return;
        };
        // It always fits. A guard that has closed its end does not care any more.
        self.main_is = match nix::unistd::write(&self.report, &status.to_ne_bytes()) {
            Ok(_) => MainProcess::Reported,
            Err(_) => MainProcess::Confirmed,
        };
    }

    /// The guard is gone: kills the whole tree, then exits.
    fn kill(&mut self) -> ! {
        self.main_is = MainProcess::Confirmed;
        let start = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let mut tree = Vec::new();
            tree::descendants(std::process::id().cast_signed(), &mut tree);
            // What another user's program has become may not be ours to kill.
            let denied = |process: &Process| {
                let killed = process.signal(libc::SIGKILL);
                killed.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
            };
            let denied = tree.iter().filter(|process| denied(process)).count();
            self.reap();
            if (denied > 0 && denied == tree.len()) || start.elapsed() > PATIENCE {
                exit(1);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }
}

/// Returns a child that has ended, which stays unreaped. Exits when there are no children.
fn next_zombie() -> Option<i32> {
    match sys::peek_any() {
        Ok(zombie) => zombie,
        Err(_) => exit(0),
    }
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this process at once; destructors and exit handlers are the guard's business.
    unsafe { libc::_exit(code) }
}
