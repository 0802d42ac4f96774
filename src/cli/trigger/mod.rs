//! `cronlatch trigger`: a run of a job now, outside its schedule, under the same lock. A daemon carries
//! it, or, with `--here`, a process of this command.

mod ask;
mod carry;
mod detach;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use super::pause::parse_reason;
use super::request::{self, LinePrinter};
use super::requester::requester;
use super::{Failure, Target, history, output, unknown_job};
use crate::config::JobList;
use crate::names::{HostName, JobName};
use crate::run::Cause;
use crate::store::{IfPaused, Outcome, Record, Store};
use ask::{TriggerContext, TriggerRequest, TriggeredRun, Waited};
use carry::Errand;

/// Options of `trigger`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 when the run was started; with --wait, when it succeeded, else the \
                        run's own exit code, or 128 and the number of the signal that ended it. 130 \
                        when Ctrl-C ended the wait; the run continues on its host. 64 when no daemon has the job; 69 when the store or the daemon does not reply, or no daemon reports; \
                        75 when the lock is held, the job is paused, or the lease was lost."
)]
pub(super) struct Args {
    /// The job; it may be disabled
    job: JobName,
    /// Have the daemon of this host run it [default: this host, else one that has the job]
    #[arg(long, value_name = "HOST", conflicts_with = "here")]
    on: Option<HostName>,
    /// Run it in a process of this command, with its user, environment and job list
    #[arg(long)]
    here: bool,
    /// Wait until the run has ended, show its output, and exit with its exit code
    #[arg(short, long)]
    wait: bool,
    /// Start the run even if the job is paused
    #[arg(long)]
    even_if_paused: bool,
    /// The reason, for the history of the job
    #[arg(long, value_name = "TEXT", value_parser = parse_reason, default_value = "", hide_default_value = true)]
    reason: String,
    /// Print one JSON object: the run's id, or with --wait its record
    #[arg(long)]
    json: bool,
    /// Carry the run in a session of its own, and only say on standard output that it began.
    #[arg(long, hide = true, requires = "here")]
    detached: bool,
    #[command(flatten)]
    target: Target,
    /// What a job runs stands in the list; whatever comes here is refused.
    #[arg(last = true, hide = true)]
    extra: Vec<OsString>,
}

/// The exit code of a command that Ctrl-C ended, as shells have it: 128 and the number of SIGINT.
const INTERRUPTED: u8 = 130;

/// The flag behind which the run is carried, once its process has been started anew.
const DETACHED: &str = "--detached";

pub(super) fn run(args: &Args, log: &crate::observe::LogArgs) -> Result<ExitCode, Failure> {
    if let Some(extra) = args.extra.first() {
        return Err(Failure::Usage(format!(
            "`trigger` runs job {} as the job list has it and takes no arguments for it: `{}` was \
             not passed on, and nothing was started\nhelp: `cronlatch exec --lock {} -- COMMAND` \
             runs a command of your own under a lock",
            args.job,
            extra.to_string_lossy(),
            args.job,
        )));
    }
    if args.detached {
        carry_detached(args)
    } else if args.here {
        run_here(args, log)
    } else {
        run_by_daemon(args)
    }
}

/// Has a daemon run the job.
fn run_by_daemon(args: &Args) -> Result<ExitCode, Failure> {
    let host = args.target.host()?;
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    args.target.warn_about_store(&settings);
    let cause = args.cause(&host);
    let wanted = TriggerRequest {
        job: &args.job,
        on: args.on.as_ref(),
        if_paused: args.if_paused(),
        by: cause.by,
        reason: cause.reason,
        follow: args.wait.then_some(if args.json {
            LinePrinter::StandardError
        } else {
            LinePrinter::AsWritten
        }),
    };
    let started = output::ask(async {
        let store = args.target.open_existing(list.as_ref(), &settings)?;
        let context = TriggerContext {
            list: list.as_ref(),
            store: &settings.shown(),
            host: &host,
        };
        wanted.ask(&*store, context).await
    })
    .inspect_err(|_| args.target.warn_if_guessed(list.as_ref(), &settings))?;
    match &started.waited {
        Waited::No if args.json => output::print(&started.json()?)?,
        Waited::No => output::print(&format!("{}\n", started.run_id))?,
        Waited::Ended(record) if args.json => output::print(&output::json_lines([record])?)?,
        // Standard output is the run's.
        Waited::Ended(record) => output::report(for_people(record).trim_end()),
        Waited::Interrupted => output::report(&format!(
            "run {} of job {} continues on host {}\nhelp: `cronlatch kill {}` ends it",
            started.run_id, args.job, started.host, started.run_id
        )),
    }
    Ok(ExitCode::from(match &started.waited {
        Waited::No => 0,
        Waited::Ended(record) => request::code(record),
        Waited::Interrupted => INTERRUPTED,
    }))
}

