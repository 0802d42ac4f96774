//! `exec`: one command under a lock, from crontabs and deploy scripts.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cronlatch::names::Token;
use cronlatch::store::{Finish, Lock};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;

use crate::support::command::{BINARY, Output, command, cronlatch, exit_of, output};
use crate::support::{RedisServer, tree, wait};

/// One test for each store.
macro_rules! on_both_stores {
    ($($name:ident)*) => {
        mod on_sqlite {
            $(#[test]
            fn $name() {
                super::$name(&super::Place::sqlite());
            })*
        }

        mod on_redis {
            $(#[test]
            fn $name() {
                super::$name(&super::Place::redis());
            })*
        }
    };
}

on_both_stores! {
    a_held_lock_is_not_waited_for_unless_asked
    one_who_waits_runs_once_the_lock_is_released
    a_waiter_that_is_ended_leaves_no_claim
    a_command_outlives_its_ttl_while_it_is_renewed
    a_lost_lock_ends_the_command
    fencing_tokens_rise_from_command_to_command
}

/// A store, and a directory for what commands write.
struct Place {
    dir: tempfile::TempDir,
    server: Option<RedisServer>,
}

impl Place {
    fn sqlite() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            server: None,
        }
    }

    fn redis() -> Self {
        Self {
            server: Some(RedisServer::start()),
            ..Self::sqlite()
        }
    }

    fn url(&self) -> String {
        match &self.server {
            Some(server) => server.url(),
            None => format!("sqlite:{}/store.db", self.dir.path().display()),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `exec` with these options and this line of shell.
    fn command(&self, options: &[&str], script: &str) -> Command {
        let mut exec = command(BINARY);
        exec.arg("exec")
            .args(["--store", &self.url(), "--host", "here"])
            .args(options)
            .args(["--", "sh", "-c", script])
            .current_dir(self.dir.path())
            .env("STATE_DIRECTORY", self.dir.path());
        exec
    }

    /// The same, on the lock `a`, to its end.
    #[track_caller]
    fn exec(&self, options: &[&str], script: &str) -> Output {
        output(self.command(&[&["--lock", "a"], options].concat(), script))
    }

    /// The same, in the background, until the script has written the file `began`.
    #[track_caller]
    fn begin(&self, options: &[&str], script: &str) -> Exec {
        let script = format!("echo $$ > began.new; mv began.new began; {script}");
        let command = self.command(&[&["--lock", "a"], options].concat(), &script);
        let mut exec = Exec::start(command);
        exec.wait_for("the command has begun", || self.file("began").exists());
        exec
    }

    /// The process that the script of [`Self::begin`] is.
    fn shell(&self) -> i32 {
        let text = fs::read_to_string(self.file("began")).expect("it has begun");
        text.trim().parse().expect("a process id")
    }

    /// Releases the lock `a` behind its holder's back.
    fn force_open(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let settings = cronlatch::store::check_url(&self.url()).expect("a sound URL");
            let store = cronlatch::store::open(&settings).expect("the store can be opened");
            let lock = Lock::named(&"a".parse().expect("a sound name"));
            let job = "a".parse().expect("a sound name");
            let reports = store.jobs(&[(job, lock.clone())]).await;
            let reports = reports.expect("the store answers");
            let holder = reports[0].holder.as_ref().expect("the lock is held");
            let finish = Finish {
                lock,
                token: Token::from_text(&holder.value),
                record: None,
                job: None,
                give_back: false,
                keep: cronlatch::store::Retention::of_records(0),
            };
            store.finish(&finish).await.expect("the store answers");
        });
    }
}

/// An `exec` that runs in the background; dropping it ends it and all that it started.
struct Exec {
    child: Child,
    mark: String,
    said: PathBuf,
    _dir: tempfile::TempDir,
}

