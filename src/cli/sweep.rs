//! `cronlatch sweep`: kills processes of runs that survived their daemon. The unit runs it in
//! `ExecStopPost=`.

use std::process::ExitCode;

use super::{Failure, output};
use crate::guard::{self, Swept};

/// Options of `sweep`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_: &Args) -> Result<ExitCode, Failure> {
    let Some(invocation) = std::env::var_os(guard::INVOCATION) else {
        return Err(Failure::Usage(
            "`sweep` is for ExecStopPost= of the systemd unit: INVOCATION_ID is not set".to_owned(),
        ));
    };
    // A daemon that ended in good order has ended its runs.
    if std::env::var_os("SERVICE_RESULT").is_some_and(|result| result == "success") {
        return Ok(ExitCode::SUCCESS);
    }
    let Swept { killed, left } = guard::sweep(&invocation);
    if killed > 0 {
        output::report(&format!(
            "killed {killed} {} of runs that had left the control group of the unit",
            noun(killed)
        ));
    }
    if left > 0 {
        return Err(Failure::Internal(format!(
            "cannot kill {left} {} of runs that had left the control group of the unit; {} may \
             outlive the lease",
            noun(left),
            if left == 1 { "it" } else { "they" }
        )));
    }
    Ok(ExitCode::SUCCESS)
}

fn noun(count: usize) -> &'static str {
    if count == 1 { "process" } else { "processes" }
}
