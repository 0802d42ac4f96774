//! How a fresh process becomes the guard.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::ExitCode;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use nix::unistd::{Pid, getpid, getppid, setsid};

use super::{
    Dispositions, EventLoop, ReaperMemory, Reapers, SIGNALS, SOCKET, Slots, StartedRuns, Strays,
    TIMER,
};
use crate::guard::cgroup::Delegated;
use crate::guard::launch::Session;
use crate::guard::sys;
use crate::guard::wire::PACKET_MAX;

/// The hidden argument that makes this program the guard.
pub(in crate::guard) const ARGUMENT: &str = "__guard";

/// The signal that the guard receives when the daemon's thread that started it ends.
const DAEMON_DIED: Signal = Signal::SIGUSR1;

/// Serves as the guard when the arguments say so: `__guard DAEMON_PID SESSION`, the socket being
/// standard input.
pub(in crate::guard) fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let daemon = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    let session = arguments.next().and_then(|name| Session::parse(&name));
    let (Some(daemon), Some(session)) = (daemon, session) else {
        return Some(ExitCode::from(64));
    };
    let served = set_up(Pid::from_raw(daemon), session).and_then(|mut guard| guard.serve());
    Some(match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // No panic if standard error is closed.
            let _ = writeln!(io::stderr(), "cronlatch: the guard failed: {error}");
            ExitCode::from(70)
        }
    })
}

fn set_up(daemon: Pid, session: Session) -> io::Result<EventLoop> {
    let dispositions = settle_signals(session);
    set_pdeathsig(DAEMON_DIED)?;
    set_child_subreaper(true)?;
    if session == Session::Own {
        setsid()?;
        // What the daemon's starter left open is no business of jobs.
        // SAFETY: nothing in this process owns a descriptor above standard error yet.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    }
    let socket = take_socket()?;
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.add(DAEMON_DIED);
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let timer = TimerFd::new(
        ClockId::CLOCK_BOOTTIME,
        TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
    )?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, SOCKET))?;
    epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))?;
    epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    // Without it, what waits for its start does not see the guard die.
    let itself = sys::pidfd_open(getpid().as_raw()).ok();
    let slots = match session {
        Session::Own => Slots::new(itself.as_ref()),
        // A command has what its caller left open, so a reaper does.
        Session::Callers => Slots::default(),
    };
    let mut guard = EventLoop {
        socket,
        signals,
        timer,
        timer_is_at: None,
        epoll,
        session,
        me: getpid(),
        itself,
        daemon,
        gone: None,
        runs: StartedRuns::default(),
        mains: BTreeMap::new(),
        reapers: Reapers::default(),
        reaper_memory: ReaperMemory::new(),
        slots,
        lost_reaper: false,
        strays: Strays::default(),
        delegated: Delegated::find().ok(),
        dispositions,
        files: (soft, hard),
        settings: None,
        unsent: VecDeque::new(),
        awaits_room: false,
        buffer: Vec::with_capacity(PACKET_MAX),
    };
    guard.read_settings();
    // It may have died before the parent-death signal was set.
    if getppid() != daemon {
        guard.daemon_gone();
    }
    Ok(guard)
}

/// Ignores what could end the guard before its jobs, and undoes what its starter left ignored,
/// for that would reach the jobs. Only a command in its caller's session finds ignored what the
/// caller had so: `nohup` and `trap ''` are meant for it.
fn settle_signals(session: Session) -> Dispositions {
    let ignored = [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
        libc::SIGUSR2,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
    ];
    let mut found = Vec::new();
    for signal in 1..=libc::SIGRTMAX() {
        let fault = [libc::SIGSEGV, libc::SIGBUS].contains(&signal);
        // Rust's handler for stack overflows stays; exec resets handlers by itself.
        if !fault && sys::set_disposition(signal, libc::SIG_DFL) == libc::SIG_IGN {
            found.push(signal);
        }
    }
    for signal in ignored {
        sys::set_disposition(signal, libc::SIG_IGN);
    }
    let _ = SigSet::all().thread_unblock();
    // Rust's runtime ignores this signal at start.
    found.retain(|signal| session == Session::Callers && *signal != libc::SIGPIPE);
    Dispositions {
        default: ignored.to_vec(),
        ignored: found,
    }
}

/// Moves the socket away from standard input and puts `/dev/null` there: the numbers 0 to 2 must
/// stay taken, or a pipe for a job could land on them.
fn take_socket() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    let number = fcntl(&stdin, FcntlArg::F_DUPFD_CLOEXEC(3))?;
    // SAFETY: fcntl has just made it for us.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    Ok(socket)
}
