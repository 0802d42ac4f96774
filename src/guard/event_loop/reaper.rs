//! The reaper: a small process between the guard and one command at a time.
//!
//! It is the nearest sub-reaper above the command, so every descendant whose parent ends becomes
//! its child, whatever that descendant did to its session, its group and its environment. The
//! kernel thereby keeps the trees of two runs apart, and a reaper without children proves that
//! nothing of its tree is left. Runs with a control group need none.
//!
//! It is a fork of the guard that executes nothing, so it shares the guard's memory. It decides
//! nothing either: deadlines and signals stay with the guard. Only when the guard has died does
//! it act by itself, and kills its tree.
//!
//! It serves one run at a time. When nothing is left of that run, it is free for another one
//! ([`super::reapers`]), and ends when the guard closes its socket.
//!
//! Until the command is executed, it shares the reaper's memory (unless it runs as another user), and
//! the reaper waits that long. A command that waits for the instant of its start looks for the guard
//! before it starts. A guard that dies after that leaves the command running for the instant until its
//! reaper wakes and kills it.
//!
//! An order reaches the reaper as the packet that the daemon has sent, with a byte behind it that says
//! whether the command joins its caller's process group, and with the same files and the permit. What
//! becomes of the command follows on the same socket ([`ReaperMessage`]). The reaper reports the wait
//! status of the main process and leaves that process unreaped, so that its number and its group stay
//! its own. The guard replies with [`SEEN`] once it will signal neither any more.

use std::cell::Cell;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::{set_child_subreaper, set_name, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpid, getppid, setpgid};

use super::child::{self, ChildContext, ChildMessage, Failed, Permit};
use super::slots::Slots;
use super::{Dispositions, FIRST_PAUSE, LAST_PAUSE};
use crate::guard::sys::{self, Fork, InheritedSettings, SettingsReader, VforkStack};
use crate::guard::tree::{self, Process};
use crate::guard::wire::{self, CommandRequest, GuardRequest, PACKET_MAX, StartRequest, StartStep};
use crate::guard::{Session, Usage, channel};

/// What the guard sends when it has read the status of the main process.
pub(super) const SEEN: i32 = libc::SIGUSR2;

/// What the kernel sends when the guard has died.
const GUARD_DIED: Signal = Signal::SIGUSR1;

/// How long a reaper without a guard tries to kill what resists SIGKILL (uninterruptible sleep).
const PATIENCE: Duration = Duration::from_secs(60);

/// The reaper of a run, as the guard knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reaper {
    pub(super) pid: i32,
}

impl Reaper {
    /// Lets the reaper reap the main process.
    pub(super) fn confirm(self) {
        self.signal(SEEN);
    }

    /// Continues a reaper that was stopped; no effect on any other.
    pub(super) fn go_on(self) {
        self.signal(libc::SIGCONT);
    }

    /// Ends a reaper that does nothing, and all that descends from it.
    pub(super) fn kill(self) {
        self.signal(libc::SIGKILL);
    }

    fn signal(self, signal: i32) {
        // SAFETY: plain integers; the reaper is a child of the guard that was not reaped.
        unsafe { libc::kill(self.pid, signal) };
    }
}

/// What a reaper, or the child on its way to the command, tells the guard about the run that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReaperMessage {
    /// It shares the guard's table of open files no more ([`super::slots`]).
    HasOwnFiles,
    /// How far the start has come.
    Start(ChildMessage),
    /// The main process has ended with this wait status.
    Ended(i32),
    /// Nothing is left of the run.
    NothingLeft {
        /// What all of its processes have used.
        usage: Usage,
        /// Whether the reaper is as it was before, and may serve another run.
        reusable: bool,
    },
}

/// The first byte of a message; [`child::next_message`] has the other ones.
const BEGAN: u8 = 64;
const ENDED: u8 = 65;
const NOTHING_LEFT: u8 = 66;
const HAS_OWN_FILES: u8 = 67;

/// The longest message.
const MESSAGE_MAX: usize = 18;

