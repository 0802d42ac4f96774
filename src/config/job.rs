//! Reads one job: its mapping and `defaults:` become a [`Job`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::command;
use super::fields::{JOB, RETRY};
use super::fingerprint;
use super::lock::{self, LockPart};
use super::model::{HostPatterns, Job, JobPolicies, OnOverlap, ProcessSettings, Retry};
use super::node::{KeyValue, Node, Value};
use super::notify::{self, Alerts, AlertsPart, NamedTarget};
use super::policies::{Policies, idle, overlap};
use super::problem::{Problem, Problems, Warning};
use super::program::Command;
use super::section::{Section, ValueError};
use super::source::Span;
use super::values;
use super::when::{self, KnownSchedules, When};
use crate::names::JobName;
use crate::schedule::Schedule;
use crate::store::Fingerprint;

/// A job, and the positions that errors of later checks point at.
#[derive(Debug)]
pub(super) struct JobPart {
    /// The job; `None` if a required field is missing or invalid.
    pub(super) job: Option<Job>,
    /// Its name, if that is valid.
    pub(super) name: Option<JobName>,
    /// The position of its name.
    pub(super) place: Span,
    /// The position of its `lock.ttl`, or of its name.
    pub(super) ttl_place: Span,
    /// Its TTL was rejected.
    pub(super) ttl_refused: bool,
    /// The position of its `on_overlap`, or of its name.
    pub(super) overlap_place: Span,
    /// The targets of notifications that it names, and where.
    pub(super) named_targets: Vec<NamedTarget>,
    /// Whether its cron fields are read in UTC because neither the job nor `defaults:` names a
    /// zone.
    pub(super) zone_by_default: bool,
    /// Warnings about valid but probably unintended settings, with their positions.
    pub(super) warnings: Vec<Warning>,
}

/// Reads a job.
pub(super) fn read(
    entries: &[KeyValue],
    defaults: &[KeyValue],
    place: Span,
    known: &mut KnownSchedules,
    problems: &mut Problems,
) -> JobPart {
    let meant = JOB.check(entries, problems);
    let section = Section::new(entries, defaults);
    let name_place = section.span("name").unwrap_or(place);
    let name = name(section, place, &meant, problems);
    let mut warnings = Vec::new();
    let policies = Policies::read(section, problems);
    let lock = lock::read(section, name.as_ref(), policies.on_lost, problems);
    let on_overlap = overlap(section, &lock, problems);
    idle(section, &policies, on_overlap, &lock, &mut warnings);
    let when = when::read(
        section,
        (name_place, &meant),
        known,
        problems,
        &mut warnings,
    );
    let command = command::read(section, name_place, &meant, problems, &mut warnings);
    let surroundings = ProcessSettings::read(section, problems);
    warnings.extend(command::doubts(section, command.as_ref(), &surroundings));
    let hosts = hosts(section, problems, &mut warnings);
    let retry = retry(section, problems);
    let AlertsPart { alerts, named } = notify::read_job(section, name.as_ref(), problems);
    let enabled = section
        .read("enabled", problems, values::boolean)
        .unwrap_or(true);
    let codes = section.read("success_exit_codes", problems, values::exit_codes);
    let timeout = timeout(section, problems);
    let ttl_refused = lock.ttl_refused;
    let ttl_place = lock.ttl_place.unwrap_or(name_place);
    let zone_by_default = when.as_ref().is_some_and(|w| w.zone_by_default);
    let settings = OptionalFields {
        policies,
        lock,
        on_overlap,
        surroundings: surroundings.into(),
        hosts,
        retry,
        alerts: alerts.into(),
        enabled,
        success_exit_codes: codes.unwrap_or_else(|| [0].into()),
        timeout,
    };
    let job = build(name.clone(), when, command, |name, when, command| {
        settings.job(name, when, command)
    });
    JobPart {
        job,
        name,
        place: name_place,
        ttl_place,
        ttl_refused,
        overlap_place: section.span("on_overlap").unwrap_or(name_place),
        named_targets: named,
        zone_by_default,
        warnings,
    }
}

/// The fields of a job besides its name, its schedule and its command.
struct OptionalFields {
    policies: Policies,
    lock: LockPart,
    on_overlap: OnOverlap,
    surroundings: Arc<ProcessSettings>,
    hosts: HostPatterns,
    retry: Option<Retry>,
    alerts: Arc<Alerts>,
    enabled: bool,
    success_exit_codes: BTreeSet<u8>,
    timeout: Option<Duration>,
}

impl OptionalFields {
    fn job(self, name: JobName, when: When, command: Command) -> Job {
        let Self {
            policies,
            surroundings,
            ..
        } = self;
        let policies = JobPolicies {
            on_overlap: self.on_overlap,
            start_deadline: policies.start_deadline,
            catch_up: policies.catch_up,
            catch_up_window: policies.catch_up_window,
            on_crash: policies.on_crash,
            on_lost: policies.on_lost,
            on_store_down: policies.on_store_down,
            timeout: self.timeout,
            kill: self.lock.kill,
            retry: self.retry,
            success_exit_codes: self.success_exit_codes,
            hosts: self.hosts,
        };
        Job {
            lock: self.lock.policy(&name),
            name,
            schedule: when.schedule,
            jitter: when.jitter,
            command: command.into(),
            policies: policies.into(),
            process: surroundings,
            alerts: self.alerts,
            enabled: self.enabled,
            // `SharedParts::complete` gives it its own.
            fingerprint: fingerprint::none(),
        }
    }
}

