//! `cronlatch health`: whether the daemon of this machine or container is alive.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::{Failure, output};
use crate::observe::{HEALTH_EVERY, HealthReport, HealthState};
use crate::time::BootInstant;

/// A daemon that has not reported for this long hangs, because it has omitted two reports.
const SILENT: Duration = HEALTH_EVERY.saturating_mul(3);

/// Options of `health`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file that the daemon writes (`run --health-file`)
    #[arg(value_name = "FILE", env = "CRONLATCH_HEALTH_FILE")]
    file: PathBuf,
    /// Also fail while the daemon starts or stops
    #[arg(long)]
    ready: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let report = HealthReport::read(&args.file).map_err(|error| {
        Failure::Unavailable(format!(
            "cannot read the health file {}: {error}; is `cronlatch run --health-file` running?",
            args.file.display()
        ))
    })?;
    let HealthReport { at, state, status } = report;
    let age = BootInstant::now().since(at);
    if age > SILENT {
        return Err(Failure::Unavailable(format!(
            "the daemon has not reported for {}: it hangs or has ended",
            output::short(age)
        )));
    }
    let text = match status.as_str() {
        "" => state.word().to_owned(),
        status => format!("{}: {status}", state.word()),
    };
    if args.ready && state != HealthState::Ready {
        return Err(Failure::Unavailable(text));
    }
    output::print(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}
