//! Why a command was not started, in words.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use super::process::{Credentials, Lack, Spawn, SpawnError};
use super::service::SpawnRefused;
use super::wire::StartStep;

/// Rejects texts with a NUL byte, which no system call accepts.
pub(super) fn nul(spawn: &Spawn) -> Result<(), SpawnError> {
    let nul = |text: &OsStr| text.as_bytes().contains(&0);
    let dir = spawn.working_dir.as_ref().map(|dir| dir.as_os_str());
    let mut texts = spawn
        .argv
        .iter()
        .map(std::ffi::OsString::as_os_str)
        .chain(spawn.variables().flat_map(|(name, value)| [name, value]))
        .chain(dir);
    if texts.any(nul) {
        return Err(SpawnError::CannotStart {
            step: step_text(StartStep::Run, spawn),
            source: io::Error::new(
                io::ErrorKind::InvalidInput,
                "a NUL byte in its arguments, environment or directory",
            ),
        });
    }
    Ok(())
}

/// The guard's refusal as the caller's error.
pub(super) fn explain(refused: &SpawnRefused, spawn: &Spawn) -> SpawnError {
    match refused {
        SpawnRefused::TooLate => SpawnError::TooLate,
        SpawnRefused::GuardGone => SpawnError::GuardGone,
        SpawnRefused::NoReport => SpawnError::NoReport,
        // The run was withdrawn before its command began: the guard took the permit first.
        SpawnRefused::Failed(StartStep::Wait, libc::ECANCELED) => SpawnError::Withdrawn,
        // It, or its reaper, was killed before it took the permit or had announced itself.
        SpawnRefused::Failed(StartStep::Wait, libc::EINTR)
        | SpawnRefused::Failed(StartStep::Parent, libc::ESRCH) => SpawnError::Killed,
        SpawnRefused::Failed(step, errno) => {
            let source = io::Error::from_raw_os_error(*errno);
            let text = step_text(*step, spawn);
            // A limit of the job's own user is that job's affair.
            let own = matches!(step, StartStep::Uid | StartStep::Run) && *errno == libc::EAGAIN;
            if own {
                SpawnError::CannotStart { step: text, source }
            } else {
                of_host(text, source)
            }
        }
    }
}

/// Returns the error of a step that failed. It shows whether this host lacks resources.
pub(super) fn of_host(step: String, source: io::Error) -> SpawnError {
    match Lack::of(&source) {
        Some(lack) => SpawnError::NoResources { step, lack, source },
        None => SpawnError::CannotStart { step, source },
    }
}

fn step_text(step: StartStep, spawn: &Spawn) -> String {
    let user = |id: fn(&Credentials) -> u32| spawn.user.as_ref().map_or(0, id);
    match step {
        StartStep::Fork => "create a process".to_owned(),
        StartStep::Cgroup => "join its control group".to_owned(),
        StartStep::Receive => "receive its files".to_owned(),
        StartStep::Parent => "tie it to the guard".to_owned(),
        StartStep::Stdio => "set up its input and output".to_owned(),
        StartStep::Group => "make its process group".to_owned(),
        StartStep::Groups => format!("take the groups of user {}", user(|user| user.uid)),
        StartStep::Gid => format!("become group {}", user(|user| user.gid)),
        StartStep::Uid => format!("become user {}", user(|user| user.uid)),
        StartStep::Nice => format!("set the nice value {}", spawn.nice.unwrap_or(0)),
        StartStep::Wait => "wait for the instant of its start".to_owned(),
        StartStep::Dir => {
            let dir = spawn.working_dir.as_ref().map(|dir| dir.as_os_str());
            format!("change to directory {}", quoted(dir))
        }
        StartStep::Run => {
            let program = spawn.argv.first().map(std::ffi::OsString::as_os_str);
            format!("run {}", quoted(program))
        }
    }
}

fn quoted(name: Option<&OsStr>) -> String {
    format!("{:?}", name.unwrap_or_default().to_string_lossy())
}
