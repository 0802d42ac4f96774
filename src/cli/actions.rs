//! What may be done over HTTP: `pause`, `resume`, `trigger` and `kill`, carried out by the code of these
//! commands. The body of a request is a JSON object with the options of the command.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::kill::{self, KillOrder};
use super::pause::{self, PauseCall, parse_reason};
use super::requester::of_token;
use super::trigger::{self, TriggerCall};
use super::{Failure, times};
use crate::config::parse_duration;
use crate::http::{FleetAction, ViewError, ViewSource, ViewText};
use crate::names::{HostName, JobName};
use crate::store::{IfPaused, PauseOrder, retry};

/// Carries out an action for who has the token of this name.
pub(super) async fn act(
    action: FleetAction,
    body: &[u8],
    token: &str,
    source: &ViewSource,
) -> Result<ViewText, ViewError> {
    let by = of_token(token, &source.host);
    let (text, failed) = match action {
        FleetAction::Pause => pause(parse(body)?, by, source).await?,
        FleetAction::Resume => resume(parse(body)?, by, source).await?,
        FleetAction::Trigger => (trigger(parse(body)?, by, source).await?, None),
        FleetAction::Kill => kill(parse(body)?, by, source).await?,
    };
    match failed {
        // Nothing was done.
        Some(failure) if text.is_empty() => Err(failure.into()),
        failed => Ok(ViewText {
            text,
            missing: failed.map(|failure| failure.to_string()),
            position: None,
        }),
    }
}

fn parse<B: DeserializeOwned>(body: &[u8]) -> Result<B, ViewError> {
    serde_json::from_slice(body)
        .map_err(|error| ViewError::Request(format!("the body is not as described: {error}")))
}

/// The options of `resume`, and those that `pause` has, too.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResumeBody {
    /// Names or globs.
    #[serde(default)]
    jobs: Vec<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    reason: String,
}

/// The options of `pause`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PauseBody {
    #[serde(default)]
    jobs: Vec<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    reason: String,
    #[serde(default, rename = "for")]
    duration: Option<String>,
    #[serde(default)]
    until: Option<String>,
}

/// The jobs that are named; `None` for all.
fn chosen(jobs: Vec<String>, all: bool) -> Result<Option<Vec<String>>, Failure> {
    match (jobs.is_empty(), all) {
        (true, true) => Ok(None),
        (false, false) => Ok(Some(jobs)),
        (true, false) => Err(usage(
            "name jobs with `jobs`, or all of them with `all: true`",
        )),
        (false, true) => Err(usage("give either `jobs` or `all`")),
    }
}

async fn pause(
    body: PauseBody,
    by: String,
    source: &ViewSource,
) -> Result<(String, Option<Failure>), Failure> {
    let reason = reason(&body.reason)?;
    let now = retry(super::request::ASKING, || source.store.now()).await?;
    if body.duration.is_some() && body.until.is_some() {
        return Err(usage("give either `for` or `until`"));
    }
    let length = body.duration.as_deref().map(parse_duration).transpose();
    let length = length.map_err(|error| usage(&format!("`for` {error}")))?;
    let at = body.until.as_deref().map(times::instant).transpose();
    let at = at.map_err(|error| usage(&format!("`until`: {error}")))?;
    let until = pause::end_of_pause((length, at), now)?;
    let call = PauseCall {
        jobs: chosen(body.jobs, body.all)?,
        order: PauseOrder::Pause {
            until,
            reason: reason.clone(),
        },
        by,
        reason,
    };
    pause::over_http(call, &*source.store, (&source.list, &source.host)).await
}

async fn resume(
    body: ResumeBody,
    by: String,
    source: &ViewSource,
) -> Result<(String, Option<Failure>), Failure> {
    let call = PauseCall {
        reason: reason(&body.reason)?,
        jobs: chosen(body.jobs, body.all)?,
        order: PauseOrder::Resume,
        by,
    };
    pause::over_http(call, &*source.store, (&source.list, &source.host)).await
}

/// The options of `trigger`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TriggerBody {
    job: String,
    #[serde(default)]
    on: Option<String>,
    #[serde(default)]
    even_if_paused: bool,
    #[serde(default)]
    reason: String,
}

async fn trigger(body: TriggerBody, by: String, source: &ViewSource) -> Result<String, Failure> {
    let host = |name: String| HostName::parse(&name).map_err(|error| usage(&error.to_string()));
    let call = TriggerCall {
        job: JobName::parse(&body.job).map_err(|error| usage(&error.to_string()))?,
        on: body.on.map(host).transpose()?,
        if_paused: if body.even_if_paused {
            IfPaused::Run
        } else {
            IfPaused::Refuse
        },
        by,
        reason: reason(&body.reason)?,
    };
    trigger::over_http(call, &*source.store, (&source.list, &source.host)).await
}

/// The options of `kill`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KillBody {
    /// The id of a run.
    #[serde(default)]
    run: Option<String>,
    #[serde(default)]
    job: Option<String>,
    #[serde(default)]
    signal: Option<String>,
    #[serde(default)]
    reason: String,
}

async fn kill(
    body: KillBody,
    by: String,
    source: &ViewSource,
) -> Result<(String, Option<Failure>), Failure> {
    let what = match (body.run, body.job) {
        (Some(run), None) if uuid::Uuid::parse_str(&run).is_ok() => run,
        (Some(run), None) => return Err(usage(&format!("`run` {run:?} is not the id of a run"))),
        // The id of a run is a valid name of a job, too.
        (None, Some(job)) if uuid::Uuid::parse_str(&job).is_err() => job,
        (None, Some(_)) => return Err(usage("give the id of a run as `run`")),
        _ => return Err(usage("give either `run` or `job`")),
    };
    let signal = body.signal.as_deref().map(kill::parse_signal).transpose();
    let order = KillOrder {
        what,
        signal: signal.map_err(|error| usage(&error))?,
        by,
        reason: reason(&body.reason)?,
        wait: false,
    };
    kill::over_http(order, &*source.store, (&source.list, &source.host)).await
}

fn reason(text: &str) -> Result<String, Failure> {
    parse_reason(text).map_err(|error| usage(&format!("`reason`: {error}")))
}

fn usage(text: &str) -> Failure {
    Failure::Usage(text.to_owned())
}
