//! `cronlatch status`: hosts, jobs, and who holds what.

mod report;
mod text;

use std::process::ExitCode;

use super::{Failure, Target, output};
use crate::store;
use report::{HostStatus, JobStatus, Status};

/// Options of `status`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let host = args.target.host()?;
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    let jobs = list.as_ref().map_or(&[][..], |list| &list.jobs);
    let wanted: Vec<_> = jobs
        .iter()
        .map(|job| (job.name.clone(), job.lock_on(&host)))
        .collect();
    let status = output::ask(async {
        let store = store::open(&settings)?;
        let now = store.now().await?;
        let condition = store.condition().await?;
        let hosts = store.hosts().await?;
        let reports = store.jobs(&wanted).await?;
        let mut found = Vec::new();
        for ((job, report), (name, lock)) in jobs.iter().zip(&reports).zip(&wanted) {
            let newest = store.history(name, lock, 1).await?.pop();
            found.push(JobStatus::new(job, report, newest, now));
        }
        let config = list.as_ref().map(|list| &list.fingerprint);
        Ok(Status {
            store: settings.shown(),
            now,
            lost_data_at: condition.lost_at,
            recovering_until: report::recovering_until(condition, now, jobs),
            hosts: HostStatus::all(&hosts, config),
            jobs: found,
        })
    })?;
    output::print(&if args.json {
        output::json_lines([&status])?
    } else {
        text::for_people(&status)
    })?;
    Ok(ExitCode::SUCCESS)
}
