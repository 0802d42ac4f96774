//! New reapers that do not copy the guard's table of open files.
//!
//! The guard has a socket for each reaper, and a permit for each command that waits for its instant. A fork copies the
//! table of all these, and the new process closes the copies, which takes 0.1 ms for each thousand of them. So a new
//! reaper shares the table for a moment, and then makes one of its own from the lowest numbers. Among these are the
//! slots: in one of them it finds its socket. The guard leaves the slot alone until that reaper has reported that it
//! has a table of its own, or has ended. If no slot is free, the fork copies the table.

use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, dup3};

use crate::guard::sys::{self, Fork};

/// How many new reapers may share the table at the same time.
const SLOTS: usize = 32;

/// The kernel makes no table for fewer files.
const SMALLEST_TABLE: u16 = 64;

/// For how many files the guard's table is made at once, if the limit allows so many. It takes 8 bytes for each.
const LARGE_TABLE: u64 = 16_384;

#[derive(Debug)]
struct SocketSlot {
    /// Its number is always the same.
    fd: OwnedFd,
    /// The process id of the reaper that takes its socket from here.
    used_by: Option<i32>,
}

/// The slots, if this process can share its table.
#[derive(Debug, Default)]
pub(super) struct Slots {
    all: Vec<SocketSlot>,
    /// What is in a slot that is not used.
    null: Option<OwnedFd>,
    /// A new table has the numbers below this one.
    end: u32,
}

impl Slots {
    /// Makes the slots. To be called before this process has many files open, and after it has opened `kept`, which
    /// reapers have as well. There are none if new reapers would not get the smallest table, and a sound one.
    pub(super) fn new(kept: Option<&OwnedFd>) -> Self {
        let slots = Self::made(kept).filter(|slots| slots.end <= u32::from(SMALLEST_TABLE));
        slots
            .filter(|slots| slots.null.as_ref().is_some_and(new_tables_are_sound))
            .inspect(|slots| slots.null.iter().for_each(enlarge_table))
            .unwrap_or_default()
    }

    /// Makes the slots, whatever the kernel can do.
    fn made(kept: Option<&OwnedFd>) -> Option<Self> {
        let null = File::open("/dev/null").map(OwnedFd::from).ok()?;
        let make = |_| {
            Some(SocketSlot {
                fd: copy(&null, 3)?,
                used_by: None,
            })
        };
        let all = (0..SLOTS).map(make).collect::<Option<Vec<_>>>()?;
        let numbers = all.iter().map(|slot| &slot.fd).chain(kept);
        let highest = numbers.map(|fd| fd.as_raw_fd().unsigned_abs()).max()?;
        Some(Self {
            all,
            null: Some(null),
            end: highest + 1,
        })
    }

    /// Puts the socket of a new reaper into a slot, and returns the slot; `None` if all are in use.
    pub(super) fn put(&mut self, socket: &OwnedFd) -> Option<usize> {
        let free = self.all.iter().position(|slot| slot.used_by.is_none())?;
        dup3(socket, &mut self.all[free].fd, OFlag::O_CLOEXEC).ok()?;
        Some(free)
    }

    /// Notes which reaper takes its socket from a slot.
    pub(super) fn assign(&mut self, slot: usize, reaper: i32) {
        self.all[slot].used_by = Some(reaper);
    }

    /// Notes that nobody takes a socket from a slot. With a copy of a reaper's socket the guard would not see that the
    /// reaper has closed it.
    pub(super) fn free(&mut self, slot: usize) {
        self.all[slot].used_by = None;
        if let Some(null) = &self.null {
            let _ = dup3(null, &mut self.all[slot].fd, OFlag::O_CLOEXEC);
        }
    }

    /// Notes that a reaper has a table of its own, or has ended.
    pub(super) fn release(&mut self, reaper: i32) {
        let used = |slot: &SocketSlot| slot.used_by == Some(reaper);
        if let Some(slot) = self.all.iter().position(used) {
            self.free(slot);
        }
    }

