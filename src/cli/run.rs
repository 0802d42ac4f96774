//! `cronlatch run`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::views::CommandViews;
use super::{Failure, Target};
use crate::config::{self, ConfigError, JobList, Revision};
use crate::engine::daemon::{
    self, DaemonError, DaemonSetup, ListErrors, ListSource, LoadedList, ServiceManager, WatchMode,
};
use crate::ground::tasks::SpawnBoxed as _;
use crate::guard::Guard;
use crate::http::HttpError;
use crate::metrics::MetricsFile;
use crate::notify;

/// Options of `run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job list (file or directory of *.yaml) [default: the one of --config]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Read the list again whenever its files change, as on SIGHUP
    #[arg(long)]
    watch: bool,
    /// Report in this file that the daemon is alive, for `cronlatch health`
    #[arg(long, value_name = "FILE", env = "CRONLATCH_HEALTH_FILE")]
    health_file: Option<PathBuf>,
    /// Write metrics into this file, for the textfile collector of Prometheus (*.prom)
    #[arg(long, value_name = "FILE", env = "CRONLATCH_METRICS_FILE")]
    metrics_file: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(mut args: Args, log: &crate::observe::LogArgs) -> Result<ExitCode, Failure> {
    daemon::limit_free_memory();
    if let Some(file) = args.file.take() {
        args.target.config = Some(file);
    }
    let revision = args.target.revision();
    let list = args.target.list_to_run()?;
    // After the threads that read a long list, which would wait for each other in one arena, and before all others.
    daemon::limit_arenas();
    let others = OTHER_THREADS + notify::threads(&list) + http_threads(&list);
    let loaded = LoadedList {
        settings: args.target.settings(Some(&list))?,
        list,
        revision,
    };
    let host = args.target.host()?;
    log.start();
    for warning in &loaded.list.warnings {
        tracing::warn!("{warning}");
    }
    let guard = start_guard()?;
    let health = usize::from(args.health_file.is_some());
    check_thread_limit(workers() + others + health)?;
    let manager = ServiceManager::start(args.health_file.take())
        .map_err(|error| Failure::Output(format!("cannot write the health file: {error}")))?;
    let metrics_file = (args.metrics_file.take())
        .map(MetricsFile::create)
        .transpose()
        .map_err(|error| not_created(&error))?;
    let watch = if args.watch {
        WatchMode::Files
    } else {
        WatchMode::Off
    };
    run_to_end(DaemonSetup {
        loaded,
        source: Arc::new(args.target),
        metrics_file,
        views: Arc::new(CommandViews),
        watch,
        host,
        guard,
        manager,
    })
}

/// The metrics file cannot be written, or its path is that of another file.
fn not_created(error: &std::io::Error) -> Failure {
    let text = format!("cannot write the metrics file: {error}");
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::Usage(text),
        _ => Failure::Output(text),
    }
}

/// Starts the guard while there is one thread: those that read the list have ended, and others come with the
/// runtime.
fn start_guard() -> Result<Guard, Failure> {
    Guard::start()
        .map_err(|error| Failure::Internal(format!("cannot start the guard process: {error}")))
}

fn run_to_end(setup: DaemonSetup) -> Result<ExitCode, Failure> {
    let runtime = build_runtime()?;
    // Spawned, not run in block_on: only on a worker thread can the loop and the tasks that it wakes
    // run in turn without a thread switch.
    let ended = runtime
        .block_on(runtime.handle().spawn_boxed(daemon::run(setup)))
        .unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(DaemonError::System(std::io::Error::other(error))),
        });
    // A store that hangs must not keep a daemon that is done.
    runtime.shutdown_background();
    exit_code(ended)
}

fn build_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_name("cronlatch")
        .enable_all()
        .build()
        .map_err(|error| Failure::Internal(format!("cannot start the runtime: {error}")))
}

fn exit_code(ended: Result<(), DaemonError>) -> Result<ExitCode, Failure> {
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(
            error @ (DaemonError::Store(_)
            | DaemonError::FailedCheck(_)
            | DaemonError::Http(HttpError::Tokens(_))),
        ) => Err(Failure::Config(error.to_string())),
        Err(error @ DaemonError::NoMajority(_)) => Err(Failure::Unavailable(error.to_string())),
        Err(error) => Err(Failure::Internal(error.to_string())),
    }
}

/// How often a list is read whose files change meanwhile.
const READINGS: u32 = 5;
/// How long the files are given to be written.
const WRITING: Duration = Duration::from_millis(100);

impl ListSource for Target {
    /// Reads a list again if its files were written meanwhile, so that no mixture of two versions is
    /// put into force.
    fn load(&self) -> Result<LoadedList, ListErrors> {
        for _ in 0..READINGS {
            let before = self.revision();
            let loaded = self.load_once(before.clone());
            if self.revision() == before {
                return loaded;
            }
            std::thread::sleep(WRITING);
        }
        let path = self.shown_path();
        Err(ListErrors(vec![format!(
            "{path}: its files change while they are read; reload again once they are complete"
        )]))
    }

    fn revision(&self) -> Revision {
        config::revision(self.path())
    }

    fn shown_path(&self) -> String {
        self.path().display().to_string()
    }
}

impl Target {
    fn load_once(&self, revision: Revision) -> Result<LoadedList, ListErrors> {
        let list = config::load(self.path())
            .map_err(|errors| ListErrors(errors.iter().map(ConfigError::in_one_line).collect()))?;
        let settings = self.settings(Some(&list));
        let settings = settings.map_err(|failure| ListErrors(vec![failure.to_string()]))?;
        Ok(LoadedList {
            list,
            settings,
            revision,
        })
    }
}

/// The watchdog, the alarm of the schedules, the output, the embedded store twice, and two for what may
/// block.
const OTHER_THREADS: usize = 7;

/// The HTTP server, and its connection to an embedded store.
fn http_threads(list: &JobList) -> usize {
    if list.http.is_some() { 2 } else { 0 }
}

/// Fails if this process cannot have `count` threads more: starts them, and ends them again. The runtime
/// panics where it cannot start its own.
fn check_thread_limit(count: usize) -> Result<(), Failure> {
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
