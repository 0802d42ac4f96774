//! Identities: of a schedule, so that a changed one is noticed, and of a whole list, so that
//! hosts whose lists differ are.
//!
//! Neither depends on comments, the order of jobs and fields, or how a value is written. Builds of this
//! program agree on both, because they are digests of a text that has one line for each field (`field`).

use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::habits::has_pipefail_by_default;
use super::model::{Job, JobList, JobPolicies, LockPolicy, OnOverlap, ProcessSettings};
use super::notify::{Alerts, NotifyTarget, Ping};
use super::program::Command;
use crate::store::{Fingerprint, JobDigest, ListedJobs, Retention};

/// The fingerprint of a job that has none yet.
pub(super) fn none() -> Fingerprint {
    Fingerprint("".into())
}

/// The identity of what determines when a job starts: schedule, zone and the delay by `jitter`.
pub(super) fn of_schedule(job: &Job) -> Fingerprint {
    digest(&format!(
        "{}\n{}\n{}",
        job.schedule,
        job.schedule.zone().name(),
        job.delay().as_millis()
    ))
}

/// The identity of a list: everything in it that changes what its hosts do, the store left out
/// (hosts may reach the same one under different names).
pub(super) fn of_list(list: &JobList) -> Fingerprint {
    let mut jobs: Vec<&Job> = list.jobs.iter().map(|job| &**job).collect();
    jobs.sort_by(|one, other| one.name.cmp(&other.name));
    let mut text = String::new();
    field(&mut text, "max_running", &list.max_running);
    field(&mut text, "drain_timeout", &list.drain_timeout.as_millis());
    field(&mut text, "history", &list.history.records);
    // These are newer. They are left out while they have their defaults, so that the fingerprint of a list
    // without them is still that of earlier versions.
    if list.history != Retention::of_records(list.history.records) {
        field(&mut text, "history.failures", &list.history.failures);
        field(&mut text, "history.keep", &list.history.age.as_millis());
    }
    field(&mut text, "spread", &list.spread.as_millis());
    field(&mut text, "strict", &list.strict);
    field(
        &mut text,
        "max_clock_skew",
        &list.max_clock_skew.as_millis(),
    );
    field(&mut text, "output", &list.output);
    for target in &list.notify {
        describe_target(&mut text, target);
    }
    let mut all = Sha256::new_with_prefix(&text);
    let mut describer = Describer::default();
    for job in jobs {
        all.update(describer.describe(job));
    }
    fingerprint(all)
}

impl JobList {
    /// Returns the jobs in short, each with a digest of its definition, unless a part of the list was
    /// left out.
    pub fn listed_jobs(&self) -> Option<ListedJobs> {
        let fingerprint = self.known_fingerprint()?;
        Some(listed_jobs(fingerprint.clone(), &self.jobs))
    }
}

/// Returns the jobs of the list with this fingerprint in short.
pub(crate) fn listed_jobs(fingerprint: Fingerprint, jobs: &[Arc<Job>]) -> ListedJobs {
    let mut describer = Describer::default();
    let digest_of = |job: &Arc<Job>| {
        let digest = digest(describer.describe(job)).0;
        // Enough to notice a change, and short, because a store keeps it for each of many jobs.
        Some((job.name.clone(), JobDigest::parse(digest.get(..8)?)?))
    };
    ListedJobs {
        fingerprint,
        jobs: jobs.iter().filter_map(digest_of).collect(),
    }
}

/// Whether [`changed_fields`] finds no difference between two definitions of a job. Takes a fraction of its time,
/// because a daemon compares 100,000 jobs while others wait to start.
pub(crate) fn is_unchanged(one: &Job, other: &Job) -> bool {
    // All fields are named: the compiler then asks what a new one means here.
    let Job {
        name,
        schedule: _,
        jitter,
        lock,
        command,
        policies,
        process,
        alerts,
        enabled,
        fingerprint,
    } = one;
    let described = |alerts: &Alerts| {
        let mut text = String::new();
        describe_alerts(&mut text, alerts);
        text
    };
    let LockPolicy {
        name: lock_name,
        is_named: _,
        key,
        scope,
        ttl,
    } = lock;
    *name == other.name
        && *fingerprint == other.fingerprint
        && *jitter == other.jitter
        && *lock_name == other.lock.name
        && (key, scope, ttl) == (&other.lock.key, &other.lock.scope, &other.lock.ttl)
        && *command == other.command
        && *policies == other.policies
        && *process == other.process
        && *enabled == other.enabled
        // Addresses may differ.
        && (*alerts == other.alerts || described(alerts) == described(&other.alerts))
}

/// Returns the names of the fields in which two definitions of a job differ, in the order in which the
/// fingerprint of a list has them. `schedule` stands for the time zone, too.
pub(crate) fn changed_fields(one: &Job, other: &Job) -> Vec<String> {
    let described = |job: &Job| Describer::default().describe(job).to_owned();
    let (one, other) = (described(one), described(other));
    let fields = |text: &str| -> Vec<(String, String)> {
        let fields = text.lines().filter_map(|line| line.split_once('='));
        fields
            .map(|(name, value)| {
                // The two ways to write a command.
                let name = if matches!(name, "argv" | "shell") {
                    "command"
                } else {
                    name
                };
                (name.to_owned(), value.to_owned())
            })
            .collect()
    };
    let (one, other) = (fields(&one), fields(&other));
    let mut changed: Vec<String> = Vec::new();
    // A field that has its default value may be missing on either side.
    for (name, value) in one.iter().chain(&other) {
        let field = (name.clone(), value.clone());
        let is_same = one.contains(&field) && other.contains(&field);
        if !is_same && !changed.contains(name) {
            changed.push(name.clone());
        }
    }
    changed
}

