//! From an order to a process.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::unistd::{Pid, getsid, setpgid};

use super::child::{self, ChildContext, ChildMessage, Failed, Permit};
use super::reaper::{self, Inheritance, Reaper, ReaperMemory};
use super::run::{Containment, Group, Main, StartPermission, StartedRun};
use super::slots::Slots;
use super::{Cgroup, EventLoop, PIPES, REAPERS};
use crate::guard::EndedBy;
use crate::guard::channel;
use crate::guard::sys::{self, Fork};
use crate::guard::tree;
use crate::guard::wire::{GuardReply, StartRequest, StartStep};
use crate::time::BootInstant;

/// Whether the process at the other end of a socket has ended.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// Forks a reaper that shares the table of open files at first. Returns its process id; `None` if there is no free slot
/// for its socket, or if the kernel refuses.
fn fork_from_slot(
    slots: &mut Slots,
    from: &Inheritance<'_>,
    memory: &mut ReaperMemory,
    socket: &OwnedFd,
) -> Option<i32> {
    let slot = slots.put(socket)?;
    // SAFETY: the guard has one thread. The child neither opens nor closes anything before it has a table of its own.
    match unsafe { sys::fork_sharing_files() } {
        Ok(Fork::Parent(pid)) => {
            slots.assign(slot, pid);
            Some(pid)
        }
        Ok(Fork::Child) => reaper::leave_files_and_become_reaper(from, memory, (slots, slot)),
        Err(_) => {
            slots.free(slot);
            None
        }
    }
}

impl EventLoop {
    pub(super) fn spawn(&mut self, order: &StartRequest<'_>, packet: &[u8], fds: &[OwnedFd]) {
        if self.gone.is_some() {
            return;
        }
        if order.is_late() {
            return self.answer(GuardReply::TooLate(order.serial));
        }
        if let Err(Failed(step, errno)) = self.start(order, packet, fds) {
            self.answer(GuardReply::Failed(order.serial, step, errno as i32));
        }
    }

    fn start(
        &mut self,
        order: &StartRequest<'_>,
        packet: &[u8],
        fds: &[OwnedFd],
    ) -> Result<(), Failed> {
        let stdio = fds
            .get(..3)
            .ok_or(Failed(StartStep::Receive, Errno::EMFILE))?;
        let permit = order.start.map(|_| Permit::new()).transpose();
        let permit = permit.map_err(|errno| Failed(StartStep::Fork, errno))?;
        let join = order.join.map(Pid::from_raw).filter(|group| {
            // A process group lives within one session.
            getsid(Some(*group)).is_ok_and(|session| getsid(None) == Ok(session))
        });
        let cgroup = self
            .delegated
            .as_ref()
            .and_then(|delegated| delegated.make(order.serial).ok());
        let born = tree::ticks_now();
        let (main, place) = if let Some(cgroup) = cgroup {
            self.fork_into_cgroup(order, stdio, (permit.as_ref(), join), cgroup)
        } else {
            let files = fds.iter().map(AsFd::as_fd);
            let files: Vec<_> = files.chain(permit.as_ref().map(Permit::as_fd)).collect();
            let joins = [u8::from(join.is_some())];
            let packet = [IoSlice::new(packet), IoSlice::new(&joins)];
            let reaper = self.order_from_reaper(order.serial, &packet, &files);
            reaper.map(|reaper| (Main::Starting(None, None), Containment::Reaper(reaper)))
        }
        .map_err(|error| Failed::from_io(StartStep::Fork, &error))?;
        let group = match join {
            Some(_) => Group::Callers,
            None => Group::Own,
        };
        let mut run = StartedRun::new(order, main, group, place);
        run.born = born;
        run.permission = permit.map_or(StartPermission::Free, StartPermission::Waits);
        self.runs.insert(run);
        Ok(())
    }

    /// Forks the command into its control group.
    fn fork_into_cgroup(
        &mut self,
        order: &StartRequest<'_>,
        stdio: &[OwnedFd],
        (permit, join): (Option<&Permit>, Option<Pid>),
        cgroup: Cgroup,
    ) -> io::Result<(Main, Containment)> {
        let (reading, writing) = child::error_pipe()?;
        let around = ChildContext {
            parent: self.me,
            guard: self.itself.as_ref(),
            permit,
            stdio,
            group: join.unwrap_or(Pid::from_raw(0)),
            dispositions: &self.dispositions,
            files: self.files,
            executes: &Cell::new(false),
        };
        // SAFETY: the guard has one thread.
        let pid = match unsafe { sys::fork(cgroup.to_clone_into()) } {
            Ok(Fork::Parent(pid)) => pid,
            Ok(Fork::Child) => {
                let failed = match (cgroup.join(), order.command()) {
                    (Ok(()), Some(command)) => child::become_command(order, &command, &around),
                    (Ok(()), None) => Failed(StartStep::Receive, Errno::EBADMSG),
                    (Err(error), _) => Failed::from_io(StartStep::Cgroup, &error),
                };
                child::report(&failed, &writing)
            }
            Err(error) => {
                cgroup.remove();
                return Err(error);
            }
        };
        // The child does the same; whichever is first, a signal to the group finds it.
        let _ = setpgid(Pid::from_raw(pid), around.group_of(pid));
        self.mains.insert(pid, order.serial);
        // If that fails, the child's end or its first read of the pipe reports it.
        let watched = EpollEvent::new(EpollFlags::EPOLLIN, PIPES + order.serial);
        let _ = self.epoll.add(&reading, watched);
        let main = Main::Starting(Some(pid), Some(reading));
        Ok((main, Containment::Cgroup(cgroup)))
    }

