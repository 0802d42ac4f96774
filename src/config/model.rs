//! The validated job list. A value of these types is valid: every rule has been checked.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::http::HttpSettings;
use super::notify::{Alerts, NotifyTarget};
use super::program::Command;
use crate::names::{HostName, JobName, LockName};
use crate::schedule::Schedule;
use crate::store::{Fingerprint, Lock, LockId, Retention, StoreSettings};

/// Everything that a file (or a directory of files) says.
#[derive(Debug, Clone)]
pub struct JobList {
    /// Where the file or directory is, as given.
    pub path: PathBuf,
    /// The jobs, in the order of the file.
    pub jobs: Vec<Arc<Job>>,
    /// The store; `None` when the file leaves it out (then: `--store`, `CRONLATCH_STORE`, or the
    /// embedded store).
    pub store: Option<StoreSettings>,
    /// The maximum number of concurrent runs on this host.
    pub max_running: Option<NonZeroUsize>,
    /// How long a drain waits for running jobs.
    pub drain_timeout: Duration,
    /// What the history of each job keeps.
    pub history: Retention,
    /// The longest delay of a host's claims, so that not all hosts ask at the same instant.
    pub spread: Duration,
    /// Whether findings that endanger the guarantees keep the daemon from starting.
    pub strict: bool,
    /// How far the clocks of host and store may be apart.
    pub max_clock_skew: Duration,
    /// The targets of notifications, in the order of the file.
    pub notify: Vec<NotifyTarget>,
    /// The output of runs that stays in files.
    pub output: OutputPolicy,
    /// The HTTP server of the daemon; `None`: it has none.
    pub http: Option<HttpSettings>,
    /// The identity of the list: equal on hosts whose lists mean the same. Empty if it depends on a
    /// variable that is not set ([`load_without_secrets`](super::load_without_secrets)).
    pub fingerprint: Fingerprint,
    /// The environment variables that `store:`, `notify:` and `ping:` are made of, which may hold
    /// secrets. Jobs do not inherit them; a job gets the value of one only where its own fields
    /// name it.
    pub secret_variables: BTreeSet<String>,
    /// The variables of `notify:` and `ping:` that are not set, in a list that was read without them
    /// ([`load_without_secrets`](super::load_without_secrets)).
    pub unset_variables: BTreeSet<String>,
    /// What is allowed, but probably not what its author meant; each a full sentence with its place.
    pub warnings: Vec<String>,
}

impl JobList {
    /// Returns the identity of the list, unless it depends on a variable that is not set.
    pub fn known_fingerprint(&self) -> Option<&Fingerprint> {
        Some(&self.fingerprint).filter(|fingerprint| !fingerprint.0.is_empty())
    }
}

/// `output:`, which output of runs stays in files of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputPolicy {
    /// Of which runs.
    pub keep: KeepOutput,
    /// How long after the end of the run it stays.
    pub kept_for: Duration,
    /// The most bytes that the files of one run have.
    pub per_run: u64,
    /// The most bytes that all files have.
    pub total: u64,
}

/// `output: keep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepOutput {
    /// Of runs that did not succeed.
    Failures,
    /// Of all runs.
    All,
    /// Of no run.
    None,
}

impl Default for OutputPolicy {
    fn default() -> Self {
        Self {
            keep: KeepOutput::Failures,
            kept_for: Duration::from_secs(7 * 86_400),
            per_run: 10 << 20,
            total: 1 << 30,
        }
    }
}

/// One job. Jobs of a list share equal values of the fields that are an [`Arc`].
#[derive(Debug, Clone)]
pub struct Job {
    /// Its name.
    pub name: JobName,
    /// When it is due.
    pub schedule: Schedule,
    /// The upper bound of the delay that is fixed per job; below the interval.
    pub jitter: Duration,
    /// Its lock.
    pub lock: LockPolicy,
    /// What it runs.
    pub command: Arc<Command>,
    /// What happens when it cannot simply run, and how its attempts end.
    pub policies: Arc<JobPolicies>,
    /// What its processes run in.
    pub process: Arc<ProcessSettings>,
    /// The targets that are notified of its outcomes.
    pub alerts: Arc<Alerts>,
    /// False: neither scheduled nor caught up; `trigger` still works.
    pub enabled: bool,
    /// The identity of schedule, time zone and jitter.
    pub fingerprint: Fingerprint,
}

impl Job {
    /// The lock that runs of this job on `host` take.
    pub fn lock_on(&self, host: &HostName) -> Lock {
        match (&self.lock.scope, &self.lock.key) {
            (Scope::Fleet, Some(key)) => Lock::raw(key),
            (Scope::Fleet, None) => Lock::named(&self.lock.name),
            (Scope::Host, _) => Lock::of_host(&self.lock.name, host),
            (Scope::None, _) => Lock {
                exclusive: false,
                ..Lock::of_host(&self.lock.name, host)
            },
        }
    }

