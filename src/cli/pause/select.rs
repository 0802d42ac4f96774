//! Selects the jobs of a command by names and globs, or all jobs, and finds their ledgers.

use std::collections::{BTreeMap, BTreeSet};

use crate::cli::Failure;
use crate::cli::nearest::nearest_name;
use crate::config::JobList;
use crate::names::{HostName, JobName};
use crate::store::{Listing, Lock, LockRef, Standing, Store};

/// The jobs that a command line names.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Jobs {
    /// The jobs: names or globs such as `backup-*`
    #[arg(value_name = "JOB", required_unless_present = "all")]
    jobs: Vec<String>,
    /// All jobs that a host runs or that the list contains
    #[arg(long, conflicts_with = "jobs")]
    all: bool,
}

/// A job, and the locks under which its ledgers lie: several if each host has its own.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) job: JobName,
    pub(super) locks: Vec<Lock>,
}

impl Jobs {
    /// These names and globs, or all jobs.
    pub(super) fn of(jobs: Option<Vec<String>>) -> Self {
        let all = jobs.is_none();
        Self {
            jobs: jobs.unwrap_or_default(),
            all,
        }
    }

    /// Returns the chosen jobs by name. A name or glob that matches no job of a host is an error.
    pub(super) async fn choose(
        &self,
        store: &dyn Store,
        list: Option<&JobList>,
        host: &HostName,
    ) -> Result<Vec<Chosen>, Failure> {
        let known = known(store, list).await?;
        let mut names = BTreeSet::new();
        if self.all {
            names.extend(known.iter().cloned());
        }
        for pattern in &self.jobs {
            let matching: Vec<_> = known
                .iter()
                .filter(|job| glob_match::glob_match(pattern, job.as_str()))
                .cloned()
                .collect();
            if matching.is_empty() {
                return Err(no_match(pattern, &known));
            }
            names.extend(matching);
        }
        if names.is_empty() {
            return Err(Failure::Usage(
                "no host has reported a job to this store, and no job list was found; nothing was \
                 changed"
                    .to_owned(),
            ));
        }
        let names: Vec<JobName> = names.into_iter().collect();
        let listings = store.listings(&names).await?;
        let mut chosen = Vec::with_capacity(names.len());
        for (job, listing) in names.into_iter().zip(listings) {
            let locks = locks(&job, &listing, list, host);
            chosen.push(Chosen { job, locks });
        }
        Ok(chosen)
    }

    /// Whether the command line names this job itself, not by a glob.
    pub(super) fn names(&self, job: &JobName) -> bool {
        self.jobs.iter().any(|name| name == job.as_str())
    }
}

/// Returns the error for a name or glob that matches nothing, with what there is.
fn no_match(pattern: &str, known: &BTreeSet<JobName>) -> Failure {
    let is_glob = pattern.contains(['*', '?', '[', '{']);
    let mut text = if is_glob {
        format!("no job matches {pattern}: nothing was changed")
    } else {
        format!("no host and no list has a job {pattern}: nothing was changed")
    };
    let names = known.iter().map(JobName::as_str);
    match nearest_name(pattern, names).filter(|_| !is_glob) {
        Some(name) => text += &format!("\nhelp: did you mean {name}?"),
        None if known.is_empty() => {}
        None => {
            let known: Vec<&str> = known.iter().take(12).map(JobName::as_str).collect();
            text += &format!("\nhelp: jobs are {}", known.join(", "));
        }
    }
    Failure::Usage(text)
}

/// Returns the jobs of the list and of all hosts that have announced themselves.
pub(in crate::cli) async fn known(
    store: &dyn Store,
    list: Option<&JobList>,
) -> Result<BTreeSet<JobName>, Failure> {
    let mut known: BTreeSet<JobName> = list
        .into_iter()
        .flat_map(|list| list.jobs.iter().map(|job| job.name.clone()))
        .collect();
    for report in store.hosts().await? {
        known.extend(store.listed_by(&report.info.host).await?);
    }
    Ok(known)
}

/// Returns the locks under which the job has a ledger, by what the hosts say and by the list.
pub(in crate::cli) fn locks(
    job: &JobName,
    listing: &Listing,
    list: Option<&JobList>,
    host: &HostName,
) -> Vec<Lock> {
    let mut locks = BTreeMap::new();
    let mut add = |lock: Lock| {
        locks.entry(LockRef::of(&lock)).or_insert(lock);
    };
    for (of, entry) in &listing.entries {
        if entry.standing != Standing::Withdrawn {
            add(entry.lock.on(of));
        }
    }
    let listed = list.and_then(|list| list.jobs.iter().find(|listed| listed.name == *job));
    if let Some(listed) = listed {
        add(listed.lock_on(host));
    }
    locks.into_values().collect()
}
