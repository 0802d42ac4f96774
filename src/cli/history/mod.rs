//! `cronlatch history`: what became of occurrences, oldest first, as `journalctl` has it.

mod order;
mod select;
mod text;

use std::collections::HashSet;
use std::process::ExitCode;

use super::times::{TimeArgs, Times};
use super::{Failure, Target, output};
use crate::config::{JobList, Scope};
use crate::ground::sorting::SortShort as _;
use crate::names::{HostName, JobName, LockName};
use crate::store::{KeyFault, Listing, Lock, LockId, Record, Store, StoreError};
use crate::time::Timestamp;

/// Options of `history`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The jobs: names, or globs such as 'web*' [default: all jobs of the list]
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,
    /// The same as JOB
    #[arg(long, value_name = "JOB")]
    job: Vec<String>,
    /// The number of records per job (the newest)
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 20,
        allow_negative_numbers = true
    )]
    limit: usize,
    #[command(flatten)]
    filters: select::Filters,
    /// Also show the last lines of output of each run
    #[arg(long, conflicts_with = "json")]
    output: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    times: TimeArgs,
    #[command(flatten)]
    target: Target,
}

pub(super) use text::{cpu, exit, memory};

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    args.filters.check()?;
    let host = args.target.host()?;
    let asked = args.asked();
    let list = if asked.is_empty() || asked.iter().any(|job| select::is_glob(job)) {
        Some(args.target.list()?)
    } else {
        args.target.list_if_any()?
    };
    let settings = args.target.settings(list.as_ref())?;
    let found = output::ask(async {
        let store = args.target.open_existing(list.as_ref(), &settings)?;
        collect(&*store, list.as_ref(), &host, args).await
    })?;
    let records = found.records;
    output::print(&if args.json {
        output::json_lines(&records)?
    } else if records.is_empty() && args.filters.any() {
        "no record passes these filters\n".to_owned()
    } else {
        text::for_people(&records, Times::for_stdout(args.times), args.output)
    })?;
    if records.is_empty() {
        args.target.warn_if_guessed(list.as_ref(), &settings);
    }
    for (job, fault) in found.damage {
        let warning = format!(
            "warning: part of the history of job {job} cannot be shown: {fault}\n  help: {}",
            fault.repair(Some(job.as_str()))
        );
        output::report(&warning);
    }
    match found.away {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(Failure::Unavailable(format!(
            "{error}: its records are missing above"
        ))),
    }
}

/// The records that are shown, and what is missing among them.
#[derive(Debug)]
pub(super) struct ChosenRecords {
    /// The records, oldest first.
    pub(super) records: Vec<Record>,
    /// What cannot be read.
    pub(super) damage: Vec<(JobName, KeyFault)>,
    /// Why a part of the store cannot be asked.
    pub(super) away: Option<StoreError>,
}

/// Asks the store for the records that are to be shown.
pub(super) async fn collect(
    store: &dyn Store,
    list: Option<&JobList>,
    host: &HostName,
    args: &Args,
) -> Result<ChosenRecords, Failure> {
    let asked = args.asked();
    let jobs = select::jobs(&asked, list)?;
    let limit = if args.filters.any() {
        select::ALL
    } else {
        args.limit
    };
    let filters = &args.filters;
    let wanted = wanted(store, &jobs, list, host).await?;
    let mut found = read(store, (&wanted, host), (limit, filters)).await?;
    if asked.is_empty() && filters.asks_for_failures() {
        let unlisted = unlisted_failures(store, &jobs).await?;
        found.is_empty &= unlisted.is_empty();
        let shown = unlisted
            .into_iter()
            .filter(|(at, record)| filters.accept(*at, record));
        found.records.extend(shown);
    }
    if found.is_empty && found.damage.is_empty() && found.away.is_none() {
        for job in asked.iter().filter(|job| !select::is_glob(job)) {
            known(job, list)?;
        }
    }
    Ok(ChosenRecords {
        records: chosen(found.records, args),
        damage: found.damage,
        away: found.away,
    })
}

impl Args {
    /// The jobs that are asked for, as they are given.
    fn asked(&self) -> Vec<String> {
        self.jobs.iter().chain(&self.job).cloned().collect()
    }
}

/// What the store returns of the histories of several jobs.
#[derive(Debug)]
struct HistoriesRead {
    /// Those that pass the filters, each with the instant that it is sorted by.
    records: Vec<(Timestamp, Record)>,
    /// The store has returned none at all.
    is_empty: bool,
    /// What cannot be read.
    damage: Vec<(JobName, KeyFault)>,
    /// Why a part of the store cannot be asked.
    away: Option<StoreError>,
}

