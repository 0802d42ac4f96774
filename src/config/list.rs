//! A whole list: from the files' trees to a [`JobList`].

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::environment::Environment;
use super::fields::{JOB, NOT_IN_DEFAULTS};
use super::http::{self, HttpSettings};
use super::job::{self, JobPart, SharedParts};
use super::model::{Job, JobList, OutputPolicy};
use super::node::{KeyValue, Node, Value};
use super::notify::{self, NamedTarget, TargetsPart};
use super::problem::{ConfigErrors, Problem, Problems, Warning, place};
use super::section::{Section, Vocabulary};
use super::source::{Source, Span};
use super::store::{self, StorePart};
use super::{
    crontab, cross, expand, fingerprint, foreign, history, machine, merge, output, reader, values,
    when,
};
use crate::ground::parallel;
use crate::store::{Retention, StoreSettings};

/// The fields of a file.
pub(super) const TOP: Vocabulary = Vocabulary {
    what: "a job list",
    fields: &[
        "store",
        "defaults",
        "max_running",
        "drain_timeout",
        "history",
        "spread",
        "strict",
        "max_clock_skew",
        "notify",
        "output",
        "http",
        "jobs",
    ],
    other_words: foreign::TOP_WORDS,
    elsewhere: &[
        (
            &NOT_IN_DEFAULTS,
            "this is a field of a job: write `jobs:` and below it `- name: …` and its fields",
        ),
        (
            JOB.fields,
            "this is a field of jobs: write it below `defaults:`, for all of them, or in one job",
        ),
    ],
    not_yet: &[],
};

const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(30);
/// Longer than this a job's start would wait for nothing.
const LONGEST_SPREAD: Duration = Duration::from_secs(60);

/// A file that is not valid text from that place on.
pub(super) fn not_utf8(file: usize, line: usize, column: usize) -> Problem {
    let span = Span {
        file,
        line,
        column,
        width: 1,
    };
    Problem::new(span, "this file is not UTF-8").help("save it as UTF-8")
}

/// What is wrong with these files of a list, whatever its other files contain.
pub(super) fn wrong_by_themselves(
    sources: &[Source],
    environment: &Environment,
    mut problems: Problems,
) -> ConfigErrors {
    roots(sources, environment, &mut problems);
    problems.into_errors(sources)
}

/// Reads the files of a list, all errors of all files at once.
pub(super) fn read(
    path: &Path,
    sources: &[Source],
    environment: &Environment,
) -> Result<JobList, ConfigErrors> {
    read_further(path, sources, environment, Problems::default())
}

/// The same for files of which some problems are known already.
pub(super) fn read_further(
    path: &Path,
    sources: &[Source],
    environment: &Environment,
    mut problems: Problems,
) -> Result<JobList, ConfigErrors> {
    let roots = roots(sources, environment, &mut problems);
    let top = top_level(&roots.files, &mut problems);
    let section = Section::new(&top, &[]);
    let defaults = defaults(section, &mut problems);
    let (parts, jobs_place) = jobs(&roots.files, &defaults.fields, &mut problems);
    let settings = TopLevel::read(section, &mut problems);
    let mut warnings = cross::check(&parts, &mut problems);
    let named = parts.iter().flat_map(|part| &part.named_targets);
    warnings.extend(
        settings
            .targets
            .check(named.chain(&defaults.named_targets), &mut problems),
    );
    cross::raw_keys(
        &parts,
        settings.store.as_ref().map(|s| &s.settings),
        &mut problems,
    );
    if jobs_place.is_none() && problems.is_empty() {
        problems.add(
            Problem::new(Span::of_file(0), "there is no `jobs:`")
                .help("write `jobs:` and below it `- name: …`, see jobs.example.yaml"),
        );
    }
    if !problems.is_empty() {
        return Err(problems.into_errors(sources));
    }
    if let (true, Some(span)) = (parts.is_empty(), jobs_place) {
        warnings.push(Warning::new(span, "`jobs` is empty: nothing will ever run"));
    }
    warnings.extend(roots.remarks);
    warnings.extend(when::doubt_of_defaults(Section::new(&[], &defaults.fields)));
    warnings.extend(machine::warnings(&parts, environment));
    warnings.extend(settings.warnings(section, sources, environment));
    warnings.extend(zone_warning(&parts, environment));
    warnings.extend(parts.iter().flat_map(|p| p.warnings.iter().cloned()));
    let jobs = parts.into_iter().filter_map(|part| part.job).collect();
    let mut list = settings.into_list(path, jobs);
    list.secret_variables = secret_variables(section, &roots.files);
    list.unset_variables = roots.unset.variables;
    list.warnings = sentences(warnings, sources);
    if roots.unset.leaves_identity {
        let identity = || fingerprint::of_list(&list);
        list.fingerprint = match list.jobs.len() {
            0..LEAST_JOBS => identity(),
            // The tree of a long list takes a while to free.
            _ => parallel::beside(move || drop(roots.files), identity),
        };
    }
    Ok(list)
}