impl Exec {
    #[track_caller]
    fn start(mut command: Command) -> Self {
        let mark = tree::new_mark();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let said = dir.path().join("said");
        let file = fs::File::create(&said).expect("a writable directory");
        command
            .env(tree::MARK_VARIABLE, &mark)
            .stdout(file.try_clone().expect("a file handle"))
            .stderr(file);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("cannot run {command:?}: {error}"),
        };
        Self {
            child,
            mark,
            said,
            _dir: dir,
        }
    }

    /// Starts one, and waits until it has been told that another holds the lock.
    #[track_caller]
    fn waiting(mut command: Command) -> Self {
        command.env("RUST_LOG", "cronlatch=debug");
        let mut exec = Self::start(command);
        let said = exec.said.clone();
        exec.wait_for("it has asked for the lock", || {
            fs::read_to_string(&said).is_ok_and(|said| said.contains("retrying"))
        });
        exec
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("a child of ours, not yet reaped");
    }

    #[track_caller]
    fn wait_for(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let held = wait::try_for(|| {
            if holds() {
                return Some(Ok(()));
            }
            self.child.try_wait().expect("a child of ours").map(Err)
        });
        match held {
            Some(Ok(())) => {}
            Some(Err(exit)) => panic!("ended ({exit}) before {what}; it said:\n{}", self.said()),
            None => panic!("waited in vain: {what}; it said:\n{}", self.said()),
        }
    }

    /// Waits for its end; answers its exit code as a shell says it.
    #[track_caller]
    fn code(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let status = wait::try_for(|| self.child.try_wait().expect("a child of ours"));
        let Some(status) = status else {
            panic!("does not end; it said:\n{}", self.said());
        };
        let signalled = || status.signal().map(|number| 128 + number);
        status.code().or_else(signalled).expect("it ended")
    }

    /// Waits until nothing that it started is there any more.
    #[track_caller]
    fn wait_gone(&self) {
        wait::wait_until("every process is gone", || {
            tree::members(&self.mark).is_empty()
        });
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        tree::kill_all(&self.mark);
    }
}

const ENDLESS: &str = "while :; do sleep 0.05; done";

fn a_held_lock_is_not_waited_for_unless_asked(place: &Place) {
    let holder = place.begin(&[], ENDLESS);
    let refused = place.exec(&[], "echo ran").expect_code(75);
    assert_eq!(refused.stdout, "");
    assert!(
        refused.stderr.contains("lock \"a\" is held by here"),
        "{refused:#?}"
    );
    place.exec(&["--wait", "0"], "echo ran").expect_code(75);
    let refused = place.exec(&["--wait", "300ms"], "echo ran").expect_code(75);
    assert!(refused.stderr.contains("waited 300ms"), "{refused:#?}");
    // Another lock is another lock.
    let other = place.command(&["--lock", "b"], "echo ran");
    assert_eq!(output(other).expect_code(0).stdout, "ran\n");
    drop(holder);
}

fn one_who_waits_runs_once_the_lock_is_released(place: &Place) {
    let mut holder = place.begin(
        &[],
        "while ! [ -e go ]; do sleep 0.02; done; echo first >> log",
    );
    let waiting = place.command(&["--lock", "a", "--wait"], "echo second >> log");
    let mut waiter = Exec::waiting(waiting);
    assert!(waiter.child.try_wait().expect("a child of ours").is_none());
    assert!(!place.file("log").exists());
    fs::write(place.file("go"), "").expect("a writable directory");
    assert_eq!(holder.code(), 0, "{}", holder.said());
    assert_eq!(waiter.code(), 0, "{}", waiter.said());
    let log = fs::read_to_string(place.file("log")).expect("they wrote it");
    assert_eq!(log, "first\nsecond\n");
}

fn a_waiter_that_is_ended_leaves_no_claim(place: &Place) {
    let mut holder = place.begin(&["--ttl", "1h"], "while ! [ -e go ]; do sleep 0.02; done");
    let endings = [
        (Signal::SIGKILL, 137),
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
    ];
    for (signal, code) in endings {
        let waiting = place.command(&["--lock", "a", "--ttl", "1h", "--wait"], "touch ran");
        let mut waiter = Exec::waiting(waiting);
        waiter.signal(signal);
        let ended = waiter.code();
        assert_eq!(ended, code, "{}", waiter.said());
    }
    fs::write(place.file("go"), "").expect("a writable directory");
    assert_eq!(holder.code(), 0, "{}", holder.said());
    // A claim left behind would bar this for an hour.
    let next = place.exec(&["--wait", "60s"], "echo ran").expect_code(0);
    assert_eq!(next.stdout, "ran\n");
    assert!(!place.file("ran").exists());
}

fn a_command_outlives_its_ttl_while_it_is_renewed(place: &Place) {
    let mut holder = place.begin(&["--ttl", "3s"], "sleep 3.5; echo whole");
    while holder.child.try_wait().expect("a child of ours").is_none() {
        let other = place.exec(&[], "echo ran");
        // It may have come to its end while we asked.
        assert!(
            other.code() == 75 || holder.said().contains("whole"),
            "{other:#?}"
        );
    }
    assert_eq!(holder.code(), 0, "{}", holder.said());
    assert!(holder.said().contains("whole"));
}

