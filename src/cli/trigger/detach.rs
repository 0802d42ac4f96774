//! A run that outlives the command that started it. The command starts itself again in a new
//! session, and waits only until the new process reports whether the run was granted.
//!
//! The new process reports through its standard output and then closes it, so that the run never
//! delays a program that reads the output of the command.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::cli::Failure;
use crate::names::RunId;

/// The word, one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
enum ChildReport {
    /// The run has begun.
    Granted(String),
    /// It was not started.
    Refused { code: u8, text: String },
}

/// Starts this command anew with the same arguments and `flag`. Returns the id of the run.
pub(super) fn start(flag: &str) -> Result<RunId, Failure> {
    let failed = |error: io::Error| Failure::Internal(format!("cannot start the run: {error}"));
    let mut child = Command::new("/proc/self/exe")
        .args(with_flag(std::env::args_os().skip(1).collect(), flag))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(failed)?;
    }
    match serde_json::from_str(&line) {
        Ok(ChildReport::Granted(run_id)) => Ok(RunId::from_text(&run_id)),
        Ok(ChildReport::Refused { code, text }) => Err(Failure::with_code(code, text)),
        Err(_) => Err(Failure::Internal(
            "the process for the run ended before it reported anything".to_owned(),
        )),
    }
}

/// These arguments and the flag, which stands before a `--`: after it nothing is an option.
fn with_flag(mut args: Vec<OsString>, flag: &str) -> Vec<OsString> {
    let end = args.iter().position(|arg| arg == "--");
    args.insert(end.unwrap_or(args.len()), flag.into());
    args
}

/// The other side, first of all: leaves the session of the one who asked. The new session receives
/// neither the signals of the terminal nor its hang-up.
pub(super) fn leave_session() -> Result<(), Failure> {
    nix::unistd::setsid()
        .map(drop)
        .map_err(|e| Failure::Internal(format!("cannot start a session: {e}")))
}

/// Says that the run has begun.
pub(super) fn granted(run_id: &RunId) {
    say(&ChildReport::Granted(run_id.to_string()));
}

/// Says that it has not.
pub(super) fn refused(failure: &Failure) {
    say(&ChildReport::Refused {
        code: failure.code(),
        text: failure.to_string(),
    });
}

/// Writes the word and lets go of the pipe. The reader may have ended; the run continues.
fn say(word: &ChildReport) {
    if let Ok(mut line) = serde_json::to_vec(word) {
        line.push(b'\n');
        let mut out = io::stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(&null);
    }
}
