//! Starting the guard.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::client::{self, Processes};
use super::wire::{GuardReply, REPLY_MAX};
use super::{channel, event_loop};

/// How long a new guard may take to report that it is ready.
const START: Duration = Duration::from_secs(30);

/// The guard as a child of this process, not yet served.
#[derive(Debug)]
pub struct Guard {
    socket: OwnedFd,
    child: Child,
}

/// The session the guard and its jobs live in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Session {
    /// One of their own, with no terminal: for a daemon.
    #[default]
    Own,
    /// The caller's: for a command that is to have the caller's terminal ([`super::Stdio::Inherit`]).
    /// It then also has the caller's further open files, such as `/dev/fd/63`.
    Callers,
}

impl Session {
    pub(super) fn parse(name: &OsStr) -> Option<Self> {
        [Self::Own, Self::Callers]
            .into_iter()
            .find(|session| session.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Own => "own-session",
            Self::Callers => "callers-session",
        }
    }
}

/// How the guard is started.
#[derive(Debug, Clone, Default)]
pub struct GuardOptions {
    session: Session,
    program: Option<PathBuf>,
}

impl GuardOptions {
    /// The session of guard and jobs; [`Session::Own`] by default.
    #[must_use]
    pub fn session(mut self, session: Session) -> Self {
        self.session = session;
        self
    }

    /// The program that becomes the guard: this one by default. Its `main` must
    /// begin with [`super::guard_main`], as `cronlatch`'s does.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Starts the guard and waits until it is ready. This process becomes a sub-reaper, and may
    /// open as many files as its hard limit allows: two for each captured command.
    pub fn start(self) -> io::Result<Guard> {
        let (ours, theirs) = channel::pair()?;
        set_child_subreaper(true)?;
        let program = self.program.unwrap_or_else(|| "/proc/self/exe".into());
        let mut command = Command::new(program);
        command
            .arg0("cronlatch")
            .args([
                event_loop::ARGUMENT,
                &std::process::id().to_string(),
                self.session.name(),
            ])
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null());
        if self.session == Session::Callers {
            // Ctrl-C is for the caller's group, and the guard must see the end of its jobs. A
            // session of its own is the guard's to make: it must not lead a group before.
            command.process_group(0);
        }
        let mut child = command.spawn()?;
        // It holds the guard's end.
        drop(command);
        if let Err(error) = wait_until_ready(&ours) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
        Ok(Guard {
            socket: ours,
            child,
        })
    }
}

impl Guard {
    /// Starts the guard. Must be called while this process has a single thread.
    pub fn start() -> io::Result<Self> {
        GuardOptions::default().start()
    }

    /// The process id of the guard.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Serves the guard's messages on the current tokio runtime.
    pub fn serve(self) -> io::Result<Processes> {
        client::serve(self.socket, self.child)
    }
}

fn wait_until_ready(socket: &OwnedFd) -> io::Result<()> {
    let timeout = PollTimeout::try_from(START).unwrap_or(PollTimeout::MAX);
    let mut ready = [PollFd::new(
        std::os::fd::AsFd::as_fd(socket),
        PollFlags::POLLIN,
    )];
    while poll(&mut ready, timeout) == Err(nix::errno::Errno::EINTR) {}
    let mut packet = Vec::with_capacity(REPLY_MAX);
    channel::receive(socket, &mut packet)?;
    match GuardReply::read(&packet) {
        Some(GuardReply::Ready) => Ok(()),
        _ => Err(io::Error::other("the guard process ended as it started")),
    }
}