fn a_lost_lock_ends_the_command(place: &Place) {
    let mut holder = place.begin(
        &["--ttl", "6s"],
        "trap 'exit 0' TERM; while :; do sleep 0.05; done",
    );
    place.force_open();
    // Whatever status the command gives.
    assert_eq!(holder.code(), 75, "{}", holder.said());
    assert!(holder.said().contains("lease lost"), "{}", holder.said());
    holder.wait_gone();
}

fn fencing_tokens_rise_from_command_to_command(place: &Place) {
    let fences: Vec<u64> = (0..3)
        .map(|_| {
            place
                .exec(&[], "echo $CRONLATCH_FENCING_TOKEN")
                .expect_code(0)
        })
        .map(|output| output.stdout.trim().parse().expect("a number"))
        .collect();
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

#[test]
fn the_commands_own_status_is_passed_on() {
    let place = Place::sqlite();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -TERM $$", 143),
        ("kill -9 $$", 137),
    ] {
        place.exec(&[], script).expect_code(code);
    }
}

#[test]
fn a_command_that_cannot_be_run_is_told_as_a_shell_does() {
    let place = Place::sqlite();
    fs::write(place.file("text"), "no program").expect("a writable directory");
    for (program, code) in [
        ("no-such-program", 127),
        ("./no-such-file", 127),
        ("./text", 126),
        ("/", 126),
    ] {
        let mut exec = command(BINARY);
        exec.args([
            "exec",
            "--store",
            &place.url(),
            "--lock",
            "a",
            "--",
            program,
        ])
        .current_dir(place.dir.path());
        let output = output(exec).expect_code(code);
        assert!(output.stderr.contains(program), "{output:#?}");
    }
    // The lock is free again.
    place.exec(&[], "true").expect_code(0);
}

#[test]
fn input_and_output_are_the_callers() {
    let place = Place::sqlite();
    let mut exec = place.command(&["--lock", "a"], "cat; echo error >&2");
    let mut child = exec
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"through").expect("it reads");
    drop(input);
    let (mut out, mut err) = (String::new(), String::new());
    let stdout = child.stdout.as_mut().expect("a pipe");
    stdout.read_to_string(&mut out).expect("text");
    let stderr = child.stderr.as_mut().expect("a pipe");
    stderr.read_to_string(&mut err).expect("text");
    assert_eq!((out.as_str(), err.as_str()), ("through", "error\n"));
    assert!(exit_of(&mut child).expect("it ends").success());
}

#[test]
fn the_command_sees_whose_run_it_is() {
    let place = Place::sqlite();
    let script = "echo $CRONLATCH_JOB $CRONLATCH_HOST $CRONLATCH_ATTEMPT ${CRONLATCH_SCHEDULED_AT-none}; \
                  echo $CRONLATCH_RUN_ID; echo $KEPT";
    let mut exec = place.command(&["--lock", "a"], script);
    exec.env("KEPT", "as it was")
        .env("CRONLATCH_SCHEDULED_AT", "of an outer job");
    let output = output(exec).expect_code(0);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines[0], "a here 1 none");
    assert_eq!(lines[1].len(), 36);
    assert_eq!(lines[2], "as it was");
}

#[test]
fn signals_are_passed_on_to_the_command() {
    let place = Place::sqlite();
    let names = ["HUP", "INT", "QUIT", "USR1", "USR2", "TERM"];
    let traps: String = names
        .map(|name| format!("trap 'echo {name} >> log' {name};"))
        .concat();
    let script = format!("{traps} trap 'exit 5' ALRM; touch trapped; {ENDLESS}");
    let mut exec = place.begin(&[], &script);
    exec.wait_for("the traps are set", || place.file("trapped").exists());
    let mut so_far = String::new();
    for name in names {
        exec.signal(format!("SIG{name}").parse().expect("a signal"));
        so_far.push_str(name);
        so_far.push('\n');
        exec.wait_for(name, || {
            fs::read_to_string(place.file("log")).is_ok_and(|log| log == so_far)
        });
    }
    exec.signal(Signal::SIGALRM);
    assert_eq!(exec.code(), 5, "{}", exec.said());
}

