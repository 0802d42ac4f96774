//! Output that floods, lasts, or stops early.

use std::time::Duration;

use cronlatch::guard::{EndedBy, ProcessEvent, Status};

use crate::support::{command, finish, is_alive, line, pid, shell, wait_until, with_guard};

#[test]
fn a_flood_that_nobody_reads_does_not_delay_the_kill() {
    with_guard(async |processes| {
        let mut spawn = shell("echo $$; trap '' TERM; while :; do echo flood; done");
        spawn.grace = Duration::from_millis(100);
        let mut running = processes.spawn(spawn).await.expect("it starts");
        let main = pid(&mut running).await;
        running.end();
        // Not one more event is taken until it is dead.
        wait_until("it is dead", || !is_alive(main));
        let (_, exit) = finish(running).await;
        assert_eq!(exit.ended_by, EndedBy::Request);
    });
}

#[test]
fn a_pipe_held_open_by_a_stranger_does_not_delay_the_exit() {
    let files = tempfile::tempdir().expect("a directory");
    with_guard(async |processes| {
        let script = "echo ready; while [ ! -e $FILES/go ]; do sleep 0.02; done; echo end";
        let mut spawn = shell(script);
        spawn.env.insert("FILES".into(), files.path().into());
        let mut running = processes.spawn(spawn).await.expect("it starts");
        assert_eq!(line(&mut running).await, "ready");
        // This process is none of the tree's.
        let held = std::fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/{}/fd/1", running.pid))
            .expect("the pipe can be opened");
        std::fs::write(files.path().join("go"), "").expect("a directory");
        let (lines, exit) = finish(running).await;
        assert_eq!(lines, ["end"]);
        assert_eq!(exit.status, Status::Code(0));
        drop(held);
    });
}

#[test]
fn a_command_that_closes_its_output_is_still_waited_for() {
    with_guard(async |processes| {
        let running = processes
            .spawn(shell("exec >&- 2>&-; sleep 0.2; exit 9"))
            .await
            .expect("it starts");
        let (lines, exit) = finish(running).await;
        assert_eq!(lines, [""; 0]);
        assert_eq!(exit.status, Status::Code(9));
    });
}

#[test]
fn commands_that_end_at_once_are_all_seen_with_all_they_wrote() {
    with_guard(async |processes| {
        let started: Vec<_> = (0..100)
            .map(|n: i32| {
                let processes = processes.clone();
                tokio::spawn(async move {
                    let text = n.to_string();
                    let running = processes.spawn(command(&["echo", &text])).await;
                    let (lines, exit) = finish(running.expect("it starts")).await;
                    assert_eq!(lines, [text]);
                    assert_eq!(exit.status, Status::Code(0));
                })
            })
            .collect();
        for one in started {
            one.await.expect("no panic");
        }
    });
}

#[test]
fn a_command_runs_on_when_nobody_listens_to_it() {
    let files = tempfile::tempdir().expect("a directory");
    with_guard(async |processes| {
        let mut spawn = shell(
            "i=0; while [ $i -lt 20000 ]; do echo line; i=$((i+1)); done; echo end >$FILES/end",
        );
        spawn.env.insert("FILES".into(), files.path().into());
        let running = processes.spawn(spawn).await.expect("it starts");
        drop(running);
        let end = files.path().join("end");
        tokio::task::spawn_blocking(move || crate::support::announced(&end))
            .await
            .expect("it ends");
    });
}

#[test]
fn a_flood_is_read_whole_by_a_slow_reader() {
    with_guard(async |processes| {
        let mut running = processes
            .spawn(command(&["seq", "1", "20000"]))
            .await
            .expect("it starts");
        let mut next = 1;
        loop {
            match running.events.recv().await.expect("an exit comes") {
                ProcessEvent::Line { text, .. } => {
                    assert_eq!(text, next.to_string());
                    next += 1;
                    if next % 1000 == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                ProcessEvent::Exited(exit) => {
                    assert_eq!(exit.status, Status::Code(0));
                    break;
                }
            }
        }
        assert_eq!(next, 20001);
    });
}