/// The fields of a list beside `defaults:` and `jobs:`. A field that is absent or wrong is `None`,
/// or its default.
struct TopLevel {
    store: Option<StorePart>,
    max_running: Option<usize>,
    drain_timeout: Option<Duration>,
    history: Retention,
    spread: Option<Duration>,
    strict: Option<bool>,
    max_clock_skew: Option<Duration>,
    targets: TargetsPart,
    output: OutputPolicy,
    http: Option<HttpSettings>,
}

impl TopLevel {
    fn read(section: Section<'_>, problems: &mut Problems) -> Self {
        Self {
            store: store(section, problems),
            max_running: section.read_or_none("max_running", problems, |n| {
                values::number(n, 1..=1_000_000)
            }),
            drain_timeout: section.read("drain_timeout", problems, values::duration),
            history: history::read(section, problems),
            spread: section.read("spread", problems, |n| {
                values::duration_in(n, Duration::ZERO..=LONGEST_SPREAD, "")
            }),
            strict: section.read("strict", problems, values::boolean),
            max_clock_skew: section.read("max_clock_skew", problems, values::duration),
            targets: notify::read(section, problems),
            output: output::read(section, problems),
            http: http::read(section, problems),
        }
    }

    /// Warns of what this machine lacks for these fields, and of a store that loses data.
    fn warnings(
        &self,
        section: Section<'_>,
        sources: &[Source],
        environment: &Environment,
    ) -> Vec<Warning> {
        let mut all = self.targets.machine_warnings(environment);
        all.extend(http::machine_warning(
            section,
            self.http.as_ref(),
            environment,
        ));
        all.extend(store_warnings(section, self.store.as_ref(), sources));
        all
    }

    /// Fills in defaults. The caller adds the fingerprint, the secrets and the warnings.
    fn into_list(self, path: &Path, jobs: Vec<Arc<Job>>) -> JobList {
        JobList {
            path: path.to_owned(),
            jobs,
            store: self.store.map(|s| s.settings),
            max_running: self.max_running.and_then(NonZeroUsize::new),
            drain_timeout: self.drain_timeout.unwrap_or(DRAIN_TIMEOUT),
            history: self.history,
            spread: self.spread.unwrap_or_default(),
            strict: self.strict.unwrap_or(false),
            max_clock_skew: self.max_clock_skew.unwrap_or(MAX_CLOCK_SKEW),
            notify: self.targets.targets,
            output: self.output,
            http: self.http,
            fingerprint: fingerprint::none(),
            secret_variables: BTreeSet::default(),
            unset_variables: BTreeSet::default(),
            warnings: Vec::new(),
        }
    }
}

fn store(section: Section<'_>, problems: &mut Problems) -> Option<StorePart> {
    let entry = section.entry("store")?;
    if matches!(entry.value.value, Value::Null) {
        problems.add(
            Problem::new(entry.span, "`store` has no value")
                .help("remove it to use the embedded store"),
        );
        return None;
    }
    store::read(&entry.value, problems)
}

/// What the files contain.
#[derive(Default)]
struct Roots {
    /// The top-level fields of each file.
    files: Vec<Vec<KeyValue>>,
    /// Warnings about the crontabs among them.
    remarks: Vec<Warning>,
    /// The variables without which targets or pings were read.
    unset: Unset,
}

/// The variables of notifications and pings that are not set, for a command that does without them.
struct Unset {
    variables: BTreeSet<String>,
    /// Whether the list means the same whatever the values of the variables are.
    leaves_identity: bool,
}

