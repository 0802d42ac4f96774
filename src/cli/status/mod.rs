//! `cronlatch status`: hosts, jobs, and who holds what.

mod check;
mod notes;
mod per_host;
mod report;
mod requests;
mod text;
mod watch;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::output::StdoutReader;
use super::times::duration;
use super::{Failure, Target, output};
use crate::config::{ConfigError, Job, JobList};
use crate::ground::sorting::SortShort as _;
use crate::ground::tasks::SpawnBoxed as _;
use crate::names::{HostName, JobName};
use crate::preflight;
use crate::store::{HostReport, JobReport, KeyFault, Lock, Store, StoreError, StoreSettings};
use crate::time::Timestamp;
use check::CheckResult;
use report::{HostStatus, JobStatus, NodeStatus, VanishedHost};
pub(super) use report::{RunningStatus, StatusReport, recovering_until};
use requests::RequestStatus;
use watch::{Screen, WatchedStore};

/// The shortest time between two pages of `--watch`.
const SHORTEST_WATCH: Duration = Duration::from_millis(100);

/// How many jobs are asked about at once.
const AT_ONCE: usize = 64;

/// Options of `status`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print what is wrong, and exit with 0 (OK), 1 (warning), 2 (critical) or 3 (unknown)
    #[arg(long)]
    check: bool,
    /// With --check: jobs that were due within this time must have succeeded within it
    #[arg(long, value_name = "DURATION", requires = "check", value_parser = duration)]
    max_age: Option<Duration>,
    /// Show it again every two seconds, or after this time, until Ctrl-C
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true,
          default_missing_value = "2s", conflicts_with = "check", value_parser = duration)]
    watch: Option<Duration>,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.check {
        return check(args);
    }
    let host = args.target.host()?;
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    args.target.warn_about_store(&settings);
    output::ask(async {
        if let Some(every) = args.watch {
            let store = WatchedStore::open(&args.target, list.as_ref(), &settings)?;
            return watch(args, (store, list.as_ref(), &host), every).await;
        }
        let status = collect(StatusRequest {
            store: &args.target.open_existing(list.as_ref(), &settings)?,
            settings: &settings,
            list: list.as_ref(),
            host: &host,
        })
        .await?;
        output::print(&page(args, &status)?)?;
        if status.hosts.is_empty() {
            args.target.warn_if_guessed(list.as_ref(), &settings);
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn page(args: &Args, status: &StatusReport) -> Result<String, Failure> {
    if args.json {
        output::json_lines([status])
    } else {
        Ok(text::for_people(status))
    }
}

/// Prints what is wrong with the fleet. If that cannot be found out, this is a result, too: a monitoring
/// system knows no other exit codes.
fn check(args: &Args) -> Result<ExitCode, Failure> {
    let result = judge(args).unwrap_or_else(|failure| CheckResult::unknown(why_unknown(&failure)));
    output::print(&if args.json {
        output::json_lines([&result])?
    } else {
        result.text()
    })?;
    Ok(result.status.exit_code())
}

fn judge(args: &Args) -> Result<CheckResult, Failure> {
    let host = args.target.host()?;
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    args.target.warn_about_store(&settings);
    let report = output::ask(async {
        let asked = StatusRequest {
            store: &args.target.open_existing(list.as_ref(), &settings)?,
            settings: &settings,
            list: list.as_ref(),
            host: &host,
        };
        collect(asked).await
    })?;
    if report.hosts.is_empty() && args.target.is_guessed(list.as_ref()) {
        return Ok(CheckResult::unknown(format!(
            "no job list was found, so this looked in {}, and no daemon reports to it: name the list of the \
             daemons with -c/--config, or their store with --store",
            report.store
        )));
    }
    let jobs = list.as_ref().map_or(&[][..], |list| &list.jobs);
    Ok(CheckResult::of(&report, jobs, args.max_age))
}

/// The failure in one line.
fn why_unknown(failure: &Failure) -> String {
    let Failure::List(errors) = failure else {
        let text = failure.to_string();
        return text.lines().next().unwrap_or_default().to_owned();
    };
    let mut all = errors.iter();
    let first = all
        .next()
        .map_or_else(String::new, ConfigError::in_one_line);
    match all.count() {
        0 => first,
        1 => format!("{first} (and 1 more error)"),
        n => format!("{first} (and {n} more errors)"),
    }
}

/// Shows the fleet until the process is ended. An outage of the store is shown while it lasts.
async fn watch(
    args: &Args,
    (mut store, list, host): (WatchedStore<'_>, Option<&JobList>, &HostName),
    every: Duration,
) -> Result<ExitCode, Failure> {
    let screen = Screen::of_stdout();
    let mut ticks = tokio::time::interval(every.max(SHORTEST_WATCH));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let asked = StatusRequest {
            settings: store.settings,
            store: store.current()?,
            list,
            host,
        };
        let page = match collect(asked).await {
            Ok(status) => page(args, &status)?,
            Err(Failure::Unavailable(reason)) if args.json => {
                output::report(&format!("warning: {reason}; retrying"));
                continue;
            }
            Err(Failure::Unavailable(reason)) => format!("{reason}; retrying\n"),
            Err(failure) => return Err(failure),
        };
        if screen.draw(&page, every)? == StdoutReader::Gone {
            return Ok(ExitCode::SUCCESS);
        }
    }
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
    let takes_no_writes = store.takes_no_writes().await;
    let mut parts = Parts::default();
    let condition = parts.shown(store.condition(&wanted).await)?;
    let condition = condition.unwrap_or_default();
    // Also those that share only one of several nodes with this host.
    let hosts = parts.shown(store.peers().await)?.unwrap_or_default();
    let vanished = parts.shown(store.vanished().await)?.unwrap_or_default();
    let live: Vec<_> = hosts.iter().map(|host| &host.info.host).collect();
    let reports = reports(store, &wanted).await?;
    let mut found = Vec::with_capacity(jobs.len());
    for (job, report) in jobs.iter().zip(reports) {
        found.push(JobStatus {
            matches_no_host: matches_none(job, &live),
            unmatched_hosts: unmatched(job, &live, &vanished),
            ..parts.job(job, report, now)?
        });
    }
    per_host::add(store, (&mut found, jobs), &live, (&mut parts, now)).await?;
    let requests = parts.shown(store.requests(None).await)?;
    let config = list.and_then(JobList::known_fingerprint);
    let others = preflight::other_lists(&**store, list, &hosts).await;
    let running = found.iter().filter_map(|job| job.running.as_ref());
    let running = running.map(|run| run.run_id.as_str()).collect();
    let requests = RequestStatus::all(requests.unwrap_or_default(), &running, now);
    Ok(StatusReport {
        store: settings.shown(),
        now,
        away: parts.away,
        takes_no_writes,
        lost_data_at: condition.lost_at,
        recovering_until: recovering_until(&condition, now, jobs),
        nodes: NodeStatus::all(&condition, now),
        hosts: HostStatus::all(&hosts, config, others),
        vanished: vanished.iter().map(VanishedHost::of).collect(),
        jobs: found,
        requests,
    })
}

/// Whether there are live hosts, and `hosts` of the job matches none of them.
fn matches_none(job: &Job, live: &[&HostName]) -> bool {
    job.enabled && !live.is_empty() && !live.iter().any(|host| job.policies.hosts.matches(host))
}

/// Those of the job's `hosts` that match no host, if the others do.
fn unmatched(job: &Job, live: &[&HostName], vanished: &[HostReport]) -> Vec<String> {
    if !job.enabled || live.is_empty() || matches_none(job, live) {
        return Vec::new();
    }
    let vanished = vanished.iter().map(|report| &report.info.host);
    let known: Vec<&HostName> = live.iter().copied().chain(vanished).collect();
    let matches =
        |glob: &str| (known.iter()).any(|host| glob_match::glob_match(glob, host.as_str()));
    let globs = job.policies.hosts.0.iter().filter(|glob| !matches(glob));
    globs.cloned().collect()
}

/// The part of a store that does not reply, while the rest is shown.
#[derive(Debug, Default)]
struct Parts {
    away: Option<String>,
}

impl Parts {
    /// Returns the reply, or `None` from a part that is away.
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

    /// Returns the status of a job from the reply about it.
    fn job(
        &mut self,
        job: &Job,
        answer: Result<JobReport, StoreError>,
        now: Timestamp,
    ) -> Result<JobStatus, StoreError> {
        let (answer, fault) = apart_from_fault(answer);
        let report = answer.map(|answer| self.shown(answer)).transpose()?;
        let report = report.flatten();
        Ok(JobStatus::new(job, (report.as_ref(), fault.as_ref()), now))
    }
}

/// The reply about a job, or what is wrong with the keys of that job.
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

/// Sends one request for each job. Returns the replies in the order of the jobs.
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
            asked.spawn_boxed(async move { (at, answer.await) });
        }
        match asked.join_next().await {
            Some(Ok(answer)) => answers.push(answer),
            // The tasks are never aborted.
            Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
            None => break,
        }
    }
    answers.sort_short_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
