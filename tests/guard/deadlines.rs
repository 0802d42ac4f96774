//! Deadlines that move.

use std::time::Duration;

use cronlatch::guard::{EndedBy, Status};
use cronlatch::names::RunId;
use cronlatch::time::BootInstant;

use crate::support::{LONG, finish, guard, line, shell, with_guard};

#[test]
fn a_deadline_is_moved_from_another_thread_while_the_runtime_hangs() {
    let guard = guard();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let processes = guard.serve().expect("on a runtime");
        let first = BootInstant::now().plus(Duration::from_secs(3));
        let mut spawn = shell("echo ready; sleep 4; echo survived");
        spawn.deadline = Some(first);
        spawn.grace = Duration::ZERO;
        let run = spawn.run.clone();
        let mut running = processes.spawn(spawn).await.expect("it starts");
        assert_eq!(line(&mut running).await, "ready");
        let deadlines = processes.deadlines();
        // The one thread of the runtime waits here, so no task of it runs.
        std::thread::spawn(move || {
            let mut runs: Vec<_> = (0..10_000)
                .map(|_| (RunId::new(), BootInstant::now().plus(LONG)))
                .collect();
            runs.push((run, BootInstant::now().plus(LONG)));
            deadlines.extend(&runs).expect("the guard takes them all");
            std::thread::sleep(first.remaining());
        })
        .join()
        .expect("no panic");
        let (lines, exit) = finish(running).await;
        assert_eq!(lines, ["survived"]);
        assert_eq!(exit.status, Status::Code(0));
    });
}

#[test]
fn a_deadline_is_moved_by_who_started_the_command() {
    with_guard(async |processes| {
        let mut spawn = shell("echo ready; read -r line < held; echo survived");
        let dir = tempfile::tempdir().expect("a directory");
        let held = dir.path().join("held");
        nix::unistd::mkfifo(&held, nix::sys::stat::Mode::S_IRWXU).expect("a named pipe");
        spawn.working_dir = Some(dir.path().to_owned());
        let deadline = BootInstant::now().plus(Duration::from_secs(2));
        spawn.deadline = Some(deadline);
        spawn.grace = Duration::ZERO;
        let mut running = processes.spawn(spawn).await.expect("it starts");
        assert_eq!(line(&mut running).await, "ready");
        running.extend(BootInstant::now().plus(LONG));
        tokio::time::sleep(deadline.remaining()).await;
        std::fs::write(held, "go on\n").expect("it is read");
        let (lines, exit) = finish(running).await;
        assert_eq!(lines, ["survived"]);
        assert_eq!(exit.status, Status::Code(0));
    });
}

#[test]
fn an_extension_into_the_past_or_of_another_run_changes_nothing() {
    with_guard(async |processes| {
        let mut spawn = shell("echo ready; sleep 600");
        let deadline = BootInstant::now().plus(Duration::from_secs(1));
        spawn.deadline = Some(deadline);
        spawn.grace = Duration::ZERO;
        let run = spawn.run.clone();
        let mut running = processes.spawn(spawn).await.expect("it starts");
        line(&mut running).await;
        let past = BootInstant::now().minus(Duration::from_secs(1));
        let late = BootInstant::now().plus(LONG);
        let runs = [(run, past), (RunId::new(), late)];
        processes
            .deadlines()
            .extend(&runs)
            .expect("the guard is there");
        let (_, exit) = finish(running).await;
        assert_eq!(exit.ended_by, EndedBy::Deadline);
        assert!(
            BootInstant::now() >= deadline,
            "not ended by the extension either"
        );
    });
}
