//! Checks everything that the guarantees of cronlatch depend on, before something goes wrong.
//!
//! Each check is a small file that reads facts and returns [`Finding`]s, each with a stable id, what
//! can go wrong, and how to fix it. `cronlatch doctor` prints them. The daemon logs them at its
//! start, and with `strict: true` does not start if one is dangerous. A check changes nothing,
//! neither in the store nor on this host.
//!
//! | file | checks |
//! | --- | --- |
//! | `servers`, `facts` | what each server reports about itself; the files below check it |
//! | `memory`, `persistence`, `replicas`, `rights`, `latency`, `nodes` | the servers of the store |
//! | `cluster`, `sentinels` | a Redis Cluster as a whole; those who decide who is master |
//! | `damage`, `ledger` | what the store keeps of each job |
//! | `namesakes`, `lists` | hosts whose name two daemons have, and hosts with another job list |
//! | `clock`, `zone` | the clocks and the time zone data of this host |
//! | `containment`, `limits`, `secrets`, `disk` | this host: processes, limits, files, space |
//! | `variables` | variables of the list that are not set |

mod clock;
mod cluster;
mod containment;
mod damage;
mod disk;
mod facts;
mod finding;
mod latency;
mod ledger;
mod limits;
mod lists;
mod memory;
mod namesakes;
mod nodes;
mod persistence;
mod replicas;
mod rights;
mod secrets;
mod sentinels;
mod servers;
mod subject;
mod variables;
mod zone;

use std::time::Duration;

pub(crate) use clock::NOTABLE;
pub use clock::Offset;
pub(crate) use finding::{Finding, Severity, ids};
pub(crate) use lists::{OtherList, commonest, others as other_lists};
pub(crate) use subject::Subject;

use crate::ground::sorting::SortShort as _;
use crate::store::{self, StoreError, StoreSettings};

/// The findings of all checks.
#[derive(Debug)]
pub(crate) struct PreflightReport {
    /// The worst first.
    pub(crate) findings: Vec<Finding>,
    /// Why the store could not be checked, if so.
    pub(crate) unreachable: Option<StoreError>,
}

impl PreflightReport {
    /// The findings that `strict` does not start on.
    pub(crate) fn dangers(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|finding| finding.severity == Severity::Danger)
    }
}

/// How far the clocks of host and store may differ unless the list sets `max_clock_skew`.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(30);

/// Runs all checks.
pub(crate) async fn look(subject: &Subject) -> PreflightReport {
    let on_host = subject.clone();
    let local = tokio::task::spawn_blocking(move || look_at_host(&on_host));
    let (mut findings, unreachable) = look_at_store(subject).await;
    match local.await {
        Ok(found) => findings.extend(found),
        Err(error) => tracing::error!(
            "a check of this host failed, which is a bug: please report it with this log: {error}"
        ),
    }
    findings.sort_short_by(|a, b| {
        (b.severity.cmp(&a.severity))
            .then_with(|| a.id.cmp(b.id))
            .then_with(|| a.subject.cmp(&b.subject))
    });
    PreflightReport {
        findings,
        unreachable,
    }
}

fn look_at_host(subject: &Subject) -> Vec<Finding> {
    let jobs = subject.list.as_ref().map_or(&[][..], |list| &list.jobs);
    let mut found = zone::look(jobs);
    found.extend(containment::look(jobs));
    found.extend(secrets::look(subject));
    found.extend(variables::look(subject));
    found.extend(disk::look(subject));
    found.extend(look_at_means(subject));
    found
}

/// Looks at what this host has for the list: limits, and a directory to write to. Quick, and
/// needs no store.
pub(crate) fn look_at_means(subject: &Subject) -> Vec<Finding> {
    let mut found = limits::look(subject);
    found.extend(disk::writable(subject));
    found
}

/// Fails if the file of the embedded store cannot be used.
async fn look_into_file(subject: &Subject, found: &mut Vec<Finding>) -> Result<(), StoreError> {
    let store = store::open(&subject.settings)?;
    store.now().await?;
    found.extend(namesakes::look(&*store).await);
    found.extend(lists::look(&*store, subject.list.as_ref()).await);
    found.extend(damage::look(&store, subject).await);
    Ok(())
}

async fn look_at_store(subject: &Subject) -> (Vec<Finding>, Option<StoreError>) {
    let mut found = servers::look(subject).await;
    found.extend(nodes::siblings(subject).await);
    // A file that the embedded store would refuse or make is not opened for a look.
    if let StoreSettings::Sqlite { path } = &subject.settings {
        let place = disk::place(path);
        let is_refused = (place.iter()).any(|finding| finding.severity != Severity::Ok);
        found.extend(place);
        if is_refused || !path.exists() {
            return (found, None);
        }
        return match look_into_file(subject, &mut found).await {
            Ok(()) => (found, None),
            Err(error) => {
                found.push(disk::unusable(&subject.settings.shown(), &error));
                (found, Some(error))
            }
        };
    }
    let shown = subject.settings.shown();
    let max = subject
        .list
        .as_ref()
        .map_or(MAX_CLOCK_SKEW, |list| list.max_clock_skew);
    let mut trusted = clock::Trusted::Yes;
    let measured = match store::open(&subject.settings) {
        Ok(store) => {
            // Only of several nodes is there more to say than what each server says of itself.
            match store.condition(&[]).await {
                Ok(condition) => {
                    found.extend(nodes::rivals(&*store).await);
                    found.extend(nodes::standing(&condition, &found));
                    found.extend(nodes::clocks(&condition));
                    trusted = nodes::trusted(&condition);
                }
                Err(StoreError::Corrupt(detail)) => found.push(damage::of_all(&shown, &detail)),
                Err(_) => {}
            }
            found.extend(namesakes::look(&*store).await);
            found.extend(lists::look(&*store, subject.list.as_ref()).await);
            found.extend(damage::look(&store, subject).await);
            Offset::measure_well(&*store).await
        }
        Err(error) => Err(error),
    };
    match measured {
        Ok(offset) => {
            found.push(clock::judge(offset, max, trusted));
            (found, None)
        }
        Err(error) => {
            let known = found.iter().any(|f| {
                let is_named = f.id == ids::REACHABLE.0 || f.id == ids::KEYS.0;
                is_named && f.severity == Severity::Danger && f.subject == shown
            });
            if !known {
                found.push(servers::away(&shown, &error));
            }
            (found, Some(error))
        }
    }
}