impl Default for Unset {
    fn default() -> Self {
        Self {
            variables: BTreeSet::new(),
            leaves_identity: true,
        }
    }
}

fn roots(sources: &[Source], environment: &Environment, problems: &mut Problems) -> Roots {
    let mut all = Roots::default();
    for (file, source) in sources.iter().enumerate() {
        if crontab::is_crontab(&source.text) {
            match crontab::read_as_list(source, file, environment) {
                Ok((root, found)) => {
                    all.files.push(root);
                    all.remarks.extend(found);
                }
                Err(problem) => problems.add(problem),
            }
            continue;
        }
        match reader::read(source, file) {
            Ok(None) => {}
            Ok(Some(mut node)) => {
                merge::apply(&mut node, problems);
                if environment.may_lack_secrets() {
                    mark_unset(&mut node, environment, &mut all.unset);
                }
                expand::apply(&mut node, environment, problems);
                match node.value {
                    Value::Map(entries) => all.files.push(entries),
                    _ => problems.add(not_a_list_of_fields(&node)),
                }
            }
            Err(problem) => problems.add(problem),
        }
    }
    all
}

/// Marks the addresses of targets, and the pings, that need a variable which is not set.
fn mark_unset(root: &mut Node, environment: &Environment, unset: &mut Unset) {
    let Value::Map(fields) = &mut root.value else {
        return;
    };
    for field in fields {
        match (&*field.key, &mut field.value.value) {
            ("notify", Value::Map(targets)) => {
                for target in targets {
                    unset.mark_target(&mut target.value, environment);
                }
            }
            ("defaults", Value::Map(fields)) => {
                pings(fields).for_each(|ping| unset.mark_ping(ping, environment));
            }
            ("jobs", Value::List(jobs)) => {
                for job in jobs {
                    if let Value::Map(fields) = &mut job.value {
                        pings(fields).for_each(|ping| unset.mark_ping(ping, environment));
                    }
                }
            }
            _ => {}
        }
    }
}

impl Unset {
    fn mark_target(&mut self, target: &mut Node, environment: &Environment) {
        let Value::Map(fields) = &mut target.value else {
            self.leaves_identity &= !self.mark(target, environment);
            return;
        };
        for field in fields {
            let is_marked = self.mark(&mut field.value, environment);
            if is_marked && notify::is_in_identity(&field.key) {
                self.leaves_identity = false;
            }
        }
    }

    fn mark_ping(&mut self, ping: &mut Node, environment: &Environment) {
        if self.mark(ping, environment) && notify::service_of_unset(ping).is_none() {
            self.leaves_identity = false;
        }
    }

    /// Returns whether the value needs a variable that is not set.
    fn mark(&mut self, node: &mut Node, environment: &Environment) -> bool {
        let names = expand::unset_variables(node, environment);
        if names.is_empty() {
            return false;
        }
        self.variables.extend(names);
        let written = match &mut node.value {
            Value::Text(text) => std::mem::take(&mut text.value),
            _ => String::new(),
        };
        node.value = Value::Unset(written);
        true
    }
}

fn pings(fields: &mut [KeyValue]) -> impl Iterator<Item = &mut Node> {
    let pings = fields.iter_mut().filter(|field| field.key == "ping");
    pings.map(|field| &mut field.value)
}

fn not_a_list_of_fields(node: &Node) -> Problem {
    let problem = Problem::new(
        node.span,
        format!(
            "a job list begins with its fields, not with {}",
            node.found()
        ),
    );
    match node.value {
        Value::List(_) => problem.help("write `jobs:` above the list"),
        _ => problem.help("write `jobs:` and below it `- name: …`, see jobs.example.yaml"),
    }
}

/// The top-level fields of all files except `jobs`. Each may be in one file only.
fn top_level(roots: &[Vec<KeyValue>], problems: &mut Problems) -> Vec<KeyValue> {
    let mut top: Vec<KeyValue> = Vec::new();
    let mut seen: HashMap<String, Span> = HashMap::new();
    for root in roots {
        // A place to keep what anchors mark, as other programs have it.
        let fields = root.iter().filter(|e| !e.key.starts_with("x-"));
        TOP.check(fields.clone(), problems);
        for entry in fields {
            if entry.key == "jobs" || !TOP.fields.contains(&entry.key.as_str()) {
                continue;
            }
            match seen.get(&entry.key) {
                Some(first) if first.file == entry.span.file => {}
                Some(&first) => problems.add(
                    Problem::new(
                        entry.span,
                        format!("`{}` may appear in one file only", entry.key),
                    )
                    .other(first, "it is also at"),
                ),
                None => {
                    seen.insert(entry.key.clone(), entry.span);
                    top.push(entry.clone());
                }
            }
        }
    }
    top
}

