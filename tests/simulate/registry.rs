//! What every kind of store keeps of hosts and lists: who lives, who lists which job, and the notes
//! of runs by hand.

use std::collections::BTreeMap;

use cronlatch::names::{HostName, JobName};
use cronlatch::store::{Listing, Standing};
use cronlatch::time::Timestamp;

use crate::message::{Reply, Request};
use crate::notes::Notes;

/// Hosts, lists and notes, as one server or a majority of several has them.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreRegistry {
    listings: BTreeMap<JobName, Listing>,
    /// Until when each host counts as live, and whether it drains.
    hosts: BTreeMap<HostName, (i64, bool)>,
    notes: Notes,
}

impl StoreRegistry {
    /// Returns the reply to a request about hosts, lists or notes; `clock` is the store's.
    pub(crate) fn serve(&mut self, now: i64, clock: Timestamp, request: &Request) -> Reply {
        match request {
            Request::Announce {
                host,
                drains,
                valid_for,
            } => {
                self.hosts.insert(host.clone(), (now + valid_for, *drains));
                Reply::Announced
            }
            Request::Hosts => {
                let live = |(until, drains): &(i64, bool)| *until > now && !drains;
                let hosts = self.hosts.iter().filter(|(_, word)| live(word));
                Reply::Hosts(hosts.map(|(host, _)| host.clone()).collect())
            }
            Request::Listings(jobs) => {
                let listing = |job| self.listings.get(job).cloned().unwrap_or_default();
                Reply::Listings(jobs.iter().map(listing).collect())
            }
            Request::Enlist(host, entries) => {
                for (job, entry) in entries {
                    let listing = self.listings.entry(job.clone()).or_default();
                    let known = listing.entries.get(host);
                    if known.is_none_or(|known| entry.replaces(known, clock)) {
                        listing.entries.insert(host.clone(), entry.clone());
                    }
                }
                Reply::Enlisted
            }
            Request::ListedBy(host) => {
                let listed = self.listings.iter().filter(|(_, listing)| {
                    let entry = listing.entries.get(host);
                    entry.is_some_and(|entry| entry.standing != Standing::Withdrawn)
                });
                Reply::Listed(listed.map(|(job, _)| job.clone()).collect())
            }
            Request::NoteManual(_) | Request::ManualRuns | Request::ForgetManual(_) => {
                self.notes.serve(now, request)
            }
            other => unreachable!("not about hosts, lists or notes: {other:?}"),
        }
    }
}
