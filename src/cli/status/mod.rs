//! `cronlatch status`: hosts, jobs, and who holds what.

mod report;
mod text;

use std::process::ExitCode;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Failure, Target, output};
use crate::config::JobList;
use crate::names::{HostName, JobName};
use crate::store::{self, JobReport, KeyFault, Lock, Store, StoreError, StoreSettings};
use report::{HostStatus, JobStatus, NodeStatus};
pub(super) use report::{RunningStatus, StatusReport};

/// How many jobs are asked about at once.
const AT_ONCE: usize = 64;

/// Options of `status`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object
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
    let status = output::ask(async {
        let asked = StatusRequest {
            store: &store::open(&settings)?,
            settings: &settings,
            list: list.as_ref(),
            host: &host,
        };
        collect(asked).await
    })?;
    output::print(&if args.json {
        output::json_lines([&status])?
    } else {
        text::for_people(&status)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What `status` is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatusRequest<'a> {
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) settings: &'a StoreSettings,
    pub(super) list: Option<&'a JobList>,
    pub(super) host: &'a HostName,
}

/// Asks the store about hosts and jobs.
pub(super) async fn collect(asked: StatusRequest<'_>) -> Result<StatusReport, Failure> {
    let StatusRequest {
        store,
        settings,
        list,
        host,
    } = asked;
    let jobs = list.map_or(&[][..], |list| &list.jobs);
    let wanted: Vec<_> = jobs
        .iter()
        .map(|job| (job.name.clone(), job.lock_on(host)))
        .collect();
    let now = store.now().await?;
    let mut parts = Parts::default();
    let condition = parts.shown(store.condition(&wanted).await)?;
    let condition = condition.unwrap_or_default();
    let hosts = parts.shown(store.peers().await)?.unwrap_or_default();
    let reports = reports(store, &wanted).await?;
    let mut found = Vec::with_capacity(jobs.len());
    for (job, report) in jobs.iter().zip(reports) {
        let (report, fault) = apart_from_fault(report);
        let report = report
            .map(|answer| parts.shown(answer))
            .transpose()?
            .flatten();
        found.push(JobStatus::new(job, (report.as_ref(), fault.as_ref()), now));
    }
    let config = list.map(|list| &list.fingerprint);
    Ok(StatusReport {
        store: settings.shown(),
        now,
        away: parts.away,
        lost_data_at: condition.lost_at,
        recovering_until: report::recovering_until(&condition, now, jobs),
        nodes: NodeStatus::all(&condition, now),
        hosts: HostStatus::all(&hosts, config),
        jobs: found,
    })
}

/// What does not answer of a store that has parts, while the rest is shown.
#[derive(Debug, Default)]
struct Parts {
    away: Option<String>,
}

impl Parts {
    /// The answer, or `None` from a part that is away.
    fn shown<T>(&mut self, answer: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error @ (StoreError::PartUnreachable(_) | StoreError::Key(_))) => {
                self.away.get_or_insert_with(|| error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The answer about a job, or what is wrong with the keys of that job.
fn apart_from_fault<T>(
    answer: Result<T, StoreError>,
) -> (Option<Result<T, StoreError>>, Option<KeyFault>) {
    match answer {
        Err(StoreError::Key(fault)) => (None, Some(fault)),
        answer => (Some(answer), None),
    }
}

/// What the store reports about each job: for all at once, or for each alone when a part is away or
/// a key cannot be used.
async fn reports(
    store: &Arc<dyn Store>,
    jobs: &[(JobName, Lock)],
) -> Result<Vec<Result<JobReport, StoreError>>, StoreError> {
    match store.jobs(jobs).await {
        Err(StoreError::PartUnreachable(_) | StoreError::Key(_)) => {
            Ok(each(store, jobs, report_of).await)
        }
        answer => Ok(answer?.into_iter().map(Ok).collect()),
    }
}

async fn report_of(store: Arc<dyn Store>, job: (JobName, Lock)) -> Result<JobReport, StoreError> {
    let mut reports = store.jobs(std::slice::from_ref(&job)).await?;
    reports
        .pop()
        .ok_or_else(|| StoreError::corrupt(format!("the store's reply lacks the job {}", job.0)))
}

/// Asks about each job alone; the answers are in the order of the jobs.
async fn each<T, F>(
    store: &Arc<dyn Store>,
    jobs: &[(JobName, Lock)],
    ask: impl Fn(Arc<dyn Store>, (JobName, Lock)) -> F,
) -> Vec<Result<T, StoreError>>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    let mut answers: Vec<(usize, Result<T, StoreError>)> = Vec::with_capacity(jobs.len());
    let mut asked = JoinSet::new();
    let mut rest = jobs.iter().cloned().enumerate();
    loop {
        while asked.len() < AT_ONCE
            && let Some((at, job)) = rest.next()
        {
            let answer = ask(Arc::clone(store), job);
            asked.spawn(async move { (at, answer.await) });
        }
        match asked.join_next().await {
            Some(Ok(answer)) => answers.push(answer),
            // The tasks are never aborted.
            Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
            None => break,
        }
    }
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
