//! `cronlatch kill`: has daemons end runs, or send them a signal.

mod search;

use std::process::ExitCode;

use nix::sys::signal::Signal;
use serde::Serialize;

use super::pause::parse_reason;
use super::request::{self, Done, FollowedRun};
use super::requester::requester;
use super::{Failure, Target, output};
use crate::config::JobList;
use crate::names::{HostName, JobName, RunId};
use crate::store::{DaemonRequest, Lock, Outcome, RefusalKind, RequestOrder, Store};
use search::{FoundRuns, RunSearch};

/// Options of `kill`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 when the order was given; 64 when no host has the job or the \
                        run; 69 when the store or the host does not reply; 75 when the run is not in \
                        progress."
)]
pub(super) struct Args {
    /// The id of a run, or a job: all its runs that are in progress
    #[arg(value_name = "RUN|JOB")]
    what: String,
    /// Send this signal, such as HUP, and nothing else. Without it, the run gets its `kill_signal`, and
    /// SIGKILL after its `kill_grace`
    #[arg(long, value_name = "SIGNAL", value_parser = parse_signal)]
    signal: Option<Signal>,
    /// The reason, for the history of the job
    #[arg(long, value_name = "TEXT", value_parser = parse_reason, default_value = "", hide_default_value = true)]
    reason: String,
    /// Wait until the runs have ended
    #[arg(short, long)]
    wait: bool,
    /// Print one JSON object per run
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// Parses the name of a signal, with or without `SIG`, or its number.
pub(super) fn parse_signal(text: &str) -> Result<Signal, String> {
    if let Ok(number) = text.parse::<i32>() {
        return Signal::try_from(number).map_err(|_| format!("there is no signal {number}"));
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    format!("SIG{name}")
        .parse()
        .map_err(|_| format!("there is no signal {text}; use a name such as TERM, HUP or USR1"))
}

/// Runs that one daemon is asked to end.
#[derive(Debug)]
struct KillTarget {
    job: JobName,
    lock: Lock,
    /// One run; `None`: those that the host has of the job.
    run: Option<RunId>,
    host: HostName,
}

/// `kill --json`.
#[derive(Debug, Serialize)]
struct KilledRun {
    job: String,
    run_id: String,
    host: String,
    /// The name of the signal, if nothing but a signal was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<&'static str>,
    /// How the run ended, with `--wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

/// Why a run was not killed.
#[derive(Debug)]
enum NotKilled {
    /// The host has no such run. This is no failure if other runs of the job were killed.
    NoRun(Failure),
    /// Whether there is such a run is unknown, or it may go on.
    Failed(Failure),
}

impl NotKilled {
    fn into_failure(self) -> Failure {
        let (Self::NoRun(failure) | Self::Failed(failure)) = self;
        failure
    }
}

impl From<Failure> for NotKilled {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let host = args.target.host()?;
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    args.target.warn_about_store(&settings);
    let order = KillOrder {
        what: args.what.clone(),
        signal: args.signal,
        by: requester(&host),
        reason: args.reason.clone(),
        wait: args.wait,
    };
    let (killed, failed) = output::ask(async {
        let store = args.target.open_existing(list.as_ref(), &settings)?;
        order.carry_out(&*store, (list.as_ref(), &host)).await
    })
    .inspect_err(|_| args.target.warn_if_guessed(list.as_ref(), &settings))?;
    output::print(&if args.json {
        output::json_lines(&killed)?
    } else {
        killed.iter().map(for_people).collect()
    })?;
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// What is to be ended, and for whom.
#[derive(Debug)]
pub(super) struct KillOrder {
    /// A run, or a job.
    pub(super) what: String,
    pub(super) signal: Option<Signal>,
    pub(super) by: String,
    pub(super) reason: String,
    pub(super) wait: bool,
}

/// Has runs ended as the command does. Returns what it prints with `--json`, and what could not be
/// ended.
pub(super) async fn over_http(
    order: KillOrder,
    store: &dyn Store,
    (list, host): (&JobList, &HostName),
) -> Result<(String, Option<Failure>), Failure> {
    let (killed, failed) = order.carry_out(store, (Some(list), host)).await?;
    Ok((output::json_lines(&killed)?, failed))
}

/// The failure to report. That one of several hosts has no run of the job is none.
fn first_failure(failures: Vec<NotKilled>, killed: &[KilledRun]) -> Option<Failure> {
    let (no_runs, failed): (Vec<_>, Vec<_>) =
        (failures.into_iter()).partition(|it| matches!(it, NotKilled::NoRun(_)));
    let no_runs = no_runs.into_iter().filter(|_| killed.is_empty());
    let first = failed.into_iter().chain(no_runs).next();
    first.map(NotKilled::into_failure)
}

impl KillOrder {
    /// Returns the runs that were killed, and the failure to report.
    async fn carry_out(
        &self,
        store: &dyn Store,
        (list, host): (Option<&JobList>, &HostName),
    ) -> Result<(Vec<KilledRun>, Option<Failure>), Failure> {
        let search = RunSearch::begin(store, list, host).await?;
        let mut killed = Vec::new();
        let failed = match search.find(&self.what).await? {
            FoundRuns::Known(targets, mut failures) => {
                failures.extend(self.kill_all(&search, &targets, &mut killed).await);
                first_failure(failures, &killed)
            }
            FoundRuns::Possible(targets, nowhere) => {
                match self.kill_one(&search, &targets, &mut killed).await {
                    Ok(true) => None,
                    Ok(false) => Some(nowhere),
                    Err(failure) => Some(failure),
                }
            }
        };
        Ok((killed, failed))
    }

    /// Kills what these targets have. Returns what could not be killed.
    async fn kill_all(
        &self,
        search: &RunSearch<'_>,
        targets: &[KillTarget],
        killed: &mut Vec<KilledRun>,
    ) -> Vec<NotKilled> {
        let mut failures = Vec::new();
        for target in targets {
            failures.extend(self.kill(search, target, killed).await.err());
        }
        failures
    }

    /// Kills a run that one of these targets may have. Returns whether one of them had it.
    async fn kill_one(
        &self,
        search: &RunSearch<'_>,
        targets: &[KillTarget],
        killed: &mut Vec<KilledRun>,
    ) -> Result<bool, Failure> {
        let mut failed = None;
        for target in targets {
            match self.kill(search, target, killed).await {
                Ok(()) => return Ok(true),
                Err(error) if !killed.is_empty() => return Err(error.into_failure()),
                Err(NotKilled::NoRun(_)) => {}
                Err(NotKilled::Failed(failure)) => failed = failed.or(Some(failure)),
            }
        }
        failed.map_or(Ok(false), Err)
    }

    /// Has one daemon kill the run or runs. Each of them is added to `killed` before its end is waited
    /// for.
    async fn kill(
        &self,
        search: &RunSearch<'_>,
        target: &KillTarget,
        killed: &mut Vec<KilledRun>,
    ) -> Result<(), NotKilled> {
        search.check_live(target)?;
        let request = DaemonRequest {
            id: RunId::new(),
            host: target.host.clone(),
            order: RequestOrder::Kill {
                job: target.job.clone(),
                run: target.run.clone(),
                signal: self.signal.map(|signal| short_name(signal).to_owned()),
            },
            by: self.by.clone(),
            reason: self.reason.clone(),
        };
        let runs = match request::send(search.store, &request).await? {
            Done::Signalled(runs) => runs,
            Done::Refused(RefusalKind::Unknown, failure) => {
                let failure = search.ended_meanwhile(target, failure).await;
                return Err(NotKilled::NoRun(failure));
            }
            Done::Refused(_, failure) => return Err(NotKilled::Failed(failure)),
            Done::Started(_) => {
                return Err(NotKilled::Failed(Failure::Internal(format!(
                    "the daemon of host {} returned an unexpected reply to a kill",
                    target.host
                ))));
            }
        };
        let first = killed.len();
        killed.extend(runs.iter().map(|run_id| KilledRun {
            job: target.job.to_string(),
            run_id: run_id.to_string(),
            host: target.host.to_string(),
            signal: self.signal.map(short_name),
            outcome: None,
        }));
        if self.wait {
            for (run_id, killed) in runs.into_iter().zip(&mut killed[first..]) {
                killed.outcome = Some(target.record(run_id, search).await?);
            }
        }
        Ok(())
    }
}

impl KillTarget {
    /// Waits for the end of a run that its daemon was asked to kill.
    async fn record(&self, run_id: RunId, search: &RunSearch<'_>) -> Result<Outcome, Failure> {
        let followed = FollowedRun {
            job: self.job.clone(),
            lock: self.lock.clone(),
            run_id,
            host: self.host.clone(),
        };
        Ok(followed.record(search.store).await?.outcome)
    }
}

/// The name of a signal without `SIG`.
fn short_name(signal: Signal) -> &'static str {
    let name = signal.as_str();
    name.strip_prefix("SIG").unwrap_or(name)
}

fn for_people(killed: &KilledRun) -> String {
    let KilledRun {
        job, run_id, host, ..
    } = killed;
    let done = match (killed.signal, killed.outcome) {
        (Some(signal), None) => format!("got SIG{signal}"),
        (None, None) => "is being killed".to_owned(),
        (_, Some(outcome)) => format!("has ended: {}", outcome.text()),
    };
    format!("run {run_id} of job {job} on {host} {done}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_run_is_reported_only_if_nothing_was_killed_and_nothing_failed() {
        let no_run = || NotKilled::NoRun(Failure::Usage("no run".to_owned()));
        let failed = || NotKilled::Failed(Failure::Unavailable("dead".to_owned()));
        let killed = KilledRun {
            job: "job".to_owned(),
            run_id: "run".to_owned(),
            host: "one".to_owned(),
            signal: None,
            outcome: None,
        };
        let text = |failures, killed: &[KilledRun]| {
            first_failure(failures, killed).map(|failure| failure.to_string())
        };
        assert_eq!(text(vec![no_run()], std::slice::from_ref(&killed)), None);
        assert_eq!(text(vec![no_run()], &[]).as_deref(), Some("no run"));
        let both = vec![no_run(), failed()];
        assert_eq!(text(both, &[]).as_deref(), Some("dead"));
        assert_eq!(text(vec![failed()], &[killed]).as_deref(), Some("dead"));
    }

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        for text in ["HUP", "hup", "SIGHUP", "1"] {
            assert_eq!(parse_signal(text), Ok(Signal::SIGHUP), "{text}");
        }
        assert_eq!(short_name(Signal::SIGHUP), "HUP");
        for text in ["", "SIG", "HUPP", "0", "99"] {
            assert!(parse_signal(text).is_err(), "{text}");
        }
    }
}
