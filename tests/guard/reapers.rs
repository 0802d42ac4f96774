//! Runs without a control group: each has a sub-reaper of its own.

use cronlatch::guard::{EndedBy, Processes, Running, Status};

use crate::helper::Setup;
use crate::support::{
    finish, guard, is_alive, line, on_runtime, pid, pid_in, reaper_of, shell, signal, wait_until,
    with_guard,
};

/// Prints the process id of a descendant that left its parent, its session and its environment,
/// and ends once that one is there.
const HIDING: &str = r"
    env -i setsid -f sh -c 'echo $$; exec sleep 600 >/dev/null' | { read pid; echo $pid; }
";

async fn bystander(processes: &Processes) -> Running {
    let script = "echo ready; exec sleep 600";
    let mut running = processes.spawn(shell(script)).await.expect("it starts");
    assert_eq!(line(&mut running).await, "ready");
    running
}

#[test]
fn a_descendant_that_hides_in_every_way_ends_with_its_run_while_another_runs() {
    with_guard(async |processes| {
        let other = bystander(&processes).await;
        let mut running = processes.spawn(shell(HIDING)).await.expect("it starts");
        let hidden = pid(&mut running).await;
        let (_, exit) = finish(running).await;
        assert!(!is_alive(hidden), "dead before the exit is reported");
        assert_eq!(exit.status, Status::Code(0));
        assert_eq!(exit.left_behind, 1);
        assert!(is_alive(other.pid));
        other.end();
        assert_eq!(finish(other).await.1.left_behind, 0);
    });
}

#[test]
fn what_a_run_leaves_behind_is_not_counted_for_another_that_ends_at_the_same_time() {
    with_guard(async |processes| {
        let files = tempfile::tempdir().expect("a directory");
        let go = files.path().join("go");
        let start = async |script: &str| {
            let script = format!("{script} echo ready; while [ ! -e $GO ]; do sleep 0.01; done");
            let mut spawn = shell(&script);
            spawn.env.insert("GO".into(), go.clone().into());
            let mut running = processes.spawn(spawn).await.expect("it starts");
            while line(&mut running).await != "ready" {}
            running
        };
        let leaving = start(HIDING).await;
        let tidy = start("").await;
        std::fs::write(&go, "").expect("a directory");
        assert_eq!(finish(tidy).await.1.left_behind, 0);
        assert_eq!(finish(leaving).await.1.left_behind, 1);
    });
}

/// Announces the main process and a descendant that hides, and runs on.
const HIDING_LONG: &str = r"
    env -i setsid -f sh -c 'echo $$; exec sleep 600 >/dev/null' | { read pid; echo $pid >$FILES/hidden; }
    echo $$ >$FILES/main
    exec sleep 600
";

#[test]
fn the_whole_tree_ends_with_the_guard_while_the_daemon_is_stopped() {
    let files = tempfile::tempdir().expect("a directory");
    let daemon = Setup::new(HIDING_LONG, files.path()).start();
    let (main, hidden) = (pid_in(&files, "main"), pid_in(&files, "hidden"));
    daemon.signal(libc::SIGSTOP);
    signal(daemon.guard, libc::SIGKILL);
    wait_until("the tree is gone", || {
        ![main, hidden].into_iter().any(is_alive)
    });
}

#[test]
fn the_whole_tree_ends_when_guard_and_daemon_are_killed_together() {
    let files = tempfile::tempdir().expect("a directory");
    let daemon = Setup::new(HIDING_LONG, files.path()).start();
    let (main, hidden) = (pid_in(&files, "main"), pid_in(&files, "hidden"));
    // Neither can do anything about the other's death.
    signal(daemon.guard, libc::SIGSTOP);
    daemon.signal(libc::SIGKILL);
    signal(daemon.guard, libc::SIGKILL);
    wait_until("the tree is gone", || {
        ![main, hidden].into_iter().any(is_alive)
    });
}

#[test]
fn a_command_that_kills_its_reaper_ends_its_own_run_only() {
    with_guard(async |processes| {
        let other = bystander(&processes).await;
        let script = r"
            setsid -f sh -c 'echo $$; exec sleep 600 >/dev/null' | { read pid; echo $pid; }
            kill -9 $PPID
            exec sleep 600";
        let mut running = processes.spawn(shell(script)).await.expect("it starts");
        let stray = pid(&mut running).await;
        let (_, exit) = finish(running).await;
        assert_eq!(exit.status, Status::Signal(libc::SIGKILL));
        assert_eq!(exit.ended_by, EndedBy::Itself);
        assert!(!is_alive(stray), "found by its environment");
        assert!(is_alive(other.pid));
        other.end();
        finish(other).await;
    });
}

#[test]
fn a_reaper_that_its_command_has_stopped_is_told_to_go_on() {
    with_guard(async |processes| {
        let script = "kill -STOP $PPID; exit 3";
        let running = processes.spawn(shell(script)).await.expect("it starts");
        assert_eq!(finish(running).await.1.status, Status::Code(3));
    });
}

#[test]
fn runs_that_follow_one_another_share_a_reaper_which_ends_soon_after_the_last() {
    with_guard(async |processes| {
        let mut reapers = Vec::new();
        for _ in 0..8 {
            reapers.push(reaper_of(&processes, "echo $PPID").await);
        }
        let shared = reapers.windows(2).filter(|pair| pair[0] == pair[1]);
        assert!(shared.count() > 0, "{reapers:?}");
        wait_until("no reaper is left", || {
            !reapers.iter().copied().any(is_alive)
        });
    });
}

#[test]
fn runs_at_the_same_time_have_reapers_of_their_own() {
    with_guard(async |processes| {
        let script = "echo $PPID; exec sleep 600";
        reaper_of(&processes, "echo $PPID").await;
        let mut one = processes.spawn(shell(script)).await.expect("it starts");
        let mut other = processes.spawn(shell(script)).await.expect("it starts");
        assert_ne!(pid(&mut one).await, pid(&mut other).await);
        one.end();
        assert_eq!(finish(one).await.1.ended_by, EndedBy::Request);
        assert!(is_alive(other.pid));
        other.end();
        finish(other).await;
    });
}

#[test]
fn a_reaper_that_was_killed_while_it_was_free_costs_no_run() {
    with_guard(async |processes| {
        let reaper = reaper_of(&processes, "echo $PPID").await;
        signal(reaper, libc::SIGKILL);
        wait_until("it is dead", || !is_alive(reaper));
        assert_ne!(reaper_of(&processes, "echo $PPID").await, reaper);
    });
}

#[test]
fn a_reaper_that_is_free_ends_with_the_guard() {
    on_runtime(async {
        let guard = guard();
        let pid = guard.pid().cast_signed();
        let processes = guard.serve().expect("on a runtime");
        let reaper = reaper_of(&processes, "echo $PPID").await;
        signal(pid, libc::SIGKILL);
        processes.guard_gone().await;
        wait_until("it is gone as well", || !is_alive(reaper));
    });
}

#[test]
fn a_command_that_signals_its_reaper_is_reported_as_any_other() {
    with_guard(async |processes| {
        // It ends once the reaper has taken the signals.
        let script = r"
            kill -USR1 $PPID; kill -USR2 $PPID; kill -CHLD $PPID
            while grep -q '^ShdPnd:.*[1-9a-f]' /proc/$PPID/status; do :; done
            exit 3";
        let running = processes.spawn(shell(script)).await.expect("it starts");
        assert_eq!(finish(running).await.1.status, Status::Code(3));
    });
}
