//! Identities: of a schedule, so that a changed one is noticed, and of a whole list, so that
//! hosts whose lists differ are.
//!
//! Neither depends on comments, the order of jobs and fields, or how a value is written. Builds of this
//! program agree on both, because they are digests of a text that has one line for each field (`field`).

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::habits::has_pipefail_by_default;
use super::model::{Job, JobList, OnOverlap};
use super::notify::{Alerts, NotifyTarget, Ping};
use super::program::Command;
use crate::store::{Fingerprint, ListedJobs, Retention};

/// The fingerprint of a job that has none yet.
pub(super) fn none() -> Fingerprint {
    Fingerprint(String::new())
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
    let named = list.jobs.iter().map(|job| (job.name.as_str(), &**job));
    let jobs: BTreeMap<&str, &Job> = named.collect();
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
    for job in jobs.values() {
        describe(&mut text, job);
    }
    digest(&text)
}

impl JobList {
    /// Returns the jobs in short, each with a digest of its definition, unless a part of the list was
    /// left out.
    pub fn listed_jobs(&self) -> Option<ListedJobs> {
        let fingerprint = self.known_fingerprint()?.clone();
        let digest_of = |job: &Job| {
            let mut text = String::new();
            describe(&mut text, job);
            let mut digest = digest(&text).0;
            // Enough to notice a change, and short, because a store keeps it for each of many jobs.
            digest.truncate(8);
            digest
        };
        let jobs = self.jobs.iter();
        let jobs = jobs.map(|job| (job.name.to_string(), digest_of(job)));
        Some(ListedJobs {
            fingerprint,
            jobs: jobs.collect(),
        })
    }
}

/// Returns the names of the fields in which two definitions of a job differ, in the order in which the
/// fingerprint of a list has them. `schedule` stands for the time zone, too.
pub(crate) fn changed_fields(one: &Job, other: &Job) -> Vec<String> {
    let described = |job: &Job| {
        let mut text = String::new();
        describe(&mut text, job);
        text
    };
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

fn describe(text: &mut String, job: &Job) {
    field(text, "name", &job.name);
    field(text, "schedule", &job.fingerprint.0);
    field(text, "jitter", &job.jitter.as_millis());
    field(text, "lock.name", &job.lock.name);
    field(text, "lock.key", &job.lock.key);
    field(text, "lock.scope", &job.lock.scope);
    field(text, "lock.ttl", &job.lock.ttl.as_millis());
    match &job.command {
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
    match job.on_overlap {
        OnOverlap::Queue { limit } => field(text, "on_overlap", &limit),
        other => field(text, "on_overlap", &other),
    }
    field(text, "start_deadline", &job.start_deadline.as_millis());
    field(text, "catch_up", &job.catch_up);
    field(text, "catch_up_window", &job.catch_up_window.as_millis());
    field(text, "on_crash", &job.on_crash);
    field(text, "on_lost", &job.on_lost);
    field(text, "on_store_down", &job.on_store_down);
    field(text, "timeout", &job.timeout.map(|t| t.as_millis()));
    field(text, "kill_signal", &job.kill.signal);
    field(text, "kill_grace", &job.kill.grace.as_millis());
    let retry = job.retry.map(|r| {
        let (delay, max) = (r.delay.as_millis(), r.max_delay.as_millis());
        (r.attempts, delay, max, r.jitter)
    });
    field(text, "retry", &retry);
    field(text, "success_exit_codes", &job.success_exit_codes);
    field(text, "user", &job.process.user);
    field(text, "group", &job.process.group);
    field(text, "umask", &job.process.umask);
    field(text, "nice", &job.process.nice);
    field(text, "working_dir", &job.process.working_dir);
    field(text, "env", &job.process.env);
    field(text, "env_file", &job.process.env_file);
    field(text, "hosts", &job.hosts.0);
    field(text, "enabled", &job.enabled);
    describe_alerts(text, &job.alerts);
}

/// 16 hexadecimal digits of SHA-256: enough to tell apart, short enough to read.
fn digest(text: &str) -> Fingerprint {
    let digest = Sha256::digest(text.as_bytes());
    let mut hex = String::with_capacity(16);
    for byte in digest.iter().take(8) {
        let _ = write!(hex, "{byte:02x}");
    }
    Fingerprint(hex)
}
