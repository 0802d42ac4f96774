//! `cronlatch logs`: the complete output of a run, as its host keeps it.

mod find;
mod remote;
mod serve;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::output::StdoutReader;
use super::{Failure, Target, output};
use crate::config::state_directory;
use crate::names::{HostName, JobName};
use crate::output::{Progress, RunReader, StoredRun, directory_in};
use crate::time::Timestamp;
use find::{FleetRun, NEWEST, RunState};
use remote::{Printed, RemoteLogs};
pub(super) use serve::over_http;
pub(super) use show::StreamName;
use show::{Form, Printer};

/// How often the files of a run in progress are read.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a run without a file is looked at that began a while ago. The store has to be asked for it.
const LOOK_SELDOM: Duration = Duration::from_secs(2);

/// Options of `logs`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job, of which the newest run is shown, or the id of a run
    #[arg(value_name = "JOB|RUN")]
    job: String,
    /// Go on until the run has ended
    #[arg(short, long)]
    follow: bool,
    /// Show when each line was written, and to which stream
    #[arg(short, long, conflicts_with = "json")]
    timestamps: bool,
    /// Show this stream only
    #[arg(long, value_name = "STREAM")]
    stream: Option<StreamName>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// The file with a token, for the HTTP server of the host that ran the job
    #[arg(long, env = "CRONLATCH_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// The run whose output is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WantedRun {
    Run(String),
    NewestOf(JobName),
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let wanted = if let Ok(run) = uuid::Uuid::parse_str(&args.job) {
        WantedRun::Run(run.to_string())
    } else {
        let job = JobName::parse(&args.job).map_err(|e| Failure::Usage(e.to_string()))?;
        WantedRun::NewestOf(job)
    };
    let here = state_directory().map(|state| directory_in(&state));
    if let (WantedRun::Run(run), Some(here)) = (&wanted, &here)
        && let Some(stored) = stored_run(here, run)?
    {
        // Without the store: it is not needed, and may be unreachable.
        return print(args, &stored);
    }
    let host = args.target.host()?;
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    match find::in_fleet(&args.target, (list.as_ref(), &settings), &host, &wanted) {
        Ok(Some(found)) => {
            let again = |found: &FleetRun| {
                let run = (&found.job, found.run_id.as_str());
                find::run_of_job(&args.target, (list.as_ref(), &settings), &host, run)
            };
            show_found(args, &host, here.as_deref(), found, again)
        }
        Ok(None) => {
            args.target.warn_if_guessed(list.as_ref(), &settings);
            let store = settings.shown();
            Err(Failure::Usage(match wanted {
                WantedRun::Run(run) => format!(
                    "no host keeps the output of run {run}, and no record in {store} names it"
                ),
                WantedRun::NewestOf(job) => format!(
                    "{store} knows no run of job {job}: none is in progress, and its newest {NEWEST} \
                     records name none"
                ),
            }))
        }
        Err(failure) => without_store(args, here, wanted, failure),
    }
}

/// Shows what this host has when the store cannot be asked.
fn without_store(
    args: &Args,
    here: Option<PathBuf>,
    wanted: WantedRun,
    failure: Failure,
) -> Result<ExitCode, Failure> {
    let (Failure::Unavailable(why), WantedRun::NewestOf(job)) = (&failure, wanted) else {
        return Err(failure);
    };
    let Some(stored) = here.and_then(|here| newest_of(&here, &job)) else {
        return Err(failure);
    };
    output::report(&format!(
        "warning: {why}: this is the newest output of job {job} that this host keeps"
    ));
    print(args, &stored)
}

fn show_found(
    args: &Args,
    host: &HostName,
    here: Option<&Path>,
    found: FleetRun,
    again: impl Fn(&FleetRun) -> Result<Option<FleetRun>, Failure>,
) -> Result<ExitCode, Failure> {
    let is_here = found.host == host.as_str();
    let announced = found.directory.clone().filter(|_| is_here);
    let directories: Vec<&Path> = here.into_iter().chain(announced.as_deref()).collect();
    let run_id = found.run_id.clone();
    let look = || {
        let mut looks = directories
            .iter()
            .map(|directory| stored_run(directory, &run_id));
        looks.find_map(Result::transpose).transpose()
    };
    let mut awaited = AwaitedRun {
        created_by: Instant::now() + found.awaits_file_for(Timestamp::now()),
        follow: args.follow,
        said: false,
        found,
        again,
    };
    loop {
        if let Some(stored) = look()? {
            return print(args, &stored);
        }
        if !is_here || !awaited.wait() {
            break;
        }
    }
    let found = &awaited.found;
    if !is_here
        && !found.has_no_file()
        && let (Some(address), Some(token_file)) = (&found.http, &args.token_file)
    {
        let remote = RemoteLogs::at(address, token_file)?;
        let mut printer = Printer::new(form(args), args.stream);
        let printed = loop {
            let to = (&mut printer, args.stream);
            let printed = remote.print(&run_id, to, args.follow)?;
            if !matches!(printed, Printed::NotKept) || !awaited.wait() {
                break printed;
            }
        };
        let found = &awaited.found;
        return match printed {
            Printed::Output => Ok(ExitCode::SUCCESS),
            Printed::Beginning => {
                output::report(&format!(
                    "-- the run has ended, and host {} keeps no file of it: `cronlatch history {} \
                     --output` has its last lines --",
                    found.host, found.job
                ));
                Ok(ExitCode::SUCCESS)
            }
            Printed::NotKept => show_tail(args, here, found),
        };
    }
    if !is_here && !found.has_no_file() {
        return Err(Failure::Unavailable(found.elsewhere_message()));
    }
    show_tail(args, here, found)
}

