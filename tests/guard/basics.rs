//! Spawning, output, exits, deadlines.

use std::time::Duration;

use cronlatch::guard::{EndedBy, ProcessEvent, SpawnError, Status, Stream};
use cronlatch::time::BootInstant;

use crate::support::{command, finish, line, shell, with_guard};

#[test]
fn a_command_runs_and_its_lines_and_exit_code_arrive() {
    with_guard(async |processes| {
        let mut running = processes
            .spawn(shell("echo out; echo err >&2; printf last; exit 7"))
            .await
            .expect("it starts");
        let mut lines = Vec::new();
        let exit = loop {
            match running.events.recv().await.expect("an exit comes") {
                ProcessEvent::Line { stream, text } => lines.push((stream, text)),
                ProcessEvent::Exited(exit) => break exit,
            }
        };
        let out: Vec<_> = lines.iter().filter(|line| line.0 == Stream::Out).collect();
        assert_eq!(
            out,
            [
                &(Stream::Out, "out".to_owned()),
                &(Stream::Out, "last".to_owned())
            ]
        );
        assert!(lines.contains(&(Stream::Err, "err".to_owned())));
        assert_eq!(exit.status, Status::Code(7));
        assert_eq!(exit.ended_by, EndedBy::Itself);
        assert_eq!(exit.left_behind, 0);
    });
}

#[test]
fn a_command_that_cannot_be_started_is_told_apart_from_one_that_failed() {
    with_guard(async |processes| {
        let error = processes
            .spawn(command(&["no-such-program"]))
            .await
            .expect_err("none");
        let SpawnError::CannotStart { step, source } = error else {
            panic!("not {error:?}");
        };
        assert_eq!(step, "run \"no-such-program\"");
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
        let failed = processes.spawn(shell("exit 127")).await.expect("it starts");
        assert_eq!(finish(failed).await.1.status, Status::Code(127));
    });
}

#[test]
fn a_spawn_whose_deadline_has_passed_is_refused() {
    with_guard(async |processes| {
        let mut spawn = shell("exit 0");
        spawn.deadline = Some(BootInstant::now());
        assert!(matches!(
            processes.spawn(spawn).await,
            Err(SpawnError::TooLate)
        ));
    });
}

#[test]
fn a_job_that_ignores_sigterm_is_dead_at_its_deadline() {
    with_guard(async |processes| {
        let mut spawn =
            shell("trap 'echo told' TERM; echo ready; while :; do sleep 60 & wait; done");
        let deadline = BootInstant::now().plus(Duration::from_secs(2));
        spawn.deadline = Some(deadline);
        spawn.grace = Duration::from_secs(1);
        let mut running = processes.spawn(spawn).await.expect("it starts");
        assert_eq!(line(&mut running).await, "ready");
        let (lines, exit) = finish(running).await;
        assert_eq!(lines, ["told"]);
        assert_eq!(exit.status, Status::Signal(libc::SIGKILL));
        assert_eq!(exit.ended_by, EndedBy::Deadline);
        assert!(BootInstant::now() >= deadline, "the grace was granted");
    });
}
