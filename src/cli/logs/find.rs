//! Finds the run that is meant, and the host that ran it, as far as the store knows.

use std::path::PathBuf;
use std::time::Duration;

use super::WantedRun;
use crate::cli::{Failure, Target, output};
use crate::config::{JobList, KeepOutput, OutputPolicy, Scope};
use crate::names::{HostName, JobName, LockName};
use crate::store::{HostReport, Lock, Outcome, Record, Store, StoreError, StoreSettings};
use crate::time::Timestamp;

/// How many records of a job are searched for a run.
const RECORDS_SEARCHED: usize = 100_000;
/// How many records of a job are read to find its newest run. Records of skipped occurrences lie between those of
/// runs; a run before more of them is not found.
pub(super) const NEWEST: usize = 50;

/// A run that began longer ago has its file, if it is to have one: it is created a second after the command has
/// started. Generous, because hosts are slow and clocks differ, and because of the many runs that share an instant some
/// start seconds after it. The store does not know when.
const YOUNG: Duration = Duration::from_secs(5);

/// A run that the store knows.
#[derive(Debug)]
pub(super) struct FleetRun {
    pub(super) job: JobName,
    pub(super) run_id: String,
    /// The host that runs or ran it.
    pub(super) host: String,
    pub(super) state: RunState,
    /// Where that host keeps output, if it has announced it.
    pub(super) directory: Option<PathBuf>,
    /// Where the HTTP server of that host can be reached, if it has announced that.
    pub(super) http: Option<String>,
    /// Whether the host that has it is live.
    is_live: bool,
    /// The output that hosts keep, by the list of this command.
    keep: KeepOutput,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RunState {
    InProgress {
        /// When the store granted it, or the instant that it then waits for, by the store's clock.
        since: Timestamp,
    },
    Ended {
        outcome: Outcome,
        /// The last lines.
        tail: Option<String>,
    },
}

impl FleetRun {
    /// How long it may take until it has its file: it waits for its instant, or has just begun.
    pub(super) fn awaits_file_for(&self, now: Timestamp) -> Duration {
        match self.state {
            // The clock of this host may be wrong.
            RunState::InProgress { since } => since.plus(YOUNG).since(now).min(2 * YOUNG),
            RunState::Ended { .. } => Duration::ZERO,
        }
    }

    /// Whether it may get a file as long as it is in progress.
    pub(super) fn may_get_file(&self) -> bool {
        let in_progress = matches!(self.state, RunState::InProgress { .. });
        in_progress && self.is_live && self.keep != KeepOutput::None
    }

    /// Whether its host has no file, by the list at hand: by default runs that succeeded have none.
    pub(super) fn has_no_file(&self) -> bool {
        let RunState::Ended { outcome, .. } = &self.state else {
            return false;
        };
        match self.keep {
            KeepOutput::All => false,
            KeepOutput::Failures => *outcome == Outcome::Succeeded,
            KeepOutput::None => true,
        }
    }

    /// The error for a run whose output only another host has.
    pub(super) fn elsewhere_message(&self) -> String {
        let (run, job, host) = (&self.run_id, &self.job, &self.host);
        let file = format!("{job}@{run}.log");
        let place = match &self.directory {
            Some(directory) => format!("in {}", directory.join(file).display()),
            None => format!("in {file} in the directory `output` of its state directory"),
        };
        let live = if self.is_live {
            ""
        } else {
            " (which is not reporting)"
        };
        let http = self.http.as_ref().map_or_else(String::new, |address| {
            format!(
                ", or give this command a token for {address} (--token-file, CRONLATCH_TOKEN_FILE)"
            )
        });
        format!(
            "run {run} of job {job} ran on host {host}{live}: its output is there, {place}\n\
             help: run `cronlatch logs {run}` on {host}{http}; `cronlatch history {job} --output` has \
             its last lines"
        )
    }
}

/// Finds the run in the store; `None` if the store does not know it.
pub(super) fn in_fleet(
    target: &Target,
    (list, settings): (Option<&JobList>, &StoreSettings),
    host: &HostName,
    wanted: &WantedRun,
) -> Result<Option<FleetRun>, Failure> {
    let found = searched(
        target,
        (list, settings),
        host,
        async |search| match wanted {
            WantedRun::NewestOf(job) => search.newest_of(job).await,
            WantedRun::Run(run) => search.run(run).await,
        },
    )?;
    if let (None, WantedRun::NewestOf(job), Some(list)) = (&found, wanted, list)
        && list.jobs.iter().all(|entry| entry.name != *job)
    {
        return Err(crate::cli::unknown_job(job, list));
    }
    Ok(found)
}

/// Finds a run of this job as the store has it now; `None` if it is neither in progress nor on record.
pub(super) fn run_of_job(
    target: &Target,
    from: (Option<&JobList>, &StoreSettings),
    host: &HostName,
    (job, run): (&JobName, &str),
) -> Result<Option<FleetRun>, Failure> {
    searched(target, from, host, async |search| {
        search.run_of(job, run).await
    })
}

fn searched(
    target: &Target,
    (list, settings): (Option<&JobList>, &StoreSettings),
    host: &HostName,
    look: impl AsyncFnOnce(&Search<'_>) -> Result<Option<FleetRun>, StoreError>,
) -> Result<Option<FleetRun>, Failure> {
    output::ask(async {
        let store = target.open_existing(list, settings)?;
        let hosts = store.hosts().await?;
        let search = Search {
            store: &*store,
            list,
            host,
            hosts: &hosts,
        };
        Ok(look(&search).await?)
    })
}

struct Search<'a> {
    store: &'a dyn Store,
    list: Option<&'a JobList>,
    host: &'a HostName,
    hosts: &'a [HostReport],
}

impl Search<'_> {
    /// Returns the run of a job with the newest id. Ids are ordered by time.
    async fn newest_of(&self, job: &JobName) -> Result<Option<FleetRun>, StoreError> {
        let mut newest: Option<FleetRun> = None;
        for lock in self.locks(job) {
            for run in self.runs(job, &lock, NEWEST).await? {
                if newest
                    .as_ref()
                    .is_none_or(|known| known.run_id < run.run_id)
                {
                    newest = Some(run);
                }
            }
        }
        Ok(newest)
    }

