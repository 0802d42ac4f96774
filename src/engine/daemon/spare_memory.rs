//! Returns memory to the system that a start or a reload has used and freed.
//!
//! Reading a long list, comparing it and registering its jobs takes several times the memory of what is kept
//! of it, and the allocator keeps what was freed. Most of that work ends only after the daemon is ready.

use std::time::Duration;

use crate::time::BootInstant;

/// How long after a start or a reload memory is returned first: most of the work that follows from it is over.
const FIRST: Duration = Duration::from_secs(5);
/// And once more: as a rule the checks are over that run in the background, which are those of `doctor`.
const LAST: Duration = Duration::from_secs(90);

/// A registration of fewer jobs uses no memory worth returning.
const MANY: usize = 100;

/// When the daemon returns memory to the system next.
#[derive(Debug, Default)]
pub(super) struct SpareMemory {
    first: Option<BootInstant>,
    last: Option<BootInstant>,
}

impl SpareMemory {
    /// A start or a reload ends now, except for what runs in the background.
    pub(super) fn at_rest_from(&mut self, now: BootInstant) {
        self.first = Some(now.plus(FIRST));
        self.last = Some(now.plus(LAST));
    }

    /// The store has registered so many jobs, as in a start or after an outage; more may follow.
    pub(super) fn registered(&mut self, jobs: usize, now: BootInstant) {
        if jobs >= MANY {
            self.at_rest_from(now);
        }
    }

    /// Returns memory if it is time to.
    pub(super) fn look(&mut self, now: BootInstant) {
        if self.is_due(now) {
            // It takes milliseconds, for which the loop has no time.
            tokio::task::spawn_blocking(give_back);
        }
    }

    fn is_due(&mut self, now: BootInstant) -> bool {
        let passes = |due: &mut Option<BootInstant>| due.take_if(|due| *due <= now).is_some();
        // Both are looked at, so that two that have passed are one.
        passes(&mut self.first) | passes(&mut self.last)
    }
}

/// Has all threads take memory from one arena. To be called before there are threads.
///
/// The allocator otherwise gives threads arenas of their own, and never returns the last part of such an
/// arena: what the start has used there would stay with the daemon.
pub(crate) fn use_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` changes a setting of the allocator; no safe wrapper exists.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` may be called at any time from any thread; no safe wrapper exists.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::seconds_after_boot as at;

    #[test]
    fn memory_is_returned_twice_after_the_work_of_a_start_or_reload() {
        let mut memory = SpareMemory::default();
        assert!(!memory.is_due(at(100)));
        memory.at_rest_from(at(100));
        memory.at_rest_from(at(103));
        assert!(!memory.is_due(at(107)));
        assert!(memory.is_due(at(108)));
        assert!(!memory.is_due(at(192)));
        assert!(memory.is_due(at(193)));
        assert!(!memory.is_due(at(300)));
        memory.registered(MANY - 1, at(300));
        assert!(!memory.is_due(at(400)));
        memory.registered(MANY, at(400));
        assert!(memory.is_due(at(500)));
        assert!(!memory.is_due(at(600)));
    }
}
