//! `cronlatch kill`: has daemons end runs, or send them a signal.

use std::process::ExitCode;

use nix::sys::signal::Signal;
use serde::Serialize;

use super::pause::{known_jobs, locks_of, parse_reason};
use super::request::{self, ASKING, Done, FollowedRun};
use super::requester::requester;
use super::{Failure, Target, output};
use crate::config::JobList;
use crate::names::{HostName, JobName, RunId};
use crate::store::{
    self, DaemonRequest, HostReport, JobReport, Lock, OpenRun, Outcome, Record, RequestOrder,
    Store, retry,
};

/// How many records of each job are searched for a run that is not in progress.
const SEARCHED: usize = 1000;

/// Options of `kill`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 when the order was given; 64 when no host has the job or the \
                        run; 69 when the store or the host does not reply; 75 when the run is not in \
                        progress."
)]
pub(super) struct Args {
    /// The id of a run, or a job: all its runs that are in progress
    #[arg(value_name = "RUN|JOB")]
    what: String,
    /// Send this signal, such as HUP, and nothing else. Without it, the run gets its `kill_signal`, and
    /// SIGKILL after its `kill_grace`
    #[arg(long, value_name = "SIGNAL", value_parser = signal)]
    signal: Option<Signal>,
    /// The reason, for the history of the job
    #[arg(long, value_name = "TEXT", value_parser = parse_reason, default_value = "", hide_default_value = true)]
    reason: String,
    /// Wait until the runs have ended
    #[arg(short, long)]
    wait: bool,
    /// Print one JSON object per run
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// Parses the name of a signal, with or without `SIG`, or its number.
fn signal(text: &str) -> Result<Signal, String> {
    if let Ok(number) = text.parse::<i32>() {
        return Signal::try_from(number).map_err(|_| format!("there is no signal {number}"));
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    format!("SIG{name}")
        .parse()
        .map_err(|_| format!("there is no signal {text}; use a name such as TERM, HUP or USR1"))
}

/// Runs that one daemon is asked to end.
#[derive(Debug)]
struct KillTarget {
    job: JobName,
    lock: Lock,
    /// One run; `None`: those that the host has of the job.
    run: Option<RunId>,
    host: HostName,
}

/// `kill --json`.
#[derive(Debug, Serialize)]
struct KilledRun {
    job: String,
    run_id: String,
    host: String,
    /// The name of the signal, if nothing but a signal was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<&'static str>,
    /// How the run ended, with `--wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let host = args.target.host()?;
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    args.target.warn_of(&settings);
    let (killed, failed) = output::ask(async {
        let store = store::open(&settings)?;
        let search = RunSearch::begin(&*store, list.as_ref(), &host).await?;
        let targets = search.find(&args.what).await?;
        let (mut killed, mut failed) = (Vec::new(), None);
        for target in &targets {
            match args.kill(&search, target).await {
                Ok(runs) => killed.extend(runs),
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        // One of several hosts that have no run of the job is no failure.
        Ok((killed, failed))
    })?;
    output::print(&if args.json {
        output::json_lines(&killed)?
    } else {
        killed.iter().map(for_people).collect()
    })?;
    match failed {
        Some(failure) if killed.is_empty() => Err(failure),
        _ => Ok(ExitCode::SUCCESS),
    }
}

impl Args {
    async fn kill(
        &self,
        search: &RunSearch<'_>,
        target: &KillTarget,
    ) -> Result<Vec<KilledRun>, Failure> {
        search.check_live(target)?;
        let request = DaemonRequest {
            id: RunId::new(),
            host: target.host.clone(),
            order: RequestOrder::Kill {
                job: target.job.clone(),
                run: target.run.clone(),
                signal: self.signal.map(|signal| short_name(signal).to_owned()),
            },
            by: requester(search.host),
            reason: self.reason.clone(),
        };
        let runs = match request::send(search.store, &request).await? {
            Done::Signalled(runs) => runs,
            Done::Refused(failure) => return Err(search.ended_meanwhile(target, failure).await),
            Done::Started(_) => {
                return Err(Failure::Internal(format!(
                    "the daemon of host {} returned an unexpected reply to a kill",
                    target.host
                )));
            }
        };
        let mut killed = Vec::with_capacity(runs.len());
        for run_id in runs {
            let followed = FollowedRun {
                job: target.job.clone(),
                lock: target.lock.clone(),
                run_id,
                host: target.host.clone(),
            };
            let outcome = if self.wait {
                Some(followed.record(search.store).await?.outcome)
            } else {
                None
            };
            killed.push(KilledRun {
                job: followed.job.to_string(),
                run_id: followed.run_id.to_string(),
                host: followed.host.to_string(),
                signal: self.signal.map(short_name),
                outcome,
            });
        }
        Ok(killed)
    }
}

/// The name of a signal without `SIG`.
fn short_name(signal: Signal) -> &'static str {
    let name = signal.as_str();
    name.strip_prefix("SIG").unwrap_or(name)
}

fn for_people(killed: &KilledRun) -> String {
    let KilledRun {
        job, run_id, host, ..
    } = killed;
    let done = match (killed.signal, killed.outcome) {
        (Some(signal), None) => format!("got SIG{signal}"),
        (None, None) => "is being killed".to_owned(),
        (_, Some(outcome)) => format!("has ended: {}", outcome.word().replace('_', " ")),
    };
    format!("run {run_id} of job {job} on {host} {done}\n")
}

/// Looks for runs in the ledgers of the jobs that the fleet or the list has.
struct RunSearch<'a> {
    store: &'a dyn Store,
    host: &'a HostName,
    live: Vec<HostReport>,
    /// Each job with the locks under which it has a ledger.
    jobs: Vec<(JobName, Vec<Lock>)>,
}

impl<'a> RunSearch<'a> {
    async fn begin(
        store: &'a dyn Store,
        list: Option<&JobList>,
        host: &'a HostName,
    ) -> Result<Self, Failure> {
        let live = retry(ASKING, || store.peers()).await?;
        let names: Vec<JobName> = known_jobs(store, list).await?.into_iter().collect();
        let listings = retry(ASKING, || store.listings(&names)).await?;
        let jobs = names.into_iter().zip(listings);
        let jobs = jobs.map(|(job, listing)| {
            let locks = locks_of(&job, &listing, list, host);
            (job, locks)
        });
        Ok(Self {
            store,
            host,
            live,
            jobs: jobs.collect(),
        })
    }

    async fn find(&self, what: &str) -> Result<Vec<KillTarget>, Failure> {
        if let Ok(run) = uuid::Uuid::parse_str(what) {
            return self.find_run(&RunId::from_text(&run.to_string())).await;
        }
        let job = JobName::parse(what).map_err(|error| Failure::Usage(error.to_string()))?;
        let Some((_, locks)) = self.jobs.iter().find(|(name, _)| *name == job) else {
            return Err(self.unknown(&job));
        };
        let mut found = Vec::new();
        for lock in locks {
            found.extend(self.targets(&job, lock, None).await?);
        }
        if found.is_empty() {
            return Err(Failure::NotAcquired(format!(
                "no run of job {job} is in progress"
            )));
        }
        Ok(found)
    }

    /// The daemons that may have the run, or any run, of the job under this lock.
    async fn targets(
        &self,
        job: &JobName,
        lock: &Lock,
        run: Option<&RunId>,
    ) -> Result<Vec<KillTarget>, Failure> {
        let target = |run: Option<RunId>, host: HostName| KillTarget {
            job: job.clone(),
            lock: lock.clone(),
            run,
            host,
        };
        let open = self.open(job, lock).await?;
        let open = open.filter(|open| run.is_none_or(|run| open.run_id == *run));
        if !lock.exclusive {
            // Its ledger has the newest run alone, and lies under the name of its host.
            let host = lock.name.rsplit_once('@').map(|(_, host)| host);
            let host = host.and_then(|host| HostName::parse(host).ok());
            let host = host.filter(|host| open.is_some() || self.is_live(host));
            return Ok(host
                .map(|host| target(run.cloned(), host))
                .into_iter()
                .collect());
        }
        let Some(open) = open else {
            return Ok(Vec::new());
        };
        let host = HostName::parse(&open.by).map_err(|_| {
            Failure::NotAcquired(format!(
                "run {} of job {job} is held by {}, which is no host of cronlatch",
                open.run_id, open.by
            ))
        })?;
        if open.remaining.is_zero() {
            return Err(Failure::NotAcquired(format!(
                "run {} of job {job} on {host} is over: its lease has expired, and the next host \
                 that looks records it as interrupted",
                open.run_id
            )));
        }
        Ok(vec![target(Some(open.run_id), host)])
    }

    async fn open(&self, job: &JobName, lock: &Lock) -> Result<Option<OpenRun>, Failure> {
        let asked = [(job.clone(), lock.clone())];
        let reports: Vec<JobReport> = retry(ASKING, || self.store.jobs(&asked)).await?;
        Ok(reports.into_iter().next().and_then(|report| report.open))
    }

    async fn find_run(&self, run: &RunId) -> Result<Vec<KillTarget>, Failure> {
        let mut candidates = Vec::new();
        for (job, locks) in &self.jobs {
            for lock in locks {
                let is_open = self.open(job, lock).await?;
                if is_open.is_some_and(|open| open.run_id == *run) {
                    return self.targets(job, lock, Some(run)).await;
                }
                candidates.push((job, lock));
            }
        }
        for (job, lock) in &candidates {
            let history = retry(ASKING, || self.store.history(job, lock, SEARCHED)).await?;
            if let Some(record) = end_of(run, lock, &history.records) {
                return Err(ended_already(run, record));
            }
        }
        let mut found = Vec::new();
        for (job, lock) in candidates.into_iter().filter(|(_, lock)| !lock.exclusive) {
            found.extend(self.targets(job, lock, None).await?);
        }
        for target in &mut found {
            target.run = Some(run.clone());
        }
        if found.is_empty() {
            return Err(Failure::Usage(format!(
                "no host has a run {run} in progress, and no history has it; nothing was done"
            )));
        }
        Ok(found)
    }

    fn is_live(&self, host: &HostName) -> bool {
        self.live.iter().any(|report| report.info.host == *host)
    }

    /// Fails if nobody can reach the run.
    fn check_live(&self, target: &KillTarget) -> Result<(), Failure> {
        request::check_live(&target.host, &self.live).map_err(|failure| match &target.run {
            Some(run) => Failure::Unavailable(format!(
                "run {run} of job {} runs on host {}, whose daemon does not report: if it is dead, \
                 the run is recorded as interrupted once its lease has expired\nhelp: if \
                 `cronlatch trigger --here` runs it, end that process on {}",
                target.job, target.host, target.host
            )),
            None => failure,
        })
    }

    /// Why a daemon refused: most often the run has just ended.
    async fn ended_meanwhile(&self, target: &KillTarget, failure: Failure) -> Failure {
        let Some(run) = &target.run else {
            return failure;
        };
        let history = self.store.history(&target.job, &target.lock, SEARCHED);
        let Ok(history) = history.await else {
            return failure;
        };
        let ended = end_of(run, &target.lock, &history.records);
        ended.map_or(failure, |record| ended_already(run, record))
    }

    fn unknown(&self, job: &JobName) -> Failure {
        let likeness = |name: &JobName| strsim::jaro_winkler(name.as_str(), job.as_str());
        let names = self.jobs.iter().map(|(name, _)| name);
        let nearest = names.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let mut text = format!("no host and no list has a job {job}: nothing was done");
        if let Some(name) = nearest.filter(|name| likeness(name) > 0.8) {
            text += &format!("\nhelp: did you mean {name}?");
        }
        Failure::Usage(text)
    }
}

/// The record with which the run ended. Of a job without a lock, an earlier run is recorded as
/// interrupted when the next one starts, and goes on.
fn end_of<'a>(run: &RunId, lock: &Lock, records: &'a [Record]) -> Option<&'a Record> {
    let mut records = records.iter();
    let record = records.find(|record| record.run_id.as_ref() == Some(run))?;
    (lock.exclusive || record.outcome != Outcome::Interrupted).then_some(record)
}

fn ended_already(run: &RunId, record: &Record) -> Failure {
    Failure::NotAcquired(format!(
        "run {run} of job {} has ended already: {}",
        record.job,
        record.outcome.word().replace('_', " ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        for text in ["HUP", "hup", "SIGHUP", "1"] {
            assert_eq!(signal(text), Ok(Signal::SIGHUP), "{text}");
        }
        assert_eq!(short_name(Signal::SIGHUP), "HUP");
        for text in ["", "SIG", "HUPP", "0", "99"] {
            assert!(signal(text).is_err(), "{text}");
        }
    }
}