#[test]
fn what_the_launcher_ignores_the_command_ignores_and_term_ends_exec_all_the_same() {
    let place = Place::sqlite();
    let ignore = |command: &mut Command| {
        // SAFETY: one async-signal-safe call; to ignore installs no handler.
        unsafe {
            command.pre_exec(|| {
                for number in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
                    signal(number, SigHandler::SigIgn)?;
                }
                Ok(())
            });
        }
    };
    let mut exec = place.command(&["--lock", "a"], "kill -HUP $$; kill -INT $$; echo lives");
    ignore(&mut exec);
    assert_eq!(output(exec).expect_code(0).stdout, "lives\n");

    let holder = place.begin(&[], ENDLESS);
    let mut waiting = place.command(&["--lock", "a", "--wait"], "true");
    ignore(&mut waiting);
    let mut waiter = Exec::start(waiting);
    // From when on it catches the signal cannot be seen from outside; before, it is ignored.
    let ended = wait::try_for(|| {
        waiter.signal(Signal::SIGHUP);
        waiter.signal(Signal::SIGTERM);
        waiter.child.try_wait().expect("a child of ours")
    });
    assert_eq!(
        ended.and_then(|status| status.code()),
        Some(143),
        "{}",
        waiter.said()
    );
    drop(holder);
}

#[test]
fn the_command_and_all_its_children_die_with_exec() {
    let place = Place::redis();
    let script = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.05; done' & \
                  trap '' TERM HUP; while :; do sleep 0.05; done";
    let mut exec = place.begin(&["--ttl", "4s", "--kill-grace", "0"], script);
    exec.signal(Signal::SIGKILL);
    assert_eq!(exec.code(), 137);
    exec.wait_gone();
    // A dead holder blocks its lock for one TTL at most.
    place.exec(&["--wait", "60s"], "true").expect_code(0);
}

#[test]
fn what_the_command_leaves_behind_is_ended_before_the_lock_is_released() {
    let place = Place::sqlite();
    let mut exec = place.begin(&[], "sleep 3600 & echo $! > child; exit 3");
    assert_eq!(exec.code(), 3, "{}", exec.said());
    let child = fs::read_to_string(place.file("child")).expect("written");
    assert!(!tree::is_alive(child.trim().parse().expect("a process id")));
}

#[test]
fn a_command_is_dead_before_the_lease_of_a_stopped_exec_ends() {
    let place = Place::redis();
    let script = format!("trap '' TERM; {ENDLESS}");
    let mut exec = place.begin(&["--ttl", "3s"], &script);
    exec.signal(Signal::SIGSTOP);
    let shell = place.shell();
    // The command is dead when the next holder gets the lock.
    let next = place.exec(&["--wait", "60s"], &format!("kill -0 {shell} || echo dead"));
    assert_eq!(next.expect_code(0).stdout, "dead\n");
    exec.signal(Signal::SIGCONT);
    assert_eq!(exec.code(), 75, "{}", exec.said());
    assert!(exec.said().contains("lease lost"), "{}", exec.said());
}

#[test]
fn a_store_that_goes_away_ends_the_command_before_its_lease() {
    let mut place = Place::redis();
    let mut exec = place.begin(&["--ttl", "3s"], ENDLESS);
    place.server.as_mut().expect("on Redis").stop();
    assert_eq!(exec.code(), 75, "{}", exec.said());
    assert!(
        exec.said().contains("could not be renewed"),
        "{}",
        exec.said()
    );
    exec.wait_gone();
    // And who asks now learns that it is the store, not the lock.
    place.exec(&[], "true").expect_code(69);
}

#[test]
fn a_command_may_go_on_without_its_lock() {
    let place = Place::redis();
    let mut exec = place.begin(
        &["--ttl", "4s", "--on-lost", "continue"],
        "while ! [ -e go ]; do sleep 0.02; done; echo whole",
    );
    place.force_open();
    let said = exec.said.clone();
    exec.wait_for("the loss is told", || {
        fs::read_to_string(&said).is_ok_and(|text| text.contains("continues"))
    });
    fs::write(place.file("go"), "").expect("a writable directory");
    assert_eq!(exec.code(), 75, "{}", exec.said());
    assert!(exec.said().contains("whole"), "{}", exec.said());
}

#[test]
fn a_time_out_ends_the_command() {
    let place = Place::sqlite();
    place
        .exec(&["--timeout", "200ms"], "exec sleep 3600")
        .expect_code(143);
    // Long enough for the shell to have set its trap.
    let obeys = format!("trap 'exit 0' TERM; {ENDLESS}");
    place.exec(&["--timeout", "2s"], &obeys).expect_code(124);
    let resists = format!("trap '' TERM; {ENDLESS}");
    place
        .exec(&["--timeout", "2s", "--kill-grace", "200ms"], &resists)
        .expect_code(137);
}