impl ReaperMessage {
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let (code, value) = message.split_first()?;
        Some(match *code {
            HAS_OWN_FILES => Self::HasOwnFiles,
            BEGAN => Self::Start(ChildMessage::Closed),
            ENDED => Self::Ended(i32::from_ne_bytes(value.try_into().ok()?)),
            NOTHING_LEFT => {
                let (reusable, value) = value.split_first()?;
                let (cpu, memory) = value.split_at_checked(8)?;
                let cpu = u64::from_ne_bytes(cpu.try_into().ok()?);
                Self::NothingLeft {
                    usage: Usage {
                        cpu: Duration::from_micros(cpu),
                        peak_memory: u64::from_ne_bytes(memory.try_into().ok()?),
                    },
                    reusable: *reusable == 1,
                }
            }
            _ => Self::Start(ChildMessage::read(message)?),
        })
    }

    /// Receives a message without waiting; `None` if there is none, and an error once the reaper is gone.
    pub(super) fn receive(socket: &OwnedFd) -> nix::Result<Option<Self>> {
        use nix::sys::socket::{MsgFlags, recv};
        let mut message = [0_u8; MESSAGE_MAX];
        loop {
            match recv(socket.as_raw_fd(), &mut message, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(Errno::EPIPE),
                Ok(len) => return Ok(Self::read(&message[..len])),
                // It has ended with an order unread; what it had sent before is there.
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                // There is none, or no memory for it.
                Err(_) => return Ok(None),
            }
        }
    }
}

/// What a reaper inherits from the guard.
pub(super) struct Inheritance<'a> {
    pub(super) guard: Pid,
    pub(super) session: Session,
    /// The guard's end of the daemon's socket.
    pub(super) daemon: &'a OwnedFd,
    /// The guard as a descriptor.
    pub(super) guard_itself: Option<&'a OwnedFd>,
    pub(super) dispositions: &'a Dispositions,
    /// The limit of open files the daemon was started with.
    pub(super) files: (u64, u64),
    /// The settings of the guard. A reaper that has others serves no further run; `None`: none does.
    pub(super) settings: Option<&'a InheritedSettings>,
}

/// What a reaper needs memory for. The guard has it allocated and leaves it untouched, because a reaper that
/// allocates that much has the kernel copy page after page in which the allocator keeps its lists.
#[derive(Debug)]
pub(super) struct ReaperMemory {
    /// An order, and the byte behind it.
    packet: Vec<u8>,
    stack: VforkStack,
}

impl ReaperMemory {
    pub(super) fn new() -> Self {
        Self {
            packet: Vec::with_capacity(PACKET_MAX + 1),
            stack: VforkStack::new(),
        }
    }
}

/// Becomes a reaper: serves one run after another until the guard closes the socket.
pub(super) fn become_reaper(
    from: &Inheritance<'_>,
    memory: &mut ReaperMemory,
    socket: &OwnedFd,
) -> ! {
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
    match from.session {
        Session::Own => close_all_but(socket, from.guard_itself),
        // The command has what its caller left open.
        Session::Callers => close(from.daemon),
    }
    let signals = match set_up() {
        Ok(signals) if getppid() == from.guard => signals,
        _ => exit(1),
    };
    let ReaperMemory { packet, stack } = memory;
    let mut reader = None;
    while let Some(order) = ReceivedSpawn::receive(socket, packet) {
        sys::forget_pending(&signals);
        if getppid() != from.guard {
            exit(1);
        }
        let started = order.start(from, socket, stack);
        let is_sound = started
            .as_ref()
            .map_or(true, |child| child.left_memory_sound);
        if is_sound {
            drop(order);
            // What was longer than a packet is not kept for the next one.
            packet.clear();
            packet.shrink_to(PACKET_MAX + 1);
        } else {
            // Only its files are given back. To free memory might end this process.
            std::mem::forget(order);
        }
        if from.session == Session::Callers || !is_sound {
            close_all_but(socket, from.guard_itself);
        }
        let usage = match started {
            Ok(child) => {
                let tree = Tree {
                    guard: from.guard,
                    main: child.pid,
                    socket,
                    main_is: MainProcess::Running,
                    usage: Usage::default(),
                };
                tree.outlive(&signals)
            }
            Err(failed) => {
                child::note_failure(&failed, socket);
                Usage::default()
            }
        };
        let is_unchanged = |settings: &InheritedSettings| {
            let reader = reader.get_or_insert_with(SettingsReader::new);
            reader.read() == *settings
        };
        let reusable = is_sound && from.settings.is_some_and(is_unchanged);
        tell_nothing_left(socket, usage, reusable);
        if !reusable {
            break;
        }
    }
    exit(0)
}

/// Becomes a reaper in a process that shares the guard's table of open files.
pub(super) fn leave_files_and_become_reaper(
    from: &Inheritance<'_>,
    memory: &mut ReaperMemory,
    (slots, slot): (&Slots, usize),
) -> ! {
    let socket = slots.socket(slot);
    if let Err(errno) = slots.leave_shared_files() {
        child::note_failure(&Failed(StartStep::Fork, errno), socket);
        tell_nothing_left(socket, Usage::default(), false);
        exit(1);
    }
    tell(socket, &[HAS_OWN_FILES]);
    become_reaper(from, memory, socket)
}