/// A target without its address, which may differ between hosts and is a secret.
fn describe_target(text: &mut String, target: &NotifyTarget) {
    field(text, "notify", &(&target.name, target.channel.kind()));
    let on: Vec<&str> = target.on.iter().map(|event| event.word()).collect();
    let repeat = target.repeat.map(|repeat| repeat.as_millis());
    field(text, "notify.on", &(on, target.after, repeat));
}

/// What a job says about notifications; nothing if it says nothing, so that the list of a version
/// without them has the same fingerprint.
fn describe_alerts(text: &mut String, alerts: &Alerts) {
    if *alerts == Alerts::default() {
        return;
    }
    let millis = |d: Duration| d.as_millis();
    field(text, "notify", &alerts.targets);
    let service = alerts.ping.as_ref().map(Ping::service);
    field(text, "ping", &service.or(alerts.unset_ping));
    field(text, "late_after", &millis(alerts.late_after));
    field(text, "long_after", &alerts.long_after.map(millis));
    let within = alerts.expect_success_within.map(millis);
    field(text, "expect_success_within", &within);
}

/// One line a field. `Debug` escapes line ends; it also writes names of enum variants and of struct fields,
/// so renaming one changes fingerprints.
fn field(text: &mut String, name: &str, value: &dyn Debug) {
    let _ = writeln!(text, "{name}={value:?}");
}

/// Describes jobs. Writing what a job shares with the one before is most of the work, and done once.
#[derive(Default)]
struct Describer {
    text: String,
    shared: Option<(SharedFields, String)>,
}

/// What [`describe_shared`] depends on.
#[derive(PartialEq)]
struct SharedFields {
    policies: Arc<JobPolicies>,
    process: Arc<ProcessSettings>,
    alerts: Arc<Alerts>,
    enabled: bool,
}

impl SharedFields {
    fn of(job: &Job) -> Self {
        Self {
            policies: Arc::clone(&job.policies),
            process: Arc::clone(&job.process),
            alerts: Arc::clone(&job.alerts),
            enabled: job.enabled,
        }
    }
}

impl Describer {
    /// One line for each field of a job.
    fn describe(&mut self, job: &Job) -> &str {
        self.text.clear();
        describe_own(&mut self.text, job);
        let fields = SharedFields::of(job);
        let last = self.shared.take().filter(|(last, _)| *last == fields);
        let (_, shared) = self.shared.insert(last.unwrap_or_else(|| {
            let mut text = String::new();
            describe_shared(&mut text, job);
            (fields, text)
        }));
        self.text += shared;
        &self.text
    }
}

fn describe_own(text: &mut String, job: &Job) {
    field(text, "name", &job.name);
    field(text, "schedule", &job.fingerprint.0);
    field(text, "jitter", &job.jitter.as_millis());
    field(text, "lock.name", &job.lock.name);
    field(text, "lock.key", &job.lock.key);
    field(text, "lock.scope", &job.lock.scope);
    field(text, "lock.ttl", &job.lock.ttl.as_millis());
    match &*job.command {
        Command::Argv(argv) => field(text, "argv", argv),
        Command::Shell {
            shell,
            script,
            pipefail,
        } => {
            field(text, "shell", &(shell, script));
            // As with `history`: left out while it has its default, for lists from before this field.
            if *pipefail != has_pipefail_by_default(shell) {
                field(text, "pipefail", pipefail);
            }
        }
    }
}

fn describe_shared(text: &mut String, job: &Job) {
    match job.policies.on_overlap {
        OnOverlap::Queue { limit } => field(text, "on_overlap", &limit),
        other => field(text, "on_overlap", &other),
    }
    field(
        text,
        "start_deadline",
        &job.policies.start_deadline.as_millis(),
    );
    field(text, "catch_up", &job.policies.catch_up);
    field(
        text,
        "catch_up_window",
        &job.policies.catch_up_window.as_millis(),
    );
    field(text, "on_crash", &job.policies.on_crash);
    field(text, "on_lost", &job.policies.on_lost);
    field(text, "on_store_down", &job.policies.on_store_down);
    field(
        text,
        "timeout",
        &job.policies.timeout.map(|t| t.as_millis()),
    );
    field(text, "kill_signal", &job.policies.kill.signal);
    field(text, "kill_grace", &job.policies.kill.grace.as_millis());
    let retry = job.policies.retry.map(|r| {
        let (delay, max) = (r.delay.as_millis(), r.max_delay.as_millis());
        (r.attempts, delay, max, r.jitter)
    });
    field(text, "retry", &retry);
    field(text, "success_exit_codes", &job.policies.success_exit_codes);
    field(text, "user", &job.process.user);
    field(text, "group", &job.process.group);
    field(text, "umask", &job.process.umask);
    field(text, "nice", &job.process.nice);
    field(text, "working_dir", &job.process.working_dir);
    field(text, "env", &job.process.env);
    field(text, "env_file", &job.process.env_file);
    field(text, "hosts", &job.policies.hosts.0);
    field(text, "enabled", &job.enabled);
    describe_alerts(text, &job.alerts);
}

/// 16 hexadecimal digits of SHA-256: enough to tell apart, short enough to read.
fn digest(text: &str) -> Fingerprint {
    fingerprint(Sha256::new_with_prefix(text))
}

fn fingerprint(digest: Sha256) -> Fingerprint {
    let digest = digest.finalize();
    let mut hex = String::with_capacity(16);
    for byte in digest.iter().take(8) {
        let _ = write!(hex, "{byte:02x}");
    }
    Fingerprint(hex.into())
}
