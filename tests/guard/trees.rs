//! Ending trees: what forks away, hides, stops, or is left behind.

use std::time::Duration;

use cronlatch::guard::{EndedBy, Status};
use nix::sys::signal::Signal;

use crate::support::{finish, is_alive, line, pid, shell, wait_until, with_guard};

#[test]
fn a_request_sends_the_first_signal_and_the_command_may_end_in_its_own_way() {
    with_guard(async |processes| {
        let script =
            "trap 'echo cleaned; exit 3' TERM; echo ready; while :; do sleep 60 & wait; done";
        let mut running = processes.spawn(shell(script)).await.expect("it starts");
        assert_eq!(line(&mut running).await, "ready");
        running.end();
        running.end();
        let (lines, exit) = finish(running).await;
        assert_eq!(lines, ["cleaned"]);
        assert_eq!(exit.status, Status::Code(3));
        assert_eq!(exit.ended_by, EndedBy::Request);
    });
}

#[test]
fn a_request_ends_a_command_that_ignores_it_after_the_grace_also_when_asked_twice() {
    with_guard(async |processes| {
        let mut spawn = shell("trap '' TERM; echo ready; while :; do sleep 60; done");
        spawn.grace = Duration::from_millis(200);
        let mut running = processes.spawn(spawn).await.expect("it starts");
        assert_eq!(line(&mut running).await, "ready");
        running.end();
        running.end();
        let (_, exit) = finish(running).await;
        assert_eq!(exit.status, Status::Signal(libc::SIGKILL));
        assert_eq!(exit.ended_by, EndedBy::Request);
    });
}

#[test]
fn a_signal_reaches_the_whole_process_group() {
    with_guard(async |processes| {
        let script = r#"
            exec 2>/dev/null
            trap 'echo main' USR1
            sh -c 'trap "echo child; exit" USR1; echo ready; while :; do sleep 0.02; done' &
            wait; wait; echo end"#;
        let mut running = processes.spawn(shell(script)).await.expect("it starts");
        assert_eq!(line(&mut running).await, "ready");
        running.signal(Signal::SIGUSR1);
        let (mut lines, exit) = finish(running).await;
        lines.sort();
        assert_eq!(lines, ["child", "end", "main"]);
        assert_eq!(exit.ended_by, EndedBy::Itself);
    });
}

#[test]
fn descendants_that_left_session_and_parent_end_with_the_run() {
    with_guard(async |processes| {
        let script = r#"
            trap '' TERM
            (setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 60; done' &)
            while :; do sleep 60; done"#;
        let mut spawn = shell(script);
        spawn.grace = Duration::from_millis(100);
        let mut running = processes.spawn(spawn).await.expect("it starts");
        let stray = pid(&mut running).await;
        running.end();
        let (_, exit) = finish(running).await;
        assert!(!is_alive(stray), "dead before the exit is reported");
        assert_eq!(exit.status, Status::Signal(libc::SIGKILL));
    });
}

#[test]
fn what_a_main_process_leaves_behind_is_ended_before_its_exit_is_reported() {
    with_guard(async |processes| {
        let mut spawn = shell(
            r#"sh -c 'trap "" TERM; sleep 600 & echo $$; wait' &
            read go <$FIFO; exit 5"#,
        );
        let files = tempfile::tempdir().expect("a directory");
        let fifo = files.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
        spawn.env.insert("FIFO".into(), fifo.clone().into());
        spawn.grace = Duration::from_millis(100);
        let mut running = processes.spawn(spawn).await.expect("it starts");
        let left = pid(&mut running).await;
        tokio::task::spawn_blocking(move || std::fs::write(fifo, "go\n"))
            .await
            .expect("no panic")
            .expect("a reader");
        let (_, exit) = finish(running).await;
        assert!(!is_alive(left), "dead before the exit is reported");
        assert_eq!(exit.status, Status::Code(5));
        assert_eq!(exit.ended_by, EndedBy::Itself);
        // The shell, and its sleep.
        assert_eq!(exit.left_behind, 2);
    });
}

#[test]
fn a_descendant_that_hides_its_environment_too_ends_with_the_only_run() {
    with_guard(async |processes| {
        let script = "(setsid env -i sh -c 'echo $$; exec sleep 600' &) ; read never; sleep 0.1";
        let mut running = processes.spawn(shell(script)).await.expect("it starts");
        let stray = pid(&mut running).await;
        let (_, exit) = finish(running).await;
        assert!(!is_alive(stray));
        assert_eq!(exit.status, Status::Code(0));
    });
}

#[test]
fn one_runs_strays_are_not_anothers() {
    with_guard(async |processes| {
        let script = "(setsid sh -c 'echo $$; exec sleep 600' &) ; sleep 600";
        let mut staying = processes.spawn(shell(script)).await.expect("it starts");
        let stray = pid(&mut staying).await;
        for _ in 0..5 {
            let other = processes
                .spawn(shell("sleep 600 & true"))
                .await
                .expect("it starts");
            assert_eq!(finish(other).await.1.left_behind, 1);
        }
        assert!(is_alive(stray) && is_alive(staying.pid));
        staying.end();
        finish(staying).await;
        assert!(!is_alive(stray));
    });
}

#[test]
fn a_stopped_command_can_be_ended() {
    with_guard(async |processes| {
        let mut spawn = shell("trap 'echo told; exit 4' TERM; echo $$; kill -STOP $$; sleep 600");
        spawn.deadline = None;
        let mut running = processes.spawn(spawn).await.expect("it starts");
        let main = pid(&mut running).await;
        wait_until("it is stopped", || {
            std::fs::read_to_string(format!("/proc/{main}/stat")).is_ok_and(|s| s.contains(") T "))
        });
        running.end();
        let (lines, exit) = finish(running).await;
        assert_eq!(lines, ["told"]);
        assert_eq!(exit.status, Status::Code(4));
    });
}

#[test]
fn a_command_that_forks_away_again_and_again_is_ended_whole() {
    with_guard(async |processes| {
        let script = r#"
            trap '' TERM
            i=0
            while [ $i -lt 2000 ]; do
                (setsid sh -c 'trap "" TERM; sleep 600; sleep 600' &)
                i=$((i + 1))
                echo $i
            done
            sleep 600"#;
        let mut spawn = shell(script);
        spawn.grace = Duration::from_millis(20);
        let run = spawn.run.clone();
        let mut running = processes.spawn(spawn).await.expect("it starts");
        while line(&mut running).await != "20" {}
        running.end();
        let (_, exit) = finish(running).await;
        assert_eq!(exit.status, Status::Signal(libc::SIGKILL));
        let marker = format!("CRONLATCH_RUN_ID={run}");
        let left = std::fs::read_dir("/proc")
            .expect("a proc")
            .flatten()
            .filter(|entry| {
                std::fs::read(entry.path().join("environ"))
                    .is_ok_and(|env| env.split(|byte| *byte == 0).any(|v| v == marker.as_bytes()))
            });
        assert_eq!(left.count(), 0);
    });
}
