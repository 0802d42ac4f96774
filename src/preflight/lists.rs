//! Hosts whose job lists differ.

use std::collections::BTreeMap;

use super::{Finding, ids};
use crate::config::JobList;
use crate::names::HostName;
use crate::store::{Fingerprint, HostReport, ListDifference, ListedJobs, Store};

/// A host with another list.
#[derive(Debug)]
pub(crate) struct OtherList {
    pub(crate) host: HostName,
    /// What its list has that the other one has not; `None` if the store does not have its jobs.
    pub(crate) difference: Option<ListDifference>,
}

/// Returns the list that most of these hosts have; of several, the one with the smallest fingerprint.
pub(crate) fn commonest(hosts: &[HostReport]) -> Option<&Fingerprint> {
    let mut counts: BTreeMap<&Fingerprint, usize> = BTreeMap::new();
    for report in hosts {
        *counts.entry(&report.info.config).or_default() += 1;
    }
    let most = counts.values().max().copied()?;
    counts
        .into_iter()
        .find(|(_, n)| *n == most)
        .map(|(it, _)| it)
}

/// Returns the hosts whose list is not `own`, or without it not the one that most hosts have.
///
/// The jobs of a list are read only if it differs, once for each list.
pub(crate) async fn others(
    store: &dyn Store,
    own: Option<&JobList>,
    hosts: &[HostReport],
) -> Vec<OtherList> {
    let reference = own.and_then(JobList::known_fingerprint);
    let Some(reference) = reference.or_else(|| commonest(hosts)).cloned() else {
        return Vec::new();
    };
    let differing = hosts.iter().filter(|it| it.info.config != reference);
    let differing: Vec<&HostReport> = differing.collect();
    if differing.is_empty() {
        return Vec::new();
    }
    let own = match own.and_then(JobList::listed_jobs) {
        None => read(store, &reference).await,
        own => own,
    };
    let mut differences: BTreeMap<&Fingerprint, Option<ListDifference>> = BTreeMap::new();
    for report in &differing {
        let list = &report.info.config;
        if !differences.contains_key(list) {
            let theirs = read(store, list).await;
            let both = theirs.as_ref().zip(own.as_ref());
            differences.insert(list, both.map(|(theirs, own)| theirs.compared_with(own)));
        }
    }
    let other = |report: &&HostReport| OtherList {
        host: report.info.host.clone(),
        difference: differences.get(&report.info.config).cloned().flatten(),
    };
    differing.iter().map(other).collect()
}

/// A list that cannot be read is shown without its jobs.
async fn read(store: &dyn Store, list: &Fingerprint) -> Option<ListedJobs> {
    store.listed_jobs(list).await.ok().flatten()
}

/// The hosts whose list differs from this one, or from that of most hosts.
pub(super) async fn look(store: &dyn Store, list: Option<&JobList>) -> Vec<Finding> {
    let hosts = store.hosts().await.unwrap_or_default();
    let than = match list.and_then(JobList::known_fingerprint) {
        Some(_) => "this list",
        None => "the list of most hosts",
    };
    let finding = |other: OtherList| {
        let what = other.difference.map_or_else(
            || "which jobs differ is not known".to_owned(),
            |difference| format!("it {}", difference.text()),
        );
        ids::LISTS.warning(
            &format!("host {}", other.host),
            format!("its job list is not {than}: {what}"),
            "deploy the same list to all hosts, and reload their daemons",
        )
    };
    let others = others(store, list, &hosts).await;
    others.into_iter().map(finding).collect()
}
