//! New reapers that do not copy the guard's table of open files.
//!
//! The guard has a socket for each reaper, and a permit for each command that waits for its instant. A fork copies the
//! table of all these, and the new process closes the copies, which takes 0.1 ms for each thousand of them. So a new
//! reaper shares the table for a moment, and then makes one of its own from the lowest numbers. Among these are the
//! slots: in one of them it finds its socket. The guard leaves the slot alone until that reaper has reported that it
//! has a table of its own, or has ended. If no slot is free, the fork copies the table.

use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::dup3;

use crate::guard::sys;

/// How many new reapers may share the table at the same time.
const SLOTS: usize = 32;

#[derive(Debug)]
struct Slot {
    /// Its number is always the same.
    fd: OwnedFd,
    /// The process id of the reaper that takes its socket from here.
    used_by: Option<i32>,
}

/// The slots, if this process can share its table.
#[derive(Debug, Default)]
pub(super) struct Slots {
    all: Vec<Slot>,
    /// What is in a slot that is not used.
    null: Option<OwnedFd>,
    /// A new table has the numbers below this one.
    end: u32,
}

impl Slots {
    /// Makes the slots. To be called before this process has many files open, and after it has opened `kept`, which
    /// reapers have as well. There are none if the kernel cannot make a table from a part of another one.
    pub(super) fn new(kept: Option<&OwnedFd>) -> Self {
        if !sys::can_leave_shared_files() {
            return Self::default();
        }
        let Ok(null) = File::open("/dev/null").map(OwnedFd::from) else {
            return Self::default();
        };
        let make = |_| {
            let number = fcntl(&null, FcntlArg::F_DUPFD_CLOEXEC(3)).ok()?;
            Some(Slot {
                // SAFETY: fcntl has just made it for us.
                fd: unsafe { OwnedFd::from_raw_fd(number) },
                used_by: None,
            })
        };
        let all: Vec<_> = (0..SLOTS).filter_map(make).collect();
        let numbers = all.iter().map(|slot| &slot.fd).chain(kept);
        let highest = numbers.map(|fd| fd.as_raw_fd().unsigned_abs()).max();
        Self {
            all,
            null: Some(null),
            end: highest.map_or(3, |highest| highest + 1),
        }
    }

    /// Puts the socket of a new reaper into a slot, and returns the slot; `None` if all are in use.
    pub(super) fn put(&mut self, socket: &OwnedFd) -> Option<usize> {
        let free = self.all.iter().position(|slot| slot.used_by.is_none())?;
        dup3(socket, &mut self.all[free].fd, OFlag::O_CLOEXEC).ok()?;
        Some(free)
    }

    /// Notes which reaper takes its socket from a slot; with `None` nobody does.
    pub(super) fn assign(&mut self, slot: usize, reaper: Option<i32>) {
        self.all[slot].used_by = reaper;
        if reaper.is_none() {
            self.empty(slot);
        }
    }

    /// Notes that a reaper has a table of its own, or has ended.
    pub(super) fn release(&mut self, reaper: i32) {
        let used = |slot: &Slot| slot.used_by == Some(reaper);
        if let Some(slot) = self.all.iter().position(used) {
            self.assign(slot, None);
        }
    }

    /// With a copy of a reaper's socket the guard would not see that the reaper has closed it.
    fn empty(&mut self, slot: usize) {
        if let Some(null) = &self.null {
            let _ = dup3(null, &mut self.all[slot].fd, OFlag::O_CLOEXEC);
        }
    }

    /// In a new reaper: makes a table of its own with the lowest numbers. Returns the socket that is in the slot;
    /// `None` if there is no memory for a table.
    pub(super) fn leave_shared_files(&self, slot: usize) -> Option<&OwnedFd> {
        sys::leave_shared_files(self.end).then(|| &self.all[slot].fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::channel;

    fn slots() -> Slots {
        let slots = Slots::new(None);
        assert_eq!(slots.all.len(), SLOTS, "Linux 5.9");
        slots
    }

    #[test]
    fn a_slot_is_used_by_one_new_reaper_until_that_has_its_own_files() {
        let mut slots = slots();
        let (_ours, theirs) = channel::pair().expect("a socket");
        for number in (0..).take(SLOTS) {
            let slot = slots.put(&theirs).expect("one is free");
            slots.assign(slot, Some(number));
        }
        assert_eq!(slots.put(&theirs), None);
        slots.release(-1);
        assert_eq!(slots.put(&theirs), None, "that one uses none");
        slots.release(5);
        assert_eq!(slots.put(&theirs), Some(5));
        slots.assign(5, None);
        assert_eq!(slots.put(&theirs), Some(5), "nothing was forked");
    }

    #[test]
    fn a_slot_that_is_free_keeps_no_copy_of_the_socket() {
        let mut slots = slots();
        let (ours, theirs) = channel::pair().expect("a socket");
        let slot = slots.put(&theirs).expect("one is free");
        slots.assign(slot, Some(1));
        drop(theirs);
        let mut packet = [0; 8];
        let would_wait = channel::receive(&ours, &mut packet).expect_err("nothing was sent");
        assert_eq!(would_wait.kind(), std::io::ErrorKind::WouldBlock);
        slots.release(1);
        let (length, _) = channel::receive(&ours, &mut packet).expect("the end");
        assert_eq!(length, 0);
    }
}
