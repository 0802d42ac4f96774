//! The guard's own side: a single-threaded loop that owns all job processes.
//!
//! It must keep deadlines while everything else fails, so it does as little as can be: no name
//! look-ups, no network, no log, no locks, no waiting for anybody. What could block (changing to
//! a directory on a dead file server, for one) happens in the forked child.

mod child;
mod ending;
mod reaper;
mod reapers;
mod run;
mod runs;
mod setup;
mod slots;
mod spawning;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::signalfd::SignalFd;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{Expiration, TimerFd, TimerSetTimeFlags};
use nix::unistd::{Pid, getppid};

use super::cgroup::{Cgroup, Delegated};
use super::channel;
use super::launch::Session;
use super::process::{Status, Usage};
use super::sys::{self, InheritedSettings, Reaped, SettingsReader};
use super::wire::{self, GuardReply, GuardRequest, StartStep};
use crate::time::BootInstant;
use child::ChildMessage;
use ending::Strays;
use reaper::{Reaper, ReaperMemory, ReaperMessage};
use reapers::Reapers;
use run::{Containment, Main, StartPermission};
use runs::StartedRuns;
use slots::Slots;

pub(super) use setup::{ARGUMENT, main};

const SOCKET: u64 = 0;
const SIGNALS: u64 = 1;
const TIMER: u64 = 2;
/// The error pipe of a run: this and its serial.
const PIPES: u64 = 16;
/// The socket of a reaper: this and its process id.
const REAPERS: u64 = 1 << 63;

/// Packets read before anything else. Few: a reaper that has become free meanwhile can serve the next run.
const BATCH: usize = 4;

/// The longest grace once the daemon is gone: no lease is renewed any more.
const GRACE_WITHOUT_DAEMON: Duration = Duration::from_secs(10);

/// How long processes that survive SIGKILL (uninterruptible sleep) keep the guard running once the
/// daemon is gone.
const PATIENCE_WITHOUT_DAEMON: Duration = Duration::from_secs(60);

/// The pauses between two looks at a tree that was sent SIGKILL.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(250);

/// The signals whose dispositions are set for a command, because this process changed them.
#[derive(Debug)]
struct Dispositions {
    /// Ignored here; a command gets their defaults.
    default: Vec<i32>,
    /// Ignored by a command after that, because its caller ignored them.
    ignored: Vec<i32>,
}

/// The guard's state.
struct EventLoop {
    socket: OwnedFd,
    signals: SignalFd,
    timer: TimerFd,
    /// What the timer is set to.
    timer_is_at: Option<BootInstant>,
    epoll: Epoll,
    session: Session,
    /// This process.
    me: Pid,
    /// The same as a descriptor.
    itself: Option<OwnedFd>,
    daemon: Pid,
    /// Set once the daemon is gone: when the guard gives up on what cannot be killed.
    gone: Option<BootInstant>,
    runs: StartedRuns,
    /// The main processes not known to have ended: children of ours, or of a reaper.
    mains: BTreeMap<i32, u64>,
    reapers: Reapers,
    reaper_memory: ReaperMemory,
    slots: Slots,
    /// Somebody killed a reaper, so its run, or its survivors, may be among our children.
    lost_reaper: bool,
    strays: Strays,
    delegated: Option<Delegated>,
    dispositions: Dispositions,
    /// The limit of open files this process was started with.
    files: (u64, u64),
    /// What each reaper inherits that may serve several runs; `None` where none may.
    settings: Option<InheritedSettings>,
    unsent: VecDeque<Vec<u8>>,
    /// The loop wakes when the daemon takes packets again.
    awaits_room: bool,
    buffer: Vec<u8>,
}

impl EventLoop {
    fn serve(&mut self) -> io::Result<()> {
        self.answer(GuardReply::Ready);
        let mut events = [EpollEvent::empty(); 64];
        loop {
            self.tick();
            self.flush()?;
            if let Some(until) = self.gone
                && (self.runs.is_empty() || until <= BootInstant::now())
            {
                self.reapers.go_on();
                self.kill_strays();
                return Ok(());
            }
            self.set_timer()?;
            let count = match self.epoll.wait(&mut events, None::<u8>) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for event in &events[..count] {
                match event.data() {
                    SOCKET => self.read_requests()?,
                    SIGNALS => self.read_signals()?,
                    TIMER => {
                        self.timer_is_at = None;
                        self.timer.wait()?;
                    }
                    reaper if reaper >= REAPERS => {
                        let pid = i32::try_from(reaper - REAPERS).unwrap_or(0);
                        self.read_reaper(Reaper { pid });
                    }
                    pipe => self.settle_start(pipe - PIPES),
                }
            }
        }
    }

    fn set_timer(&mut self) -> io::Result<()> {
        let due = [self.runs.due(), self.gone, self.reapers.due()];
        let Some(due) = due.into_iter().flatten().min() else {
            return Ok(());
        };
        // A timer that fires early does no harm, so it need not be set for each change.
        if self.timer_is_at.is_some_and(|at| at <= due) {
            return Ok(());
        }
        self.timer_is_at = Some(due);
        // Relative, so that only `CLOCK_BOOTTIME` as this process reads it matters; never zero,
        // which would disarm it.
        let rest = due.remaining().max(Duration::from_nanos(1));
        let once = Expiration::OneShot(TimeSpec::from(rest));
        Ok(self.timer.set(once, TimerSetTimeFlags::empty())?)
    }

