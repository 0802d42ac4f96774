//! `cronlatch run`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::{Failure, Target};
use crate::engine::daemon::{self, DaemonError, Setup};
use crate::process::Guard;

/// Options of `run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job list (file or directory of *.yaml) [default: what --config names]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(mut args: Args, log: &crate::observe::LogArgs) -> Result<ExitCode, Failure> {
    if let Some(file) = args.file.take() {
        args.target.config = Some(file);
    }
    let list = args.target.list()?;
    let settings = args.target.settings(Some(&list))?;
    let host = args.target.host()?;
    log.start();
    for warning in &list.warnings {
        tracing::warn!("{warning}");
    }
    // The guard forks while there is one thread; threads come with the runtime.
    let guard = Guard::start()
        .map_err(|error| Failure::Internal(format!("cannot start the guard process: {error}")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_name("cronlatch")
        .enable_all()
        .build()
        .map_err(|error| Failure::Internal(format!("cannot start the runtime: {error}")))?;
    let ended = runtime.block_on(daemon::run(Setup {
        list,
        settings,
        host,
        guard,
    }));
    // A store that hangs must not keep a daemon that is done.
    runtime.shutdown_background();
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ (DaemonError::Store(_) | DaemonError::Danger(_))) => {
            Err(Failure::Config(error.to_string()))
        }
        Err(error @ DaemonError::NoMajority(_)) => Err(Failure::Unavailable(error.to_string())),
        Err(error) => Err(Failure::Internal(error.to_string())),
    }
}

/// The daemon waits more than it computes: a few threads serve any number of jobs.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 4))
}
