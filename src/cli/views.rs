//! What the HTTP server of a daemon shows: the JSON of `status`, `history` and `next`, made by the
//! code of these commands.

use async_trait::async_trait;
use clap::Parser;
use serde::Serialize;

use super::{Failure, history, next, output, status};
use crate::http::{FleetView, QueryParameters, ViewError, ViewSource, ViewText, Views};
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
        };
        let ViewText { json, missing } = made?;
        // As `output::print` does.
        let json = plain(&json).into_owned();
        Ok(ViewText { json, missing })
    }
}

impl From<Failure> for ViewError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Usage(text) => Self::Request(text),
            Failure::Unavailable(text) | Failure::NotAcquired(text) => Self::Unavailable(text),
            Failure::Internal(text) | Failure::Config(text) => Self::Internal(text),
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
        json: text(&report)?,
        missing: report.away,
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
    let runs = report.jobs.iter().filter_map(|job| {
        Some(RunView {
            job: &job.name,
            run: job.running.as_ref()?,
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
        json: output::json_lines(&found.records)?,
        missing: (!missing.is_empty()).then(|| missing.join("; ")),
    })
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
        json: output::json_lines(&coming)?,
        missing: None,
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
