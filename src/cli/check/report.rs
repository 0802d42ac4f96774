//! The report of `check`. Field names and their order are an interface (`check --json`).

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::{differences, hints};
use crate::cli::failure::ListError;
use crate::cli::output;
use crate::cli::page::{self, Cell, Page, Tone};
use crate::config::{CatchUp, ConfigErrors, Job, JobList, NotifyTarget, Scope, show_duration};
use crate::names::HostName;
use crate::time::Timestamp;

/// The report about a valid list.
#[derive(Debug, Serialize)]
pub(super) struct CheckReport {
    ok: bool,
    path: String,
    fingerprint: String,
    /// The store that would be used, without its password.
    store: String,
    /// The most that the store will hold for these jobs, in bytes.
    store_memory_bytes: u64,
    /// How many records each job keeps.
    history: u32,
    /// How many of its failures.
    history_failures: u32,
    /// How long it is kept.
    history_keep_ms: u64,
    host: String,
    jobs: Vec<JobLine>,
    notify: Vec<TargetLine>,
    warnings: Vec<String>,
    /// Settings that are valid but may surprise.
    hints: Vec<String>,
}

/// A target of notifications, without what is secret of its address.
#[derive(Debug, Serialize)]
struct TargetLine {
    name: String,
    kind: &'static str,
    to: String,
    on: Vec<&'static str>,
    after: u32,
    repeat: Option<String>,
}

#[derive(Debug, Serialize)]
struct JobLine {
    name: String,
    schedule: String,
    timezone: String,
    /// The next occurrence, if the job is enabled.
    next_at: Option<Timestamp>,
    /// The delay of its firings after their instants.
    delay_ms: u64,
    /// The name of the lock, or its raw key.
    lock: String,
    /// The length of a lease.
    ttl_ms: u64,
    /// Which missed occurrences run: `latest`, `all` or `none`.
    catch_up: &'static str,
    /// How old they may be.
    catch_up_window_ms: u64,
    enabled: bool,
    /// Whether `hosts` lets this host run it.
    on_this_host: bool,
    /// What differs from the defaults.
    policies: BTreeMap<&'static str, String>,
    #[serde(skip)]
    shown_policies: Vec<String>,
}

/// The longest tail of output in a record, and what else is in one.
const RECORD_MAX: u64 = 4096 + 700;
/// Lock, state, ledger and summary of a job.
const KEYS: u64 = 4096;
/// The failures of all jobs, without output.
const ALL_FAILURES: u64 = 1000 * 700;

impl CheckReport {
    pub(super) fn new(list: &JobList, host: &HostName, store: String, now: Timestamp) -> Self {
        let jobs = list.jobs.len() as u64;
        Self {
            ok: true,
            path: list.path.display().to_string(),
            fingerprint: list.fingerprint.0.to_string(),
            store,
            store_memory_bytes: jobs * (KEYS + list.history.most() as u64 * RECORD_MAX)
                + ALL_FAILURES,
            history: list.history.records,
            history_failures: list.history.failures,
            history_keep_ms: u64::try_from(list.history.age.as_millis()).unwrap_or(u64::MAX),
            host: host.to_string(),
            jobs: list
                .jobs
                .iter()
                .map(|job| JobLine::new(job, host, now))
                .collect(),
            notify: list.notify.iter().map(TargetLine::new).collect(),
            warnings: list.warnings.clone(),
            hints: hints::of(list, now),
        }
    }

    pub(super) fn for_people(&self) -> Page {
        let count = match self.jobs.len() {
            1 => "1 job".to_owned(),
            n => format!("{n} jobs"),
        };
        let mut page = Page::default();
        page.push(format!("{}: ", self.path));
        page.push_toned(Tone::Good, "OK");
        page.push(format!(", {count}\n"));
        if !self.jobs.is_empty() {
            let header = ["JOB", "SCHEDULE", "NEXT", "CATCH-UP", "LOCK", "TTL"];
            page.push("\n");
            let rows = self.jobs.iter().map(|job| job.row(&self.host));
            page.append(page::table(header, rows));
        }
        page.push(self.policies());
        page.append(self.targets());
        page.push(format!(
            "\nstore        {}\n             at most {} for these jobs: {} records and {} failures \
             of each for {}, with the last 4 KiB of output\nfingerprint  {}\n",
            self.store,
            bytes(self.store_memory_bytes),
            self.history,
            self.history_failures,
            show_duration(std::time::Duration::from_millis(self.history_keep_ms)),
            self.fingerprint
        ));
        for warning in &self.warnings {
            page.push_toned(Tone::Doubtful, "\nwarning: ");
            page.push(format!("{warning}\n"));
        }
        for hint in &self.hints {
            page.push_toned(Tone::Heading, "\nhint: ");
            page.push(format!("{hint}\n"));
        }
        page
    }
}

