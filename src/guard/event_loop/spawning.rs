//! From an order to a process.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::unistd::{Pid, getsid, setpgid};

use super::child::{self, ChildContext, ChildMessage, Failed, Permit};
use super::reaper::{self, Pipes, Reaper};
use super::run::{Containment, Group, Main, StartPermission, StartedRun};
use super::{Cgroup, EventLoop, PIPES};
use crate::guard::EndedBy;
use crate::guard::sys::{self, Fork};
use crate::guard::tree;
use crate::guard::wire::{GuardReply, GuardRequest, StartRequest, StartStep};
use crate::time::BootInstant;

/// Reads an order that was too long for a packet.
pub(super) fn order_in_file(fd: OwnedFd) -> Option<StartRequest> {
    let mut file = File::from(fd);
    let mut packet = Vec::new();
    file.rewind().ok()?;
    file.read_to_end(&mut packet).ok()?;
    match GuardRequest::read(&packet)? {
        GuardRequest::Spawn(order) => Some(*order),
        _ => None,
    }
}

impl EventLoop {
    pub(super) fn spawn(&mut self, order: &StartRequest, fds: &[OwnedFd]) {
        if self.gone.is_some() {
            return;
        }
        if order.is_late() {
            return self.answer(GuardReply::TooLate(order.serial));
        }
        if let Err(Failed(step, errno)) = self.start(order, fds) {
            self.answer(GuardReply::Failed(order.serial, step, errno as i32));
        }
    }

    fn start(&mut self, order: &StartRequest, fds: &[OwnedFd]) -> Result<(), Failed> {
        let fork = |error: std::io::Error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Failed(StartStep::Fork, Errno::from_raw(errno))
        };
        let stdio = fds
            .get(..3)
            .ok_or(Failed(StartStep::Receive, Errno::EMFILE))?;
        let (reading, writing) = child::error_pipe().map_err(fork)?;
        let permit = order.start.map(|_| Permit::new()).transpose();
        let permit = permit.map_err(|errno| Failed(StartStep::Fork, errno))?;
        let join = order.join.map(Pid::from_raw).filter(|group| {
            // A process group lives within one session.
            getsid(Some(*group)).is_ok_and(|session| getsid(None) == Ok(session))
        });
        let around = ChildContext {
            parent: self.me,
            guard: self.itself.as_ref(),
            permit: permit.as_ref(),
            stdio,
            group: join.unwrap_or(Pid::from_raw(0)),
            dispositions: &self.dispositions,
            files: self.files,
        };
        let cgroup = self
            .delegated
            .as_ref()
            .and_then(|delegated| delegated.make(order.serial).ok());
        let born = tree::ticks_now();
        let (pid, place) = match cgroup {
            Some(cgroup) => fork_into_cgroup(order, &around, cgroup, &writing),
            None => fork_reaper(order, &around, writing),
        }
        .map_err(fork)?;
        if let Some(pid) = pid {
            // The child does the same; whichever is first, a signal to the group finds it.
            let _ = setpgid(Pid::from_raw(pid), around.group_of(pid));
            self.mains.insert(pid, order.serial);
        }
        let pipes = PIPES + 2 * order.serial;
        // If that fails, the child's end or its first read of the pipe reports it.
        let watched = EpollEvent::new(EpollFlags::EPOLLIN, pipes);
        let _ = self.epoll.add(&reading, watched);
        if let Some(reaper) = place.reaper() {
            self.reapers.insert(reaper.pid, order.serial);
            // If that fails, the end of the reaper reports it.
            let watched = EpollEvent::new(EpollFlags::EPOLLIN, pipes + 1);
            let _ = self.epoll.add(&reaper.report, watched);
        }
        let group = match join {
            Some(_) => Group::Callers,
            None => Group::Own,
        };
        let mut run = StartedRun::new(order, Main::Starting(pid, reading), group, place);
        run.born = born;
        run.permission = permit.map_or(StartPermission::Free, StartPermission::Waits);
        self.runs.insert(run);
        Ok(())
    }

    /// Looks whether a starting process has become its command.
    pub(super) fn settle_start(&mut self, serial: u64) {
        while let Some(run) = self.runs.get_mut(serial)
            && let Main::Starting(pid, pipe) = &mut run.main
            && let Some(message) = child::next_message(pipe)
        {
            match (message, *pid) {
                (ChildMessage::Pid(announced), _) => {
                    *pid = Some(announced);
                    run.leader = Some(announced);
                    self.mains.insert(announced, serial);
                }
                (ChildMessage::Closed, _)
                    if matches!(run.permission, StartPermission::Withdrawn) =>
                {
                    self.not_started(serial, StartStep::Wait, libc::ECANCELED);
                }
                (ChildMessage::Closed, Some(pid)) => {
                    // Closing is not enough: a child between fork and exec has a copy.
                    let _ = self.epoll.delete(pipe);
                    if run.take_permit() {
                        // It has not taken it, so something has killed it before it began.
                        self.not_started(serial, StartStep::Wait, libc::EINTR);
                        continue;
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
    }

    fn not_started(&mut self, serial: u64, step: StartStep, errno: i32) {
        let Some(run) = self.runs.remove(serial) else {
            return;
        };
        if let Main::Starting(pid, pipe) = &run.main {
            let _ = self.epoll.delete(pipe);
            if let Some(pid) = pid {
                self.mains.remove(pid);
            }
        }
        match (run.place, run.main.pid()) {
            (Containment::Reaper(reaper), _) => {
                let _ = self.epoll.delete(&reaper.report);
                reaper.confirm();
            }
            (Containment::Cgroup(cgroup), Some(pid)) => {
                // It has nothing more to do than to end; then its cgroup can go.
                let _ = nix::sys::wait::waitpid(Pid::from_raw(pid), None);
                cgroup.remove();
            }
            _ => {}
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

/// Forks the command into its control group. Returns its process id.
fn fork_into_cgroup(
    order: &StartRequest,
    around: &ChildContext<'_>,
    cgroup: Cgroup,
    error: &OwnedFd,
) -> io::Result<(Option<i32>, Containment)> {
    // SAFETY: the guard has one thread.
    match unsafe { sys::fork(cgroup.to_clone_into()) } {
        Ok(Fork::Parent(pid)) => Ok((Some(pid), Containment::Cgroup(cgroup))),
        Ok(Fork::Child) => {
            let failed = match cgroup.join() {
                Ok(()) => child::become_command(order, around),
                Err(error) => Failed(
                    StartStep::Cgroup,
                    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)),
                ),
            };
            child::report(&failed, error)
        }
        Err(error) => {
            cgroup.remove();
            Err(error)
        }
    }
}

/// Forks the reaper, which forks the command. The child announces its process id later.
fn fork_reaper(
    order: &StartRequest,
    around: &ChildContext<'_>,
    error: OwnedFd,
) -> io::Result<(Option<i32>, Containment)> {
    let (reading, report) = child::error_pipe()?;
    // SAFETY: the guard has one thread.
    match unsafe { sys::fork(None) }? {
        Fork::Parent(pid) => {
            let report = reading;
            Ok((None, Containment::Reaper(Reaper { pid, report })))
        }
        Fork::Child => reaper::become_reaper(order, around, Pipes { report, error }),
    }
}