/// `defaults:`.
#[derive(Default)]
struct Defaults {
    /// The fields that jobs inherit.
    fields: Vec<KeyValue>,
    /// The targets of notifications that they name.
    named_targets: Vec<NamedTarget>,
}

/// Reads `defaults:`; each field is checked even when no job inherits it.
fn defaults<'a>(top: Section<'a>, problems: &mut Problems) -> Defaults {
    let Some(entry) = top.entry("defaults") else {
        return Defaults::default();
    };
    let entries: &'a [KeyValue] = match &entry.value.value {
        Value::Map(entries) => entries,
        Value::Null | Value::Unset(_) | Value::Broken => &[],
        _ => {
            problems.add(
                Problem::new(
                    entry.value.span,
                    format!("expected a mapping, found {}", entry.value.found()),
                )
                .help("`defaults:` holds fields of a job, such as `timezone: Europe/Berlin`"),
            );
            &[]
        }
    };
    for entry in entries {
        if NOT_IN_DEFAULTS.contains(&entry.key.as_str()) {
            problems.add(
                Problem::new(
                    entry.span,
                    format!(
                        "`{}` cannot be a default: each job needs its own",
                        entry.key
                    ),
                )
                .help("move it into the jobs"),
            );
        }
    }
    let fields: Vec<KeyValue> = entries
        .iter()
        .filter(|e| !NOT_IN_DEFAULTS.contains(&e.key.as_str()))
        .cloned()
        .collect();
    JOB.check(&fields, problems);
    Defaults {
        named_targets: job::check_defaults(&fields, problems),
        fields,
    }
}

/// All jobs, and where the first `jobs:` stands.
fn jobs(
    roots: &[Vec<KeyValue>],
    defaults: &[KeyValue],
    problems: &mut Problems,
) -> (Vec<JobPart>, Option<Span>) {
    let mut parts = Vec::new();
    let mut shared = SharedParts::default();
    let mut first = None;
    for entry in roots.iter().flatten().filter(|e| e.key == "jobs") {
        first.get_or_insert(entry.span);
        match &entry.value.value {
            Value::Null | Value::Broken => {}
            Value::List(list) => parts.extend(jobs_of_list(list, defaults, &mut shared, problems)),
            Value::Map(_) => problems.add(
                Problem::new(entry.value.span, "`jobs` is a list, not a mapping")
                    .help("begin each job with `- name: …`"),
            ),
            _ => problems.add(
                Problem::new(
                    entry.value.span,
                    format!("`jobs` is a list, not {}", entry.value.found()),
                )
                .help("begin each job with `- name: …`"),
            ),
        }
    }
    (parts, first)
}

/// Fewer jobs are not worth a thread.
const LEAST_JOBS: usize = 2_000;

/// Reads the jobs of a list; those of a long one in several parts at the same time.
fn jobs_of_list(
    list: &[Node],
    defaults: &[KeyValue],
    shared: &mut SharedParts,
    problems: &mut Problems,
) -> Vec<JobPart> {
    let count = parallel::parts_of(list.len(), LEAST_JOBS);
    if count == 1 {
        return jobs_in_turn(list, defaults, shared, problems);
    }
    let length = list.len().div_ceil(count);
    let read = |number| {
        let part = list.chunks(length).nth(number).unwrap_or_default();
        let mut problems = Problems::default();
        let mut shared = SharedParts::default();
        let jobs = jobs_in_turn(part, defaults, &mut shared, &mut problems);
        (jobs, (number == 0).then_some(shared), problems)
    };
    let mut all = Vec::with_capacity(list.len());
    for (mut jobs, first, found) in parallel::in_parts(count, read) {
        problems.extend(found);
        match first {
            // No job came before, so what these share is what all share.
            Some(own) if shared.is_empty() => *shared = own,
            // Each part has shared what its own jobs have in common. Now they share it with those before, too.
            _ => {
                for job in jobs.iter_mut().filter_map(JobPart::job_mut) {
                    shared.complete(job);
                }
            }
        }
        all.append(&mut jobs);
    }
    all
}

