//! The jobs of a list in short: what a store keeps of each list that daemons have, so that hosts whose
//! lists differ can be shown with the jobs that differ.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::lock::Fingerprint;
use crate::names::JobName;

/// How long a store keeps the jobs of a list, unless a daemon with this list asks for more.
pub const LIST_KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// How the text begins, so that a list without jobs is not empty.
const FIRST_LINE: &str = "jobs";

/// The jobs of one list, each with a digest of its definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedJobs {
    /// The fingerprint of the list, under which a store keeps them.
    pub fingerprint: Fingerprint,
    /// The digest of each job, by name.
    pub jobs: BTreeMap<JobName, JobDigest>,
}

/// The digest of a job's definition: at most eight bytes of text. A daemon keeps one for each of many jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JobDigest([u8; 8]);

impl JobDigest {
    /// Reads a digest; `None` if it is longer than eight bytes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 8];
        bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        Some(Self(bytes))
    }

    /// The digest as text.
    pub fn as_str(&self) -> &str {
        let text = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        str::from_utf8(text).unwrap_or_default()
    }
}

impl fmt::Debug for JobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What one list has that another one has not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListDifference {
    /// Jobs that only this list has.
    pub added: Vec<String>,
    /// Jobs that both lists have, with different definitions.
    pub changed: Vec<String>,
    /// Jobs that this list lacks.
    pub missing: Vec<String>,
}

impl ListedJobs {
    /// The text that a store keeps: a first line, then a line a job. [`Self::parse`] reads it.
    pub fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for (job, digest) in &self.jobs {
            text.extend([job.as_str(), " ", digest.as_str(), "\n"]);
        }
        text
    }

    /// Reads what [`Self::text`] returned; `None` if it is something else.
    pub fn parse(fingerprint: Fingerprint, text: &str) -> Option<Self> {
        let mut lines = text.lines();
        lines.next().filter(|line| *line == FIRST_LINE)?;
        let entries = lines.map(|line| {
            let (job, digest) = line.split_once(' ')?;
            Some((JobName::parse(job).ok()?, JobDigest::parse(digest)?))
        });
        let jobs = entries.collect::<Option<_>>()?;
        Some(Self { fingerprint, jobs })
    }

    /// What this list has that `other` has not.
    pub fn compared_with(&self, other: &Self) -> ListDifference {
        let mut found = ListDifference::default();
        for (job, digest) in &self.jobs {
            match other.jobs.get(job) {
                None => found.added.push(job.to_string()),
                Some(theirs) if theirs != digest => found.changed.push(job.to_string()),
                Some(_) => {}
            }
        }
        let missing = other
            .jobs
            .keys()
            .filter(|job| !self.jobs.contains_key(*job));
        found.missing = missing.map(JobName::to_string).collect();
        found
    }
}

impl ListDifference {
    /// How many names of each kind a text has.
    const NAMES_SHOWN: usize = 10;

    /// In one line: `has also job a; has another definition of jobs b, c; lacks job d`.
    pub fn text(&self) -> String {
        let kinds = [
            (&self.added, "has also"),
            (&self.changed, "has another definition of"),
            (&self.missing, "lacks"),
        ];
        let parts = kinds.into_iter().filter(|(jobs, _)| !jobs.is_empty());
        let parts: Vec<String> = parts
            .map(|(jobs, verb)| format!("{verb} {}", Self::named(jobs)))
            .collect();
        if parts.is_empty() {
            return "has the same jobs, with other settings outside `jobs`".to_owned();
        }
        parts.join("; ")
    }

    fn named(jobs: &[String]) -> String {
        let noun = if jobs.len() == 1 { "job" } else { "jobs" };
        let shown: Vec<&str> = jobs
            .iter()
            .take(Self::NAMES_SHOWN)
            .map(String::as_str)
            .collect();
        match jobs.len().saturating_sub(Self::NAMES_SHOWN) {
            0 => format!("{noun} {}", shown.join(", ")),
            more => format!("{noun} {} and {more} more", shown.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(jobs: &[(&str, &str)]) -> ListedJobs {
        let jobs = jobs.iter().map(|(job, digest)| {
            let digest = JobDigest::parse(digest).expect("a short one");
            (JobName::parse(job).expect("a name"), digest)
        });
        ListedJobs {
            fingerprint: Fingerprint("f".into()),
            jobs: jobs.collect(),
        }
    }

    #[test]
    fn the_text_of_a_list_comes_back_and_anything_else_does_not() {
        for jobs in [list(&[]), list(&[("a", "1"), ("b.c", "2")])] {
            let read = ListedJobs::parse(jobs.fingerprint.clone(), &jobs.text());
            assert_eq!(read, Some(jobs));
        }
        for wrong in ["", "x", "jobs\nx", "jobs\na 123456789"] {
            assert_eq!(ListedJobs::parse(Fingerprint("".into()), wrong), None);
        }
    }

    #[test]
    fn a_difference_names_the_jobs_and_of_many_the_first() {
        let one = list(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let other = list(&[("b", "1"), ("c", "2"), ("d", "1")]);
        let found = one.compared_with(&other);
        assert_eq!(
            found.text(),
            "has also job a; has another definition of job c; lacks job d"
        );
        let same = one.compared_with(&one);
        assert!(same.text().starts_with("has the same jobs"));
        let names: Vec<String> = (10..22).map(|n| format!("j{n}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        let found = list(&[]).compared_with(&list(&many));
        assert!(found.text().ends_with("j19 and 2 more"), "{}", found.text());
    }
}
