//! What the HTTP server of a daemon shows: the JSON of `status`, `history`, `next` and `explain`, made by
//! the code of these commands, and a calendar.

use std::time::Duration;

use async_trait::async_trait;
use clap::Parser;
use serde::Serialize;

use super::calendar::{self, CalendarSpan};
use super::{Failure, actions, explain, history, logs, next, output, status, times, unknown_job};
use crate::http::{
    FleetAction, FleetView, QueryParameters, ViewError, ViewSource, ViewText, Views,
};
use crate::names::{HostName, JobName};
use crate::observe::plain;
use crate::time::Timestamp;

/// Makes views as the commands do.
#[derive(Debug)]
pub(super) struct CommandViews;

#[async_trait]
impl Views for CommandViews {
    async fn view(
        &self,
        view: FleetView,
        query: &QueryParameters,
        source: &ViewSource,
    ) -> Result<ViewText, ViewError> {
        let made = match view {
            FleetView::Status => of_status(query, source, status_text).await,
            FleetView::Runs => of_status(query, source, runs_text).await,
            FleetView::Hosts => of_status(query, source, hosts_text).await,
            FleetView::Jobs => jobs(query, source),
            FleetView::History => of_history(query, source).await,
            FleetView::Explain => explanation(query, source).await,
            FleetView::Logs => logs_text(query).await,
            // Its lines end as those of a calendar do.
            FleetView::Calendar => return calendar_text(query, source),
        };
        made.map(printed)
    }

    async fn act(
        &self,
        action: FleetAction,
        body: &[u8],
        token: &str,
        source: &ViewSource,
    ) -> Result<ViewText, ViewError> {
        let done = actions::act(action, body, token, source).await;
        done.map(printed)
    }
}

/// Returns the text that `output::print` prints.
fn printed(made: ViewText) -> ViewText {
    ViewText {
        text: plain(&made.text).into_owned(),
        ..made
    }
}

impl From<Failure> for ViewError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Usage(text) => Self::Request(text),
            Failure::Unavailable(text) => Self::Unavailable(text),
            Failure::NotAcquired(text) => Self::Conflict(text),
            Failure::Internal(text) | Failure::Output(text) | Failure::Config(text) => {
                Self::Internal(text)
            }
            Failure::List(errors) => Self::Internal(errors.to_string()),
        }
    }
}

async fn of_status(
    query: &QueryParameters,
    source: &ViewSource,
    text: impl Fn(&status::StatusReport) -> Result<String, Failure>,
) -> Result<ViewText, ViewError> {
    query.of(&[]).map_err(ViewError::Request)?;
    let asked = status::StatusRequest {
        store: &source.store,
        settings: &source.settings,
        list: Some(&source.list),
        host: &source.host,
    };
    let report = status::collect(asked).await?;
    Ok(ViewText {
        text: text(&report)?,
        missing: report.away,
        position: None,
    })
}

fn status_text(report: &status::StatusReport) -> Result<String, Failure> {
    output::json_lines([report])
}

fn hosts_text(report: &status::StatusReport) -> Result<String, Failure> {
    output::json_lines(&report.hosts)
}

/// An open run with its job.
#[derive(Serialize)]
struct RunView<'a> {
    job: &'a str,
    #[serde(flatten)]
    run: &'a status::RunningStatus,
}

fn runs_text(report: &status::StatusReport) -> Result<String, Failure> {
    let runs = report.jobs.iter().flat_map(|job| {
        let runs = job.runs().into_iter();
        runs.map(|run| RunView {
            job: &job.name,
            run,
        })
    });
    output::json_lines(runs)
}

/// The options of `history` that a request may set.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct HistoryQuery {
    #[command(flatten)]
    args: history::Args,
}

async fn of_history(query: &QueryParameters, source: &ViewSource) -> Result<ViewText, ViewError> {
    let known = ["job", "limit", "since", "until", "failed", "outcome", "on"];
    let options = query.of(&known).map_err(ViewError::Request)?;
    let asked: HistoryQuery = parse(options, Vec::new())?;
    let (store, list) = (&*source.store, Some(&*source.list));
    let found = history::collect(store, list, &source.host, &asked.args).await?;
    let missing = found
        .damage
        .iter()
        .map(|(job, fault)| format!("part of the history of job {job} cannot be shown: {fault}"));
    let missing = missing.chain(found.away.map(|error| error.to_string()));
    let missing: Vec<String> = missing.collect();
    Ok(ViewText {
        text: output::json_lines(&found.records)?,
        missing: (!missing.is_empty()).then(|| missing.join("; ")),
        position: None,
    })
}

/// The options of `explain` that a request may set.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct ExplainQuery {
    #[arg(long)]
    job: JobName,
    #[arg(long, value_parser = times::instant)]
    at: Option<Timestamp>,
    /// For jobs whose occurrences each host has for itself.
    #[arg(long)]
    host: Option<HostName>,
}

