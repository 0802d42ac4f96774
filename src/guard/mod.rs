//! The guard: a process that spawns the commands of jobs and kills their process trees in time.
//!
//! A small single-threaded child process, the guard, owns every job process: it spawns them, kills
//! them when their deadline passes, and kills them all when the daemon is gone. This module does not
//! know schedules and stores.
//!
//! # Guarantees
//!
//! - The guard does no name look-ups, no network, no logging, takes no locks and waits for no
//!   other process: a daemon that is stopped, starved or dead does not change the deadlines it has.
//! - Every spawn may carry an absolute deadline on `CLOCK_BOOTTIME`. The tree receives its first
//!   signal one grace before the deadline, and SIGKILL at the deadline. A deadline that has passed
//!   starts nothing and extends nothing.
//! - [`ProcessEvent::Exited`] comes when the main process has ended **and** nothing of its tree is left.
//!   What a main process leaves behind gets a tenth of a second to end by itself (the `tee` of a
//!   pipeline has its last lines to write), then the first signal, the grace, SIGKILL.
//! - Every run has a control group of its own (where systemd delegated one, `Delegate=yes`), or
//!   else a reaper: a small process between guard and command, the sub-reaper of this run alone.
//!   Either holds all that descends from the command, whatever that did to its session, its
//!   parent and its environment, and shows when nothing of it is left.
//! - What escaped both (a process moved to another control group, a command that killed its own
//!   reaper) becomes a child of the guard, itself a sub-reaper. Such a process belongs to the run
//!   that its environment names in `CRONLATCH_RUN_ID`, or in whose process group it is; else it
//!   ends as soon as no other run it can come from is left.
//! - If the daemon is gone (its socket closes, however it died), every tree is killed, with a grace of at
//!   most ten seconds and never beyond its deadline; then the guard exits. Processes that have left
//!   the daemon's delegated control group are killed at once, because systemd may kill the guard at
//!   any moment; `cronlatch sweep`, which the unit runs afterwards, kills those that are left.
//! - If the guard is gone, the kernel kills the main processes that are its children (parent-death
//!   signal), each reaper kills its tree, and the daemon, a sub-reaper itself, kills the rest and
//!   reports [`EndedBy::GuardGone`].
//!
//! # Input, output and the terminal
//!
//! With [`Stdio::Capture`] a command leads a process group of its own, reads an empty input and
//! has no terminal. With [`Stdio::Inherit`] under [`Session::Callers`] it behaves as under
//! `flock`: it stays in the caller's session and process group, so that it can read the terminal
//! and that Ctrl-C and Ctrl-Z reach caller and command alike. (While both are stopped nobody
//! renews the lease, so the guard, which is in a group of its own, ends the command at its
//! deadline.) Under [`Session::Own`] it can read the terminal but has no control over it.
//!
//! # Known limits
//!
//! - Guard, daemon and reapers killed together outside systemd: main processes die by their
//!   parent-death signal, descendants that survive their parents live on. (systemd ends the whole
//!   cgroup.)
//! - A program with the setuid bit forgets the parent-death signal, and an unprivileged daemon may
//!   not kill what has become another user: counted in [`Exit::survivors`], not waited for. A
//!   *main* process of that kind is waited for until it ends.
//! - A process in uninterruptible sleep (a dead file server) dies only when it wakes; until then
//!   its run has not ended.
//! - Under systemd, a process that left the control group of the unit, its session and its
//!   environment survives if systemd kills the guard before the guard has seen the daemon's death.
//! - A process that another service manager moves out of the tree (`systemd-run`, `at`, a
//!   container engine) was never a descendant.
//!
//! # Files
//!
//! In the daemon: `launch` starts the guard, `client` is what callers hold, and `service` is the task
//! that talks to the guard. `output` turns bytes into lines, `refusal` explains why a command was not
//! started, `orphans` kills what a dead guard left and `sweep` what a dead unit left.
//!
//! In the guard: `event_loop`, with `event_loop::reaper` for the reapers.
//!
//! In both: `wire` is the protocol between them and `channel` the socket; `tree` and `cgroup` find
//! processes, `tasks` finds how many may exist, and `sys` wraps system calls.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::sync::mpsc;

use crate::names::RunId;
use crate::time::BootInstant;

mod cgroup;
mod channel;
mod client;
mod event_loop;
mod launch;
mod orphans;
mod output;
mod programs;
mod refusal;
mod service;
mod sweep;
mod sys;
mod tasks;
mod tree;
mod wire;

pub(crate) use cgroup::{NoCgroup, delegated};
pub use launch::{Guard, GuardOptions, Session};
pub use output::{CUT_MARK, LINE_MAX};
pub(crate) use programs::Program;
pub(crate) use sweep::{INVOCATION, INVOCATION_OF_RUN, Swept, sweep};
pub(crate) use tasks::{TaskLimit, task_limit};

/// The way to job processes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Processes {
    shared: Arc<client::ClientState>,
}

/// Moves the deadlines of running processes; synchronous, for use outside the runtime.
#[derive(Debug, Clone)]
pub struct Deadlines {
    socket: Arc<OwnedFd>,
}