/// A run that may have no file yet.
struct AwaitedRun<F> {
    found: FleetRun,
    /// Asks the store for the run as it is now.
    again: F,
    /// When it has its file, if it has begun when it should.
    created_by: Instant,
    /// Whether the file of a run in progress is waited for after that.
    follow: bool,
    /// Whether the user knows that.
    said: bool,
}

impl<F: Fn(&FleetRun) -> Result<Option<FleetRun>, Failure>> AwaitedRun<F> {
    /// Waits a moment; returns whether the run may have a file now.
    fn wait(&mut self) -> bool {
        let in_progress = matches!(self.found.state, RunState::InProgress { .. });
        let pause = if in_progress && Instant::now() < self.created_by {
            LOOK_EVERY
        } else if self.follow && self.found.may_get_file() {
            self.say_that_it_waits();
            LOOK_SELDOM
        } else {
            return false;
        };
        std::thread::sleep(pause);
        // It may have ended without output; it then gets no file.
        match (self.again)(&self.found) {
            Ok(Some(found)) => self.found = found,
            Ok(None) => self.follow = false,
            // It may be in progress still: the store is asked again after the next pause.
            Err(_) => {}
        }
        true
    }

    fn say_that_it_waits(&mut self) {
        let FleetRun {
            job, run_id, host, ..
        } = &self.found;
        if !std::mem::replace(&mut self.said, true) {
            output::report(&format!(
                "-- host {host} has no output of run {run_id} of job {job} yet: waiting while it is in progress --"
            ));
        }
    }
}

/// Shows what the record of a run has when no file has more.
fn show_tail(args: &Args, here: Option<&Path>, found: &FleetRun) -> Result<ExitCode, Failure> {
    let (run, job) = (&found.run_id, &found.job);
    let RunState::Ended { outcome, tail } = &found.state else {
        return Err(Failure::Unavailable(format!(
            "host {} keeps no output of run {run} of job {job}, which is in progress: see its log, \
             or `output:` in the job list",
            found.host
        )));
    };
    output::report(&format!(
        "-- host {} keeps no file of run {run} of job {job} ({}): these are the last lines, \
         from its record --",
        found.host,
        outcome.word()
    ));
    let mut printer = Printer::new(form(args), args.stream);
    output::delivered(printer.tail(tail.as_deref().unwrap_or_default()))?;
    let whole = here.and_then(|here| newest_of(here, job));
    if let Some(whole) = whole {
        let whole = whole.run_id();
        output::report(&format!(
            "-- the newest run of {job} whose output is here: cronlatch logs {whole} --"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn form(args: &Args) -> Form {
    match (args.json, args.timestamps) {
        (true, _) => Form::Json,
        (false, true) => Form::Timestamps,
        (false, false) => Form::Bytes,
    }
}

/// Prints the files of a run, until it has ended with `--follow`.
fn print(args: &Args, stored: &StoredRun) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| {
        Failure::Internal(format!(
            "cannot read the output of run {}: {error}",
            stored.run_id()
        ))
    };
    let mut reader = RunReader::open(stored).map_err(failed)?;
    let mut printer = Printer::new(form(args), args.stream);
    loop {
        let mut printed = Ok(());
        let read = reader.read(|item| {
            printer.item(&item).map_err(|error| {
                let kind = error.kind();
                printed = Err(error);
                kind.into()
            })
        });
        if output::delivered(printed.and_then(|()| printer.flush()))? == StdoutReader::Gone {
            break;
        }
        let progress = read.map_err(failed)?;
        if progress == Progress::Complete || !args.follow {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(ExitCode::SUCCESS)
}

/// The output of a run in a directory, if it is there.
fn stored_run(directory: &Path, run: &str) -> Result<Option<StoredRun>, Failure> {
    match StoredRun::all(directory) {
        Ok(all) => Ok(all.into_iter().find(|stored| stored.run_id() == run)),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(Failure::Unavailable(format!(
                "cannot read {}: {error}\nhelp: only root and the user of the daemon may read the \
                 output of runs",
                directory.display()
            )))
        }
        // Most often it is not there.
        Err(_) => Ok(None),
    }
}

fn newest_of(directory: &Path, job: &JobName) -> Option<StoredRun> {
    let all = StoredRun::all(directory).unwrap_or_default();
    let of_job = all
        .into_iter()
        .filter(|stored| stored.job() == job.as_str());
    of_job.max_by(|a, b| a.run_id().cmp(b.run_id()))
}
