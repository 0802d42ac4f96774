//! What the tests of the guard share.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cronlatch::guard::{
    Exit, Guard, GuardOptions, ProcessEvent, Processes, Running, Session, Spawn, Status, Stdio,
};
use cronlatch::names::RunId;
use nix::sys::signal::Signal;
use tempfile::TempDir;

/// Longer than any machine should take for anything here.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A guard that is this package's program.
pub(crate) fn guard() -> Guard {
    options(Session::Own).start().expect("the guard starts")
}

pub(crate) fn options(session: Session) -> GuardOptions {
    GuardOptions::default()
        .session(session)
        .program(env!("CARGO_BIN_EXE_cronlatch"))
}

/// Runs a test with a guard on a small runtime, for at most [`LONG`].
pub(crate) fn with_guard<F: Future<Output = ()>>(test: impl FnOnce(Processes) -> F) {
    on_runtime(async {
        let processes = guard().serve().expect("on a runtime");
        test(processes).await;
    });
}

pub(crate) fn on_runtime(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(LONG, test).await.expect("in time");
    });
}

/// `sh -c SCRIPT`, with no deadline and a grace that no test waits for.
pub(crate) fn shell(script: &str) -> Spawn {
    command(&["sh", "-c", script])
}

pub(crate) fn command(argv: &[&str]) -> Spawn {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    Spawn {
        run: RunId::new(),
        argv: argv.iter().map(OsString::from).collect(),
        inherited: Arc::default(),
        env: BTreeMap::from([("PATH".into(), path)]),
        working_dir: None,
        user: None,
        umask: None,
        nice: None,
        start: None,
        start_until: None,
        deadline: None,
        signal: Signal::SIGTERM,
        grace: LONG,
        stdio: Stdio::Capture,
    }
}

/// All lines, and the exit.
pub(crate) async fn finish(mut running: Running) -> (Vec<String>, Exit) {
    let mut lines = Vec::new();
    loop {
        match running.events.recv().await.expect("an exit comes last") {
            ProcessEvent::Line { text, .. } => lines.push(text),
            ProcessEvent::Exited(exit) => {
                assert_eq!(running.events.recv().await, None, "nothing after the exit");
                return (lines, exit);
            }
        }
    }
}

/// The next line.
pub(crate) async fn line(running: &mut Running) -> String {
    match running.events.recv().await {
        Some(ProcessEvent::Line { text, .. }) => text,
        other => panic!("a line, not {other:?}"),
    }
}

/// The next line, a process id.
pub(crate) async fn pid(running: &mut Running) -> i32 {
    let text = line(running).await;
    text.trim()
        .parse()
        .unwrap_or_else(|_| panic!("a pid, not {text:?}"))
}

/// Runs a script that prints the process id of its reaper (`$PPID`), and nothing else. Returns that
/// process, which may be free for another run by now.
pub(crate) async fn reaper_of(processes: &Processes, script: &str) -> i32 {
    let mut running = processes.spawn(shell(script)).await.expect("it starts");
    let reaper = pid(&mut running).await;
    assert_eq!(finish(running).await.1.status, Status::Code(0));
    reaper
}

/// The process id in a file another process writes.
pub(crate) fn pid_in(files: &TempDir, name: &str) -> i32 {
    announced(&files.path().join(name)).parse().expect("a pid")
}

/// The processes whose parent this is.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Sends a signal to a process that a test has started, or that comes from one.
pub(crate) fn signal(pid: i32, signal: i32) {
    // SAFETY: plain integers; at worst the process has ended, as it would by itself.
    unsafe { libc::kill(pid, signal) };
}

/// Whether a process of this number runs (a zombie does not).
pub(crate) fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let state = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_ascii_whitespace().next());
        !matches!(state, Some("Z" | "X"))
    })
}

/// Waits until it is so.
pub(crate) fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < LONG, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The content of a file another process writes, once it is a whole line.
pub(crate) fn announced(file: &Path) -> String {
    let mut text = String::new();
    wait_until(&format!("{} is written", file.display()), || {
        text = std::fs::read_to_string(file).unwrap_or_default();
        text.ends_with('\n')
    });
    text.trim_end().to_owned()
}
