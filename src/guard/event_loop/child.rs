//! Between fork and exec: the new process turns itself into the command.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{
    Gid, Pid, Uid, chdir, getegid, geteuid, getppid, setgid, setgroups, setpgid, setuid,
};

use super::Dispositions;
use crate::guard::sys;
use crate::guard::wire::{CommandRequest, StartRequest, StartStep};
use crate::time::BootInstant;

/// What the child needs in addition to its order.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChildContext<'a> {
    /// The process that forks it, and with which it dies: the guard, or the run's reaper.
    pub(super) parent: Pid,
    /// The guard, which must be alive when the command starts.
    pub(super) guard: Option<&'a OwnedFd>,
    /// What the child must take before it begins, if it waits for an instant.
    pub(super) permit: Option<&'a Permit>,
    /// Input, output, error output.
    pub(super) stdio: &'a [OwnedFd],
    /// The group to join; 0 makes one of its own.
    pub(super) group: Pid,
    pub(super) dispositions: &'a Dispositions,
    /// The limit of open files the daemon was started with.
    pub(super) files: (u64, u64),
    /// Set while the process is in `execve`, where it changes nothing in memory that it may share.
    pub(super) executes: &'a Cell<bool>,
}

impl ChildContext<'_> {
    /// The process group of the command whose process id is this.
    pub(super) fn group_of(&self, pid: i32) -> Pid {
        match self.group.as_raw() {
            0 => Pid::from_raw(pid),
            _ => self.group,
        }
    }
}

/// The permission to begin, of a command that waits for its instant. Only one side gets it: the child, which
/// then executes the command, or the guard, after which the command never begins.
#[derive(Debug)]
pub(super) struct Permit(EventFd);

impl Permit {
    pub(super) fn new() -> nix::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        EventFd::from_value_and_flags(1, flags).map(Self)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes the permission. Returns whether the other side had not.
    pub(super) fn take(&self) -> bool {
        self.0.read().is_ok()
    }
}

impl From<OwnedFd> for Permit {
    fn from(fd: OwnedFd) -> Self {
        // SAFETY: the guard has sent the descriptor of its permit, and nothing else owns this copy.
        Self(unsafe { EventFd::from_owned_fd(fd) })
    }
}

/// The step that failed, and why.
pub(super) struct Failed(pub(super) StartStep, pub(super) Errno);

impl Failed {
    /// The failure of a step with this error.
    pub(super) fn from_io(step: StartStep, error: &io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        Self(step, Errno::from_raw(errno))
    }
}

/// Becomes the command. Comes back only if that fails.
pub(super) fn become_command(
    order: &StartRequest<'_>,
    command: &CommandRequest<'_>,
    around: &ChildContext<'_>,
) -> Failed {
    let prepared = prepare(command, around).and_then(|()| await_start(order, around));
    match prepared {
        Err(failed) => failed,
        Ok(()) => Failed(StartStep::Run, execute(command, around.executes)),
    }
}

/// Sleeps until the command may start. In the meantime its lease may have ended, with a machine that was
/// suspended, the guard may have died, which a child of a reaper would outlive, or the guard may have
/// withdrawn the command.
fn await_start(order: &StartRequest<'_>, around: &ChildContext<'_>) -> Result<(), Failed> {
    if let Some(start) = order.start.filter(|start| *start > BootInstant::now()) {
        sys::sleep_until(start);
    }
    if order.is_late() {
        return Err(Failed(StartStep::Wait, Errno::ETIMEDOUT));
    }
    let Some(permit) = around.permit else {
        return Ok(());
    };
    if (around.guard).is_some_and(|guard| sys::pidfd_has_ended(guard.as_fd())) {
        return Err(Failed(StartStep::Parent, Errno::ESRCH));
    }
    // Last, because from here on the guard takes the command for started.
    if !permit.take() {
        return Err(Failed(StartStep::Wait, Errno::ECANCELED));
    }
    Ok(())
}

fn prepare(command: &CommandRequest<'_>, around: &ChildContext<'_>) -> Result<(), Failed> {
    let step = |step| move |errno| Failed(step, errno);
    die_with(around.parent).map_err(step(StartStep::Parent))?;
    setpgid(Pid::from_raw(0), around.group).map_err(step(StartStep::Group))?;
    for signal in &around.dispositions.default {
        sys::set_disposition(*signal, libc::SIG_DFL);
    }
    for signal in &around.dispositions.ignored {
        sys::set_disposition(*signal, libc::SIG_IGN);
    }
    for (fd, target) in around.stdio.iter().zip(0..) {
        // SAFETY: dup2 on numbers only; nothing in this process owns 0, 1 and 2 any more.
        if unsafe { libc::dup2(fd.as_raw_fd(), target) } < 0 {
            return Err(Failed(StartStep::Stdio, Errno::last()));
        }
    }
    if let Some(nice) = command.nice {
        // SAFETY: plain integers. nix has no call for it.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } < 0 {
            return Err(Failed(StartStep::Nice, Errno::last()));
        }
    }
    // What the guard raised for itself; a program that uses select() breaks with more.
    let (soft, hard) = around.files;
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
    become_user(command)?;
    // The kernel forgets the parent-death signal when the user changes.
    die_with(around.parent).map_err(step(StartStep::Parent))?;
    if let Some(mask) = command.umask {
        umask(Mode::from_bits_truncate(mask));
    }
    if let Some(dir) = command.dir {
        chdir(dir).map_err(step(StartStep::Dir))?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
        .map_err(step(StartStep::Parent))
}