fn jobs_in_turn(
    list: &[Node],
    defaults: &[KeyValue],
    shared: &mut SharedParts,
    problems: &mut Problems,
) -> Vec<JobPart> {
    let mut parts = Vec::with_capacity(list.len());
    for node in list {
        match &node.value {
            Value::Map(fields) => {
                parts.push(job::read(fields, defaults, node.span, shared, problems));
            }
            Value::Broken => {}
            _ => problems.add(
                Problem::new(
                    node.span,
                    format!("a job is a mapping, not {}", node.found()),
                )
                .help("write `- name: …` and its fields below"),
            ),
        }
    }
    parts
}

/// Variables that every program may need, and that hold no secret.
const COMMON_VARIABLES: [&str; 10] = [
    "HOME",
    "HOSTNAME",
    "LANG",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_STATE_HOME",
];

/// The variables that `store:`, `notify:` and `ping:` name: jobs do not inherit them.
fn secret_variables(top: Section<'_>, roots: &[Vec<KeyValue>]) -> BTreeSet<String> {
    let secret = ["store", "notify"].map(|key| top.entry(key));
    let mut names: BTreeSet<String> = (secret.into_iter().flatten())
        .flat_map(|entry| expand::variables(&entry.value))
        .collect();
    for entry in roots.iter().flatten() {
        let jobs = match (&*entry.key, &entry.value.value) {
            ("jobs", Value::List(jobs)) => jobs.as_slice(),
            ("defaults", _) => std::slice::from_ref(&entry.value),
            _ => &[],
        };
        let fields = jobs.iter().filter_map(|job| match &job.value {
            Value::Map(fields) => Some(fields),
            _ => None,
        });
        let pings = fields.flatten().filter(|field| field.key == "ping");
        names.extend(pings.flat_map(|ping| expand::variables(&ping.value)));
    }
    names.retain(|name| !COMMON_VARIABLES.contains(&name.as_str()));
    names
}

fn store_warnings(top: Section<'_>, store: Option<&StorePart>, sources: &[Source]) -> Vec<Warning> {
    let (Some(entry), Some(store)) = (top.entry("store"), store) else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    let readable = sources
        .get(entry.span.file)
        .is_some_and(|s| s.world_readable);
    if store.password_in_file && readable {
        let text = "the store's password is in a file that every user of this machine can read: \
                    use `password_file`, or chmod 640";
        warnings.push(Warning::new(entry.span, text));
    }
    if let StoreSettings::Sqlite { path } = &store.settings
        && path.is_relative()
    {
        let text = "the store's path depends on the working directory: begin it with `/`";
        warnings.push(Warning::new(entry.span, text));
    }
    let of_settings = store.settings.warnings().into_iter();
    warnings.extend(of_settings.map(|text| Warning::new(entry.span, text)));
    warnings
}

fn zone_warning(parts: &[JobPart], environment: &Environment) -> Option<Warning> {
    let zone = environment.zone.as_deref().filter(|z| !is_utc(z))?;
    let mut unzoned = parts.iter().filter(|p| p.zone_by_default);
    let first = unzoned.next()?;
    let many = match unzoned.count() {
        0 => "this job's schedule is".to_owned(),
        1 => "the schedules of this and one more job are".to_owned(),
        n => format!("the schedules of this and {n} more jobs are"),
    };
    Some(Warning::new(
        first.place,
        format!(
            "{many} in UTC, but this machine's time zone is {zone}; state which one you mean: \
             `defaults: {{ timezone: {zone} }}` or `timezone: UTC`"
        ),
    ))
}

fn is_utc(zone: &str) -> bool {
    let name = zone.strip_prefix("Etc/").unwrap_or(zone);
    matches!(
        name,
        "UTC" | "UCT" | "GMT" | "Zulu" | "Universal" | "Greenwich" | "GMT0"
    )
}

fn sentences(mut warnings: Vec<Warning>, sources: &[Source]) -> Vec<String> {
    warnings.sort();
    warnings.dedup();
    warnings
        .into_iter()
        .map(|warning| format!("{}: {}", place(warning.place, sources), warning.text))
        .collect()
}
