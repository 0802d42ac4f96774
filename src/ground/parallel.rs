//! Work that is done in parts at the same time, each on a thread of its own that ends before the call returns.

use std::panic::resume_unwind;
use std::thread;

/// More threads at once would bring little: what is left over is done by one. Before a daemon limits the arenas of the
/// allocator there may be eight.
const MOST: usize = 4;

/// Returns into how many parts work of this size is divided, if a smaller part than `least` is not worth a
/// thread.
pub(crate) fn parts_of(size: usize, least: usize) -> usize {
    match size / least {
        0 | 1 => 1,
        parts => {
            parts.min(thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST)))
        }
    }
}

/// Does `work` for each number below `parts` at the same time, for 0 on this thread. Returns the results in the
/// order of the numbers. A panic of one of them is that of the caller.
///
/// All threads have ended when this returns. Where the system allows no thread, this one does the work.
pub(crate) fn in_parts<R: Send>(parts: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let start = |part| thread::Builder::new().spawn_scoped(scope, move || work(part));
        let threads: Vec<_> = (1..parts).map(|part| (part, start(part))).collect();
        let mut results = vec![work(0)];
        results.extend(threads.into_iter().map(|(part, thread)| match thread {
            // Joined one by one: the scope alone would return before the threads have left the system.
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => work(part),
        }));
        results
    })
}

/// Does `other` on a thread of its own while this one does `own`, which has its result. A panic of either is that of
/// the caller. The thread has ended when this returns. Where the system allows none, `other` is only dropped.
pub(crate) fn beside<R>(other: impl FnOnce() + Send, own: impl FnOnce() -> R) -> R {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, other);
        let result = own();
        if let Ok(Err(panic)) = thread.map(thread::ScopedJoinHandle::join) {
            resume_unwind(panic);
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn parts_are_done_at_the_same_time_and_returned_in_order() {
        let all_there = Barrier::new(4);
        let done = in_parts(4, |part| {
            // Passes only if all of them run at once.
            all_there.wait();
            (part, thread::current().id())
        });
        let numbers: Vec<_> = done.iter().map(|(part, _)| *part).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        let threads: HashSet<_> = done.iter().map(|(_, thread)| thread).collect();
        assert_eq!(threads.len(), 4);
        assert!(threads.contains(&thread::current().id()));
    }

    #[test]
    #[should_panic(expected = "of part 2")]
    fn a_panic_of_a_part_is_that_of_the_caller() {
        in_parts(3, |part| assert!(part != 2, "of part {part}"));
    }

    #[test]
    fn two_things_are_done_beside_each_other() {
        let both_there = Barrier::new(2);
        let wait = || both_there.wait();
        assert!(beside(
            || {
                wait();
            },
            || {
                wait();
                true
            }
        ));
    }

    #[test]
    #[should_panic(expected = "of the other")]
    fn a_panic_of_what_is_done_beside_is_that_of_the_caller() {
        beside(|| panic!("of the other"), || ());
    }

    #[test]
    fn little_work_is_not_divided() {
        assert_eq!(parts_of(0, 10), 1);
        assert_eq!(parts_of(19, 10), 1);
        assert!((1..=MOST).contains(&parts_of(1000, 10)));
    }
}