/// Reads the newest `limit` records of each job, also those under the locks that it had before, and
/// keeps those that pass the filters.
async fn read(
    store: &dyn Store,
    (wanted, host): (&[HistoryKey], &HostName),
    (limit, filters): (usize, &select::Filters),
) -> Result<HistoriesRead, Failure> {
    let mut all = HistoriesRead {
        records: Vec::new(),
        is_empty: true,
        damage: Vec::new(),
        away: None,
    };
    let earlier = earlier(store, wanted, host).await?;
    for (job, lock, _) in wanted.iter().chain(&earlier) {
        match store.history(job, lock, limit).await {
            Ok(found) => {
                all.is_empty &= found.records.is_empty();
                let dated = order::dated(found.records).into_iter();
                all.records
                    .extend(dated.filter(|(at, record)| filters.accept(*at, record)));
                let unreadable = found.unreadable.into_iter();
                let faults = unreadable.map(|fault| (job.clone(), fault));
                let faults: Vec<_> = faults.filter(|it| !all.damage.contains(it)).collect();
                all.damage.extend(faults);
            }
            Err(StoreError::Key(fault)) => all.damage.push((job.clone(), fault)),
            // What the rest of the store keeps is shown all the same.
            Err(error @ StoreError::PartUnreachable(_)) => all.away = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Returns the failures of jobs that the list does not have. In a Cluster the store knows none.
async fn unlisted_failures(
    store: &dyn Store,
    listed: &[JobName],
) -> Result<Vec<(Timestamp, Record)>, StoreError> {
    let failures = match store.failures(&[], select::ALL).await {
        Err(StoreError::PartUnreachable(_) | StoreError::Key(_)) => return Ok(Vec::new()),
        failures => failures?.records,
    };
    let unlisted = failures.into_iter().filter(|it| !listed.contains(&it.job));
    Ok(unlisted
        .map(|record| (order::instant_of(&record), record))
        .collect())
}

/// The records that passed the filters, oldest first, at most `limit` of each job.
fn chosen(mut records: Vec<(Timestamp, Record)>, args: &Args) -> Vec<Record> {
    // Stable: records of one instant stay as the store had them, turned round.
    records.reverse();
    records.sort_short_by_key(|(at, _)| *at);
    // On Redis two locks may share a hash tag, and with it the histories of their jobs.
    let mut seen = HashSet::with_capacity(records.len());
    let is_new: Vec<bool> = records.iter().map(|(_, it)| seen.insert(it)).collect();
    drop(seen);
    let mut is_new = is_new.into_iter();
    records.retain(|_| is_new.next() == Some(true));
    let mut records: Vec<Record> = records.into_iter().map(|(_, record)| record).collect();
    select::keep_newest(&mut records, args.limit);
    records
}

/// A job, the lock under which its history lies, and how its list calls that lock.
type HistoryKey = (JobName, Lock, LockId);

/// The jobs with the locks that keep their histories: for `scope: host` the lock of each live host.
///
/// A job that is gone from the list may still have a history, under the lock of its own name.
async fn wanted(
    store: &dyn Store,
    jobs: &[JobName],
    list: Option<&JobList>,
    host: &HostName,
) -> Result<Vec<HistoryKey>, StoreError> {
    let listed = |name: &JobName| {
        let mut entries = list.into_iter().flat_map(|list| &list.jobs);
        entries.find(|entry| entry.name == *name)
    };
    let of_host = |name: &JobName| listed(name).is_some_and(|job| job.lock.scope == Scope::Host);
    let hosts = if jobs.iter().any(of_host) {
        live_hosts(store, host).await?
    } else {
        vec![host.clone()]
    };
    let mut wanted = Vec::with_capacity(jobs.len());
    for name in jobs {
        match listed(name) {
            Some(job) if job.lock.scope == Scope::Host => {
                let locks = hosts.iter().map(|host| job.lock_on(host));
                wanted.extend(locks.map(|lock| (name.clone(), lock, job.lock_id())));
            }
            Some(job) => wanted.push((name.clone(), job.lock_on(host), job.lock_id())),
            None => {
                let lock = LockName::parse(name.as_str()).map(|name| Lock::named(&name));
                let id = LockId::Fleet(name.as_str().into());
                wanted.extend(lock.ok().map(|lock| (name.clone(), lock, id)));
            }
        }
    }
    Ok(wanted)
}

/// This host, and all others that have a live daemon.
async fn live_hosts(store: &dyn Store, host: &HostName) -> Result<Vec<HostName>, StoreError> {
    let peers = match store.peers().await {
        Err(StoreError::PartUnreachable(_) | StoreError::Key(_)) => Vec::new(),
        peers => peers?,
    };
    let mut hosts: Vec<HostName> = peers.into_iter().map(|peer| peer.info.host).collect();
    hosts.push(host.clone());
    hosts.sort();
    hosts.dedup();
    Ok(hosts)
}

/// The same jobs under the locks that they had before, where older records are.
async fn earlier(
    store: &dyn Store,
    wanted: &[HistoryKey],
    host: &HostName,
) -> Result<Vec<HistoryKey>, StoreError> {
    let names: Vec<JobName> = wanted.iter().map(|(job, ..)| job.clone()).collect();
    let listings = match store.listings(&names).await {
        Err(StoreError::PartUnreachable(_) | StoreError::Key(_)) => return Ok(Vec::new()),
        answer => answer?,
    };
    let of_one = |((job, _, id), listing): (&HistoryKey, Listing)| {
        let locks = listing.other_locks(host, id).into_iter();
        let wanted = |lock| (job.clone(), lock, id.clone());
        locks.map(wanted).collect::<Vec<_>>()
    };
    Ok(wanted.iter().zip(listings).flat_map(of_one).collect())
}

/// Fails for a job that is in no list and of which nothing was recorded.
fn known(job: &str, list: Option<&JobList>) -> Result<(), Failure> {
    match list {
        Some(list) if list.jobs.iter().all(|entry| entry.name.as_str() != job) => {
            let job = JobName::parse(job).map_err(|e| Failure::Usage(e.to_string()))?;
            Err(super::unknown_job(&job, list))
        }
        _ => Ok(()),
    }
}