    /// In a new reaper: the socket that is in the slot.
    pub(super) fn socket(&self, slot: usize) -> &OwnedFd {
        &self.all[slot].fd
    }

    /// In a new reaper: makes a table of its own with the lowest numbers. Fails if there is no memory for one.
    pub(super) fn leave_shared_files(&self) -> nix::Result<()> {
        sys::leave_shared_files(self.end)
    }
}

/// A copy with the lowest free number from `first` on.
fn copy(file: &OwnedFd, first: i32) -> Option<OwnedFd> {
    let number = fcntl(file, FcntlArg::F_DUPFD_CLOEXEC(first)).ok()?;
    // SAFETY: fcntl has just made it for us.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Whether the table that a new reaper makes has free what it should have free.
///
/// Kernels before 9a2fa1472083 (CVE-2024-45025, "fix bitmap corruption on `close_range()` with `CLOSE_RANGE_UNSHARE`")
/// take too much from the table that is shared: if all of the numbers from 64 to 127 are in use there, the new table
/// has no file of these numbers, and gives none of them to a file either. Commands would then get far higher numbers
/// from their 65th file on, or none. What such a kernel is called says nothing, because distributions apply fixes to
/// old ones.
fn new_tables_are_sound(null: &OwnedFd) -> bool {
    let first = i32::from(SMALLEST_TABLE);
    let copies = (0..SMALLEST_TABLE).map(|_| copy(null, first));
    let Some(_in_use) = copies.collect::<Option<Vec<_>>>() else {
        return false;
    };
    // SAFETY: the guard has one thread, and the child makes nothing but system calls before it ends.
    let child = match unsafe { sys::fork_sharing_files() } {
        Ok(Fork::Parent(child)) => Pid::from_raw(child),
        Ok(Fork::Child) => {
            let sound = sys::leave_shared_files(first.unsigned_abs()).is_ok()
                && fcntl(null, FcntlArg::F_DUPFD(first)) == Ok(first);
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(i32::from(!sound)) }
        }
        Err(_) => return false,
    };
    loop {
        match waitpid(child, None) {
            Err(Errno::EINTR) => {}
            ended => return ended == Ok(WaitStatus::Exited(child, 0)),
        }
    }
}

/// Makes the table of this process a large one. If a table grows that another process shares, the kernel first waits
/// until no processor uses the old one, 8 to 16 ms, and all starts with it.
fn enlarge_table(null: &OwnedFd) {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(limit, _)| limit);
    let last = limit.min(LARGE_TABLE).saturating_sub(1);
    // A table never shrinks.
    drop(i32::try_from(last).ok().and_then(|last| copy(null, last)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::channel;

    fn slots() -> Slots {
        Slots::made(None).expect("files")
    }

    #[test]
    fn a_slot_is_used_by_one_new_reaper_until_that_has_its_own_files() {
        let mut slots = slots();
        let (_ours, theirs) = channel::pair().expect("a socket");
        for number in (0..).take(SLOTS) {
            let slot = slots.put(&theirs).expect("one is free");
            slots.assign(slot, number);
        }
        assert_eq!(slots.put(&theirs), None);
        slots.release(-1);
        assert_eq!(slots.put(&theirs), None, "that one uses none");
        slots.release(5);
        assert_eq!(slots.put(&theirs), Some(5));
        slots.free(5);
        assert_eq!(slots.put(&theirs), Some(5), "nothing was forked");
    }

    #[test]
    fn a_slot_that_is_free_keeps_no_copy_of_the_socket() {
        let mut slots = slots();
        let (ours, theirs) = channel::pair().expect("a socket");
        let slot = slots.put(&theirs).expect("one is free");
        slots.assign(slot, 1);
        drop(theirs);
        let mut packet = Vec::with_capacity(8);
        let would_wait = channel::receive(&ours, &mut packet).expect_err("nothing was sent");
        assert_eq!(would_wait.kind(), std::io::ErrorKind::WouldBlock);
        slots.release(1);
        channel::receive(&ours, &mut packet).expect("the end");
        assert!(packet.is_empty());
    }
}
