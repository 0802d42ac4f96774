//! What jobs and other programs wrote never drives the terminal of the person who looks.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{Daemon, RedisServer, command, wait_until};

/// Clears the screen, sets the title, moves in C1's way, hides text, and turns it round.
const ODD: &str = "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{1b}[8mhidden\u{7f}\u{202e}txt\u{2066}\r";

/// The same for `printf`.
const PRINTED: &str =
    r"\033[2J\033]0;title\007\302\23331m\033[8mhidden\177\342\200\256txt\342\201\246\r";

/// Fails if a text has any of what it should not have, or does not show what was there instead.
#[track_caller]
fn assert_tame(what: &str, text: &str) {
    let own_colours = [
        "0", "1", "2", "3", "4", "31", "32", "33", "34", "35", "36", "39",
    ];
    let mut rest = text.to_owned();
    for colour in own_colours {
        rest = rest.replace(&format!("\u{1b}[{colour}m"), "");
    }
    // A terminal ends its lines in both.
    let rest = rest.replace("\r\n", "\n");
    let odd = |c: char| {
        (c.is_control() && c != '\n' && c != '\t') || matches!(c, '\u{202e}' | '\u{2066}')
    };
    assert!(!rest.contains(odd), "{what} drives the terminal: {text:?}");
    assert!(
        rest.contains("hidden") && rest.contains("txt"),
        "{what} shows the text: {text}"
    );
    assert!(
        rest.to_lowercase().contains("202e"),
        "{what} shows what was there: {text}"
    );
}

/// A terminal: what it receives can be read from the first, and is written to the second.
fn terminal() -> (File, OwnedFd) {
    let (mut master, mut end) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: both numbers are written before the call returns; name, modes and size may be null.
    let made = unsafe {
        libc::openpty(
            &raw mut master,
            &raw mut end,
            null,
            null.cast(),
            null.cast(),
        )
    };
    assert_eq!(made, 0, "a terminal");
    // SAFETY: the descriptors are open, and nobody else owns them.
    unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(end)) }
}

/// Runs a command whose output is a terminal; returns what the terminal received.
fn on_terminal(mut command: Command) -> String {
    let (mut terminal, end) = terminal();
    let out = || Stdio::from(end.try_clone().expect("a descriptor"));
    command.stdin(Stdio::null()).stdout(out()).stderr(out());
    command.env("TERM", "xterm-256color");
    let mut child = command.spawn().expect("it starts");
    // The last end but the child's own.
    drop(command);
    drop(end);
    let mut received = Vec::new();
    let mut chunk = [0; 4096];
    // Ends with an error once nobody has the other side open.
    while let Ok(count) = terminal.read(&mut chunk)
        && count > 0
    {
        received.extend_from_slice(&chunk[..count]);
    }
    child.wait().expect("a child of ours");
    String::from_utf8_lossy(&received).into_owned()
}

