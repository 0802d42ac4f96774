//! `cronlatch exec`: one command under a lock.
//!
//! `plan` reads the command line, `signals` knows what the launcher wants ignored, `session` takes
//! the lock and runs the command, `exit_code` turns the outcome into an exit code.

mod exit_code;
mod plan;
mod session;
mod signals;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use super::times::duration;
use super::{Failure, Target};
use crate::config::OnLost;
use crate::ground::tasks;
use crate::guard::{GuardOptions, Session};
use crate::names::LockName;
use crate::store::StoreSettings;
use plan::Plan;
pub(super) use plan::key as lock_key;

/// Options of `exec`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "cronlatch exec [OPTIONS] <--lock <NAME>|--key <KEY>> -- <CMD>...",
    after_help = "Exit status: the command's own, or 128 + the signal that killed it; 124 when \
                  --timeout killed it and it exited with 0; 75 when the lock was not acquired or was \
                  lost, whatever the command's status; 69 when the store is unreachable; 126 \
                  and 127 when the command cannot be run or is not found; 64 for a wrong command \
                  line.\n\n\
                  The command sees CRONLATCH_FENCING_TOKEN, CRONLATCH_RUN_ID, CRONLATCH_HOST, \
                  CRONLATCH_JOB (the lock) and CRONLATCH_ATTEMPT."
)]
pub(super) struct Args {
    /// The name of the lock; jobs with this `lock.name` use the same one
    #[arg(long, value_name = "NAME", required_unless_present = "key")]
    lock: Option<LockName>,
    /// The Redis key of a lock that applications take with SET key token NX PX
    #[arg(long, value_name = "KEY", conflicts_with = "lock", value_parser = plan::key)]
    key: Option<String>,
    /// How long the lock stays held after its holder dies; renewed every third of this, at least
    /// every 10 s
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    ttl: Duration,
    /// Wait for a held lock, for at most this long; without a duration, for ever
    #[arg(long, value_name = "DURATION", num_args = 0..=1, value_parser = duration)]
    #[expect(
        clippy::option_option,
        reason = "clap's own form for an option whose value may be left out"
    )]
    wait: Option<Option<Duration>>,
    /// Time between SIGTERM and SIGKILL [default: a quarter of --ttl, at most 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    kill_grace: Option<Duration>,
    /// What to do with the command when the lock is lost; with `continue`, two may run at once
    #[arg(long, value_name = "WHAT", default_value = "kill")]
    on_lost: LostChoice,
    /// Kill the command after this long
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    target: Target,
    /// The command and its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

/// `--on-lost`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LostChoice {
    /// Kill the command before the lease can expire in the store
    Kill,
    /// Let the command continue
    Continue,
}

impl From<LostChoice> for OnLost {
    fn from(choice: LostChoice) -> Self {
        match choice {
            LostChoice::Kill => Self::Kill,
            LostChoice::Continue => Self::Continue,
        }
    }
}

pub(super) fn run(args: Args, log: &crate::observe::LogArgs) -> Result<ExitCode, Failure> {
    let ignored = signals::IgnoredSignals::of_launcher();
    let host = args.target.host()?;
    let (settings, named) = store_of(&args.target)?;
    let plan = Plan::new(args)?;
    log.start();
    if let (StoreSettings::Sqlite { path }, StoreNamed::No) = (&settings, named) {
        // Only DEBUG, because cron mails all output.
        tracing::debug!(
            store = %path.display(),
            "no store is named (--store, CRONLATCH_STORE, -c): the lock holds on this host only"
        );
    }
    // While there is one thread: before the runtime and before any store.
    let guard = GuardOptions::default()
        .session(Session::Callers)
        .start()
        .map_err(|e| internal("start the guard process", &e))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| internal("start the runtime", &e))?;
    let ended = tasks::block_on(
        &runtime,
        session::run(&plan, &host, &settings, guard, ignored),
    );
    // A store call that hangs in a blocking thread must not hold the end up.
    runtime.shutdown_background();
    ended
}

/// Whether the store was given by an option, the environment or a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreNamed {
    Yes,
    No,
}

/// A store named on the command line needs no job list, not even a sound one.
fn store_of(target: &Target) -> Result<(StoreSettings, StoreNamed), Failure> {
    if !target.place.store.is_empty() {
        return Ok((target.settings(None)?, StoreNamed::Yes));
    }
    let list = target.list_if_any()?;
    let settings = target.settings(list.as_ref())?;
    let named = match list {
        Some(list) if list.store.is_some() => StoreNamed::Yes,
        _ => StoreNamed::No,
    };
    Ok((settings, named))
}

fn show(duration: Duration) -> String {
    // Nanoseconds are noise here.
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    crate::config::show_duration(Duration::from_millis(millis))
}

fn internal(what: &str, error: &std::io::Error) -> Failure {
    Failure::Internal(format!("cannot {what}: {error}"))
}