impl CheckReport {
    /// The targets, and the events that each receives.
    fn targets(&self) -> Page {
        let mut page = Page::default();
        if !self.notify.is_empty() {
            let rows = self
                .notify
                .iter()
                .map(|target| target.row().map(Cell::from));
            page.push("\n");
            page.append(page::table(["TARGET", "KIND", "TO", "ON"], rows));
        }
        page
    }

    /// How jobs differ from a job with only the defaults.
    fn policies(&self) -> String {
        let differing: Vec<_> = self
            .jobs
            .iter()
            .filter(|job| !job.shown_policies.is_empty())
            .collect();
        let Some(longest) = differing.iter().map(|job| job.name.len()).max() else {
            return String::new();
        };
        let indent = longest.min(INDENT_MAX) + 2;
        let mut text = String::from("\nsettings that differ from the defaults:\n");
        for job in differing {
            let mut line = format!("{:1$}", job.name, indent);
            for (index, policy) in job.shown_policies.iter().enumerate() {
                let comma = if index == 0 { "" } else { ", " };
                if index > 0 && line.len() + comma.len() + policy.len() > WIDTH {
                    text += &line;
                    text += ",\n";
                    line = format!("{:indent$}{policy}", "");
                } else {
                    line += comma;
                    line += policy;
                }
            }
            text += &line;
            text += "\n";
        }
        text
    }
}

/// Where lines are broken.
const WIDTH: usize = 100;
/// Longer names are not lined up with.
const INDENT_MAX: usize = 30;

impl TargetLine {
    fn new(target: &NotifyTarget) -> Self {
        Self {
            name: target.name.to_string(),
            kind: target.channel.kind(),
            to: target.channel.shown(),
            on: target.on.iter().map(|event| event.word()).collect(),
            after: target.after,
            repeat: target.repeat.map(show_duration),
        }
    }

    fn row(&self) -> [String; 4] {
        let mut on = self.on.join(" ");
        if self.after > 1 {
            on += &format!(", after {} in a row", self.after);
        }
        if let Some(repeat) = &self.repeat {
            on += &format!(", at most every {repeat}");
        }
        [self.name.clone(), self.kind.to_owned(), self.to.clone(), on]
    }
}

impl JobLine {
    fn new(job: &Job, host: &HostName, now: Timestamp) -> Self {
        let millis = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let policies = differences::of(job);
        // The table has a column for these.
        let in_table = ["catch_up", "catch_up_window"];
        let shown: Vec<_> = policies
            .iter()
            .filter(|(name, _)| !in_table.contains(name))
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        Self {
            name: job.name.to_string(),
            schedule: job.schedule.to_string(),
            timezone: job.schedule.zone().name().to_owned(),
            next_at: job.enabled.then(|| job.schedule.next_after(now)).flatten(),
            delay_ms: millis(job.delay()),
            lock: match (job.lock.scope, &job.lock.key) {
                (Scope::Fleet, Some(key)) => key.clone(),
                (Scope::Fleet, None) => job.lock.name.to_string(),
                (Scope::Host, _) => format!("{}@{host}", job.lock.name),
                (Scope::None, _) => "none".to_owned(),
            },
            ttl_ms: millis(job.lock.ttl),
            catch_up: match job.policies.catch_up {
                CatchUp::None => "none",
                CatchUp::Latest => "latest",
                CatchUp::All => "all",
            },
            catch_up_window_ms: millis(job.policies.catch_up_window),
            enabled: job.enabled,
            on_this_host: job.policies.hosts.matches(host),
            policies: policies.into_iter().collect(),
            shown_policies: shown,
        }
    }

    /// Which missed occurrences run, and how old they may be: `latest, 1h`.
    fn shown_catch_up(&self) -> String {
        let window = std::time::Duration::from_millis(self.catch_up_window_ms);
        match (self.catch_up, window.is_zero()) {
            ("none", _) | (_, true) => "none".to_owned(),
            (which, false) => format!("{which}, {}", show_duration(window)),
        }
    }

    fn row(&self, host: &str) -> [Cell; 6] {
        let mut schedule = self.schedule.clone();
        if self.timezone != "UTC" {
            schedule += &format!(" ({})", self.timezone);
        }
        let runs_here = self.enabled && self.on_this_host;
        let mut next = match self.next_at {
            _ if !self.enabled => "disabled".to_owned(),
            _ if !self.on_this_host => format!("not on {host}"),
            Some(next) => next.to_string(),
            None => "never".to_owned(),
        };
        if self.delay_ms > 0 && runs_here {
            let delay = std::time::Duration::from_millis(self.delay_ms);
            next += &format!(" +{}", output::short(delay));
        }
        let tone = if runs_here { Tone::Plain } else { Tone::Faint };
        [
            self.name.clone(),
            schedule,
            next,
            self.shown_catch_up(),
            self.lock.clone(),
            show_duration(std::time::Duration::from_millis(self.ttl_ms)),
        ]
        .map(|text| Cell::toned(tone, text))
    }
}