/// Tells the guard what happened. It always fits.
fn tell(socket: &OwnedFd, message: &[u8]) -> bool {
    use std::os::fd::AsFd as _;
    channel::send(socket.as_fd(), message, &[]).is_ok()
}

fn tell_nothing_left(socket: &OwnedFd, usage: Usage, reusable: bool) {
    let mut message = [0_u8; MESSAGE_MAX];
    message[0] = NOTHING_LEFT;
    message[1] = u8::from(reusable);
    let cpu = u64::try_from(usage.cpu.as_micros()).unwrap_or(u64::MAX);
    message[2..10].copy_from_slice(&cpu.to_ne_bytes());
    message[10..].copy_from_slice(&usage.peak_memory.to_ne_bytes());
    tell(socket, &message);
}

/// A child, as soon as it shares no memory with the reaper any more.
struct ForkedChild {
    pid: i32,
    /// It has reported that it failed.
    has_failed: bool,
    /// It was not killed while it may have changed the memory of the reaper.
    left_memory_sound: bool,
}

/// A command to start, as the guard has passed it on.
struct ReceivedSpawn<'a> {
    request: StartRequest<'a>,
    /// `None`: it cannot be read.
    command: Option<CommandRequest<'a>>,
    /// Input, output, error output.
    stdio: Vec<OwnedFd>,
    permit: Option<Permit>,
    /// Whether the command joins the process group of its caller.
    joins: bool,
}

impl<'a> ReceivedSpawn<'a> {
    /// Waits for the next order; `None` if the guard needs this reaper no more, or is gone.
    fn receive(socket: &OwnedFd, packet: &'a mut Vec<u8>) -> Option<Self> {
        packet.clear();
        packet.reserve(PACKET_MAX + 1);
        let mut stdio = channel::receive_waiting(socket, packet).ok()?;
        let joins = packet.pop()? == 1;
        let mut rest = stdio.split_off(stdio.len().min(3)).into_iter();
        if let GuardRequest::SpawnInFile(_) = GuardRequest::read(packet)? {
            *packet = wire::read_file(rest.next()?).ok()?;
        }
        let GuardRequest::Spawn(request) = GuardRequest::read(packet)? else {
            return None;
        };
        let permit = rest.next().map(Permit::from);
        Some(Self {
            command: request.command(),
            request,
            stdio,
            permit,
            joins,
        })
    }

    /// Starts the command and waits until its process has become it, or has failed to.
    fn start(
        &self,
        from: &Inheritance<'_>,
        socket: &OwnedFd,
        stack: &mut VforkStack,
    ) -> Result<ForkedChild, Failed> {
        // What this process had no room for is missing.
        if self.stdio.len() < 3 || self.permit.is_some() != self.request.start.is_some() {
            return Err(Failed(StartStep::Receive, Errno::EMFILE));
        }
        let command = self.command.as_ref();
        let command = command.ok_or(Failed(StartStep::Receive, Errno::EBADMSG))?;
        let group = self.request.join.filter(|_| self.joins);
        let executes = Cell::new(false);
        let around = ChildContext {
            parent: getpid(),
            guard: from.guard_itself,
            permit: self.permit.as_ref(),
            stdio: &self.stdio,
            group: Pid::from_raw(group.unwrap_or(0)),
            dispositions: from.dispositions,
            files: from.files,
            executes: &executes,
        };
        let started = if command.user.is_some() {
            self.fork(command, &around, socket)
        } else {
            self.vfork(command, (&around, socket), stack)
        };
        let child = started.map_err(|error| Failed::from_io(StartStep::Fork, &error))?;
        if !child.has_failed {
            tell(socket, &[BEGAN]);
        }
        Ok(child)
    }

