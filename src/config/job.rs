//! Reads one job: its mapping and `defaults:` become a [`Job`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::command;
use super::fields::JOB;
use super::fingerprint;
use super::lock::LockPart;
use super::model::{Job, JobPolicies, ProcessSettings};
use super::node::KeyValue;
use super::notify::{self, Alerts, AlertsPart, NamedTarget};
use super::policies;
use super::problem::{Problem, Problems, Warning};
use super::program::Command;
use super::section::Section;
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
    pub(super) job: Option<Arc<Job>>,
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

impl JobPart {
    /// The job, as long as nothing else has it.
    pub(super) fn job_mut(&mut self) -> Option<&mut Job> {
        Arc::get_mut(self.job.as_mut()?)
    }
}

/// Reads a job.
pub(super) fn read(
    entries: &[KeyValue],
    defaults: &[KeyValue],
    place: Span,
    shared: &mut SharedParts,
    problems: &mut Problems,
) -> JobPart {
    let meant = JOB.check(entries, problems);
    let section = Section::new(entries, defaults);
    let name_place = section.span("name").unwrap_or(place);
    let name = name(section, place, &meant, problems);
    let mut warnings = Vec::new();
    let (policies, lock) = policies::read(section, name.as_ref(), problems, &mut warnings);
    let when = when::read(
        section,
        (name_place, &meant),
        &mut shared.schedules,
        problems,
        &mut warnings,
    );
    let command = command::read(section, name_place, &meant, problems, &mut warnings);
    let surroundings = ProcessSettings::read(section, problems);
    warnings.extend(command::doubts(section, command.as_ref(), &surroundings));
    let AlertsPart { alerts, named } = notify::read_job(section, name.as_ref(), problems);
    let enabled = section
        .read("enabled", problems, values::boolean)
        .unwrap_or(true);
    let ttl_refused = lock.ttl_refused;
    let ttl_place = lock.ttl_place.unwrap_or(name_place);
    let zone_by_default = when.as_ref().is_some_and(|w| w.zone_by_default);
    let settings = OptionalFields {
        policies,
        lock,
        surroundings: surroundings.into(),
        alerts: alerts.into(),
        enabled,
    };
    let job = build(name.clone(), when, command, |name, when, command| {
        let mut job = settings.job(name, when, command);
        shared.complete(&mut job);
        Arc::new(job)
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
    policies: JobPolicies,
    lock: LockPart,
    surroundings: Arc<ProcessSettings>,
    alerts: Arc<Alerts>,
    enabled: bool,
}

impl OptionalFields {
    fn job(self, name: JobName, when: When, command: Command) -> Job {
        Job {
            lock: self.lock.policy(&name),
            name,
            schedule: when.schedule,
            jitter: when.jitter,
            command: command.into(),
            policies: self.policies.into(),
            process: self.surroundings,
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
    schedules: KnownSchedules,
    /// Of jobs with this schedule and this delay.
    fingerprints: HashMap<(Schedule, Duration), Fingerprint>,
    command: Option<Arc<Command>>,
    policies: Option<Arc<JobPolicies>>,
    process: Arc<ProcessSettings>,
    alerts: Arc<Alerts>,
}

impl SharedParts {
    /// Whether no job was completed yet.
    pub(super) fn is_empty(&self) -> bool {
        self.fingerprints.is_empty()
    }

    /// Gives a job its fingerprint, and lets it share what it has in common with those before.
    pub(super) fn complete(&mut self, job: &mut Job) {
        let known = self.fingerprints.entry((job.schedule.clone(), job.delay()));
        job.schedule.clone_from(&known.key().0);
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
    if Arc::ptr_eq(last, own) || last == own {
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

fn build<A, B, C, J>(
    a: Option<A>,
    b: Option<B>,
    c: Option<C>,
    build: impl FnOnce(A, B, C) -> J,
) -> Option<J> {
    Some(build(a?, b?, c?))
}

/// Checks the fields of `defaults:` by themselves, whether or not a job inherits them. Returns the
/// targets of notifications that they name.
pub(super) fn check_defaults(entries: &[KeyValue], problems: &mut Problems) -> Vec<NamedTarget> {
    let section = Section::new(&[], entries);
    policies::read(section, None, problems, &mut Vec::new());
    when::check_defaults(section, problems);
    command::check_defaults(section, problems);
    ProcessSettings::read(section, problems);
    section.read("enabled", problems, values::boolean);
    notify::read_job(section, None, problems).named
}