    /// The lock that the list gives to this job, the same on all hosts.
    pub fn lock_id(&self) -> LockId {
        let name = self.lock.name.shared();
        match (&self.lock.scope, &self.lock.key) {
            (Scope::Fleet, Some(key)) => LockId::Raw(key.as_str().into()),
            (Scope::Fleet, None) => LockId::Fleet(name),
            (Scope::Host, _) => LockId::Host(name),
            (Scope::None, _) => LockId::None(name),
        }
    }

    /// The delay of this job's firings after its instants: the same on every host, below
    /// [`Job::jitter`].
    pub fn delay(&self) -> Duration {
        use sha2::{Digest as _, Sha256};
        let Ok(millis @ 1..) = u64::try_from(self.jitter.as_millis()) else {
            return Duration::ZERO;
        };
        let digest = Sha256::digest(self.name.as_str().as_bytes());
        let (head, _) = digest.split_at(8);
        let number = head.iter().fold(0_u64, |n, b| (n << 8) | u64::from(*b));
        Duration::from_millis(number % millis)
    }
}

/// What happens to a job when it cannot simply run, how its attempts end, and where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPolicies {
    /// What happens when the lock is held at its instant.
    pub on_overlap: OnOverlap,
    /// Later than this after its instant it is not started.
    pub start_deadline: Duration,
    /// What happens to past occurrences that no host decided.
    pub catch_up: CatchUp,
    /// How old an occurrence may be to be caught up.
    pub catch_up_window: Duration,
    /// What happens when its host dies under it.
    pub on_crash: OnCrash,
    /// What happens when its lease is lost.
    pub on_lost: OnLost,
    /// What happens while the store does not reply.
    pub on_store_down: OnStoreDown,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// How an attempt is ended.
    pub kill: KillPlan,
    /// Further attempts after a failure.
    pub retry: Option<Retry>,
    /// Exit codes that mean success.
    pub success_exit_codes: BTreeSet<u8>,
    /// The hosts that may run it.
    pub hosts: HostPatterns,
}

/// What the processes of a job run in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessSettings {
    /// The user to run as; resolved by the daemon, not here.
    pub user: Option<String>,
    /// The group to run as.
    pub group: Option<String>,
    /// The file mode mask.
    pub umask: Option<u32>,
    /// The nice value, -20 to 19.
    pub nice: Option<i32>,
    /// Where it runs.
    pub working_dir: Option<PathBuf>,
    /// Variables set for it, after `env_file`.
    pub env: BTreeMap<String, String>,
    /// A file of `NAME=value` lines, read at every start.
    pub env_file: Option<PathBuf>,
}

/// `lock:` of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockPolicy {
    /// `lock.name`, else the job's name.
    pub name: LockName,
    /// Whether the list has `lock.name` or `lock.key`, so that others may take the lock too.
    pub is_named: bool,
    /// `lock.key`: the raw key of a lock that applications take too.
    pub key: Option<String>,
    /// Who competes.
    pub scope: Scope,
    /// How long a lease lasts unless renewed.
    pub ttl: Duration,
}

/// `lock.scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All hosts that use the store.
    Fleet,
    /// The daemons of one host.
    Host,
    /// No lock; every host runs every occurrence.
    None,
}

/// `on_overlap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnOverlap {
    /// The new occurrence is skipped.
    Skip,
    /// The newest occurrence waits until its deadline; older ones are skipped as superseded.
    Wait,
    /// Occurrences wait in order.
    Queue {
        /// At most so many.
        limit: usize,
    },
}

/// `catch_up`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CatchUp {
    /// Nothing is caught up.
    None,
    /// The newest of them runs.
    Latest,
    /// Each of them runs, in order.
    All,
}

/// `on_crash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnCrash {
    /// The run is recorded as interrupted.
    Ignore,
    /// Another host runs the occurrence again.
    Rerun {
        /// At most so many times.
        max_reruns: u32,
    },
}

pub use crate::ground::OnLost;

/// `on_store_down`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnStoreDown {
    /// Ask again until the start deadline.
    Wait,
    /// Run without a lock, on every host.
    Run,
    /// Skip the occurrence.
    Skip,
}

/// How an attempt is ended: a signal, then SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KillPlan {
    /// The signal sent first.
    pub signal: nix::sys::signal::Signal,
    /// How long the job then has.
    pub grace: Duration,
}

/// `retry:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in all, the first included.
    pub attempts: u32,
    /// The delay before the second attempt; doubles from there.
    pub delay: Duration,
    /// The delay's upper bound.
    pub max_delay: Duration,
    /// Whether each delay is drawn between half of it and the whole.
    pub jitter: bool,
}

/// `hosts:` — globs on host names; empty means all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostPatterns(pub Vec<String>);

impl HostPatterns {
    /// Whether the host is meant.
    pub fn matches(&self, host: &HostName) -> bool {
        self.0.is_empty()
            || self
                .0
                .iter()
                .any(|pattern| glob_match::glob_match(pattern, host.as_str()))
    }
}
