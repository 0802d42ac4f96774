//! From a job and a grant to the command that the guard starts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use super::Assignment;
use super::env_file;
use super::identity::JobUser;
use super::not_prepared::NotPrepared;
use crate::config::{Command, Job};
use crate::guard::{self, Credentials, Spawn, Stdio};

/// A process environment.
pub(crate) type JobEnvironment = BTreeMap<OsString, OsString>;

/// Variables that are for the daemon only. If they were passed on, a job could answer the service
/// manager in its place, or read the store's password.
const OWN: [&str; 14] = [
    "CREDENTIALS_DIRECTORY",
    "CRONLATCH_HEALTH_FILE",
    "CRONLATCH_METRICS_FILE",
    "CRONLATCH_STORE",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "MAINPID",
    "NOTIFY_SOCKET",
    "RUST_LOG",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// The environment of this process without what is for the daemon alone, and without the
/// variables that the list uses for its store.
pub(crate) fn inherited(secret: &BTreeSet<String>) -> JobEnvironment {
    let is_own = |name: &OsString| OWN.iter().any(|own| name == own);
    let is_secret = |name: &OsString| secret.iter().any(|secret| name == secret.as_str());
    let mut inherited: JobEnvironment = std::env::vars_os()
        .filter(|(name, _)| !is_own(name) && !is_secret(name))
        .collect();
    if let Some(invocation) = std::env::var_os(guard::INVOCATION) {
        // Under its own name, systemd's tools would take the job for the service itself.
        inherited.insert(guard::INVOCATION_OF_RUN.into(), invocation);
    }
    inherited
}

/// Returns the command of one attempt, without a deadline. The error names what the operator must fix; the attempt then
/// counts as one that could not be started.
pub(super) async fn prepare(
    assignment: &Assignment,
    inherited: &Arc<JobEnvironment>,
    attempt: u32,
) -> Result<Spawn, NotPrepared> {
    let found = look_up(&assignment.job).await?;
    let job = &assignment.job;
    let mut env = found.env;
    env.extend(ours(assignment, attempt));
    Ok(Spawn {
        run: assignment.run_id().clone(),
        argv: argv(&job.command),
        inherited: Arc::clone(inherited),
        env,
        working_dir: job.process.working_dir.clone().or(found.home),
        user: found.credentials,
        umask: job.process.umask,
        nice: job.process.nice,
        start: None,
        start_until: None,
        deadline: None,
        signal: job.policies.kill.signal,
        grace: job.policies.kill.grace,
        stdio: Stdio::Capture,
    })
}

fn pair((name, value): (String, String)) -> (OsString, OsString) {
    (name.into(), value.into())
}

fn argv(command: &Command) -> Vec<OsString> {
    match command {
        Command::Argv(words) => words.iter().map(OsString::from).collect(),
        Command::Shell {
            shell,
            script,
            pipefail,
        } => {
            let mut words = vec![shell.clone().into_os_string()];
            if shell.file_name().is_some_and(|name| name == "busybox") {
                words.push("sh".into());
            }
            if *pipefail {
                words.extend(["-o".into(), "pipefail".into()]);
            }
            words.extend(["-c".into(), OsString::from(script)]);
            words
        }
    }
}

/// The variables that cronlatch sets for a job.
fn ours(assignment: &Assignment, attempt: u32) -> impl Iterator<Item = (OsString, OsString)> {
    let at = assignment.scheduled_at.map(|at| at.to_string());
    let fence = assignment.fence().map(|fence| fence.to_string());
    [
        ("CRONLATCH_JOB", Some(assignment.job.name.to_string())),
        ("CRONLATCH_RUN_ID", Some(assignment.run_id().to_string())),
        ("CRONLATCH_ATTEMPT", Some(attempt.to_string())),
        ("CRONLATCH_HOST", Some(assignment.host.to_string())),
        ("CRONLATCH_SCHEDULED_AT", at),
        ("CRONLATCH_FENCING_TOKEN", fence),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.into(), value?.into())))
}

/// What a job's user and files come to.
#[derive(Default)]
struct LookedUp {
    /// `None`: as the daemon.
    credentials: Option<Credentials>,
    /// The variables of the user, the file and the job, in this order of precedence.
    env: JobEnvironment,
    /// Where a job with a user runs unless it names a directory.
    home: Option<PathBuf>,
}

/// What may block, away from the runtime's threads, and only where there is something to do.
async fn look_up(job: &Arc<Job>) -> Result<LookedUp, NotPrepared> {
    let of_job = job.process.env.clone().into_iter().map(pair);
    if job.process.user.is_none() && job.process.group.is_none() && job.process.env_file.is_none() {
        return Ok(LookedUp {
            env: of_job.collect(),
            ..LookedUp::default()
        });
    }
    let job = Arc::clone(job);
    let looked_up = tokio::task::spawn_blocking(move || {
        let identity = JobUser::of(&job)?;
        let mut env = identity.env;
        if let Some(path) = &job.process.env_file {
            env.extend(env_file::read(path)?.into_iter().map(pair));
        }
        env.extend(of_job);
        let home = job.process.user.is_some() && job.process.working_dir.is_none();
        Ok(LookedUp {
            credentials: identity.credentials,
            home: home.then(|| home_directory(&env)),
            env,
        })
    });
    looked_up
        .await
        .unwrap_or_else(|error| Err(format!("the lookup failed: {error}").into()))
}

/// The directory that `HOME` names, as cron uses it; `/` if there is none, as for many users of
/// services.
fn home_directory(env: &JobEnvironment) -> PathBuf {
    env.get(OsStr::new("HOME"))
        .map(PathBuf::from)
        .filter(|home| home.is_absolute() && home.is_dir())
        .unwrap_or_else(|| PathBuf::from("/"))
}
