//! A command to start, and what its process does: what the guard, its client and their
//! callers share.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::names::RunId;
use crate::time::BootInstant;

/// A command to start.
#[derive(Debug, Clone)]
pub struct Spawn {
    /// The run it belongs to.
    pub run: RunId,
    /// Program and arguments; the program is looked up in the `PATH` of its environment as a shell does.
    pub argv: Vec<OsString>,
    /// The variables that it has in common with other commands.
    pub inherited: Arc<BTreeMap<OsString, OsString>>,
    /// Its own variables. They override inherited ones of the same name.
    pub env: BTreeMap<OsString, OsString>,
    /// Where it runs; `None`: where the daemon does.
    pub working_dir: Option<PathBuf>,
    /// Whom it runs as; `None`: as the daemon.
    pub user: Option<Credentials>,
    /// The file mode mask.
    pub umask: Option<u32>,
    /// The nice value.
    pub nice: Option<i32>,
    /// The command is not executed before this instant: its process is prepared, and waits; `None`: at
    /// once.
    pub start: Option<BootInstant>,
    /// The command is not executed at this instant or later. A command that has begun continues. `None`: no limit but
    /// the deadline.
    pub start_until: Option<BootInstant>,
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

impl Spawn {
    /// The variables of its environment.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let inherited = self.inherited.iter();
        let inherited = inherited.filter(|(name, _)| !self.env.contains_key(*name));
        let variables = inherited.chain(&self.env);
        variables.map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
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

/// What processes have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// User and system time.
    pub cpu: Duration,
    /// In bytes: of a control group all memory that it had at once, otherwise the largest resident set of
    /// one process. A process begins as a copy of the guard, so this is never less than the few MB of
    /// the guard.
    pub peak_memory: u64,
}

impl Usage {
    /// The usage of one and then the other.
    #[must_use]
    pub fn and(self, next: Self) -> Self {
        Self {
            cpu: self.cpu + next.cpu,
            peak_memory: self.peak_memory.max(next.peak_memory),
        }
    }
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
    /// What its whole tree has used; `None` if that is not known.
    pub usage: Option<Usage>,
    /// When nothing of it was left, as the guard saw it. Its report may arrive much later, if the daemon was
    /// stopped meanwhile.
    pub at: BootInstant,
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
    pub(super) fn from_wait(status: i32) -> Self {
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
    /// [`super::Running::end`].
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
    /// The deadline or `start_until` had passed before the command began. The command was not started.
    #[error("the lease was lost before the command could start")]
    TooLate,
    /// Somebody killed its process while it was prepared, or waited for its instant: a person, or the kernel that
    /// was short of memory. The command was not started.
    #[error("its process was killed before the command began")]
    Killed,
    /// It was withdrawn before the command began. The command was not started.
    #[error("it was withdrawn before the command began")]
    Withdrawn,
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
    /// The guard is gone, or was before the command's instant. The command was not started.
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