/// SIGKILL when the parent dies; it may have died just before.
fn die_with(parent: Pid) -> Result<(), Errno> {
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid() == parent {
        Ok(())
    } else {
        Err(Errno::ESRCH)
    }
}

fn become_user(command: &CommandRequest<'_>) -> Result<(), Failed> {
    let Some(user) = &command.user else {
        return Ok(());
    };
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    // An unprivileged daemon that is this user already may not set its groups, nor need it.
    if !geteuid().is_root() && geteuid() == uid && getegid() == gid {
        return Ok(());
    }
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).map_err(|errno| Failed(StartStep::Groups, errno))?;
    setgid(gid).map_err(|errno| Failed(StartStep::Gid, errno))?;
    setuid(uid).map_err(|errno| Failed(StartStep::Uid, errno))
}

/// Finds the program as a shell does and runs it; comes back only with the reason it could not.
fn execute(command: &CommandRequest<'_>, executes: &Cell<bool>) -> Errno {
    let (argv, env) = (&command.argv, &command.env);
    let Some(program) = argv.first().filter(|program| !program.is_empty()) else {
        return Errno::ENOENT;
    };
    if program.to_bytes().contains(&b'/') {
        return execute_at(program, argv, env, executes);
    }
    let path = env
        .iter()
        .find_map(|entry| entry.to_bytes().strip_prefix(b"PATH="))
        .unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
    let mut denied = false;
    for dir in path.split(|byte| *byte == b':') {
        let dir = if dir.is_empty() { b"." } else { dir };
        let Ok(candidate) = CString::new([dir, b"/", program.to_bytes()].concat()) else {
            continue;
        };
        match execute_at(&candidate, argv, env, executes) {
            Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG => {}
            // A directory of the program's name is passed over; a file without the right to
            // run it is remembered while a later one may do.
            Errno::EACCES => denied |= !is_dir(&candidate),
            errno => return errno,
        }
    }
    if denied { Errno::EACCES } else { Errno::ENOENT }
}

fn is_dir(path: &CStr) -> bool {
    std::path::Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())).is_dir()
}

fn execute_at(path: &CStr, argv: &[&CStr], env: &[&CStr], executes: &Cell<bool>) -> Errno {
    let errno = execve(path, argv, env, executes);
    if errno != Errno::ENOEXEC {
        return errno;
    }
    // A script without `#!` is run by the shell (POSIX, execvp).
    let mut shell = vec![c"/bin/sh", path];
    shell.extend(argv.iter().skip(1));
    execve(c"/bin/sh", &shell, env, executes)
}

/// The `execve` of nix allocates memory first, where a process that is killed may leave it half changed.
fn execve(path: &CStr, argv: &[&CStr], env: &[&CStr], executes: &Cell<bool>) -> Errno {
    let (argv, env) = (pointers(argv), pointers(env));
    executes.set(true);
    // SAFETY: both lists end in a null pointer, and all texts live until the call comes back.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    let errno = Errno::last();
    executes.set(false);
    errno
}

/// Pointers to texts, with a null pointer behind them.
fn pointers(texts: &[&CStr]) -> Vec<*const c_char> {
    let texts = texts.iter().map(|text| text.as_ptr());
    texts.chain([std::ptr::null()]).collect()
}

/// The first byte of a message that carries the child's process id; no [`StartStep`] has this number.
const ANNOUNCE: u8 = 0;

impl ChildMessage {
    /// Reads a message; `None` if it is not one of ours.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let (code, value) = message.split_first()?;
        let value = i32::from_ne_bytes(value.try_into().ok()?);
        Some(match *code {
            ANNOUNCE => Self::Pid(value),
            code => Self::Failed(StartStep::from_code(code).unwrap_or(StartStep::Fork), value),
        })
    }
}

/// What the child reports through the error pipe or through the socket of its reaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildMessage {
    /// The child's process id; comes first, and only from a child of a reaper.
    Pid(i32),
    /// This step failed with this error number; the child exits.
    Failed(StartStep, i32),
    /// The command runs, or the child was killed on its way.
    Closed,
}

/// Writes the calling process's id to the socket of its reaper.
pub(super) fn announce(socket: &OwnedFd) {
    write(socket, ANNOUNCE, std::process::id().cast_signed());
}

/// Writes what failed to the error pipe, or to the socket of the reaper.
pub(super) fn note_failure(failed: &Failed, pipe: &OwnedFd) {
    write(pipe, failed.0 as u8, failed.1 as i32);
}

/// The same, and ends.
pub(super) fn report(failed: &Failed, pipe: &OwnedFd) -> ! {
    note_failure(failed, pipe);
    // SAFETY: ends this process at once; destructors and exit handlers are the guard's business.
    unsafe { libc::_exit(127) }
}

fn write(pipe: &OwnedFd, code: u8, value: i32) {
    let mut message = [0_u8; 5];
    message[0] = code;
    message[1..].copy_from_slice(&value.to_ne_bytes());
    let _ = nix::unistd::write(pipe, &message);
}

/// Reads the next message; `None` while the child is on its way.
pub(super) fn next_message(pipe: &OwnedFd) -> Option<ChildMessage> {
    let mut message = [0_u8; 5];
    match nix::unistd::read(pipe, &mut message) {
        Err(Errno::EAGAIN | Errno::EINTR) => None,
        Ok(5) => ChildMessage::read(&message),
        _ => Some(ChildMessage::Closed),
    }
}

/// A pipe from the child to the guard: reading end without waiting, both closed on exec.
pub(super) fn error_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    use nix::fcntl::OFlag;
    Ok(nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?)
}
