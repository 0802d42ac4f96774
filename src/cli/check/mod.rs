//! `cronlatch check`: whether a job list is valid, and what it means.

mod differences;
mod hints;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use super::target::StoreArgs;
use super::{Failure, failure, output};
use crate::config::{self, ConfigErrors, JobList};
use crate::time::Timestamp;
use report::{CheckReport, ErrorReport};

/// Options of `check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job list: a file, or a directory of *.yaml files
    #[arg(
        value_name = "FILE",
        env = "CRONLATCH_CONFIG",
        default_value = "/etc/cronlatch/jobs.yaml"
    )]
    file: PathBuf,
    /// Print one JSON object, errors included
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: StoreArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match config::load(&args.file) {
        Ok(list) => report_list(args, &list),
        Err(errors) => report_errors(args, errors),
    }
}

fn report_list(args: &Args, list: &JobList) -> Result<ExitCode, Failure> {
    let host = args.place.host()?;
    let store = match args.place.settings(Some(list)) {
        Ok(settings) => settings.shown(),
        // A list without `store:` is valid even if this user has no directory for the embedded store.
        Err(_) if args.place.store.is_empty() => "the embedded one".to_owned(),
        Err(failure) => return Err(failure),
    };
    let report = CheckReport::new(list, &host, store, Timestamp::now());
    if args.json {
        output::print(&output::json_lines([&report])?)?;
    } else {
        output::print_page(&report.for_people())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn report_errors(args: &Args, errors: ConfigErrors) -> Result<ExitCode, Failure> {
    if !args.json {
        return Err(errors.into());
    }
    output::print(&output::json_lines([ErrorReport::new(
        &args.file, &errors,
    )])?)?;
    Ok(ExitCode::from(failure::CONFIG))
}