/// A number of bytes in the unit that fits.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut tenths = count.saturating_mul(10).div_ceil(1024);
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths = tenths.div_ceil(1024);
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// The errors of a list that is not valid.
#[derive(Debug, Serialize)]
pub(super) struct ErrorReport {
    ok: bool,
    path: String,
    errors: Vec<ListError>,
}

impl ErrorReport {
    pub(super) fn new(path: &Path, errors: &ConfigErrors) -> Self {
        Self {
            ok: false,
            path: path.display().to_string(),
            errors: errors.iter().map(ListError::of).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> CheckReport {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("jobs.yaml");
        std::fs::write(&path, text).expect("a file");
        let mut list = match crate::config::load(&path) {
            Ok(list) => list,
            Err(errors) => panic!("{errors}"),
        };
        list.path = "jobs.yaml".into();
        let dir = dir.path().display().to_string();
        list.warnings = list
            .warnings
            .iter()
            .map(|w| w.replace(&dir, "DIR"))
            .collect();
        let host = HostName::parse("web1").expect("a name");
        let now = Timestamp::parse("2026-03-01T12:00:00Z").expect("a time");
        CheckReport::new(&list, &host, "sqlite:/s.db".to_owned(), now)
    }

    const LIST: &str = "\
notify:
  ops: { slack: 'https://hooks.slack.com/geheim' }
  pager: { webhook: 'https://a.example/geheim', on: [failed], after: 3, repeat: 6h }
  post: { mail: [ops@example.org, root], sendmail: /bin/sh }
defaults: { timezone: UTC }
jobs:
  - { name: plain, every: 15m, command: x }
  - { name: local, schedule: '30 2 * * mon', command: x, timezone: Europe/Berlin, jitter: 10m }
  - { name: off, schedule: '@daily', command: x, enabled: false }
  - { name: elsewhere, schedule: '@daily', command: x, hosts: [db*] }
  - name: all
    every: 1h
    command: x
    lock: { ttl: 1m, scope: host, name: l }
    on_overlap: queue
    queue_limit: 3
    start_deadline: 1m
    catch_up: all
    catch_up_window: 2h
    on_crash: rerun
    max_reruns: 1
    on_lost: continue
    on_store_down: skip
    timeout: 10m
    kill_grace: 1s
    kill_signal: INT
    retry: { attempts: 3 }
    success_exit_codes: [0, 2]
    user: root
    group: root
    umask: '027'
    nice: 5
    working_dir: /w
    env: { SECRET: geheim }
    env_file: /e
    shell: /bin/bash
    notify: [ops, pager, post]
    ping: 'healthchecks:geheim'
    late_after: 5m
    long_after: 1h
    expect_success_within: 26h
  - { name: raw, every: 1h, command: x, lock: { key: 'app:k' }, on_overlap: skip, queue_limit: 2 }
";

    #[test]
    fn a_list_is_shown_with_what_differs_from_the_defaults() {
        let text = report(LIST).for_people().text();
        assert!(!text.contains("geheim"), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn the_same_as_json() {
        let json = serde_json::to_string_pretty(&report(LIST)).expect("JSON");
        assert!(!json.contains("geheim"), "{json}");
        insta::assert_snapshot!(json);
    }

    #[test]
    fn a_lock_named_like_its_job_has_the_default_of_a_named_lock() {
        let policies = |on_overlap: &str| {
            let text = format!(
                "jobs:\n  - {{ name: own, every: 1h, command: x, lock: {{ name: own }}{on_overlap} }}\n"
            );
            report(&text).jobs[0].policies.clone()
        };
        assert_eq!(policies("").get("on_overlap"), None);
        assert_eq!(policies(", on_overlap: wait").get("on_overlap"), None);
        let skip = policies(", on_overlap: skip");
        assert_eq!(skip.get("on_overlap").map(String::as_str), Some("skip"));
    }

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        let shown: Vec<_> = [0, 1, 1024, 1 << 20, 5_000_000, 1 << 40]
            .map(bytes)
            .to_vec();
        assert_eq!(
            shown,
            [
                "0.0 KiB", "0.1 KiB", "1.0 KiB", "1.0 MiB", "4.8 MiB", "1.0 TiB"
            ]
        );
    }
}
