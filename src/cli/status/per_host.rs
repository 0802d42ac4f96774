//! The rows of each host for jobs whose occurrences each host has for itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::report::{JobOnHost, JobStatus};
use super::{Parts, reports};
use crate::config::Job;
use crate::names::{HostName, JobName};
use crate::store::registry::HOST_KEPT_FOR;
use crate::store::{Listing, Standing, Store, StoreError};
use crate::time::Timestamp;

/// Adds the rows of the hosts to the jobs that have a ledger for each host.
///
/// A host has a row if its list has the job enabled, also while its daemon is down, for as long as the
/// store keeps the data of that host.
pub(super) async fn add(
    store: &Arc<dyn Store>,
    (found, jobs): (&mut [JobStatus], &[Arc<Job>]),
    live: &[&HostName],
    (parts, now): (&mut Parts, Timestamp),
) -> Result<(), StoreError> {
    let of_hosts = |job: &&Arc<Job>| !job.lock_id().is_shared();
    let names: Vec<JobName> = jobs
        .iter()
        .filter(of_hosts)
        .map(|it| it.name.clone())
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let listings = parts.shown(store.listings(&names).await)?;
    let mut listings = listings.unwrap_or_default().into_iter();
    let mut rows = Vec::new();
    for (at, job) in jobs.iter().enumerate().filter(|(_, job)| of_hosts(job)) {
        let hosts = hosts_of(job, listings.next(), live, now);
        rows.extend(hosts.into_iter().map(|host| (at, host)));
    }
    let wanted: Vec<_> = rows
        .iter()
        .map(|(at, host)| (jobs[*at].name.clone(), jobs[*at].lock_on(host)))
        .collect();
    for ((at, host), report) in rows.into_iter().zip(reports(store, &wanted).await?) {
        found[at].on_hosts.push(JobOnHost {
            live: live.contains(&&host),
            host: host.to_string(),
            job: parts.job(&jobs[at], report, now)?,
        });
    }
    Ok(())
}

/// The hosts that have the job; without its listing, those that could.
fn hosts_of(
    job: &Job,
    listing: Option<Listing>,
    live: &[&HostName],
    now: Timestamp,
) -> BTreeSet<HostName> {
    let hosts: Box<dyn Iterator<Item = HostName>> =
        match listing {
            None => Box::new(live.iter().map(|host| (*host).clone())),
            Some(listing) => Box::new(listing.entries.into_iter().filter_map(
                move |(host, entry)| {
                    let is_kept = now.since(entry.at) < HOST_KEPT_FOR;
                    (entry.standing != Standing::Withdrawn && is_kept).then_some(host)
                },
            )),
        };
    hosts
        .filter(|host| job.policies.hosts.matches(host))
        .collect()
}