#[test]
fn control_characters_of_jobs_and_foreign_locks_are_shown_and_never_obeyed() {
    let redis = RedisServer::start();
    let print = format!("printf '{PRINTED}\\n'; printf '{PRINTED}\\n' >&2; exit 1");
    let list = json!({ "store": redis.url(), "jobs": [
        { "name": "odd", "every": "1s", "command": print },
        { "name": "hand", "schedule": "@yearly", "command": print },
        { "name": "foreign", "schedule": "@yearly", "lock": { "key": "app" }, "command": "true" },
        { "name": "broken", "schedule": "@yearly", "command": "true" },
    ] });
    let mut daemon = Daemon::on("one", list.to_string()).start();
    daemon.wait_log(&["hidden"]);
    daemon.wait_until("it has a record", |daemon| {
        !daemon.ask(&["history", "odd"]).stdout.trim().is_empty()
    });
    redis.command(&["SET", "app", ODD]);
    let ledger = "cronlatch:{broken}:job:broken";
    redis.command(&["HSET", ledger, "open", ODD, "last", ODD]);
    let on = |args: &[&str]| {
        let mut command = command::command(command::BINARY);
        command.args(args).env("CRONLATCH_CONFIG", daemon.list());
        command.env("CRONLATCH_HOST", "one");
        command
    };
    let url = redis.url();
    let exec = ["exec", "--store", &url, "--key", "app", "--", "true"];
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["trigger", "--here", "foreign", "--wait"],
        &["trigger", "--here", "foreign"],
        &["trigger", "--here", "hand", "--wait"],
        &exec,
        &["history", "odd", "--output"],
        &["history", "odd", "--json"],
    ] {
        assert_tame(&args.join(" "), &on_terminal(on(args)));
    }
    let plain = |args: &[&str]| {
        let output = command::output(on(args));
        output.stdout + &output.stderr
    };
    for args in [&["status"][..], &["history", "odd", "--output"], &exec] {
        assert_tame(&args.join(" "), &plain(args));
    }
    assert_tame("the log", &daemon.log());
    // A value that is damaged may be quoted, or not; it is not obeyed.
    for args in [&["doctor"][..], &["status"]] {
        let text = on_terminal(on(args)) + "hidden txt 202e";
        assert_tame(&args.join(" "), &text);
    }
    // JSON has the same text for every reader.
    wait_until("JSON can be read back", || {
        let status = command::output(on(&["status", "--json"]))
            .json_lines()
            .remove(0);
        let jobs = status["jobs"].as_array().expect("a list").clone();
        jobs.iter().any(|job| job["lock"]["held_by"] == ODD)
    });
}

#[test]
fn doctor_tells_a_person_that_it_waits_for_a_server_that_does_not_reply() {
    // Connections are made, and nobody takes them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let home = tempfile::tempdir().expect("a directory");
    let url = format!("redis://127.0.0.1:{port}");
    let doctor = || {
        let mut doctor = command::command(command::BINARY);
        doctor
            .args(["doctor", "--store", &url])
            .env("STATE_DIRECTORY", home.path());
        doctor
    };
    let shown = on_terminal(doctor());
    let told = format!("s: {url} is slow, or does not reply\r\n");
    assert!(shown.starts_with("still checking, for "), "{shown}");
    assert!(shown.contains(&told), "{shown}");
    assert!(shown.contains("store.reachable"), "{shown}");
    let piped = command::output(doctor());
    assert!(!piped.stderr.contains("still checking"), "{piped:#?}");
}

/// Two lines, of which the second pretends to be one of the log's.
const FORGED: &str = "one\r\n2026-01-01T00:00:00Z ERROR forged\n<3>forged\u{1b}[2J";

#[test]
fn the_value_of_a_foreign_lock_stays_on_the_log_line_that_shows_it() {
    let redis = RedisServer::start();
    redis.command(&["SET", "app", FORGED]);
    let list = json!({ "store": redis.url(), "jobs": [
        { "name": "job", "every": "1s", "on_overlap": "skip", "lock": { "key": "app" },
          "command": "true" },
    ] });
    let text = Daemon::on("text", list.to_string());
    let journal = Daemon::on("journal", list.to_string()).on_journal();
    let as_json = Daemon::on("json", list.to_string())
        .arg("--log-format")
        .arg("json");
    for builder in [text, journal, as_json] {
        let mut daemon = builder.start();
        daemon.wait_log(&["skipped: one", "forged"]);
        assert!(daemon.terminate().success());
        let log = daemon.log();
        assert!(!log.contains(['\r', '\u{1b}']), "{log:?}");
        for line in log.lines() {
            let is_ours = !line.contains("forged") || line.contains("one");
            assert!(is_ours, "{line:?} is no line of the log:\n{log}");
        }
    }
}

