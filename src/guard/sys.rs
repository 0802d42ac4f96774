//! System calls for which nix has no wrapper that can be used; each says why if it is not simply missing.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

use super::Usage;
use crate::time::BootInstant;

/// Which side of a fork this is.
pub(super) enum Fork {
    /// The new process.
    Child,
    /// This one; the number is the new process's.
    Parent(i32),
}

/// Forks, into `cgroup` when one is given.
///
/// # Safety
///
/// The calling process must have one thread, so that no lock is held in the child by a thread that it
/// does not have.
pub(super) unsafe fn fork(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Fork> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let pid = match cgroup {
        // SAFETY: the caller guarantees a single thread; the child then owns a whole copy of the memory.
        None => libc::c_long::from(unsafe { libc::fork() }),
        Some(cgroup) => {
            // SAFETY: all-zero is a valid clone_args: no flag, no pointer.
            let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
            args.flags = CLONE_INTO_CGROUP;
            args.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
            args.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
            // SAFETY: `args` is a clone_args of the size given; without CLONE_VM and a stack
            // this is fork. Moving a process afterwards would cost a global kernel lock.
            unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of_val(&args)) }
        }
    };
    forked(pid)
}

/// What a fork has returned.
fn forked(pid: libc::c_long) -> io::Result<Fork> {
    match pid {
        0 => Ok(Fork::Child),
        pid if pid > 0 => i32::try_from(pid)
            .map(Fork::Parent)
            .map_err(io::Error::other),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Forks. The new process shares the table of open files with this one until it calls [`leave_shared_files`]: until
/// then it must neither open nor close anything.
///
/// # Safety
///
/// As for [`fork`].
pub(super) unsafe fn fork_sharing_files() -> io::Result<Fork> {
    // Elsewhere the system call may have its arguments in another order. The musl library would have the thread id of
    // this process in the new one, so that an abort there would end this one.
    let known = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    if !known || cfg!(target_env = "musl") {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: plain integers. Without CLONE_VM and a stack this is fork. (`clone3` is what filters reject.)
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    forked(pid)
}

/// Makes a table of open files of this process's own, with the numbers below `end` of the one that it shares. Fails
/// before Linux 5.9.
pub(super) fn leave_shared_files(end: u32) -> nix::Result<()> {
    // SAFETY: plain integers. What is not in the new table stays open in the shared one.
    let left = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            end,
            u32::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    Errno::result(left).map(drop)
}

/// The stack of a process that shares its parent's memory.
#[derive(Debug)]
pub(super) struct VforkStack(Box<[MaybeUninit<u8>]>);

impl VforkStack {
    const SIZE: usize = 256 * 1024;

    pub(super) fn new() -> Self {
        Self(Box::new_uninit_slice(Self::SIZE))
    }
}

/// As `vfork`: the new process shares this one's memory until it executes a program or ends; meanwhile this one
/// sleeps. Page tables are not copied, and no page is copied on write: `docs/performance.md` says what that saves.
/// Returns the process id.
///
/// # Safety
///
/// The calling process must have one thread. `body` runs in that same memory, so whatever it changes
/// or leaves behind there is also changed for the caller, and it must not unwind. What it returns is its exit
/// code.
pub(super) unsafe fn vfork_on(
    stack: &mut VforkStack,
    mut body: &mut dyn FnMut() -> c_int,
) -> io::Result<i32> {
    extern "C" fn enter(body: *mut c_void) -> c_int {
        // SAFETY: the pointer below, whose target outlives this process's use of the memory.
        let body = unsafe { &mut *body.cast::<&mut dyn FnMut() -> c_int>() };
        body()
    }

    let top = stack.0.as_mut_ptr_range().end;
    let top = top.wrapping_byte_sub(top.addr() % 16);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack and `body` live until this call returns, and with CLONE_VFORK it returns when
    // the new process does not use them any more. No other thread could use them.
    let pid = unsafe { libc::clone(enter, top.cast(), flags, (&raw mut body).cast()) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(pid)
}

/// Takes what is pending of these signals.
pub(super) fn forget_pending(signals: &nix::sys::signal::SigSet) {
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both pointers are valid for the call, and nothing wants the details of a signal.
    while unsafe { libc::sigtimedwait(signals.as_ref(), std::ptr::null_mut(), &raw const now) } > 0
    {
    }
}

/// Reads from a pipe and waits for it; 0 at its end.
pub(super) fn read_waiting(pipe: &OwnedFd, buffer: &mut [u8]) -> usize {
    loop {
        match nix::unistd::read(pipe, buffer) {
            Err(Errno::EINTR) => {}
            read => return read.unwrap_or(0),
        }
    }
}

/// What a process passes on to its children, and what its children may change of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InheritedSettings {
    scheduling: SchedulingSettings,
    /// Soft and hard limit of each resource.
    limits: [[u64; 2]; RESOURCES],
    /// Its number, or -1 where this process may not ask. A session keyring holds credentials.
    session_keyring: libc::c_long,
    files: [Option<Vec<u8>>; FILES.len()],
}

/// How many resources have a limit (`RLIM_NLIMITS`).
const RESOURCES: usize = 16;

/// Files of a process that others may write, or, of its control groups, move it to.
const FILES: [&str; 3] = [
    "/proc/self/oom_score_adj",
    "/proc/self/cgroup",
    "/proc/self/coredump_filter",
];

/// Reads the settings of the process that has made it. Its files stay open, which takes less time.
pub(super) struct SettingsReader([Option<File>; FILES.len()]);

impl SettingsReader {
    pub(super) fn new() -> Self {
        Self(FILES.map(|path| File::open(path).ok()))
    }

    pub(super) fn read(&self) -> InheritedSettings {
        const KEYCTL_GET_KEYRING_ID: c_int = 0;
        const KEY_SPEC_SESSION_KEYRING: c_int = -3;
        // SAFETY: plain integers, and no memory. It creates no keyring.
        let session_keyring = unsafe {
            libc::syscall(
                libc::SYS_keyctl,
                KEYCTL_GET_KEYRING_ID,
                KEY_SPEC_SESSION_KEYRING,
                0,
            )
        };
        InheritedSettings {
            scheduling: SchedulingSettings::of_this_process(),
            limits: std::array::from_fn(limit),
            session_keyring,
            files: [0, 1, 2].map(|file| self.0[file].as_ref().and_then(whole)),
        }
    }
}

fn limit(resource: usize) -> [u64; 2] {
    let mut limit = [0; 2];
    // SAFETY: a local of the size of an `rlimit64`. nix does not have all resources.
    unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            resource,
            std::ptr::null::<[u64; 2]>(),
            &raw mut limit,
        );
    }
    limit
}

fn whole(file: &File) -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let mut text = vec![0; 4096];
    let len = file.read_at(&mut text, 0).ok()?;
    text.truncate(len);
    Some(text)
}

