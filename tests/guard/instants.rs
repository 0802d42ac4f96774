//! Commands that are prepared before the instant of their start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cronlatch::guard::{EndedBy, Processes, Running, Spawn, SpawnError, Status};
use cronlatch::time::BootInstant;

use crate::helper::Setup;
use crate::support::{
    LONG, children, finish, guard, is_alive, on_runtime, pid, shell, signal, wait_until, with_guard,
};

/// A guard, and the file that the command of a test leaves.
struct Ground {
    guard: i32,
    processes: Processes,
    file: PathBuf,
    _dir: tempfile::TempDir,
}

fn ground() -> Ground {
    let guard = guard();
    let dir = tempfile::tempdir().expect("a directory");
    Ground {
        guard: guard.pid().cast_signed(),
        processes: guard.serve().expect("on a runtime"),
        file: dir.path().join("ran"),
        _dir: dir,
    }
}

impl Ground {
    /// The command, which starts so much later.
    fn marks(&self, after: Duration) -> Spawn {
        marks(&self.file, after)
    }

    /// Starts the command at an instant that does not come.
    fn prepare(&self) -> tokio::task::JoinHandle<Result<Running, SpawnError>> {
        let mut spawn = self.marks(LONG);
        // So late that its grace has not begun, from when on the guard ends the process itself.
        spawn.deadline = Some(BootInstant::now().plus(LONG * 3));
        let processes = self.processes.clone();
        tokio::spawn(async move { processes.spawn(spawn).await })
    }

    /// Fails if the command has run by a moment after its instant.
    async fn assert_never_ran(&self, start: Option<BootInstant>) {
        let left = start.map(BootInstant::remaining).unwrap_or_default();
        tokio::time::sleep(left + Duration::from_millis(100)).await;
        assert!(!self.file.exists(), "the command ran");
    }
}

/// A command that leaves a file, and starts so much later.
fn marks(file: &Path, after: Duration) -> Spawn {
    let mut spawn = shell(&format!("echo > {}", file.display()));
    spawn.start = Some(BootInstant::now().plus(after));
    spawn
}

/// The children of a process, and theirs.
fn descendants(pid: i32) -> Vec<i32> {
    let near = children(pid);
    let further = near.iter().flat_map(|child| children(*child));
    near.clone().into_iter().chain(further).collect()
}

/// The child of a guard whose child is this process.
fn reaper_above(guard: i32, sleeper: i32) -> i32 {
    let reapers = children(guard).into_iter();
    let mut above = reapers.filter(|reaper| children(*reaper).contains(&sleeper));
    above.next().expect("a process with a reaper")
}

fn is_asleep(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("nanosleep"))
        || std::fs::read_to_string(format!("/proc/{pid}/syscall"))
            .is_ok_and(|at| at.starts_with(&format!("{} ", libc::SYS_clock_nanosleep)))
}

#[test]
fn a_prepared_command_starts_at_its_instant_and_holds_up_no_other() {
    with_guard(async |processes| {
        let mut later = shell("echo later");
        let instant = BootInstant::now().plus(Duration::from_millis(700));
        later.start = Some(instant);
        let other = processes.clone();
        let waiting = tokio::spawn(async move {
            let running = other.spawn(later).await.expect("it starts");
            (BootInstant::now(), running)
        });
        let running = processes.spawn(shell("echo now")).await.expect("it starts");
        let (lines, exit) = finish(running).await;
        assert_eq!(
            (lines, exit.status),
            (vec!["now".to_owned()], Status::Code(0))
        );
        let (started, running) = waiting.await.expect("no panic");
        assert!(started >= instant, "{started:?} is before {instant:?}");
        let (lines, exit) = finish(running).await;
        assert_eq!(
            (lines, exit.status),
            (vec!["later".to_owned()], Status::Code(0))
        );
    });
}

#[test]
fn a_command_whose_deadline_comes_before_its_instant_is_never_executed() {
    on_runtime(async {
        let ground = ground();
        let mut spawn = ground.marks(Duration::from_millis(900));
        let start = spawn.start;
        spawn.deadline = Some(BootInstant::now().plus(Duration::from_millis(300)));
        spawn.grace = Duration::ZERO;
        let refused = ground.processes.spawn(spawn).await;
        let refused = refused.expect_err("it does not start");
        assert!(matches!(refused, SpawnError::TooLate), "{refused:?}");
        assert!(Some(BootInstant::now()) < start, "killed after its instant");
        ground.assert_never_ran(start).await;
    });
}