/// Parts of the jobs before, which the next one shares if its own are equal: most jobs of a long list have
/// those of `defaults:`, and many have the same schedule.
#[derive(Debug, Default)]
pub(super) struct SharedParts {
    pub(super) schedules: KnownSchedules,
    /// Of jobs with this schedule and this delay.
    fingerprints: HashMap<(Schedule, Duration), Fingerprint>,
    command: Option<Arc<Command>>,
    policies: Option<Arc<JobPolicies>>,
    process: Arc<ProcessSettings>,
    alerts: Arc<Alerts>,
}

impl SharedParts {
    /// Gives a job its fingerprint, and lets it share what it has in common with those before.
    pub(super) fn complete(&mut self, job: &mut Job) {
        let known = (self.fingerprints).entry((job.schedule.clone(), job.delay()));
        let fingerprint = known.or_insert_with(|| fingerprint::of_schedule(job));
        job.fingerprint.clone_from(fingerprint);
        share(
            self.command.get_or_insert_with(|| Arc::clone(&job.command)),
            &mut job.command,
        );
        share(
            self.policies
                .get_or_insert_with(|| Arc::clone(&job.policies)),
            &mut job.policies,
        );
        share(&mut self.process, &mut job.process);
        share(&mut self.alerts, &mut job.alerts);
    }
}

fn share<T: PartialEq>(last: &mut Arc<T>, own: &mut Arc<T>) {
    if last == own {
        own.clone_from(last);
    } else {
        last.clone_from(own);
    }
}

fn name(
    section: Section<'_>,
    place: Span,
    meant: &[&str],
    problems: &mut Problems,
) -> Option<JobName> {
    if section.entry("name").is_none() && !meant.contains(&"name") {
        problems.add(
            Problem::new(place, "this job has no `name`")
                .help("each job needs its own name: locks and history use it"),
        );
    }
    section.read("name", problems, values::name)
}

fn timeout(section: Section<'_>, problems: &mut Problems) -> Option<Duration> {
    const LEAST: Duration = Duration::from_millis(1);
    section.read_or_none("timeout", problems, |node| {
        values::duration_in(
            node,
            LEAST..=Duration::MAX,
            "`timeout: none` means no limit",
        )
    })
}

fn build<A, B, C, J>(
    a: Option<A>,
    b: Option<B>,
    c: Option<C>,
    build: impl FnOnce(A, B, C) -> J,
) -> Option<J> {
    Some(build(a?, b?, c?))
}

fn retry(section: Section<'_>, problems: &mut Problems) -> Option<Retry> {
    let retry = section.within_or_none("retry", &RETRY, problems)?;
    if retry.entry("attempts").is_none() {
        let place = section.entry("retry").map(|e| e.span)?;
        problems.add(
            Problem::new(place, "`retry` has no `attempts`")
                .help("write `retry: { attempts: 3 }`: attempts in all, the first included"),
        );
    }
    let attempts = retry.read("attempts", problems, |n| values::number(n, 1..=1000));
    let delay = retry
        .read("delay", problems, values::duration)
        .unwrap_or(Duration::from_secs(10));
    let max_delay = retry.read("max_delay", problems, |n| {
        let max = values::duration(n)?;
        if max < delay {
            return Err(ValueError::new(
                format!("`max_delay` {} is less than `delay`", n.found()),
                "the delay starts at `delay` and doubles up to `max_delay`",
            ));
        }
        Ok(max)
    });
    let jitter = retry.read("jitter", problems, values::boolean);
    Some(Retry {
        attempts: attempts?,
        delay,
        max_delay: max_delay.unwrap_or(Duration::from_secs(300).max(delay)),
        jitter: jitter.unwrap_or(true),
    })
}

fn hosts(
    section: Section<'_>,
    problems: &mut Problems,
    warnings: &mut Vec<Warning>,
) -> HostPatterns {
    let patterns = section.read("hosts", problems, |node| {
        let patterns = values::texts(node)?;
        if matches!(&node.value, Value::List(list) if list.is_empty()) {
            return Err(ValueError::new(
                "an empty list names no host",
                "remove `hosts` for all hosts, or write `enabled: false`",
            ));
        }
        for (pattern, item) in &patterns {
            balanced(pattern, item).map_err(|t| t.with_item(item))?;
            let odd = pattern
                .chars()
                .find(|c| !c.is_ascii_alphanumeric() && !"._-*?[]{},!^\\".contains(*c));
            if let Some(odd) = odd {
                warnings.push(Warning::new(
                    item.span,
                    format!("`hosts: {pattern}` matches no host: none has {odd:?} in its name"),
                ));
            }
        }
        Ok(patterns.into_iter().map(|(pattern, _)| pattern).collect())
    });
    HostPatterns(patterns.unwrap_or_default())
}

fn balanced(pattern: &str, item: &Node) -> Result<(), ValueError> {
    let count = |c: char| pattern.matches(c).count();
    if pattern.is_empty() || count('[') != count(']') || count('{') != count('}') {
        return Err(ValueError::new(
            format!("{} is not a pattern", item.found()),
            "`*` matches any characters, `?` one character, `[ab]` and `{web,db}` one of several",
        ));
    }
    Ok(())
}

/// Checks the fields of `defaults:` by themselves, whether or not a job inherits them. Returns the
/// targets of notifications that they name.
pub(super) fn check_defaults(entries: &[KeyValue], problems: &mut Problems) -> Vec<NamedTarget> {
    let section = Section::new(&[], entries);
    let policies = Policies::read(section, problems);
    let lock = lock::read(section, None, policies.on_lost, problems);
    overlap(section, &lock, problems);
    when::check_defaults(section, problems);
    command::check_defaults(section, problems);
    ProcessSettings::read(section, problems);
    hosts(section, problems, &mut Vec::new());
    retry(section, problems);
    section.read("enabled", problems, values::boolean);
    section.read("success_exit_codes", problems, values::exit_codes);
    timeout(section, problems);
    notify::read_job(section, None, problems).named
}
