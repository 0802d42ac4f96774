//! Commands started by tests: the same surroundings whatever the launcher's are.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};

use super::{schema, wait};

/// The program under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_cronlatch");

/// What must not leak in from the launcher.
const FOREIGN: [&str; 13] = [
    "CREDENTIALS_DIRECTORY",
    "FAKETIME",
    "LD_PRELOAD",
    "LISTEN_FDS",
    "MAINPID",
    "NOTIFY_SOCKET",
    "NO_COLOR",
    "RUST_LOG",
    "STATE_DIRECTORY",
    "TZ",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "XDG_STATE_HOME",
];

/// A command with signal dispositions, signal mask and environment as on a quiet machine, and
/// nothing to read.
///
/// It leads a process group of its own: in a group whose session leader is gone, as under some
/// launchers, the kernel sends SIGHUP and SIGCONT to all members once one of them is stopped and
/// another ends, and tests stop processes.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).process_group(0);
    for (name, _) in std::env::vars_os() {
        let cronlatchs = name.to_str().is_some_and(|n| n.starts_with("CRONLATCH"));
        if cronlatchs || FOREIGN.iter().any(|foreign| name == *foreign) {
            command.env_remove(&name);
        }
    }
    // SAFETY: the closure makes system calls only, all of them async-signal-safe; the default
    // disposition installs no handler.
    unsafe {
        command.pre_exec(|| {
            for number in Signal::iterator() {
                if !matches!(number, Signal::SIGKILL | Signal::SIGSTOP) {
                    signal(number, SigHandler::SigDfl)?;
                }
            }
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            Ok(())
        });
    }
    command
}

/// What a command that ended said.
#[derive(Debug)]
pub(crate) struct Output {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Its standard output.
    pub(crate) stdout: String,
    /// Its standard error.
    pub(crate) stderr: String,
}

impl Output {
    /// The exit code; 128 + the signal's number when a signal ended it, as a shell says.
    pub(crate) fn code(&self) -> i32 {
        let signal = || self.status.signal().map(|number| 128 + number);
        self.status.code().or_else(signal).unwrap_or(-1)
    }

    /// Fails unless the exit code is this one.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "exit code of {self:#?}");
        self
    }

    /// Standard output as one JSON value per line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<serde_json::Value> {
        let parse = |line| match serde_json::from_str(line) {
            Ok(value) => value,
            Err(error) => panic!("not JSON ({error}): {line:?} in {self:#?}"),
        };
        self.stdout.lines().map(parse).collect()
    }
}

/// Runs `cronlatch` with these arguments to its end.
#[track_caller]
pub(crate) fn cronlatch<S: AsRef<OsStr>>(args: &[S]) -> Output {
    let mut command = command(BINARY);
    command.args(args);
    output(command)
}

/// Runs a command to its end; ends it, and fails, when it takes for ever. With `--json`, what cronlatch
/// prints must follow the schema.
#[track_caller]
pub(crate) fn output(mut command: Command) -> Output {
    // Files, not pipes: a process that outlives the command cannot hold the test up.
    let mut stdout = tempfile::tempfile().expect("a temporary file");
    let mut stderr = tempfile::tempfile().expect("a temporary file");
    command.stdout(stdout.try_clone().expect("a file handle"));
    command.stderr(stderr.try_clone().expect("a file handle"));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => panic!("cannot run {command:?}: {error}"),
    };
    let status = exit_of(&mut child);
    let (stdout, stderr) = (text_of(&mut stdout), text_of(&mut stderr));
    let Some(status) = status else {
        panic!("{command:?} does not end; it said:\n{stdout}\n{stderr}");
    };
    if command.get_program() == BINARY {
        let args: Option<Vec<&str>> = command.get_args().map(OsStr::to_str).collect();
        schema::check_output(&args.unwrap_or_default(), &stdout, &stderr);
    }
    Output {
        status,
        stdout,
        stderr,
    }
}

/// Waits for a child's end; kills it, and answers `None`, when it takes for ever.
pub(crate) fn exit_of(child: &mut Child) -> Option<ExitStatus> {
    let status = wait::try_for(|| child.try_wait().expect("a child of ours"));
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    status
}

fn text_of(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().expect("a regular file");
    file.read_to_end(&mut bytes).expect("a readable file");
    String::from_utf8_lossy(&bytes).into_owned()
}