/// How a process is scheduled, and its children.
#[derive(Debug, PartialEq, Eq)]
struct SchedulingSettings {
    nice: c_int,
    /// Policy, flags and priorities; a `sched_attr`.
    attributes: [u64; 8],
    /// The priority of its input and output.
    io: libc::c_long,
    timer_slack: c_int,
    cpus: [u64; 16],
}

impl SchedulingSettings {
    fn of_this_process() -> Self {
        /// Of one process; 0 is the calling one.
        const IOPRIO_WHO_PROCESS: c_int = 1;
        // SAFETY: plain integers, and no memory. nix has no call for these.
        let (nice, io, timer_slack) = unsafe {
            (
                libc::getpriority(libc::PRIO_PROCESS, 0),
                libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0),
                libc::prctl(libc::PR_GET_TIMERSLACK),
            )
        };
        let (mut attributes, mut cpus) = ([0; 8], [0; 16]);
        // SAFETY: the kernel writes no more than the sizes that it is given.
        unsafe {
            libc::syscall(
                libc::SYS_sched_getattr,
                0,
                &raw mut attributes,
                size_of_val(&attributes),
                0,
            );
            libc::syscall(
                libc::SYS_sched_getaffinity,
                0,
                size_of_val(&cpus),
                &raw mut cpus,
            );
        }
        Self {
            nice,
            attributes,
            io,
            timer_slack,
            cpus,
        }
    }
}

/// Sleeps until an instant of `CLOCK_BOOTTIME`, and wakes within a few µs of it, never before.
pub(super) fn sleep_until(at: BootInstant) {
    let at = at.to_duration();
    let at = TimeSpec::new(
        libc::time_t::try_from(at.as_secs()).unwrap_or(libc::time_t::MAX),
        at.subsec_nanos().into(),
    );
    // The kernel may otherwise wake this process 50 µs late (timer slack). 0 restores the default, so that the
    // command does not inherit this.
    let _ = nix::sys::prctl::set_timerslack(1);
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    while clock_nanosleep(ClockId::CLOCK_BOOTTIME, flags, &at) == Err(Errno::EINTR) {}
    let _ = nix::sys::prctl::set_timerslack(0);
}