/// The writing end of a pipe that nobody reads.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// A command that finds its list and its state in this directory.
fn command_in(dir: &std::path::Path, args: &[&str]) -> std::process::Command {
    let mut command = command::command(command::BINARY);
    command
        .args(args)
        .current_dir(dir)
        .env("STATE_DIRECTORY", dir)
        .env("CRONLATCH_CONFIG", "jobs.yaml")
        .env("CRONLATCH_HOST", "here");
    command
}

/// `cronlatch check jobs.yaml | head -1`, and what has both ends closed.
#[test]
fn no_command_panics_when_nobody_reads_its_output() {
    let dir = tempfile::tempdir().expect("a directory");
    let list = "\
jobs:
  - { name: a, every: 1h, command: 'echo said; echo err >&2' }
  - { name: b, schedule: '0 3 * * *', command: a | b, user: no-such-user }
  - { name: c, every: 1h, command: echo said, lock: { scope: none } }
";
    std::fs::write(dir.path().join("jobs.yaml"), list).expect("a file");
    std::fs::write(dir.path().join("crontab"), "0 3 * * * a | b\n").expect("a file");
    std::fs::write(dir.path().join("wrong.yaml"), "jobs: 5\n").expect("a file");
    let start = |args: &[&str]| command_in(dir.path(), args);
    for args in [
        &["--help"][..],
        &["--version"],
        &["check", "--help"],
        &["what"],
        &["check", "jobs.yaml"],
        &["check", "--json", "jobs.yaml"],
        &["check", "wrong.yaml"],
        &["check", "--json", "wrong.yaml"],
        &["next", "jobs.yaml"],
        &["next", "--expr", "61 * * * *"],
        &["import", "crontab"],
        &["import", "--json", "crontab"],
        &["exec", "--lock", "l", "--", "sh", "-c", "exit 3"],
        &["exec", "--lock", "l", "--", "/no/such/program"],
        &["trigger", "--here", "c"],
        &["trigger", "--here", "a", "--wait"],
        &["trigger", "--here", "none"],
        &["status"],
        &["status", "--json"],
        &["history"],
        &["history", "--json"],
        &["history", "--output"],
        &["doctor"],
        &["doctor", "--json"],
        &["init"],
        &["forget", "b"],
        &["forget", "none"],
        &["unlock", "a"],
        &["unlock", "--json", "a"],
        &["schema"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["completions", "fish"],
        &["completions", "job-names"],
        &["man"],
        &["man", "/proc/none"],
        &["sweep"],
    ] {
        let read = command::output(start(args));
        assert_ne!(read.code(), 101, "{args:?}: {read:#?}");
        let mut half = start(args);
        half.stdout(closed_pipe());
        let half = half.stderr(Stdio::piped()).output().expect("it starts");
        let errors = String::from_utf8_lossy(&half.stderr);
        assert_eq!(half.status.code(), Some(read.code()), "{args:?}: {errors}");
        assert!(!errors.contains("panicked"), "{args:?}: {errors}");
        let mut closed = start(args);
        closed.stdout(closed_pipe()).stderr(closed_pipe());
        let closed = closed.status().expect("it starts");
        assert_eq!(closed.code(), Some(read.code()), "{args:?}");
    }
}

/// As on a full disk. Each command says so, and exits with the same code, whatever it prints.
#[test]
fn every_command_whose_output_cannot_be_written_exits_with_74() {
    let dir = tempfile::tempdir().expect("a directory");
    let list = "\
output: { keep: all }
jobs:
  - { name: a, every: 1h, command: 'echo said; echo err >&2' }
  - { name: b, every: 1h, command: 'true', enabled: false }
";
    std::fs::write(dir.path().join("jobs.yaml"), list).expect("a file");
    std::fs::write(dir.path().join("crontab"), "0 3 * * * a\n").expect("a file");
    let start = |args: &[&str]| command_in(dir.path(), args);
    command::output(start(&["trigger", "--here", "a", "--wait"])).expect_code(0);
    for args in [
        &["--help"][..],
        &["--version"],
        &["check", "--help"],
        &["check", "jobs.yaml"],
        &["check", "--json", "jobs.yaml"],
        &["next", "jobs.yaml"],
        &["next", "--expr", "0 0 * * *"],
        &["import", "crontab"],
        &["import", "--json", "crontab"],
        &["trigger", "--here", "b", "--wait"],
        &["trigger", "--here", "b", "--wait", "--json"],
        &["status"],
        &["status", "--json"],
        &["history"],
        &["history", "--json"],
        &["history", "--output"],
        &["logs", "a"],
        &["logs", "a", "--json"],
        &["explain", "a"],
        &["doctor"],
        &["doctor", "--json"],
        &["pause", "a"],
        &["pause", "a", "--json"],
        &["resume", "a"],
        &["unlock", "a"],
        &["unlock", "--json", "a"],
        &["forget", "b"],
        &["schema"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["completions", "fish"],
        &["completions", "job-names"],
        &["man"],
    ] {
        let full = File::options().write(true).open("/dev/full");
        let mut command = start(args);
        command
            .stdout(full.expect("a device"))
            .stderr(Stdio::piped());
        let output = command.output().expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(74), "{args:?}: {errors}");
        let said = "cannot write to standard output: No space left on device";
        assert!(errors.contains(said), "{args:?}: {errors}");
    }
    for args in [
        &["man", "/proc/none"][..],
        &["import", "crontab", "-o", "/proc/none"],
        &["import", "crontab", "-o", "no/such/directory"],
        &["run", "jobs.yaml", "--health-file", "no/such/directory"],
        &["run", "jobs.yaml", "--metrics-file", "no/such/directory"],
    ] {
        let refused = command::output(start(args)).expect_code(74).stderr;
        assert!(refused.contains("cannot write"), "{args:?}: {refused}");
    }
}

#[test]
fn a_daemon_whose_log_nobody_reads_runs_its_jobs_and_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let list = format!(
        "jobs:\n  - {{ name: a, every: 1s, command: 'echo x; : > {}/ran' }}\n",
        dir.path().display()
    );
    std::fs::write(dir.path().join("jobs.yaml"), list).expect("a file");
    let mut daemon = command::command(command::BINARY);
    daemon
        .args(["run", "jobs.yaml"])
        .current_dir(dir.path())
        .env("STATE_DIRECTORY", dir.path())
        .stdout(closed_pipe())
        .stderr(closed_pipe());
    let mut daemon = daemon.spawn().expect("it starts");
    wait_until("a job ran", || dir.path().join("ran").exists());
    let pid = nix::unistd::Pid::from_raw(i32::try_from(daemon.id()).expect("a process id"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    assert_eq!(daemon.wait().expect("a child").code(), Some(0));
}

/// Colours are for terminals, and `NO_COLOR` turns them off there, too.
#[test]
fn colours_are_for_terminals_without_no_color() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(
        dir.path().join("jobs.yaml"),
        "jobs: [{ name: a, every: 1h, command: echo said }]\n",
    )
    .expect("a file");
    let trigger = |no_color: Option<&str>| {
        let mut trigger = command::command(command::BINARY);
        trigger
            .args(["trigger", "--here", "a", "--wait", "-c", "jobs.yaml"])
            .current_dir(dir.path())
            .env("STATE_DIRECTORY", dir.path());
        if let Some(value) = no_color {
            trigger.env("NO_COLOR", value);
        }
        trigger
    };
    let coloured = on_terminal(trigger(None));
    assert!(coloured.contains("\u{1b}["), "{coloured:?}");
    for plain in [
        on_terminal(trigger(Some("1"))),
        command::output(trigger(None)).stderr,
    ] {
        assert!(
            plain.contains("said") && !plain.contains('\u{1b}'),
            "{plain:?}"
        );
    }
}
