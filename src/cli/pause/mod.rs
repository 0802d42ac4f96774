//! `cronlatch pause` and `cronlatch resume`: no run of a job starts until it is resumed.

mod select;
mod send;
mod text;

use std::process::ExitCode;
use std::time::Duration;

use super::request::note;
use super::requester::requester;
use super::{Failure, Target, output, times};
use crate::config::JobList;
use crate::names::HostName;
use crate::store::{Intervention, PauseOrder, REASON_LIMIT, Store};
use crate::time::Timestamp;
use select::{Chosen, Jobs};
pub(super) use select::{known as known_jobs, locks as locks_of};
use send::PauseSender;
use text::Changed;

/// Options that both commands have. Those of `resume`.
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    jobs: Jobs,
    /// Why, for `status` and the history
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,
    /// Print one JSON object per job, one per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// Options of `pause`.
#[derive(Debug, clap::Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    common: ResumeArgs,
    /// End the pause after this time
    #[arg(long = "for", value_name = "D", value_parser = times::duration)]
    duration: Option<Duration>,
    /// End the pause at this time (`18:00`, `2026-01-31 08:00`, RFC 3339)
    #[arg(long, value_name = "T", value_parser = times::instant, conflicts_with = "duration")]
    until: Option<Timestamp>,
}

pub(super) fn pause(args: &PauseArgs) -> Result<ExitCode, Failure> {
    order(&args.common, |now| {
        let until = end_of_pause((args.duration, args.until), now)?;
        Ok(PauseOrder::Pause {
            until,
            reason: args.common.reason.clone().unwrap_or_default(),
        })
    })
}

pub(super) fn resume(args: &ResumeArgs) -> Result<ExitCode, Failure> {
    order(args, |_| Ok(PauseOrder::Resume))
}

/// Returns when a pause ends: after a length of time, or at an instant. It must be to come.
pub(super) fn end_of_pause(
    (length, at): (Option<Duration>, Option<Timestamp>),
    now: Timestamp,
) -> Result<Option<Timestamp>, Failure> {
    let until = at.or(length.map(|length| now.plus(length)));
    match until.filter(|until| *until <= now) {
        Some(past) => Err(Failure::Usage(format!(
            "the end of the pause, {past}, has passed: by the store's clock it is {now}; nothing was \
             changed"
        ))),
        None => Ok(until),
    }
}

/// Sends an order for each chosen job, and reports the result.
fn order(
    args: &ResumeArgs,
    order: impl FnOnce(Timestamp) -> Result<PauseOrder, Failure>,
) -> Result<ExitCode, Failure> {
    let ResumeArgs {
        jobs,
        reason,
        json,
        target,
    } = args;
    let host = target.host()?;
    let list = target.list_if_any()?;
    let settings = target.settings(list.as_ref())?;
    target.warn_about_store(&settings);
    let (done, failed) = output::ask(async {
        let store = target.open_existing(list.as_ref(), &settings)?;
        let sender = PauseSender {
            store: &*store,
            order: order(store.now().await?)?,
            by: requester(&host),
        };
        let reason = reason.clone().unwrap_or_default();
        carry_out(sender, jobs, (list.as_ref(), &host), reason).await
    })
    .inspect_err(|_| target.warn_if_guessed(list.as_ref(), &settings))?;
    output::print(&if *json {
        output::json_lines(&done)?
    } else {
        done.iter().map(text::for_people).collect()
    })?;
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// The jobs that were paused or resumed, and why another one was not.
type Outcomes = (Vec<Changed>, Option<Failure>);

/// Sends an order for each chosen job, and notes it for `status`.
async fn carry_out(
    sender: PauseSender<'_>,
    jobs: &Jobs,
    (list, host): (Option<&JobList>, &HostName),
    reason: String,
) -> Result<Outcomes, Failure> {
    let store = sender.store;
    let chosen = jobs.choose(store, list, host).await?;
    let (done, failed) = send_all(&sender, &chosen, jobs).await;
    // A host that has joined meanwhile has either found the pause in the ledgers of the others, or
    // is listed now.
    for later in jobs.choose(store, list, host).await? {
        let is_grown = |it: &Chosen| it.job == later.job && it.locks != later.locks;
        if chosen.iter().any(is_grown) {
            sender.send(&later).await?;
        }
    }
    if let Some(subject) = text::changed_jobs(&done) {
        let what = intervention(&sender.order);
        note(store, (what, subject), (sender.by.clone(), reason)).await;
    }
    Ok((done, failed))
}

/// Sends the order to the ledgers of the chosen jobs. Returns what has changed, and the first failure.
async fn send_all(sender: &PauseSender<'_>, chosen: &[Chosen], jobs: &Jobs) -> Outcomes {
    let (mut done, mut failed) = (Vec::new(), None);
    for chosen in chosen {
        let failure = match sender.send(chosen).await {
            Ok(Some(changed)) => {
                done.push(changed);
                continue;
            }
            // A job of the list that no host has registered yet.
            Ok(None) if !jobs.names(&chosen.job) => continue,
            Ok(None) => Failure::Usage(format!(
                "job {}: no host has registered it in this store, so there is nothing to pause or \
                 resume",
                chosen.job
            )),
            Err(failure) => failure,
        };
        failed.get_or_insert(failure);
    }
    if done.is_empty() && failed.is_none() {
        failed = Some(Failure::Usage(
            "no host has registered any of these jobs in this store; nothing was changed"
                .to_owned(),
        ));
    }
    (done, failed)
}

fn intervention(order: &PauseOrder) -> Intervention {
    match order {
        PauseOrder::Pause { .. } => Intervention::Pause,
        PauseOrder::Resume => Intervention::Resume,
    }
}

/// A pause, or its end, that was asked for over HTTP.
pub(super) struct PauseCall {
    /// Names and globs; none: all jobs.
    pub(super) jobs: Option<Vec<String>>,
    pub(super) order: PauseOrder,
    pub(super) by: String,
    pub(super) reason: String,
}

/// Pauses or resumes as the commands do. Returns what they print with `--json`.
pub(super) async fn over_http(
    call: PauseCall,
    store: &dyn Store,
    (list, host): (&JobList, &HostName),
) -> Result<(String, Option<Failure>), Failure> {
    let sender = PauseSender {
        store,
        order: call.order,
        by: call.by,
    };
    let jobs = Jobs::of(call.jobs);
    let (done, failed) = carry_out(sender, &jobs, (Some(list), host), call.reason).await?;
    Ok((output::json_lines(&done)?, failed))
}

/// Parses a reason: one line of limited length.
pub(super) fn parse_reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.len() > REASON_LIMIT {
        return Err(format!("it has more than {REASON_LIMIT} bytes"));
    }
    if text.chars().any(char::is_control) {
        return Err("it must be one line without control characters".to_owned());
    }
    Ok(text.to_owned())
}