/// Whether the process behind the descriptor has ended.
pub(super) fn pidfd_has_ended(pidfd: BorrowedFd<'_>) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut ended = [PollFd::new(pidfd, PollFlags::POLLIN)];
    poll(&mut ended, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// A descriptor that means this process for good, whatever becomes of its number.
pub(super) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain integers go in, a new descriptor of ours or -1 comes out.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created it; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Signals the process behind the descriptor.
pub(super) fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null siginfo is allowed and means what kill() means.
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            none,
            0,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets a signal's disposition to default or ignored; returns what it was before.
pub(super) fn set_disposition(signal: i32, to: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: only SIG_DFL and SIG_IGN are passed, neither of which runs code. nix knows no
    // real-time signals. For a signal that cannot be set the call fails without effect.
    unsafe { libc::signal(signal, to) }
}

/// A child that was reaped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reaped {
    pub(super) pid: i32,
    /// Its raw wait status.
    pub(super) status: i32,
    /// What it used, and all those of its descendants that were waited for.
    pub(super) usage: Usage,
}

/// Reaps one child that has ended, if there is one. The `waitpid` of nix fails for a child that a real-time signal
/// ended, and so loses it.
pub(super) fn reap_any() -> Option<Reaped> {
    reap(-1)
}

/// Reaps this child if it has ended.
pub(super) fn reap(child: i32) -> Option<Reaped> {
    let mut status = 0;
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: status and usage go to locals of the right types.
        let pid = unsafe { libc::wait4(child, &raw mut status, libc::WNOHANG, used.as_mut_ptr()) };
        if pid > 0 {
            // SAFETY: all zeroes are a valid value, and the kernel has filled it in.
            let usage = usage_of(unsafe { used.assume_init_ref() });
            return Some(Reaped { pid, status, usage });
        }
        if pid == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

fn usage_of(used: &libc::rusage) -> Usage {
    let time = |time: libc::timeval| {
        let seconds = Duration::from_secs(time.tv_sec.try_into().unwrap_or(0));
        seconds + Duration::from_micros(time.tv_usec.try_into().unwrap_or(0))
    };
    let kibibytes = u64::try_from(used.ru_maxrss).unwrap_or(0);
    Usage {
        cpu: time(used.ru_utime) + time(used.ru_stime),
        peak_memory: kibibytes.saturating_mul(1024),
    }
}

/// Returns a child that has ended and leaves it unreaped; `None` while all of them run. Fails
/// when there are no children.
pub(super) fn peek_any() -> io::Result<Option<i32>> {
    let info = wait_unreaped(libc::P_ALL, 0)?;
    // SAFETY: waitid has filled it in for a child, or left the number zero.
    let pid = unsafe { info.si_pid() };
    Ok((pid != 0).then_some(pid))
}

/// Returns the raw wait status of this child if it has ended, and leaves it unreaped.
pub(super) fn peek_status(child: i32) -> Option<i32> {
    let info = wait_unreaped(libc::P_PID, child.unsigned_abs()).ok()?;
    // SAFETY: waitid has filled both in for a child, or left them zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let core = if info.si_code == libc::CLD_DUMPED {
        0x80
    } else {
        0
    };
    (pid == child).then_some(match info.si_code {
        libc::CLD_EXITED => (status & 0xff) << 8,
        _ => (status & 0x7f) | core,
    })
}

/// `waitid` for what has ended, without waiting and without reaping.
fn wait_unreaped(kind: libc::idtype_t, id: libc::id_t) -> io::Result<libc::siginfo_t> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        // SAFETY: an all-zero siginfo is valid: no child.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the siginfo is ours. As for `waitpid`, nix would lose a child that a real-time signal ended.
        if unsafe { libc::waitid(kind, id, &raw mut info, flags) } == 0 {
            return Ok(info);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The process group that the controlling terminal, if there is one, sends its signals to.
pub(super) fn foreground_group() -> Option<i32> {
    let terminal = std::fs::File::open("/dev/tty").ok()?;
    // SAFETY: a descriptor that is open, and no memory. nix has this in a feature that nothing else here needs.
    let group = unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) };
    (group > 0).then_some(group)
}
