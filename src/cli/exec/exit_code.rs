//! The exit code and the message for the outcome of lock and command.

use std::process::ExitCode;

use crate::cli::{Failure, output};
use crate::guard::{EndedBy, SpawnError, Status};
use crate::lease::LeaseLost;
use crate::run::{Followed, KillReason};

/// For a command that `--timeout` killed and that then exited with 0. The number is that of `timeout(1)`, which
/// returns it for every time-out.
const TIMED_OUT: u8 = 124;
// As shells report them.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
const SIGNALLED: i32 = 128;

/// Returns the exit code for the way a command ended.
pub(super) fn exit_code(followed: &Followed, lock: &str) -> Result<ExitCode, Failure> {
    let exit = &followed.exit;
    let lost = match exit.ended_by {
        // The guard acted before the watchdog reported the loss.
        EndedBy::Deadline => followed.lost.or(Some(LeaseLost::Expired)),
        _ => followed.lost,
    };
    if let Some(why) = lost {
        let what = match exit.ended_by {
            EndedBy::Itself => "the command ended by itself",
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
            let text = "the guard process has died, so the command was killed".to_owned();
            return Err(Failure::Internal(text));
        }
    };
    Ok(ExitCode::from(code))
}

/// Returns the exit code of a command that could not be started, as a shell would report it.
pub(super) fn exit_code_of_spawn_error(
    error: &SpawnError,
    lock: &str,
) -> Result<ExitCode, Failure> {
    match error {
        SpawnError::CannotStart { source, .. } => {
            output::report(&error.to_string());
            Ok(ExitCode::from(match source.kind() {
                std::io::ErrorKind::NotFound => NOT_FOUND,
                _ => CANNOT_RUN,
            }))
        }
        SpawnError::TooLate => Err(Failure::NotAcquired(format!("lock {lock:?}: {error}"))),
        SpawnError::GuardGone
        | SpawnError::NoReport
        | SpawnError::Killed
        | SpawnError::NoResources { .. }
        // A command of `exec` waits for no instant.
        | SpawnError::Withdrawn => Err(Failure::Internal(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Exit;
    use crate::time::BootInstant;

    fn text(ended_by: EndedBy, status: Status, lost: Option<LeaseLost>) -> String {
        let followed = Followed {
            exit: Exit {
                status,
                ended_by,
                left_behind: 0,
                survivors: 0,
                usage: None,
                at: BootInstant::BOOT,
            },
            killed: None,
            lost,
        };
        let failure = exit_code(&followed, "l").expect_err("a failure");
        failure.to_string()
    }

    #[test]
    fn the_message_says_whether_a_command_without_its_lock_was_killed() {
        let lost = Some(LeaseLost::Expired);
        let code = Status::Code(0);
        // Also with `--on-lost kill`, between the report of the loss and the kill.
        let itself = text(EndedBy::Itself, code, lost);
        assert!(
            itself.ends_with("; the command ended by itself"),
            "{itself}"
        );
        for (ended_by, lost) in [(EndedBy::Request, lost), (EndedBy::Deadline, None)] {
            let killed = text(ended_by, Status::Signal(15), lost);
            assert!(killed.ends_with("; the command was killed"), "{killed}");
        }
    }
}