impl TriggeredRun {
    /// `trigger --json`.
    fn json(&self) -> Result<String, Failure> {
        output::json_lines([serde_json::json!({
            "run_id": self.run_id.as_str(),
            "host": self.host.as_str(),
        })])
    }
}

/// A run that was asked for over HTTP.
pub(super) struct TriggerCall {
    pub(super) job: JobName,
    pub(super) on: Option<HostName>,
    pub(super) if_paused: IfPaused,
    pub(super) by: String,
    pub(super) reason: String,
}

/// Has a daemon run the job as the command does. Returns what it prints with `--json`.
pub(super) async fn over_http(
    call: TriggerCall,
    store: &dyn Store,
    (list, host): (&JobList, &HostName),
) -> Result<String, Failure> {
    let wanted = TriggerRequest {
        job: &call.job,
        on: call.on.as_ref(),
        if_paused: call.if_paused,
        by: call.by,
        reason: call.reason,
        follow: None,
    };
    let context = TriggerContext {
        list: Some(list),
        store: "the store",
        host,
    };
    wanted.ask(store, context).await?.json()
}

/// Runs the job in this process, or in one that this command starts.
fn run_here(args: &Args, log: &crate::observe::LogArgs) -> Result<ExitCode, Failure> {
    if args.wait {
        log.start();
        let record = errand(args)?.grant()?.carry()?;
        output::print(&if args.json {
            output::json_lines([&record])?
        } else {
            for_people(&record)
        })?;
        return Ok(ExitCode::from(request::code(&record)));
    }
    // Mistakes of the one who asks are said here, in full and at once.
    errand(args)?;
    let run_id = detach::start(DETACHED)?;
    output::print(&if args.json {
        output::json_lines([serde_json::json!({ "run_id": run_id.as_str() })])?
    } else {
        format!("{run_id}\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn if_paused(&self) -> IfPaused {
        if self.even_if_paused {
            IfPaused::Run
        } else {
            IfPaused::Refuse
        }
    }

    fn cause(&self, host: &HostName) -> Cause {
        Cause {
            by: requester(host),
            reason: self.reason.clone(),
        }
    }
}

fn carry_detached(args: &Args) -> Result<ExitCode, Failure> {
    detach::leave_session()?;
    match errand(args).and_then(Errand::grant) {
        Ok(granted) => {
            detach::granted(granted.run_id());
            let record = granted.carry()?;
            Ok(ExitCode::from(request::code(&record)))
        }
        Err(failure) => {
            detach::refused(&failure);
            Ok(ExitCode::from(failure.code()))
        }
    }
}

/// What is to be run, and with what.
fn errand(args: &Args) -> Result<Errand, Failure> {
    let host = args.target.host()?;
    let list = args.target.list_to_run()?;
    let settings = args.target.settings(Some(&list))?;
    let Some(job) = list.jobs.iter().find(|job| job.name == args.job) else {
        return Err(unknown_job(&args.job, &list));
    };
    if !job.policies.hosts.matches(&host) {
        return Err(Failure::Usage(format!(
            "job {} is not for host {host}: its hosts are {}",
            job.name,
            job.policies.hosts.0.join(", "),
        )));
    }
    let cause = args.cause(&host);
    Ok(Errand {
        job: Arc::clone(job),
        host,
        settings,
        keep: list.history,
        secret_variables: list.secret_variables,
        targets: list.notify,
        if_paused: args.if_paused(),
        output: list.output,
        cause,
    })
}

fn for_people(record: &Record) -> String {
    let run_id = record.run_id.as_ref().map_or("-", |run_id| run_id.as_str());
    let exit = history::exit(record).map_or_else(String::new, |exit| format!(" ({exit})"));
    // Without an exit code only the reason says what went wrong.
    let reason = record.reason.as_ref();
    let reason = reason.filter(|_| exit.is_empty() && record.outcome != Outcome::Succeeded);
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    format!("{run_id}  {}{exit}{reason}\n", record.outcome.word())
}