    /// Passes an order to a reaper that is free, or to a new one.
    fn order_from_reaper(
        &mut self,
        serial: u64,
        packet: &[IoSlice<'_>],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<Reaper> {
        while let Some(reaper) = self.reapers.take_idle() {
            match self.send_order(reaper, packet, files) {
                Ok(()) => {
                    // A job may have stopped it.
                    reaper.go_on();
                    self.reapers.assign(reaper, serial);
                    return Ok(reaper);
                }
                // Somebody has killed it.
                Err(error) if is_gone(&error) => self.reapers.close(reaper),
                // This process may send no more descriptors for now, for example.
                Err(error) => {
                    self.reapers.put_back(reaper, BootInstant::now());
                    return Err(error);
                }
            }
        }
        let reaper = self.fork_reaper()?;
        let sent = self.send_order(reaper, packet, files);
        match sent {
            Ok(()) => self.reapers.assign(reaper, serial),
            Err(_) => self.reapers.close(reaper),
        }
        sent.map(|()| reaper)
    }

    fn send_order(
        &self,
        reaper: Reaper,
        packet: &[IoSlice<'_>],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let socket = self.reapers.socket(reaper);
        let socket = socket.ok_or(io::ErrorKind::BrokenPipe)?;
        channel::send_parts(socket.as_fd(), packet, files)
    }

    fn fork_reaper(&mut self) -> io::Result<Reaper> {
        let (socket, theirs) = channel::pair()?;
        let from = Inheritance {
            guard: self.me,
            session: self.session,
            daemon: &self.socket,
            guard_itself: self.itself.as_ref(),
            dispositions: &self.dispositions,
            files: self.files,
            settings: self.settings.as_ref(),
        };
        let memory = &mut self.reaper_memory;
        let pid = match fork_from_slot(&mut self.slots, &from, memory, &theirs) {
            Some(pid) => pid,
            // SAFETY: the guard has one thread.
            None => match unsafe { sys::fork(None) }? {
                Fork::Parent(pid) => pid,
                Fork::Child => reaper::become_reaper(&from, memory, &theirs),
            },
        };
        // If that fails, the socket closes, and the reaper ends.
        let watched = EpollEvent::new(EpollFlags::EPOLLIN, REAPERS + u64::from(pid.unsigned_abs()));
        self.epoll.add(&socket, watched)?;
        let reaper = Reaper { pid };
        self.reapers.add(reaper, socket);
        Ok(reaper)
    }

    /// Looks whether a starting process with an error pipe has become its command.
    pub(super) fn settle_start(&mut self, serial: u64) {
        while let Some(run) = self.runs.get_mut(serial)
            && let Main::Starting(_, Some(pipe)) = &run.main
            && let Some(message) = child::next_message(pipe)
        {
            self.start_went_on(serial, message);
        }
    }

    /// A starting process has come so far.
    pub(super) fn start_went_on(&mut self, serial: u64, message: ChildMessage) {
        let Some(run) = self.runs.get_mut(serial) else {
            return;
        };
        let Main::Starting(pid, pipe) = &mut run.main else {
            return;
        };
        match (message, *pid) {
            (ChildMessage::Pid(announced), _) => {
                *pid = Some(announced);
                run.leader = Some(announced);
                self.mains.insert(announced, serial);
            }
            (ChildMessage::Closed, _) if matches!(run.permission, StartPermission::Withdrawn) => {
                self.not_started(serial, StartStep::Wait, libc::ECANCELED);
            }
            (ChildMessage::Closed, Some(pid)) => {
                if let Some(pipe) = pipe {
                    // Closing is not enough: a child between fork and exec has a copy.
                    let _ = self.epoll.delete(pipe);
                }
                if run.take_permit() {
                    // It has not taken it, so something has killed it before it began.
                    return self.not_started(serial, StartStep::Wait, libc::EINTR);
                }
                run.permission = StartPermission::Free;
                run.main = Main::Alive(pid);
                self.answer(GuardReply::Started(serial, pid, BootInstant::now()));
            }
            // Killed before it could announce itself.
            (ChildMessage::Closed, None) => {
                self.not_started(serial, StartStep::Parent, libc::ESRCH);
            }
            (ChildMessage::Failed(step, errno), _) => self.not_started(serial, step, errno),
        }
    }

    pub(super) fn not_started(&mut self, serial: u64, step: StartStep, errno: i32) {
        let Some(run) = self.runs.remove(serial) else {
            return;
        };
        if let Main::Starting(pid, pipe) = &run.main {
            if let Some(pipe) = pipe {
                let _ = self.epoll.delete(pipe);
            }
            if let Some(pid) = pid {
                self.mains.remove(pid);
            }
        }
        let pid = run.main.pid();
        if let (Containment::Cgroup(cgroup), Some(pid)) = (run.place, pid) {
            // It has nothing more to do than to end; then its cgroup can go.
            let _ = nix::sys::wait::waitpid(Pid::from_raw(pid), None);
            cgroup.remove();
        }
        let is_late = step == StartStep::Wait
            && (errno == libc::ETIMEDOUT || run.ended_by == EndedBy::Deadline);
        self.answer(if is_late {
            GuardReply::TooLate(serial)
        } else {
            GuardReply::Failed(serial, step, errno)
        });
    }
}
