//! Why a command was not started, in words.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use super::service::Refused;
use super::wire::Step;
use super::{Credentials, Lack, Spawn, SpawnError};

/// Refuses what no system call can be told: texts with a NUL byte.
pub(super) fn nul(spawn: &Spawn) -> Result<(), SpawnError> {
    let nul = |text: &OsStr| text.as_bytes().contains(&0);
    let dir = spawn.working_dir.as_ref().map(|dir| dir.as_os_str());
    let mut texts = spawn
        .argv
        .iter()
        .map(std::ffi::OsString::as_os_str)
        .chain(
            spawn
                .env
                .iter()
                .flat_map(|(name, value)| [&**name, &**value]),
        )
        .chain(dir);
    if texts.any(nul) {
        return Err(SpawnError::CannotStart {
            step: step_text(Step::Run, spawn),
            source: io::Error::new(
                io::ErrorKind::InvalidInput,
                "a NUL byte in its arguments, environment or directory",
            ),
        });
    }
    Ok(())
}

/// The guard's refusal as the caller's error.
pub(super) fn explain(refused: &Refused, spawn: &Spawn) -> SpawnError {
    match refused {
        Refused::TooLate => SpawnError::TooLate,
        Refused::GuardGone => SpawnError::GuardGone,
        Refused::NoReport => SpawnError::NoReport,
        Refused::Failed(step, errno) => {
            let source = io::Error::from_raw_os_error(*errno);
            let text = step_text(*step, spawn);
            // A limit of the job's own user is that job's affair.
            let own = matches!(step, Step::Uid | Step::Run) && *errno == libc::EAGAIN;
            if own {
                SpawnError::CannotStart { step: text, source }
            } else {
                of_host(text, source)
            }
        }
    }
}

/// A step that failed, told apart by whether this host lacks resources.
pub(super) fn of_host(step: String, source: io::Error) -> SpawnError {
    match Lack::of(&source) {
        Some(lack) => SpawnError::NoResources { step, lack, source },
        None => SpawnError::CannotStart { step, source },
    }
}

fn step_text(step: Step, spawn: &Spawn) -> String {
    let user = |id: fn(&Credentials) -> u32| spawn.user.as_ref().map_or(0, id);
    match step {
        Step::Fork => "create a process".to_owned(),
        Step::Cgroup => "join its control group".to_owned(),
        Step::Receive => "receive its files".to_owned(),
        Step::Parent => "tie it to the guard".to_owned(),
        Step::Stdio => "set up its input and output".to_owned(),
        Step::Group => "make its process group".to_owned(),
        Step::Groups => format!("take the groups of user {}", user(|user| user.uid)),
        Step::Gid => format!("become group {}", user(|user| user.gid)),
        Step::Uid => format!("become user {}", user(|user| user.uid)),
        Step::Nice => format!("set the nice value {}", spawn.nice.unwrap_or(0)),
        Step::Dir => {
            let dir = spawn.working_dir.as_ref().map(|dir| dir.as_os_str());
            format!("change to directory {}", quoted(dir))
        }
        Step::Run => {
            let program = spawn.argv.first().map(std::ffi::OsString::as_os_str);
            format!("run {}", quoted(program))
        }
    }
}

fn quoted(name: Option<&OsStr>) -> String {
    format!("{:?}", name.unwrap_or_default().to_string_lossy())
}
