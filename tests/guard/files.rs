//! The files that reapers have open, and those that commands need on their way to the guard.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use cronlatch::guard::{Processes, Running, SpawnError};
use cronlatch::time::BootInstant;

use crate::support::{
    LONG, children, finish, guard, on_runtime, pid as announced_pid, shell, signal, wait_until,
};

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

/// For how many files a process has room at present.
fn table_of_files(pid: i32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    size.and_then(|size| size.trim().parse().ok())
        .expect("a number")
}

/// A guard that has set itself up, which it has once it replies; and its process id.
async fn guard_at_rest() -> (Processes, i32) {
    let guard = guard();
    let pid = guard.pid().cast_signed();
    let processes = guard.serve().expect("on a runtime");
    finish(processes.spawn(shell("true")).await.expect("it starts")).await;
    (processes, pid)
}

#[test]
fn a_reaper_among_many_has_no_file_of_the_guard_and_leaves_none_there() {
    on_runtime(async {
        let (processes, pid) = guard_at_rest().await;
        wait_until("no reaper is left", || children(pid).is_empty());
        let at_rest = files(pid);
        let table_at_rest = table_of_files(pid);
        let (withdraw, withdrawn) = tokio::sync::watch::channel(());
        let mut runs = tokio::task::JoinSet::new();
        for _ in 0..MANY {
            let processes = processes.clone();
            let mut withdrawn = withdrawn.clone();
            runs.spawn(async move {
                let mut spawn = shell("true");
                // This test ends before.
                spawn.start = Some(BootInstant::now().plus(LONG));
                let withdrawn = async { withdrawn.changed().await.expect("they are withdrawn") };
                let turn = processes.turn(spawn.start).await;
                processes.spawn_unless(turn, spawn, None, withdrawn).await
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
        // None of them is free.
        let mut late =
            (processes.spawn(shell("echo $PPID; exec sleep 600")).await).expect("it starts");
        let reaper = announced_pid(&mut late).await;
        // A kernel that has a defect of 2024 makes a large copy.
        assert_eq!(table_of_files(reaper), 64, "the smallest table there is");
        assert_eq!(table_of_files(pid), table_at_rest, "it is large at once");
        late.end();
        finish(late).await;
        withdraw.send(()).expect("they wait");
        for refused in runs.join_all().await {
            assert!(matches!(refused, Err(SpawnError::Withdrawn)), "{refused:?}");
        }
        wait_until("no reaper is left", || children(pid).is_empty());
        wait_until("the guard has closed their files", || files(pid) == at_rest);
    });
}

/// More than may have files open on their way to the guard.
const COMMANDS: usize = 1_000;

/// The starts of so many commands, each as far as it can go before the guard takes another one.
async fn starts_under_way(
    processes: &Processes,
    count: usize,
) -> Vec<Pin<Box<impl Future<Output = Result<Running, SpawnError>>>>> {
    let start = |_| Box::pin(processes.spawn(shell("true")));
    let mut starts: Vec<_> = (0..count).map(start).collect();
    let first_steps = poll_fn(|context| {
        for start in &mut starts {
            assert!(start.as_mut().poll(context).is_pending());
        }
        Poll::Ready(())
    });
    // A task that does so much at once is otherwise made to wait.
    tokio::task::unconstrained(first_steps).await;
    starts
}

/// Thousands that are to start at once would otherwise use up the open files of the daemon.
#[test]
fn commands_that_the_guard_has_not_taken_yet_share_a_limited_number_of_files() {
    on_runtime(async {
        let (processes, pid) = guard_at_rest().await;
        signal(pid, libc::SIGSTOP);
        let starts = starts_under_way(&processes, COMMANDS).await;
        let own = files(std::process::id().cast_signed());
        let pipes = own.get("pipe").copied().unwrap_or(0);
        let next = tokio::time::timeout(Duration::ZERO, processes.turn(None)).await;
        signal(pid, libc::SIGCONT);
        assert!(next.is_err(), "it has to wait for its turn");
        // A command needs two pipes, of which both ends are open here.
        assert!(pipes < 2 * COMMANDS, "{pipes} ends of pipes");
        for start in starts {
            finish(start.await.expect("it starts")).await;
        }
    });
}

#[test]
fn commands_that_wait_for_the_guard_learn_of_its_death() {
    on_runtime(async {
        let (processes, pid) = guard_at_rest().await;
        signal(pid, libc::SIGSTOP);
        let starts = starts_under_way(&processes, COMMANDS).await;
        signal(pid, libc::SIGKILL);
        for start in starts {
            let refused = start.await.expect_err("the guard is dead");
            let is_told = matches!(refused, SpawnError::GuardGone | SpawnError::NoReport);
            assert!(is_told, "{refused}");
        }
    });
}
