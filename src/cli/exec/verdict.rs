//! The exit code and the message for the outcome of lock and command.

use std::process::ExitCode;

use crate::cli::{Failure, output};
use crate::guard::{EndedBy, SpawnError, Status};
use crate::lease::LeaseLost;
use crate::run::{Followed, KillReason};

/// The exit status that `timeout(1)` uses.
const TIMED_OUT: u8 = 124;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
const SIGNALLED: i32 = 128;

/// Returns the exit code for the way a command ended; `lost` is the reason if its lease was lost.
pub(super) fn exit_code(
    followed: &Followed,
    lost: Option<LeaseLost>,
    lock: &str,
) -> Result<ExitCode, Failure> {
    let exit = &followed.exit;
    let lost = match exit.ended_by {
        // The guard acted before the watchdog reported the loss.
        EndedBy::Deadline => lost.or(Some(LeaseLost::Expired)),
        _ => lost,
    };
    if let Some(why) = lost {
        let what = match exit.ended_by {
            EndedBy::Itself => "the command continued without it",
            _ => "the command was killed",
        };
        return Err(Failure::NotAcquired(format!(
            "lock {lock:?}: {why}; {what}"
        )));
    }
    let timed_out = matches!(followed.killed, Some(KillReason::TimedOut(_)));
    let code = match exit.status {
        Status::Code(0) if timed_out => TIMED_OUT,
        Status::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
        Status::Signal(number) => u8::try_from(SIGNALLED + number).unwrap_or(u8::MAX),
        Status::Unknown => {
            let text = "the guard process has died, and killed the command".to_owned();
            return Err(Failure::Internal(text));
        }
    };
    Ok(ExitCode::from(code))
}

/// The exit code of a command that could not be started, as a shell has it.
pub(super) fn of_spawn_error(error: &SpawnError, lock: &str) -> Result<ExitCode, Failure> {
    match error {
        SpawnError::CannotStart { source, .. } => {
            output::report(&error.to_string());
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
