//! `cronlatch trigger`: a run of a job now, outside its schedule, under the same lock.

mod carry;
mod detach;
mod note;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use super::{Failure, Target, history, output, unknown_job};
use crate::names::JobName;
use crate::store::{IfPaused, Outcome, Record};
use carry::Errand;

/// Options of `trigger`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job; it may be disabled
    job: JobName,
    /// Wait until the run has ended and log its output to standard error; the exit code is 0 if it
    /// succeeded, 75 if its lease was lost, 1 otherwise
    #[arg(short, long)]
    wait: bool,
    /// Start the run even if the job is paused
    #[arg(long)]
    even_if_paused: bool,
    /// Print one JSON object: the run's id, or with --wait its record
    #[arg(long)]
    json: bool,
    /// Carry the run in a session of its own, and only say on standard output that it began.
    #[arg(long, hide = true)]
    detached: bool,
    #[command(flatten)]
    target: Target,
    /// What a job runs stands in the list; whatever comes here is refused.
    #[arg(last = true, hide = true)]
    extra: Vec<OsString>,
}

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
        return carry_detached(args);
    }
    if args.wait {
        log.start();
        let record = errand(args)?.grant()?.carry()?;
        output::print(&if args.json {
            output::json_lines([&record])?
        } else {
            for_people(&record)
        })?;
        return Ok(ExitCode::from(code(record.outcome)));
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

fn carry_detached(args: &Args) -> Result<ExitCode, Failure> {
    detach::leave_session()?;
    match errand(args).and_then(Errand::grant) {
        Ok(granted) => {
            detach::granted(granted.run_id());
            let record = granted.carry()?;
            Ok(ExitCode::from(code(record.outcome)))
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
    let list = args.target.list()?;
    let settings = args.target.settings(Some(&list))?;
    let Some(job) = list.jobs.iter().find(|job| job.name == args.job) else {
        return Err(unknown_job(&args.job, &list));
    };
    if !job.hosts.matches(&host) {
        return Err(Failure::Usage(format!(
            "job {} is not for host {host}: its hosts are {}",
            job.name,
            job.hosts.0.join(", "),
        )));
    }
    Ok(Errand {
        job: Arc::new(job.clone()),
        host,
        settings,
        keep: list.history,
        secret_variables: list.secret_variables,
        targets: list.notify,
        if_paused: if args.even_if_paused {
            IfPaused::Run
        } else {
            IfPaused::Refuse
        },
        output: list.output,
    })
}

fn for_people(record: &Record) -> String {
    let run_id = record.run_id.as_ref().map_or("-", |run_id| run_id.as_str());
    let exit = history::exit(record).map_or_else(String::new, |exit| format!(" ({exit})"));
    format!("{run_id}  {}{exit}\n", record.outcome.word())
}

fn code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Succeeded => 0,
        Outcome::LeaseLost => super::failure::NOT_ACQUIRED,
        _ => 1,
    }
}