async fn explanation(query: &QueryParameters, source: &ViewSource) -> Result<ViewText, ViewError> {
    let options = query
        .of(&["job", "at", "host"])
        .map_err(ViewError::Request)?;
    let asked: ExplainQuery = parse(options, Vec::new())?;
    let host = asked.host.as_ref().unwrap_or(&source.host);
    let about = (&asked.job, host);
    let explanation = explain::explain(&*source.store, &source.list, about, asked.at).await?;
    Ok(ViewText {
        text: output::json_lines([explanation])?,
        missing: None,
        position: None,
    })
}

/// The parameters of a calendar.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct CalendarQuery {
    #[arg(long)]
    job: Option<JobName>,
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..=366))]
    days: u32,
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
}

fn calendar_text(query: &QueryParameters, source: &ViewSource) -> Result<ViewText, ViewError> {
    let options = query
        .of(&["job", "days", "count"])
        .map_err(ViewError::Request)?;
    let asked: CalendarQuery = parse(options, Vec::new())?;
    if let Some(job) = &asked.job
        && source.list.jobs.iter().all(|listed| listed.name != *job)
    {
        return Err(unknown_job(job, &source.list).into());
    }
    let from = Timestamp::now();
    let jobs = source.list.jobs.iter().map(AsRef::as_ref);
    let jobs = jobs
        .filter(|it: &&crate::config::Job| asked.job.as_ref().is_none_or(|job| it.name == *job));
    let span = CalendarSpan {
        from,
        until: from.plus(Duration::from_secs(86_400) * asked.days),
        per_job: asked.count as usize,
    };
    Ok(ViewText {
        text: calendar::of_jobs(jobs, span),
        missing: None,
        position: None,
    })
}

/// The parameters of the output of a run.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct LogsQuery {
    #[arg(long, required_unless_present = "job", conflicts_with = "job")]
    run: Option<uuid::Uuid>,
    #[arg(long)]
    job: Option<JobName>,
    #[arg(long)]
    stream: Option<logs::StreamName>,
    #[arg(long, default_value_t = 0)]
    from: u64,
}

async fn logs_text(query: &QueryParameters) -> Result<ViewText, ViewError> {
    let options = query
        .of(&["run", "job", "stream", "from"])
        .map_err(ViewError::Request)?;
    let asked: LogsQuery = parse(options, Vec::new())?;
    let wanted = match (asked.run, asked.job) {
        (Some(run), _) => logs::WantedRun::Run(run.to_string()),
        (None, Some(job)) => logs::WantedRun::NewestOf(job),
        (None, None) => return Err(ViewError::Request("name a run or a job".to_owned())),
    };
    // It may be large, and the disk slow.
    let read = move || logs::over_http(&wanted, asked.stream, asked.from);
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|error| ViewError::Internal(error.to_string()))?
}

/// The options of `next` that a request may set.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct NextQuery {
    #[command(flatten)]
    args: next::Args,
}

/// The most occurrences in one reply.
const OCCURRENCES_MAX: usize = 200_000;

fn jobs(query: &QueryParameters, source: &ViewSource) -> Result<ViewText, ViewError> {
    let options = query
        .of(&["job", "from", "count"])
        .map_err(ViewError::Request)?;
    // `next` wants a list; this one is not read.
    let asked: NextQuery = parse(options, vec!["LIST".to_owned()])?;
    let jobs = if asked.args.names_a_job() {
        1
    } else {
        source.list.jobs.len()
    };
    if jobs.saturating_mul(asked.args.count()) > OCCURRENCES_MAX {
        return Err(ViewError::Request(format!(
            "more than {OCCURRENCES_MAX} occurrences: name a job, or ask for a smaller count"
        )));
    }
    let from = asked.args.from().unwrap_or_else(Timestamp::now);
    let coming = next::of_list(&source.list, &asked.args, from)?;
    Ok(ViewText {
        text: output::json_lines(&coming)?,
        missing: None,
        position: None,
    })
}

/// Parameters that are there or not.
const FLAGS: [&str; 1] = ["failed"];

/// Reads parameters as the command reads its options, with the same errors.
fn parse<P: Parser>(
    options: &[(String, String)],
    mut arguments: Vec<String>,
) -> Result<P, ViewError> {
    for (name, value) in options {
        if !FLAGS.contains(&name.as_str()) {
            arguments.push(format!("--{name}={value}"));
        } else if ["", "1", "true"].contains(&value.as_str()) {
            arguments.push(format!("--{name}"));
        }
    }
    P::try_parse_from(arguments).map_err(|error| {
        let text = error.to_string();
        let text = text.split("\n\n").next().unwrap_or("");
        ViewError::Request(text.trim_start_matches("error: ").trim().to_owned())
    })
}
