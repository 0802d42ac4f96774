//! What holds between jobs: names are unique, jobs that share a lock agree on it.

use std::collections::HashMap;

use super::duration::show_duration;
use super::job::JobPart;
use super::model::{Job, OnOverlap, Scope};
use super::problem::{Problem, Problems, Warning};
use super::source::Span;
use crate::store::{StoreSettings, check_key_in_cluster};

/// Checks all jobs against one another; returns warnings.
pub(super) fn check(parts: &[JobPart], problems: &mut Problems) -> Vec<Warning> {
    unique_names(parts, problems);
    let mut warnings = Vec::new();
    let mut locks: HashMap<SharedLock<'_>, (&JobPart, &Job)> = HashMap::new();
    for (part, job) in parts.iter().filter_map(|p| Some((p, p.job.as_deref()?))) {
        let Some(lock) = shared_lock(job) else {
            continue;
        };
        match locks.get(&lock) {
            Some(&(first, first_job)) if first_job.name != job.name => {
                let pair = Pair {
                    first,
                    first_job,
                    part,
                    job,
                };
                pair.equal_ttl(problems);
                warnings.extend(pair.equal_overlap());
            }
            Some(_) => {}
            None => {
                locks.insert(lock, (part, job));
            }
        }
    }
    warnings
}

/// In a Redis Cluster all keys of a lock must lie on one server, a raw one's too.
pub(super) fn raw_keys(parts: &[JobPart], store: Option<&StoreSettings>, problems: &mut Problems) {
    if !matches!(store, Some(StoreSettings::Cluster(_))) {
        return;
    }
    for part in parts {
        let key = part.job.as_ref().and_then(|job| job.lock.key.as_deref());
        if let Some(Err(why)) = key.map(check_key_in_cluster) {
            problems.add(Problem::new(part.place, why));
        }
    }
}

fn unique_names(parts: &[JobPart], problems: &mut Problems) {
    let mut names: HashMap<&str, Span> = HashMap::with_capacity(parts.len());
    for part in parts {
        let Some(name) = &part.name else { continue };
        match names.get(name.as_str()) {
            Some(&first) => problems.add(
                Problem::new(part.place, format!("a job named `{name}` already exists"))
                    .other(first, "first named at")
                    .help("locks and history use the name: give each job its own"),
            ),
            None => {
                names.insert(name.as_str(), part.place);
            }
        }
    }
}

/// What distinguishes locks.
#[derive(PartialEq, Eq, Hash)]
enum SharedLock<'a> {
    Raw(&'a str),
    Named(Scope, &'a str),
}

/// Returns the lock of a job; `None` if it takes none.
fn shared_lock(job: &Job) -> Option<SharedLock<'_>> {
    match (&job.lock.scope, &job.lock.key) {
        (Scope::None, _) => None,
        (Scope::Fleet, Some(key)) => Some(SharedLock::Raw(key)),
        (scope, _) => Some(SharedLock::Named(*scope, job.lock.name.as_str())),
    }
}

/// Two jobs that share a lock.
struct Pair<'a> {
    first: &'a JobPart,
    first_job: &'a Job,
    part: &'a JobPart,
    job: &'a Job,
}

impl Pair<'_> {
    /// A lock that is held for a shorter ttl than its next taker believes could be taken early.
    fn equal_ttl(&self, problems: &mut Problems) {
        let (first, second) = (self.first_job.lock.ttl, self.job.lock.ttl);
        if first == second || self.first.ttl_refused || self.part.ttl_refused {
            return;
        }
        problems.add(
            Problem::new(
                self.part.ttl_place,
                format!(
                    "jobs that share a lock need the same ttl: `{}` has {}, `{}` has {}",
                    self.first_job.name,
                    show_duration(first),
                    self.job.name,
                    show_duration(second)
                ),
            )
            .other(self.first.ttl_place, "the other one is at"),
        );
    }

    fn equal_overlap(&self) -> Option<Warning> {
        let (first, second) = (
            self.first_job.policies.on_overlap,
            self.job.policies.on_overlap,
        );
        if std::mem::discriminant(&first) == std::mem::discriminant(&second) {
            return None;
        }
        Some(Warning::new(
            self.part.overlap_place,
            format!(
                "jobs `{}` ({}) and `{}` ({}) share a lock with different on_overlap: the one \
                 that skips always gives way to the other",
                self.first_job.name,
                word(first),
                self.job.name,
                word(second)
            ),
        ))
    }
}

fn word(overlap: OnOverlap) -> &'static str {
    match overlap {
        OnOverlap::Skip => "on_overlap: skip",
        OnOverlap::Wait => "on_overlap: wait",
        OnOverlap::Queue { .. } => "on_overlap: queue",
    }
}