#[test]
fn a_command_that_wakes_after_its_deadline_is_never_executed() {
    never_executed_after(|spawn, limit| spawn.deadline = Some(limit));
}

/// Without a deadline it would run on.
#[test]
fn a_command_that_wakes_when_it_may_not_start_any_more_is_never_executed() {
    never_executed_after(|spawn, limit| spawn.start_until = Some(limit));
}

#[test]
fn a_command_is_not_executed_once_it_is_too_late_and_runs_on_if_it_has_begun_before() {
    with_guard(async |processes| {
        let mut late = shell("true");
        late.start_until = Some(BootInstant::now());
        let refused = processes.spawn(late).await.expect_err("it does not start");
        assert!(matches!(refused, SpawnError::TooLate), "{refused:?}");
        let mut in_time = shell("read -r line < $FIFO; echo $line");
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a named pipe");
        in_time.env.insert("FIFO".into(), fifo.clone().into());
        let limit = BootInstant::now().plus(Duration::from_secs(1));
        in_time.start_until = Some(limit);
        let running = processes.spawn(in_time).await.expect("it starts");
        tokio::time::sleep(limit.remaining()).await;
        std::fs::write(&fifo, "on\n").expect("it is read");
        let (lines, exit) = finish(running).await;
        let expected = (vec!["on".to_owned()], EndedBy::Itself);
        assert_eq!((lines, exit.ended_by), expected);
    });
}

/// As after a machine was suspended: the command's instant and this limit have passed when its process wakes.
fn never_executed_after(limited: impl FnOnce(&mut Spawn, BootInstant)) {
    on_runtime(async {
        let ground = ground();
        let mut spawn = ground.marks(Duration::from_millis(500));
        let limit = BootInstant::now().plus(Duration::from_millis(800));
        limited(&mut spawn, limit);
        spawn.grace = Duration::ZERO;
        let processes = ground.processes.clone();
        let waiting = tokio::spawn(async move { processes.spawn(spawn).await });
        let sleeper = sleeper_of(ground.guard);
        signal(ground.guard, libc::SIGSTOP);
        signal(sleeper, libc::SIGSTOP);
        tokio::time::sleep(limit.remaining() + Duration::from_millis(50)).await;
        // The process first: the guard must not be what saves it.
        signal(sleeper, libc::SIGCONT);
        signal(ground.guard, libc::SIGCONT);
        let refused = waiting.await.expect("no panic");
        let refused = refused.expect_err("it does not start");
        assert!(matches!(refused, SpawnError::TooLate), "{refused:?}");
        ground.assert_never_ran(None).await;
    });
}

#[test]
fn the_daemon_ends_a_command_that_waits_for_its_instant_when_the_guard_is_killed() {
    on_runtime(async {
        let ground = ground();
        let spawn = ground.marks(Duration::from_millis(700));
        let start = spawn.start;
        let processes = ground.processes.clone();
        let waiting = tokio::spawn(async move { processes.spawn(spawn).await });
        sleeper_of(ground.guard);
        signal(ground.guard, libc::SIGKILL);
        let refused = waiting.await.expect("no panic");
        assert!(matches!(refused, Err(SpawnError::GuardGone)), "{refused:?}");
        ground.assert_never_ran(start).await;
    });
}

/// Daemon and reaper are stopped, so neither is what saves it. The reaper would kill the command only after it has
/// begun.
#[test]
fn a_command_that_waits_for_its_instant_is_not_executed_once_the_guard_has_died() {
    let files = tempfile::tempdir().expect("a directory");
    let daemon = Setup::new("echo >$FILES/ran", files.path());
    let daemon = daemon.starts_in(Duration::from_secs(3)).start();
    let sleeper = sleeper_of(daemon.guard);
    let reapers = children(daemon.guard);
    daemon.signal(libc::SIGSTOP);
    for reaper in reapers.iter().filter(|reaper| **reaper != sleeper) {
        signal(*reaper, libc::SIGSTOP);
    }
    signal(daemon.guard, libc::SIGKILL);
    wait_until("its process has ended", || !is_alive(sleeper));
    for reaper in reapers {
        signal(reaper, libc::SIGCONT);
        wait_until("its reaper has ended", || !is_alive(reaper));
    }
    assert!(!files.path().join("ran").exists(), "the command ran");
}

#[test]
fn what_kills_a_prepared_process_is_reported_as_no_start() {
    is_no_start_when_killed(|_, sleeper| sleeper);
}

