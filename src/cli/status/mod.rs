//! `cronlatch status`: hosts, jobs, and who holds what.

mod report;
mod text;

use std::process::ExitCode;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Failure, Target, output};
use crate::names::JobName;
use crate::store::{self, Lock, Record, Store, StoreError};
use report::{HostStatus, JobStatus, NodeStatus, Status};

/// How many histories are read at once.
const AT_ONCE: usize = 64;

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
    args.target.warn_of(&settings);
    let jobs = list.as_ref().map_or(&[][..], |list| &list.jobs);
    let wanted: Vec<_> = jobs
        .iter()
        .map(|job| (job.name.clone(), job.lock_on(&host)))
        .collect();
    let status = output::ask(async {
        let store = store::open(&settings)?;
        let now = store.now().await?;
        let condition = store.condition(&wanted).await?;
        let hosts = store.hosts().await?;
        let reports = store.jobs(&wanted).await?;
        let newest = newest(&store, &wanted).await?;
        let found = jobs
            .iter()
            .zip(&reports)
            .zip(newest)
            .map(|((job, report), newest)| JobStatus::new(job, report, newest, now))
            .collect();
        let config = list.as_ref().map(|list| &list.fingerprint);
        Ok(Status {
            store: settings.shown(),
            now,
            lost_data_at: condition.lost_at,
            recovering_until: report::recovering_until(&condition, now, jobs),
            nodes: NodeStatus::all(&condition, now),
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

/// The newest record of each job.
async fn newest(
    store: &Arc<dyn Store>,
    jobs: &[(JobName, Lock)],
) -> Result<Vec<Option<Record>>, StoreError> {
    let mut newest = Vec::with_capacity(jobs.len());
    newest.resize_with(jobs.len(), || None);
    let mut asked = JoinSet::new();
    let mut rest = jobs.iter().cloned().enumerate();
    loop {
        while asked.len() < AT_ONCE
            && let Some((at, (job, lock))) = rest.next()
        {
            let store = Arc::clone(store);
            asked.spawn(async move { (at, store.history(&job, &lock, 1).await) });
        }
        match asked.join_next().await {
            Some(Ok((at, records))) => newest[at] = records?.pop(),
            // Nobody aborts them: one has panicked, and said so.
            Some(Err(_)) => {}
            None => return Ok(newest),
        }
    }
}
