//! From an order to a process.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::unistd::{Pid, getsid, setpgid};

use super::child::{self, Failed, Surroundings};
use super::run::{Group, Main, Run};
use super::{Keeper, PIPES};
use crate::process::sys::{self, Fork};
use crate::process::tree;
use crate::process::wire::{Answer, Order, Request, Step};
use crate::time::BootInstant;

/// Reads an order that was too long for a packet.
pub(super) fn order_in_file(fd: OwnedFd) -> Option<Order> {
    let mut file = File::from(fd);
    let mut packet = Vec::new();
    file.rewind().ok()?;
    file.read_to_end(&mut packet).ok()?;
    match Request::read(&packet)? {
        Request::Spawn(order) => Some(*order),
        _ => None,
    }
}

impl Keeper {
    pub(super) fn spawn(&mut self, order: &Order, fds: &[OwnedFd]) {
        if self.gone.is_some() {
            return;
        }
        if order.deadline.is_some_and(|at| at <= BootInstant::now()) {
            return self.answer(Answer::TooLate(order.serial));
        }
        if let Err(Failed(step, errno)) = self.start(order, fds) {
            self.answer(Answer::Failed(order.serial, step, errno as i32));
        }
    }

    fn start(&mut self, order: &Order, fds: &[OwnedFd]) -> Result<(), Failed> {
        let fork = |error: std::io::Error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Failed(Step::Fork, Errno::from_raw(errno))
        };
        let stdio = fds.get(..3).ok_or(Failed(Step::Receive, Errno::EBADF))?;
        let (reading, writing) = child::error_pipe().map_err(fork)?;
        let cgroup = self
            .delegated
            .as_ref()
            .and_then(|delegated| delegated.make(order.serial).ok());
        let join = order.join.map(Pid::from_raw).filter(|group| {
            // A process group lives within one session.
            getsid(Some(*group)).is_ok_and(|session| getsid(None) == Ok(session))
        });
        let around = Surroundings {
            guard: self.me,
            stdio,
            group: join.unwrap_or(Pid::from_raw(0)),
            dispositions: &self.dispositions,
            files: self.files,
        };
        let born = tree::ticks_now();
        // SAFETY: the guard has one thread.
        let forked = unsafe { sys::fork(cgroup.as_ref().map(super::Cgroup::dir)) };
        let pid = match forked {
            Ok(Fork::Child) => {
                let failed = child::become_command(order, &around);
                child::report(&failed, &writing)
            }
            Ok(Fork::Parent(pid)) => pid,
            Err(error) => {
                if let Some(cgroup) = cgroup {
                    cgroup.remove();
                }
                return Err(fork(error));
            }
        };
        drop(writing);
        let group = match join {
            Some(_) => Group::Callers,
            None => Group::Own(pid),
        };
        if join.is_none() {
            // The child does the same; whoever comes first, a signal to the group finds it.
            let _ = setpgid(Pid::from_raw(pid), Pid::from_raw(pid));
        }
        let event = EpollEvent::new(EpollFlags::EPOLLIN, PIPES + order.serial);
        // Should that fail, its end or its first look at the pipe tells.
        let _ = self.epoll.add(&reading, event);
        let mut run = Run::new(order, Main::Starting(pid, reading), group, cgroup);
        run.born = born;
        self.runs.insert(order.serial, run);
        self.mains.insert(pid, order.serial);
        Ok(())
    }

    /// Looks whether a starting process has become its command.
    pub(super) fn settle_start(&mut self, serial: u64) {
        let Some(run) = self.runs.get_mut(&serial) else {
            return;
        };
        let Main::Starting(pid, pipe) = &run.main else {
            return;
        };
        let pid = *pid;
        let Some(outcome) = child::outcome(pipe) else {
            return;
        };
        // Closing is not enough: a child between fork and exec has a copy.
        let _ = self.epoll.delete(pipe);
        run.main = Main::Alive(pid);
        match outcome {
            Ok(()) => self.answer(Answer::Started(serial, pid)),
            Err((step, errno)) => {
                let cgroup = self.runs.remove(&serial).and_then(|run| run.cgroup);
                // It has nothing more to do than to end; then its cgroup can go.
                let _ = nix::sys::wait::waitpid(Pid::from_raw(pid), None);
                self.mains.remove(&pid);
                if let Some(cgroup) = cgroup {
                    cgroup.remove();
                }
                self.answer(Answer::Failed(serial, step, errno));
            }
        }
    }
}
