//! Returns memory to the system that a start or a reload has used and freed, and limits how much of it the allocator
//! keeps.
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

/// How many bytes may be free at the end of an arena before they are returned.
#[cfg(target_env = "gnu")]
const MOST_FREE_AT_END: libc::c_int = 1 << 20;

/// Has the allocator return what is free at the end of an arena while the daemon runs. To be called first.
///
/// It otherwise raises this limit whenever something large is freed, to 64 MB, and [`give_back`] returns only the end
/// of the first arena. From this call on, each block of 128 KB or more has pages of its own, which return to the
/// system as soon as it is freed.
pub(crate) fn limit_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` changes a setting of the allocator; no safe wrapper exists.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, MOST_FREE_AT_END);
    }
}

/// Has threads share the arenas of the allocator that exist: one, or as many as threads have read a long list. The
/// allocator otherwise gives each thread an arena of its own, where what the start has used leaves gaps.
///
/// To be called before there are more than eight threads (glibc; two on 32-bit machines): with so many arenas, the
/// allocator decides once and for all how many more there may be.
pub(crate) fn limit_arenas() {
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