    async fn run(&self, run: &str) -> Result<Option<FleetRun>, StoreError> {
        for job in self.list.iter().flat_map(|list| &list.jobs) {
            if let Some(found) = self.run_of(&job.name, run).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn run_of(&self, job: &JobName, run: &str) -> Result<Option<FleetRun>, StoreError> {
        for lock in self.locks(job) {
            let runs = self.runs(job, &lock, RECORDS_SEARCHED).await?;
            if let Some(found) = runs.into_iter().find(|found| found.run_id == run) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The locks under which a job's runs are recorded: for `scope: host` and `none`, that of each host that
    /// is live now.
    fn locks(&self, name: &JobName) -> Vec<Lock> {
        let listed = self.list.into_iter().flat_map(|list| &list.jobs);
        let job = listed.into_iter().find(|job| job.name == *name);
        let Some(job) = job else {
            let own = LockName::parse(name.as_str()).map(|name| Lock::named(&name));
            return own.into_iter().collect();
        };
        if job.lock.scope == Scope::Fleet {
            return vec![job.lock_on(self.host)];
        }
        let mut hosts: Vec<&HostName> = self.hosts.iter().map(|report| &report.info.host).collect();
        hosts.push(self.host);
        hosts.sort();
        hosts.dedup();
        hosts.into_iter().map(|host| job.lock_on(host)).collect()
    }

    /// The runs of a job, the open one and those in its history.
    async fn runs(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<Vec<FleetRun>, StoreError> {
        let asked = [(job.clone(), lock.clone())];
        let open = self.store.jobs(&asked).await?.into_iter();
        let mut runs: Vec<FleetRun> = open
            .filter_map(|report| report.open)
            .map(|open| {
                let run_id = open.run_id.to_string();
                let since = open.started_at;
                self.found_run(job, (run_id, open.by), RunState::InProgress { since })
            })
            .collect();
        let history = self.store.history(job, lock, limit).await?;
        let ended = history.records.into_iter().filter_map(|record| {
            let Record {
                run_id: Some(run_id),
                host: Some(host),
                outcome,
                output_tail: tail,
                ..
            } = record
            else {
                return None;
            };
            let state = RunState::Ended { outcome, tail };
            Some(self.found_run(job, (run_id.to_string(), host.to_string()), state))
        });
        for run in ended {
            // With `scope: none`, a run that is still open may already have a provisional record.
            if runs.iter().all(|known| known.run_id != run.run_id) {
                runs.push(run);
            }
        }
        Ok(runs)
    }

    fn found_run(
        &self,
        job: &JobName,
        (run_id, host): (String, String),
        state: RunState,
    ) -> FleetRun {
        let mut infos = self.hosts.iter().map(|report| &report.info);
        let info = infos.find(|info| info.host.as_str() == host);
        FleetRun {
            job: job.clone(),
            run_id,
            directory: info.and_then(|info| info.output.clone()).map(PathBuf::from),
            http: info.and_then(|info| info.http.clone()),
            is_live: info.is_some(),
            keep: self
                .list
                .map_or(OutputPolicy::default().keep, |list| list.output.keep),
            host,
            state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_state(state: RunState) -> FleetRun {
        FleetRun {
            job: JobName::parse("job").unwrap(),
            run_id: "run".to_owned(),
            host: "host".to_owned(),
            state,
            directory: None,
            http: None,
            is_live: true,
            keep: KeepOutput::Failures,
        }
    }

    #[test]
    fn the_file_of_a_run_that_waits_or_has_just_begun_is_awaited() {
        let since = Timestamp::from_secs(1000);
        let run = in_state(RunState::InProgress { since });
        let awaited = |run: &FleetRun, now| run.awaits_file_for(Timestamp::from_secs(now));
        for (now, seconds) in [(999, 6), (1000, 5), (1004, 1), (1005, 0), (2000, 0)] {
            assert_eq!(awaited(&run, now), Duration::from_secs(seconds), "{now}");
        }
        // This clock is far behind that of the store.
        assert_eq!(awaited(&run, 1), Duration::from_secs(10));
        let ended = in_state(RunState::Ended {
            outcome: Outcome::Failed,
            tail: None,
        });
        assert_eq!(awaited(&ended, 1000), Duration::ZERO);
    }

    #[test]
    fn a_run_is_followed_without_a_file_while_its_host_may_create_one() {
        let since = Timestamp::from_secs(1000);
        let run = || in_state(RunState::InProgress { since });
        assert!(run().may_get_file());
        let dead = FleetRun {
            is_live: false,
            ..run()
        };
        assert!(!dead.may_get_file());
        let unkept = FleetRun {
            keep: KeepOutput::None,
            ..run()
        };
        assert!(!unkept.may_get_file());
        let ended = in_state(RunState::Ended {
            outcome: Outcome::Failed,
            tail: None,
        });
        assert!(!ended.may_get_file());
    }
}
