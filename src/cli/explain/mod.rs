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

use super::times::{TimeArgs, Times};
use super::{Failure, Target, output, unknown_job};
use crate::config::JobList;
use crate::names::{HostName, JobName};
use crate::store::Store;
use crate::time::Timestamp;
pub(super) use explanation::Explanation;
use facts::OccurrenceFacts;

/// Options of `explain`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job
    job: JobName,
    /// The instant to explain: `02:30`, `yesterday 02:30`, `2026-01-31 02:30`, `2h`, RFC 3339
    /// [default: the newest occurrence]
    #[arg(long, value_name = "T", value_parser = super::times::instant)]
    at: Option<Timestamp>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    times: TimeArgs,
    #[command(flatten)]
    target: Target,
}

/// Explains an instant of a job on a host; without an instant, the newest occurrence.
pub(super) async fn explain(
    store: &dyn Store,
    list: &JobList,
    (job, host): (&JobName, &HostName),
    at: Option<Timestamp>,
) -> Result<Explanation, Failure> {
    let facts = OccurrenceFacts::read(store, list, (job, host)).await?;
    let Some(at) = at.or_else(|| facts.newest_occurrence()) else {
        let message = format!("job {job} has no occurrence before now");
        return Err(Failure::Internal(message));
    };
    Ok(answer::explain(&facts, at))
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let host = args.target.host()?;
    let list = args.target.list()?;
    let settings = args.target.settings(Some(&list))?;
    if list.jobs.iter().all(|job| job.name != args.job) {
        return Err(unknown_job(&args.job, &list));
    }
    let explanation = output::ask(async {
        let store = args.target.open_existing(Some(&list), &settings)?;
        explain(&*store, &list, (&args.job, &host), args.at).await
    })?;
    output::print(&if args.json {
        output::json_lines([&explanation])?
    } else {
        text::for_people(&explanation, Times::for_stdout(args.times))
    })?;
    Ok(ExitCode::SUCCESS)
}