#[test]
fn what_kills_the_reaper_of_a_prepared_process_is_reported_as_no_start() {
    is_no_start_when_killed(reaper_above);
}

/// A command waits for its instant, and one of its processes is killed.
fn is_no_start_when_killed(victim: impl FnOnce(i32, i32) -> i32) {
    on_runtime(async {
        let ground = ground();
        let waiting = ground.prepare();
        let sleeper = sleeper_of(ground.guard);
        signal(victim(ground.guard, sleeper), libc::SIGKILL);
        let refused = waiting.await.expect("no panic");
        assert!(matches!(refused, Err(SpawnError::Killed)), "{refused:?}");
        wait_until("its processes are gone", || {
            descendants(ground.guard).is_empty()
        });
        ground.assert_never_ran(None).await;
    });
}

/// Whatever it was doing at that moment, it did in the memory of its reaper.
#[test]
fn a_reaper_whose_command_was_killed_before_it_began_serves_no_other() {
    on_runtime(async {
        let ground = ground();
        let waiting = ground.prepare();
        let sleeper = sleeper_of(ground.guard);
        let reaper = reaper_above(ground.guard, sleeper);
        signal(sleeper, libc::SIGKILL);
        waiting.await.expect("no panic").expect_err("it was killed");
        // Each needs a reaper of its own, so one of them would get this one.
        let mut others = Vec::new();
        while is_alive(reaper) {
            let other = shell("echo $PPID; exec sleep 600");
            let mut other = ground.processes.spawn(other).await.expect("it starts");
            assert_ne!(pid(&mut other).await, reaper);
            others.push(other);
        }
    });
}

#[test]
fn a_command_that_is_withdrawn_before_its_instant_is_never_executed() {
    on_runtime(async {
        let ground = ground();
        let mut spawn = ground.marks(LONG);
        // Not even a signal that a prepared process ignores saves it.
        spawn.signal = nix::sys::signal::Signal::SIGCHLD;
        let processes = ground.processes.clone();
        let (withdraw, withdrawn) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn(async move {
            let withdrawn = async { withdrawn.await.expect("it is withdrawn") };
            let turn = processes.turn(spawn.start).await;
            processes.spawn_unless(turn, spawn, None, withdrawn).await
        });
        sleeper_of(ground.guard);
        withdraw.send(()).expect("it waits");
        let refused = waiting.await.expect("no panic");
        assert!(matches!(refused, Err(SpawnError::Withdrawn)), "{refused:?}");
        wait_until("its processes are gone", || {
            descendants(ground.guard).is_empty()
        });
        ground.assert_never_ran(None).await;
    });
}

/// Whatever comes first, what is reported is what happened.
#[test]
fn a_command_that_is_withdrawn_around_its_instant_runs_to_its_end_or_not_at_all() {
    with_guard(async |processes| {
        let dir = tempfile::tempdir().expect("a directory");
        for round in 0..200_u32 {
            let file = dir.path().join(round.to_string());
            let spawn = marks(&file, Duration::from_millis(8));
            let start = spawn.start.expect("it has one");
            // From a millisecond before the instant to one after it.
            let at = start.minus(Duration::from_millis(1));
            let at = at.plus(Duration::from_micros(10) * round);
            let withdrawn = async {
                let near = at.remaining().saturating_sub(Duration::from_millis(2));
                tokio::time::sleep(near).await;
                while !at.remaining().is_zero() {
                    tokio::task::yield_now().await;
                }
            };
            let turn = processes.turn(spawn.start).await;
            match processes.spawn_unless(turn, spawn, None, withdrawn).await {
                Ok(running) => {
                    let (_, exit) = finish(running).await;
                    let how = (exit.status, exit.ended_by);
                    assert_eq!(how, (Status::Code(0), EndedBy::Itself), "round {round}");
                    assert!(file.exists(), "round {round}");
                }
                Err(SpawnError::Withdrawn) => {
                    tokio::time::sleep(start.remaining() + Duration::from_millis(5)).await;
                    assert!(!file.exists(), "round {round}");
                }
                Err(error) => panic!("round {round}: {error}"),
            }
        }
    });
}

/// The prepared process of a guard, once it sleeps.
fn sleeper_of(guard: i32) -> i32 {
    let mut found = None;
    wait_until("a process is prepared", || {
        found = descendants(guard).into_iter().find(|pid| is_asleep(*pid));
        found.is_some()
    });
    found.expect("it was found")
}
