//! `cronlatch explain`: what happened to an occurrence and why, or what will happen.
//!
//! `facts` reads what the list, the store and its registry know. `answer` explains it from these
//! facts alone: `known` from a verdict, the ledger or the schedule, `undecided` otherwise, and
//! `hosts` for each host. `text` shows it.

mod answer;
mod explanation;
mod facts;
mod hosts;
mod known;
#[cfg(test)]
mod tests;
mod text;
mod undecided;

use std::process::ExitCode;

use super::clock::{TimeArgs, Times};
use super::{Failure, Target, output, unknown_job};
use crate::names::JobName;
use crate::store;
use crate::time::Timestamp;
use facts::OccurrenceFacts;

/// Options of `explain`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job
    job: JobName,
    /// The instant to explain: `02:30`, `yesterday 02:30`, `2026-01-31 02:30`, `2h`, RFC 3339
    /// [default: the newest occurrence]
    #[arg(long, value_name = "T", value_parser = super::clock::instant)]
    at: Option<Timestamp>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    times: TimeArgs,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let host = args.target.host()?;
    let list = args.target.list()?;
    let settings = args.target.settings(Some(&list))?;
    if list.jobs.iter().all(|job| job.name != args.job) {
        return Err(unknown_job(&args.job, &list));
    }
    let facts = output::ask(async {
        let store = store::open(&settings)?;
        OccurrenceFacts::read(&*store, &list, (&args.job, &host)).await
    })?;
    let at = args.at.or_else(|| facts.newest_occurrence());
    let Some(at) = at else {
        return Err(Failure::Internal(format!(
            "job {} has no occurrence before now",
            args.job
        )));
    };
    let explanation = answer::explain(&facts, at);
    output::print(&if args.json {
        output::json_lines([&explanation])?
    } else {
        text::for_people(&explanation, Times::on_output(args.times))
    })?;
    Ok(ExitCode::SUCCESS)
}
