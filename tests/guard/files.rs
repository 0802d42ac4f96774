//! The files that reapers have open.

use std::collections::BTreeMap;
use std::time::Duration;

use cronlatch::time::BootInstant;

use crate::support::{children, finish, guard, on_runtime, shell, wait_until};

/// More than new reapers share the table of open files with the guard at the same time.
const MANY: usize = 80;

/// How many files of each kind a process has open above standard error.
fn files(pid: i32) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for file in std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = file.file_name().into_string().unwrap_or_default();
        if name.parse().is_ok_and(|number: u32| number > 2)
            && let Ok(target) = file.path().read_link()
        {
            let target = target.display().to_string();
            let kind = target
                .split(':')
                .next_back()
                .filter(|_| target.starts_with("anon_inode:"));
            let kind = kind.unwrap_or_else(|| target.split(':').next().unwrap_or_default());
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
    }
    kinds
}

#[test]
fn a_reaper_among_many_has_no_file_of_the_guard_and_leaves_none_there() {
    on_runtime(async {
        let guard = guard();
        let pid = guard.pid().cast_signed();
        let processes = guard.serve().expect("on a runtime");
        // The guard has set itself up once it replies.
        finish(processes.spawn(shell("true")).await.expect("it starts")).await;
        wait_until("no reaper is left", || children(pid).is_empty());
        let at_rest = files(pid);
        let instant = BootInstant::now().plus(Duration::from_secs(4));
        let mut runs = tokio::task::JoinSet::new();
        for _ in 0..MANY {
            let processes = processes.clone();
            runs.spawn(async move {
                let mut spawn = shell("true");
                spawn.start = Some(instant);
                finish(processes.spawn(spawn).await.expect("it starts")).await
            });
        }
        let wait = |reaper: &i32| !children(*reaper).is_empty();
        wait_until("all wait for the instant", || {
            children(pid).iter().filter(|reaper| wait(reaper)).count() == MANY
        });
        for reaper in children(pid) {
            let open = files(reaper);
            let count = |kind: &str| open.get(kind).copied().unwrap_or(0);
            // Its own socket, the guard as a process, and what it has received with its order.
            assert_eq!(count("socket"), 1, "{open:?}");
            assert_eq!(count("[pidfd]"), 1, "{open:?}");
            assert_eq!(count("[eventfd]"), 1, "{open:?}");
            assert_eq!(count("pipe"), 2, "{open:?}");
            for kind in ["[eventpoll]", "[signalfd]", "[timerfd]"] {
                assert_eq!(count(kind), 0, "{open:?}");
            }
        }
        assert!(BootInstant::now() < instant, "all waited");
        runs.join_all().await;
        wait_until("no reaper is left", || children(pid).is_empty());
        assert_eq!(files(pid), at_rest);
    });
}
