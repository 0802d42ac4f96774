//! `cronlatch run`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::{Failure, Target};
use crate::engine::daemon::{self, DaemonError, Setup};
use crate::guard::Guard;

/// Options of `run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job list (file or directory of *.yaml) [default: the one of --config]
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
    has_room_for_threads(workers() + OTHER_THREADS)?;
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

/// The watchdog, the alarm of the schedules, the embedded store twice, and two for what may block.
const OTHER_THREADS: usize = 6;

/// Starts so many threads and ends them again. The runtime panics where it cannot start its own.
fn has_room_for_threads(count: usize) -> Result<(), Failure> {
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Arc::new(std::sync::Mutex::new(gate));
    let mut threads = Vec::new();
    let mut refused = None;
    for started in 0..count {
        let gate = std::sync::Arc::clone(&gate);
        // Waits until the sender is gone.
        let wait = move || drop(gate.lock().map(|gate| gate.recv()));
        match std::thread::Builder::new()
            .stack_size(64 * 1024)
            .spawn(wait)
        {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                refused = Some((started, error));
                break;
            }
        }
    }
    drop(open);
    for thread in threads {
        let _ = thread.join();
    }
    refused.map_or(Ok(()), |(started, error)| {
        Err(Failure::Internal(format!(
            "cannot start: the daemon needs {count} threads, and this host allowed {started}: \
             {error}\n  help: raise TasksMax= and LimitNPROC= of the unit (`ulimit -u`)"
        )))
    })
}

/// The daemon waits more than it computes: a few threads serve any number of jobs.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 4))
}