    fn vfork(
        &self,
        command: &CommandRequest<'_>,
        (around, socket): (&ChildContext<'_>, &OwnedFd),
        stack: &mut VforkStack,
    ) -> std::io::Result<ForkedChild> {
        let has_failed = Cell::new(false);
        let mut body = || {
            child::announce(socket);
            let failed = child::become_command(&self.request, command, around);
            // First, because a child that is killed in between must not be taken for one that has reported.
            child::note_failure(&failed, socket);
            has_failed.set(true);
            exit(127)
        };
        // SAFETY: this process is a fork of the guard and has one thread. The child changes nothing in
        // its memory but `has_failed`, `executes` and the heap. Of the heap it leaves some allocated,
        // and a reaper serves a limited number of runs. Whoever kills the child may leave the heap half
        // changed. This process then uses it no more, unless it has to kill the tree of a dead guard.
        let pid = unsafe { sys::vfork_on(stack, &mut body) }?;
        Ok(ForkedChild {
            pid,
            has_failed: has_failed.get(),
            left_memory_sound: has_failed.get() || around.executes.get(),
        })
    }

    /// The same. What becomes another user must not share the memory of this process, not even for an
    /// instant.
    fn fork(
        &self,
        command: &CommandRequest<'_>,
        around: &ChildContext<'_>,
        socket: &OwnedFd,
    ) -> std::io::Result<ForkedChild> {
        let (reading, writing) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        // SAFETY: this process is a fork of the guard and has one thread.
        match unsafe { sys::fork(None) }? {
            Fork::Child => {
                child::announce(socket);
                let failed = child::become_command(&self.request, command, around);
                child::note_failure(&failed, socket);
                child::report(&failed, &writing)
            }
            Fork::Parent(pid) => {
                // The child does the same; whichever is first, a signal to the group finds it.
                let _ = setpgid(Pid::from_raw(pid), around.group_of(pid));
                drop(writing);
                Ok(ForkedChild {
                    pid,
                    has_failed: sys::read_waiting(&reading, &mut [0]) > 0,
                    left_memory_sound: true,
                })
            }
        }
    }
}

/// Closes what the guard had open: its socket and those of other reapers must close when the guard
/// closes them, not when this process ends.
fn close_all_but(socket: &OwnedFd, guard: Option<&OwnedFd>) {
    let number = |fd: &OwnedFd| fd.as_raw_fd().unsigned_abs();
    let mut keep = [number(socket), guard.map_or(0, number)];
    keep.sort_unstable();
    let mut first = 3;
    for kept in keep.into_iter().filter(|kept| *kept >= 3) {
        close_range(first, kept - 1);
        first = kept + 1;
    }
    close_range(first, u32::MAX);
}

fn close(fd: &OwnedFd) {
    let number = fd.as_raw_fd().unsigned_abs();
    close_range(number, number);
}

fn close_range(first: u32, last: u32) {
    if first <= last {
        // SAFETY: plain integers. Nothing in this process uses the descriptors it inherited, and
        // nothing drops their owners, for it leaves by `_exit`.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// What the reaper waits for.
struct Tree<'a> {
    guard: Pid,
    main: i32,
    socket: &'a OwnedFd,
    main_is: MainProcess,
    /// What the processes have used that were reaped.
    usage: Usage,
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

impl Tree<'_> {
    /// Waits until nothing is left. Returns what all processes have used.
    fn outlive(mut self, signals: &SigSet) -> Usage {
        while self.reap() {
            match signals.wait() {
                // Anybody may send one, and the main process must be reported before it is reaped.
                Ok(Signal::SIGUSR2) => {
                    if self.main_is == MainProcess::Reported {
                        self.main_is = MainProcess::Confirmed;
                    }
                }
                // The parent-death signal also comes from anybody who may send one.
                Ok(_) if getppid() == self.guard => {}
                _ => self.kill(),
            }
        }
        self.usage
    }

    /// Reaps what has ended; says whether anything is left.
    fn reap(&mut self) -> bool {
        loop {
            let Ok(zombie) = sys::peek_any() else {
                return false;
            };
            let Some(pid) = zombie else {
                return true;
            };
            if pid == self.main && self.main_is != MainProcess::Confirmed {
                self.report_main();
                if self.main_is != MainProcess::Confirmed {
                    return true;
                }
            }
            if let Some(reaped) = sys::reap(pid) {
                self.usage.cpu += reaped.usage.cpu;
                self.usage.peak_memory = self.usage.peak_memory.max(reaped.usage.peak_memory);
            }
        }
    }

    fn report_main(&mut self) {
        if self.main_is == MainProcess::Reported {
            return;
        }
        let Some(status) = sys::peek_status(self.main) else {
            return;
        };
        let [a, b, c, d] = status.to_ne_bytes();
        // A guard that has closed its end does not care any more.
        self.main_is = if tell(self.socket, &[ENDED, a, b, c, d]) {
            MainProcess::Reported
        } else {
            MainProcess::Confirmed
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
            if !self.reap() {
                exit(0);
            }
            if (denied > 0 && denied == tree.len()) || start.elapsed() > PATIENCE {
                exit(1);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this process at once; destructors and exit handlers are the guard's business.
    unsafe { libc::_exit(code) }
}
