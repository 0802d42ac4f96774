//! `cronlatch forget`: deletes what the store keeps of a job.

use std::process::ExitCode;

use serde::Serialize;

use super::pause::parse_reason;
use super::request::note;
use super::requester::requester;
use super::{Failure, Target, output};
use crate::config::JobList;
use crate::names::{HostName, JobName, LockName};
use crate::store::{Forget, Forgotten, HostReport, Intervention, Listing, Lock, LockId, Standing};
use crate::time::Timestamp;

/// Options of `forget`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job; it need not be in the list any more
    job: JobName,
    /// Delete even if a live host may run the job or its lock is held. A current run continues, and
    /// a job that is still listed starts from now
    #[arg(long)]
    force: bool,
    /// Why, for `status`
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// `forget --json`.
#[derive(Debug, Serialize)]
struct ForgetReport<'a> {
    job: &'a str,
    lock: &'a str,
    /// How many keys or rows were deleted; of several nodes, the most on any one.
    entries: u64,
    /// Whether the state of the lock went too: no other job of the list uses it.
    with_lock: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let host = args.target.host()?;
    let list = args.target.list_if_any()?;
    let settings = args.target.settings(list.as_ref())?;
    args.target.warn_about_store(&settings);
    let request = request(args, list.as_ref(), &host)?;
    let forgotten = output::ask(async {
        let store = args.target.open_existing(list.as_ref(), &settings)?;
        let listing = store.listings(std::slice::from_ref(&args.job)).await?;
        let listing = listing.into_iter().next().unwrap_or_default();
        if !args.force {
            let (hosts, now) = (store.hosts().await?, store.now().await?);
            refuse_while_listed(&args.job, list.as_ref(), (&hosts, now), &listing)?;
        }
        let forgotten = store.forget(&request).await?;
        if let Forgotten::Done { entries: 1.. } = forgotten {
            // Else the job would go on from what it left under the locks that it had before.
            for lock in listing.other_locks(&host, &lock_id(args, list.as_ref())) {
                let before = Forget {
                    lock,
                    with_lock: false,
                    although_held: true,
                    ..request.clone()
                };
                store.forget(&before).await?;
            }
            let why = (requester(&host), args.reason.clone().unwrap_or_default());
            let what = (Intervention::Forget, args.job.to_string());
            note(&*store, what, why).await;
        }
        Ok(forgotten)
    })?;
    let job = &args.job;
    let entries = match forgotten {
        Forgotten::Done { entries } => entries,
        Forgotten::Held { by, remaining } => {
            let left = remaining.map_or_else(
                || "it has no TTL".to_owned(),
                |left| format!("{} left", output::short(left)),
            );
            return Err(Failure::NotAcquired(format!(
                "job {job}: its lock {} is held by {by} ({left}), and nothing was deleted\n\
                 help: wait until it is released, or add --force; a run in progress continues",
                request.lock.name
            )));
        }
    };
    if let (0, Some(list)) = (entries, &list)
        && list.jobs.iter().all(|listed| listed.name != *job)
    {
        return Err(super::job_without_data(job, list, &settings.shown()));
    }
    if entries == 0 {
        args.target.warn_if_guessed(list.as_ref(), &settings);
    }
    output::print(&if args.json {
        output::json_lines([ForgetReport {
            job: job.as_str(),
            lock: &request.lock.name,
            entries,
            with_lock: request.with_lock,
        }])?
    } else {
        for_people((job, &settings.shown()), &request, entries)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn for_people((job, store): (&JobName, &str), request: &Forget, entries: u64) -> String {
    let what = match entries {
        0 => format!("{store} has no data about it"),
        1 => "1 entry deleted".to_owned(),
        n => format!("{n} entries deleted"),
    };
    let lock = &request.lock.name;
    let shared = if request.with_lock {
        String::new()
    } else {
        format!("; the state of lock {lock} is kept, because other jobs of the list use it")
    };
    format!("job {job}: {what}{shared}\n")
}

/// The lock that the list gives to the job, else the one of its own name.
fn lock_id(args: &Args, list: Option<&JobList>) -> LockId {
    let mut listed = list.into_iter().flat_map(|list| &list.jobs);
    listed.find(|job| job.name == args.job).map_or_else(
        || LockId::Fleet(args.job.as_str().into()),
        |job| job.lock_id(),
    )
}

/// The job's lock as the list has it, else the one of its own name.
fn request(args: &Args, list: Option<&JobList>, host: &HostName) -> Result<Forget, Failure> {
    let listed = || list.into_iter().flat_map(|list| &list.jobs);
    let lock = match listed().find(|job| job.name == args.job) {
        Some(job) => job.lock_on(host),
        None => LockName::parse(args.job.as_str())
            .map(|name| Lock::named(&name))
            .map_err(|e| Failure::Usage(e.to_string()))?,
    };
    let shared = listed().any(|job| job.name != args.job && job.lock_on(host) == lock);
    Ok(Forget {
        job: args.job.clone(),
        lock,
        with_lock: !shared,
        although_held: args.force,
    })
}

/// Fails while a host has the job in its list, or may have it. One that died counts as up for a
/// while: the store knows only when it last reported.
fn refuse_while_listed(
    job: &JobName,
    list: Option<&JobList>,
    (hosts, now): (&[HostReport], Timestamp),
    listing: &Listing,
) -> Result<(), Failure> {
    let listed = list.and_then(|list| list.jobs.iter().find(|listed| listed.name == *job));
    for host in hosts {
        let name = &host.info.host;
        let known = list.and_then(JobList::known_fingerprint);
        let has_this_list = known == Some(&host.info.config);
        let entry = listing.entries.get(name).map(|entry| entry.standing);
        let why = if matches!(entry, Some(Standing::Uses | Standing::Waits)) {
            format!("its list names job {job}")
        } else if entry.is_some() {
            continue;
        } else if let (false, None, Some(list)) = (has_this_list, known, list) {
            let unset: Vec<&str> = list.unset_variables.iter().map(String::as_str).collect();
            format!(
                "its list, which may name job {job}, cannot be compared with the one read here, where \
                 these variables are not set: {}",
                unset.join(", ")
            )
        } else if !has_this_list {
            format!("it has another job list, which may name job {job}")
        } else if listed.is_some_and(|job| job.enabled && job.policies.hosts.matches(name)) {
            format!("its list names job {job}")
        } else {
            continue;
        };
        let ago = output::short(now.since(host.seen_at));
        return Err(Failure::NotAcquired(format!(
            "host {name} reported {ago} ago, and {why}; nothing was deleted\n\
             help: take the job out of every list and reload the daemons; a host that is down \
             for good is not listed any more after 30 s. Or add --force: the job then starts from \
             now"
        )));
    }
    Ok(())
}
