//! From what became of lock and command to an exit code and a word for a person.

use std::process::ExitCode;
use std::time::Duration;

use crate::cli::Failure;
use crate::guard::{EndedBy, Exit, SpawnError, Status};
use crate::lease::LeaseLost;
use crate::observe::plain;

/// What `timeout(1)` answers.
const TIMED_OUT: u8 = 124;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
const SIGNALLED: i32 = 128;

/// What became of the command.
#[derive(Debug)]
pub(super) struct CommandEnd {
    pub(super) exit: Exit,
    /// The lease, if it was lost before the command had ended.
    pub(super) lost: Option<LeaseLost>,
    /// The `--timeout` that ended it.
    pub(super) timed_out: Option<Duration>,
}

impl CommandEnd {
    /// Why the lease counts as lost: the watchdog said so, or the guard kept the deadline before
    /// the watchdog could say anything.
    pub(super) fn lease_lost(&self) -> Option<LeaseLost> {
        match self.exit.ended_by {
            EndedBy::Deadline => self.lost.or(Some(LeaseLost::Expired)),
            _ => self.lost,
        }
    }

    /// The exit code.
    pub(super) fn code(&self, lock: &str) -> Result<ExitCode, Failure> {
        if let Some(why) = self.lease_lost() {
            let what = match self.exit.ended_by {
                EndedBy::Itself => "the command continued without it",
                _ => "the command was killed",
            };
            return Err(Failure::NotAcquired(format!(
                "lock {lock:?}: {why}; {what}"
            )));
        }
        let code = match self.exit.status {
            Status::Code(0) if self.timed_out.is_some() => TIMED_OUT,
            Status::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
            Status::Signal(number) => u8::try_from(SIGNALLED + number).unwrap_or(u8::MAX),
            Status::Unknown => {
                let text = "the guard process has died, and killed the command".to_owned();
                return Err(Failure::Internal(text));
            }
        };
        Ok(ExitCode::from(code))
    }
}

/// The exit code of a command that could not be started, as a shell has it.
pub(super) fn of_spawn_error(error: &SpawnError, lock: &str) -> Result<ExitCode, Failure> {
    match error {
        SpawnError::CannotStart { source, .. } => {
            anstream::eprintln!("{}", plain(&error.to_string()));
            Ok(ExitCode::from(match source.kind() {
                std::io::ErrorKind::NotFound => NOT_FOUND,
                _ => CANNOT_RUN,
            }))
        }
        SpawnError::TooLate => Err(Failure::NotAcquired(format!("lock {lock:?}: {error}"))),
        SpawnError::GuardGone | SpawnError::NoReport | SpawnError::NoResources { .. } => {
            Err(Failure::Internal(error.to_string()))
        }
    }
}