/// A command to start.
#[derive(Debug, Clone)]
pub struct Spawn {
    /// The run it belongs to.
    pub run: RunId,
    /// Program and arguments; the program is looked up in the `PATH` of `env` as a shell does.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// Where it runs; `None`: where the daemon does.
    pub working_dir: Option<PathBuf>,
    /// Whom it runs as; `None`: as the daemon.
    pub user: Option<Credentials>,
    /// The file mode mask.
    pub umask: Option<u32>,
    /// The nice value.
    pub nice: Option<i32>,
    /// When SIGKILL of the whole tree must be sent at the latest, unless extended; `None` for
    /// `on_lost: continue` and for runs without a lease.
    pub deadline: Option<BootInstant>,
    /// The first signal at a deadline or an end, and the time until SIGKILL.
    pub signal: Signal,
    /// See `signal`.
    pub grace: Duration,
    /// Where input and output go.
    pub stdio: Stdio,
}

/// Whom a process runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user id.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// All supplementary groups.
    pub groups: Vec<u32>,
}

/// Where a process's input and output go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    /// Input is empty; output comes as [`ProcessEvent::Line`].
    Capture,
    /// All three are the daemon's own (`exec`).
    Inherit,
}

/// Receives the bytes that a command writes, as they are, before they are split into lines.
pub trait OutputSink: std::fmt::Debug + Send + Sync {
    /// The command wrote this. Must not wait: the command's pipe is not read meanwhile.
    fn take(&self, stream: Stream, bytes: &[u8]);
}

/// A running command.
#[derive(Debug)]
pub struct Running {
    /// Its process id.
    pub pid: i32,
    /// Lines as they come, then [`ProcessEvent::Exited`] as the last one, once the whole tree is dead.
    pub events: mpsc::Receiver<ProcessEvent>,
    serial: u64,
    stdio: Stdio,
    commands: mpsc::UnboundedSender<service::TaskCommand>,
}

/// What a running command does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEvent {
    /// A line of output, without its line end; invalid UTF-8 replaced, over-long lines cut.
    Line {
        /// Which stream.
        stream: Stream,
        /// The text.
        text: String,
    },
    /// The main process ended and nothing of its tree is left.
    Exited(Exit),
}

/// Standard output or standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// What the main process left.
    pub status: Status,
    /// Who ended it.
    pub ended_by: EndedBy,
    /// How many processes it left behind, ended with it.
    pub left_behind: usize,
    /// How many processes of it we were not permitted to end, such as those of a setuid program
    /// under an unprivileged daemon; they may still run.
    pub survivors: usize,
}

/// What a process left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It exited.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// Not known: the guard went away.
    Unknown,
}

impl Status {
    /// The status that `wait` returned.
    fn from_wait(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            Self::Code(libc::WEXITSTATUS(status))
        }
    }
}

/// Who ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// Itself.
    Itself,
    /// Its deadline.
    Deadline,
    /// [`Running::end`].
    Request,
    /// The guard went away.
    GuardGone,
}

/// Why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The command cannot be started: the step that failed, and why.
    #[error("cannot {step}: {source}")]
    CannotStart {
        /// What was tried: `run "PROGRAM"`, `change to directory "DIR"`, `become user 1000`, …
        step: String,
        /// Why it failed; `NotFound` and `PermissionDenied` of the program itself are what a
        /// shell calls 127 and 126.
        source: io::Error,
    },
    /// The deadline had passed before the guard came to it.
    #[error("the lease expired before the command could start")]
    TooLate,
    /// This host lacks what any command needs. The command was not started.
    #[error("cannot {step}: {source}")]
    NoResources {
        /// What was tried.
        step: String,
        /// What is lacking.
        lack: Lack,
        /// The error of the system call.
        source: io::Error,
    },
    /// The guard is gone. The command was not started.
    #[error("the guard process has died")]
    GuardGone,
    /// The guard died after it was asked and before it reported a start.
    #[error("the guard process died before it reported whether the command started")]
    NoReport,
}

/// What a host can run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Open files of this process.
    Files,
    /// Open files of the whole machine.
    FilesOfMachine,
    /// Processes or threads.
    Processes,
    /// Memory.
    Memory,
}

impl Lack {
    /// Returns what an error of a system call says is lacking; `None` for any other error.
    pub fn of(error: &io::Error) -> Option<Self> {
        match error.raw_os_error()? {
            libc::EMFILE | libc::ETOOMANYREFS => Some(Self::Files),
            libc::ENFILE => Some(Self::FilesOfMachine),
            libc::EAGAIN => Some(Self::Processes),
            libc::ENOMEM | libc::ENOBUFS => Some(Self::Memory),
            _ => None,
        }
    }

    /// Returns what the operator can raise.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Files => "raise LimitNOFILE= of the unit (`ulimit -n`)",
            Self::FilesOfMachine => "raise the sysctl fs.file-max",
            Self::Processes => {
                "raise TasksMax= and LimitNPROC= of the unit (`ulimit -u`), or the sysctl \
                 kernel.pid_max"
            }
            Self::Memory => "free memory on this host, or raise MemoryMax= of the unit",
        }
    }
}

impl std::fmt::Display for Lack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Files => "open files",
            Self::FilesOfMachine => "open files (the whole machine)",
            Self::Processes => "processes",
            Self::Memory => "memory",
        })
    }
}

/// Acts as the guard when this process was started as one; `None` when it was not.
///
/// Must be called first thing in `main`, before there are threads.
pub fn guard_main() -> Option<std::process::ExitCode> {
    event_loop::main()
}