#[test]
fn without_any_configuration_the_lock_is_this_hosts() {
    let place = Place::sqlite();
    let exec = |script: &str| {
        let mut exec = command(BINARY);
        exec.args(["exec", "--lock", "a", "--", "sh", "-c", script])
            .current_dir(place.dir.path())
            .env("STATE_DIRECTORY", place.dir.path());
        exec
    };
    let mut holder = Exec::start(exec("touch began; while ! [ -e go ]; do sleep 0.02; done"));
    holder.wait_for("the command has begun", || place.file("began").exists());
    output(exec("true")).expect_code(75);
    fs::write(place.file("go"), "").expect("a writable directory");
    assert_eq!(holder.code(), 0);
    output(exec("true")).expect_code(0);
}

#[test]
fn the_store_may_come_from_a_job_list_or_the_environment() {
    let place = Place::sqlite();
    let holder = place.begin(&[], ENDLESS);
    let list = place.file("jobs.yaml");
    let jobs = "jobs: [{ name: a, schedule: '@daily', command: 'true' }]";
    fs::write(&list, format!("store: {}\n{jobs}\n", place.url())).expect("a writable directory");
    let exec = |name: &str, value: &Path| {
        let mut exec = command(BINARY);
        exec.args(["exec", "--lock", "a", "--", "true"])
            .env(name, value);
        output(exec)
    };
    exec("CRONLATCH_CONFIG", &list).expect_code(75);
    exec("CRONLATCH_STORE", Path::new(&place.url())).expect_code(75);
    drop(holder);
}

#[test]
fn a_raw_key_excludes_and_is_excluded_by_those_who_set_it() {
    let place = Place::redis();
    let server = place.server.as_ref().expect("on Redis");
    let exec = |script: &str| output(place.command(&["--key", "app:lock"], script));
    server.text(&["SET", "app:lock", "theirs", "NX", "PX", "60000"]);
    let refused = exec("true").expect_code(75);
    assert!(refused.stderr.contains("theirs"), "{refused:#?}");
    server.number(&["DEL", "app:lock"]);
    let ran = exec("echo $CRONLATCH_JOB").expect_code(0);
    assert_eq!(ran.stdout, "app:lock\n");
    assert_eq!(server.number(&["EXISTS", "app:lock"]), 0);
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    for line in [
        "exec -- true",
        "exec --lock a",
        "exec --lock a --key b -- true",
        "exec --lock a/b -- true",
        "exec --lock a --ttl 1s -- true",
        "exec --lock a --store http://x -- true",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        cronlatch(&words).expect_code(64);
    }
}

#[test]
fn without_a_store_named_it_says_nothing_of_its_own_unless_asked() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let exec = |options: &[&str]| {
        let mut exec = command(BINARY);
        exec.arg("exec")
            .args(options)
            .args(["--lock", "a", "--", "true"]);
        exec.env("STATE_DIRECTORY", dir.path());
        output(exec).expect_code(0)
    };
    assert_eq!(exec(&[]).stderr, "");
    let said = exec(&["--log-level", "debug"]).stderr;
    assert!(said.contains("the lock holds on this host only"), "{said}");
}

#[test]
fn rust_log_sets_the_level_of_everything_and_a_mistake_in_it_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let exec = |rust_log: &str| {
        let mut exec = command(BINARY);
        exec.args(["exec", "--log-format=json", "--lock", "a", "--", "true"]);
        exec.env("STATE_DIRECTORY", dir.path())
            .env("RUST_LOG", rust_log);
        output(exec).expect_code(0).stderr
    };
    let detail = "the lock holds on this host only";
    for all in ["debug", "cronlatch=debug", "error,cronlatch::cli=trace"] {
        let said = exec(all);
        assert!(said.contains(detail), "{all}: {said}");
        assert!(!said.contains("RUST_LOG"), "{all}: {said}");
    }
    assert_eq!(exec("warn"), "");
    // Also if what is left of it hides warnings.
    let said = exec("error,cronlatch=debgu");
    let line: serde_json::Value = serde_json::from_str(&said).expect("one line of the log");
    assert_eq!(line["level"], "WARN");
    let message = line["message"].as_str().expect("a message");
    assert!(message.contains("did you mean `debug`?"), "{message}");
}
