//! The daemon dies or stops; the guard dies.

use std::task::Poll;
use std::time::Duration;

use cronlatch::guard::{EndedBy, SpawnError, Status};
use nix::sys::signal::Signal;

use crate::helper::Setup;
use crate::support::{
    announced, finish, guard, is_alive, line, on_runtime, pid, pid_in, shell, signal, wait_until,
};

/// Announces the main process, and one that left its session, its parent, and ignores SIGTERM.
const STRAYING: &str = r#"
    (setsid sh -c 'trap "" TERM; echo $$ >$FILES/stray; while :; do sleep 60; done' &)
    trap "" TERM
    echo $$ >$FILES/main
    while :; do sleep 60; done
"#;

#[test]
fn all_processes_end_and_then_the_guard_when_the_daemon_is_killed() {
    let files = tempfile::tempdir().expect("a directory");
    let daemon = Setup::new(STRAYING, files.path()).start();
    let (main, stray) = (pid_in(&files, "main"), pid_in(&files, "stray"));
    daemon.signal(libc::SIGKILL);
    wait_until("guard and jobs are gone", || {
        ![main, stray, daemon.guard].into_iter().any(is_alive)
    });
}

#[test]
fn all_processes_end_at_the_deadline_while_the_daemon_is_stopped() {
    let files = tempfile::tempdir().expect("a directory");
    let daemon = Setup::new(STRAYING, files.path())
        .deadline(Duration::from_secs(4))
        .start();
    daemon.signal(libc::SIGSTOP);
    let (main, stray) = (pid_in(&files, "main"), pid_in(&files, "stray"));
    wait_until("the jobs are gone", || {
        ![main, stray].into_iter().any(is_alive)
    });
    assert!(is_alive(daemon.guard), "it serves on when the daemon does");
}

#[test]
fn signals_that_end_others_do_not_end_the_guard() {
    let files = tempfile::tempdir().expect("a directory");
    let script = "while [ ! -e $FILES/go ]; do sleep 0.02; done; echo done >$FILES/done";
    let daemon = Setup::new(script, files.path()).start();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGUSR1,
    ] {
        let guard = nix::unistd::Pid::from_raw(daemon.guard);
        nix::sys::signal::kill(guard, signal).expect("it is there");
    }
    std::fs::write(files.path().join("go"), "").expect("a directory");
    announced(&files.path().join("done"));
}

#[test]
fn the_daemon_ends_all_processes_and_says_so_when_the_guard_is_killed() {
    on_runtime(async {
        let guard = guard();
        let guard_pid = guard.pid().cast_signed();
        let processes = guard.serve().expect("on a runtime");
        let script = r"
            (setsid sh -c 'echo $$; exec sleep 600' &)
            sleep 600 &
            echo $!
            wait";
        let mut running = processes.spawn(shell(script)).await.expect("it starts");
        let main = running.pid;
        let others = [pid(&mut running).await, pid(&mut running).await];
        signal(guard_pid, libc::SIGKILL);
        let (_, exit) = finish(running).await;
        assert_eq!(exit.status, Status::Unknown);
        assert_eq!(exit.ended_by, EndedBy::GuardGone);
        assert_eq!(exit.survivors, 0);
        for pid in [main, others[0], others[1]] {
            assert!(!is_alive(pid), "{pid} lives on");
        }
        processes.guard_gone().await;
        let refused = processes.spawn(shell("true")).await;
        assert!(matches!(refused, Err(SpawnError::GuardGone)));
        assert!(processes.deadlines().extend(&[]).is_ok(), "nothing to send");
    });
}

#[test]
fn main_processes_die_with_the_guard_even_while_the_daemon_is_stopped() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let files = tempfile::tempdir().expect("a directory");
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(files.path(), all).expect("ours");
    // A change of the user makes the kernel forget the parent-death signal.
    let script = "echo $$ >$FILES/main; exec sleep 600";
    let daemon = Setup::new(script, files.path()).user(12345).start();
    let main = pid_in(&files, "main");
    daemon.signal(libc::SIGSTOP);
    signal(daemon.guard, libc::SIGKILL);
    wait_until("the job is gone", || !is_alive(main));
}

#[test]
fn a_command_that_is_starting_while_the_guard_dies_is_answered() {
    on_runtime(async {
        let guard = guard();
        let pid = guard.pid().cast_signed();
        let processes = guard.serve().expect("on a runtime");
        signal(pid, libc::SIGSTOP);
        let asked = tokio::spawn({
            let processes = processes.clone();
            async move { processes.spawn(shell("true")).await.map(|_| ()) }
        });
        signal(pid, libc::SIGKILL);
        let answer = asked.await.expect("no panic");
        // The request may have reached the socket of the guard before it died.
        let expected = matches!(answer, Err(SpawnError::GuardGone | SpawnError::NoReport));
        assert!(expected, "{answer:?}");
    });
}

#[test]
fn dropping_the_runtime_ends_all_processes_even_while_deadlines_has_its_copy_of_the_socket() {
    let mut deadlines = None;
    let mut job = 0;
    on_runtime(async {
        let processes = guard().serve().expect("on a runtime");
        deadlines = Some(processes.deadlines());
        let mut running = processes
            .spawn(shell("echo $$; sleep 600"))
            .await
            .expect("it starts");
        job = pid(&mut running).await;
    });
    wait_until("the job is gone", || !is_alive(job));
    drop(deadlines);
}

#[test]
fn a_command_whose_asker_has_given_up_is_ended() {
    let files = tempfile::tempdir().expect("a directory");
    on_runtime(async {
        let guard = guard();
        let guard_pid = guard.pid().cast_signed();
        let processes = guard.serve().expect("on a runtime");
        let mut spawn = shell("echo $$ >$FILES/main; exec sleep 600");
        spawn.env.insert("FILES".into(), files.path().into());
        // Ignored by those who do not ask for it: there is time to say who one is.
        spawn.signal = Signal::SIGURG;
        spawn.grace = Duration::from_secs(3);
        signal(guard_pid, libc::SIGSTOP);
        let mut asked = Box::pin(processes.spawn(spawn));
        // Asked once, it has sent its order and waits for the answer.
        let once = std::future::poll_fn(|context| Poll::Ready(asked.as_mut().poll(context)));
        assert!(once.await.is_pending(), "nobody can have answered");
        drop(asked);
        signal(guard_pid, libc::SIGCONT);
        let job = pid_in(&files, "main");
        wait_until("the job is gone", || !is_alive(job));
    });
}

#[test]
fn a_guard_that_somebody_stopped_is_told_to_go_on() {
    on_runtime(async {
        let guard = guard();
        let guard_pid = guard.pid().cast_signed();
        let processes = guard.serve().expect("on a runtime");
        let script = "echo ready; read never; exit 7";
        let mut running = processes.spawn(shell(script)).await.expect("it starts");
        assert_eq!(line(&mut running).await, "ready");
        signal(guard_pid, libc::SIGSTOP);
        let next = processes.spawn(shell("echo here; exec sleep 600")).await;
        let mut next = next.expect("it starts once the guard goes on");
        assert_eq!(line(&mut next).await, "here");
        next.end();
        finish(next).await;
        let (_, exit) = finish(running).await;
        assert_eq!(exit.status, Status::Code(7));
    });
}