    fn read_requests(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = channel::receive(&self.socket, &mut buffer);
            let more = match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(error),
                Ok(_) if buffer.is_empty() => {
                    self.daemon_gone();
                    Ok(false)
                }
                Ok(fds) => {
                    self.handle(&buffer, &fds);
                    Ok(true)
                }
            };
            self.buffer = buffer;
            if !more? {
                break;
            }
        }
        Ok(())
    }

    fn handle(&mut self, packet: &[u8], fds: &[OwnedFd]) {
        let now = BootInstant::now();
        let Some(request) = GuardRequest::read(packet) else {
            return;
        };
        match request {
            GuardRequest::Spawn(order) => self.spawn(&order, packet, fds),
            GuardRequest::SpawnInFile(serial) => {
                let file = fds.get(3).and_then(|file| file.try_clone().ok());
                let order = file.and_then(|file| wire::read_file(file).ok());
                let errno = match order.as_deref().map(GuardRequest::read) {
                    Some(Some(GuardRequest::Spawn(order))) => {
                        return self.spawn(&order, packet, fds);
                    }
                    Some(_) => libc::EBADMSG,
                    // This process had no room for all files.
                    None => libc::EMFILE,
                };
                self.answer(GuardReply::Failed(serial, StartStep::Receive, errno));
            }
            GuardRequest::Extend(runs) => self.extend(now, &runs),
            GuardRequest::End(serial) => {
                let send = self.runs.get_mut(serial).and_then(|run| {
                    let send = run.end(now, Duration::MAX);
                    send.map(|send| (run.serial, send))
                });
                self.send_to_trees(send);
            }
            GuardRequest::Withdraw(serial) => {
                let send = self.runs.get_mut(serial).and_then(|run| {
                    let send = run.withdraw(now);
                    send.map(|send| (run.serial, send))
                });
                self.send_to_trees(send);
            }
            GuardRequest::Signal(serial, signal) => {
                if let Some(run) = self.runs.get(serial) {
                    ending::signal_main(run, signal);
                }
            }
            GuardRequest::Ping => {
                // A reaper that a job has stopped would never report.
                for reaper in self.runs.values().filter_map(|run| run.place.reaper()) {
                    reaper.go_on();
                }
                self.answer(GuardReply::Ready);
            }
        }
    }

    fn extend(&mut self, now: BootInstant, runs: &[(&[u8], BootInstant)]) {
        let to: HashMap<&[u8], BootInstant> = runs.iter().copied().collect();
        for run in self.runs.values_mut() {
            if let Some(to) = to.get(run.name.as_slice()) {
                run.extend(now, *to);
            }
        }
    }

    fn read_signals(&mut self) -> io::Result<()> {
        while self.signals.read_signal()?.is_some() {}
        // The parent-death signal comes when the thread that started the guard ends, too.
        if getppid() != self.daemon {
            self.daemon_gone();
        }
        self.reap();
        Ok(())
    }

    /// Reaps every child that has ended, adopted ones included.
    fn reap(&mut self) {
        let now = BootInstant::now();
        let ended: Vec<_> = std::iter::from_fn(sys::reap_any).collect();
        for Reaped { pid, .. } in &ended {
            self.slots.release(*pid);
        }
        let (reapers, others): (Vec<_>, Vec<_>) = ended
            .into_iter()
            .partition(|ended| self.reapers.contains(ended.pid));
        // First, because a main process that is a child of ours has lost its reaper before, and what
        // that one has reported may be unread.
        for Reaped { pid, .. } in reapers {
            self.reaper_ended(Reaper { pid });
        }
        for Reaped { pid, status, usage } in others {
            let Some(serial) = self.mains.get(&pid).copied() else {
                continue;
            };
            self.note_usage(serial, usage);
            self.main_ended(now, serial, status);
        }
    }

    fn note_usage(&mut self, serial: u64, usage: Usage) {
        if let Some(run) = self.runs.get_mut(serial) {
            run.usage = Some(usage);
        }
    }

    fn main_ended(&mut self, now: BootInstant, serial: u64, status: i32) {
        // Its last message on the error pipe comes before its end.
        self.settle_start(serial);
        if let Some(run) = self.runs.get(serial)
            && matches!(run.main, Main::Starting(..))
        {
            // Nobody was left to say how far it had come. Whether it has begun, its permit tells.
            self.start_went_on(serial, ChildMessage::Closed);
        }
        if let Some(run) = self.runs.get_mut(serial) {
            if let Some(pid) = run.main.pid() {
                self.mains.remove(&pid);
            }
            run.main_ended(now, Status::from_wait(status));
        }
    }

    /// Reads what a reaper reports. One that was reaped gets no reply.
    fn read_reaper(&mut self, reaper: Reaper) {
        while let Some(socket) = self.reapers.socket(reaper) {
            match ReaperMessage::receive(socket) {
                Ok(Some(message)) => self.handle_reaper(reaper, message),
                Ok(None) => return,
                // Its end as a process follows.
                Err(_) => self.reapers.close(reaper),
            }
        }
    }

    fn handle_reaper(&mut self, reaper: Reaper, message: ReaperMessage) {
        let now = BootInstant::now();
        match (message, self.reapers.run(reaper)) {
            (ReaperMessage::HasOwnFiles, _) => self.slots.release(reaper.pid),
            (_, None) => {}
            (ReaperMessage::Start(message), Some(serial)) => self.start_went_on(serial, message),
            (ReaperMessage::Ended(status), Some(serial)) => {
                self.main_ended(now, serial, status);
                // From here on nothing is sent to the main process.
                if !self.reapers.is_reaped(reaper) {
                    reaper.confirm();
                }
            }
            (ReaperMessage::NothingLeft { usage, reusable }, Some(serial)) => {
                if !reusable {
                    // Perhaps somebody has changed those of the guard.
                    self.read_settings();
                }
                self.note_usage(serial, usage);
                if let Some(run) = self.runs.get_mut(serial) {
                    run.place = Containment::Empty;
                }
                self.reapers.release(reaper, reusable, now);
            }
        }
    }

    /// Reads the settings that reapers have until a command changes them.
    fn read_settings(&mut self) {
        self.settings = (self.session == Session::Own).then(|| SettingsReader::new().read());
    }

    /// A reaper has ended. If it served a run, somebody has killed it: the kernel has killed the main
    /// process and made the rest our children.
    fn reaper_ended(&mut self, reaper: Reaper) {
        self.reapers.note_reaped(reaper);
        self.read_reaper(reaper);
        let Some(Some(serial)) = self.reapers.remove(reaper.pid) else {
            return;
        };
        self.lost_reaper = true;
        let Some(run) = self.runs.get_mut(serial) else {
            return;
        };
        run.place = Containment::Nowhere;
        if let Main::Starting(None, _) = &run.main {
            // Its child finds that its parent is gone and never becomes the command.
            let (step, errno) = match run.permission {
                StartPermission::Withdrawn => (StartStep::Wait, libc::ECANCELED),
                _ => (StartStep::Parent, libc::ESRCH),
            };
            self.not_started(serial, step, errno);
        }
    }

    fn daemon_gone(&mut self) {
        if self.gone.is_some() {
            return;
        }
        let now = BootInstant::now();
        self.gone = Some(now.plus(GRACE_WITHOUT_DAEMON + PATIENCE_WITHOUT_DAEMON));
        self.unsent.clear();
        // A closed socket is readable for ever.
        let _ = self.epoll.delete(&self.socket);
        self.kill_migrants();
        let sends: Vec<_> = self
            .runs
            .values_mut()
            .filter_map(|run| Some((run.serial, run.end(now, GRACE_WITHOUT_DAEMON)?)))
            .collect();
        self.send_to_trees(sends);
    }

    /// Does what the clock asks for, and reports every run of which nothing is left.
    fn tick(&mut self) {
        let now = BootInstant::now();
        let sends = self.runs.advance(now);
        self.send_to_trees(sends);
        self.reapers.retire(now);
        for serial in self.trees_gone() {
            self.report_end(serial);
        }
    }

    fn report_end(&mut self, serial: u64) {
        let Some(run) = self.runs.remove(serial) else {
            return;
        };
        let mut usage = run.usage;
        if let Containment::Cgroup(cgroup) = run.place {
            usage = usage.map(|of_main| cgroup.usage(of_main));
            cgroup.remove();
        }
        let Main::Ended(status) = run.main else {
            return;
        };
        self.answer(GuardReply::Exited {
            serial,
            status,
            ended_by: run.ended_by,
            left_behind: u32::try_from(run.left_behind.len()).unwrap_or(u32::MAX),
            survivors: u32::try_from(run.survivors.len()).unwrap_or(u32::MAX),
            usage,
            at: BootInstant::now(),
        });
    }

    fn answer(&mut self, answer: GuardReply) {
        if self.gone.is_none() {
            self.unsent.push_back(answer.write());
        }
    }

    /// Sends what the daemon will take; the rest waits, for a stopped daemon must stop nothing
    /// here.
    fn flush(&mut self) -> io::Result<()> {
        if self.gone.is_some() {
            return Ok(());
        }
        while let Some(packet) = self.unsent.front() {
            match channel::send(self.socket.as_fd(), packet, &[]) {
                Ok(()) => {
                    self.unsent.pop_front();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.daemon_gone();
                    return Ok(());
                }
            }
        }
        let has_unsent = !self.unsent.is_empty();
        if has_unsent == self.awaits_room {
            return Ok(());
        }
        let mut wanted = EpollFlags::EPOLLIN;
        wanted.set(EpollFlags::EPOLLOUT, has_unsent);
        let mut event = EpollEvent::new(wanted, SOCKET);
        self.epoll.modify(&self.socket, &mut event)?;
        self.awaits_room = has_unsent;
        Ok(())
    }
}
