//! Hosts of the same fleet, and daemons of the same host, that use another store.
//!
//! A store cannot know what another one grants, so hosts whose lists name different servers would
//! run every occurrence twice. A daemon therefore claims nothing before it has looked who else is
//! there: while a live host uses other servers, it waits and announces that. A daemon that claims
//! already continues, and reports who waits, or who escaped the look because no common server replied. Hosts meet
//! on servers that both use; daemons of one host meet without any (see [`crate::siblings`]).

use std::collections::BTreeSet;

use super::Daemon;
use super::rival::{Rival, who};
use super::tasks::TaskContext;
use crate::engine::core::{Event, JobIx};
use crate::ground::tasks;
use crate::store::{HostInfo, HostReport, StoreError};

/// What a daemon announces that has not looked yet.
const LOOKING: &str = "it is checking which hosts use other servers";

/// Whether this daemon may claim.
#[derive(Debug)]
pub(super) enum Agreement {
    /// It has not looked yet.
    Unknown,
    /// It waits, for this reason.
    Waits(String),
    /// No daemon of this host uses another store. The store could not be asked about other hosts:
    /// what runs while it is away may run, and it is asked before the first claim.
    HostAgrees,
    /// It does. The log has named these, which use another store.
    Claims(BTreeSet<Rival>),
}

impl Agreement {
    /// Why nothing is claimed, if so.
    pub(super) fn waits(&self) -> Option<String> {
        match self {
            Self::Unknown | Self::HostAgrees => Some(LOOKING.to_owned()),
            Self::Waits(reason) => Some(reason.clone()),
            Self::Claims(_) => None,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waits(_))
    }

    /// Whether jobs may run without a lock while the store is away (`on_store_down: run`).
    pub(super) fn allows_runs_alone(&self) -> bool {
        matches!(self, Self::HostAgrees | Self::Claims(_))
    }
}

/// Why `me` may claim nothing yet; `None` if it may.
///
/// Every host announces itself before it looks, so of two that start at the same time one at least
/// sees the other. Of hosts that all wait, the one that started first goes on, unless a host that
/// claims already shares its view.
fn obstacle(me: &HostInfo, hosts: &[HostReport]) -> Option<String> {
    let ours = me.nodes.as_ref()?;
    let order = |info: &HostInfo| (info.started_at, info.host.clone());
    let others = || hosts.iter().map(|report| &report.info);
    let is_backed = others().any(|info| {
        let same = info.nodes.as_ref().is_some_and(|it| !ours.differ_from(it));
        same && info.waits.is_none() && info.host != me.host
    });
    let hinders = |rival: &Rival| {
        let first = |info: &HostInfo| who(info) == rival.who && order(info) < order(me);
        !rival.waits || (!is_backed && others().any(first))
    };
    let rivals: Vec<_> = Rival::all(me, hosts).into_iter().filter(hinders).collect();
    let texts: Vec<_> = rivals.iter().map(Rival::text).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

impl TaskContext {
    /// Adds which servers this host uses, as far as they reply.
    pub(super) async fn signed(&self, info: HostInfo) -> Result<HostInfo, StoreError> {
        let nodes = match self.store.nodes().await {
            Err(error @ StoreError::Unreachable(_)) => return Err(error),
            // Better announced without than not at all.
            nodes => nodes.unwrap_or_default(),
        };
        Ok(HostInfo { nodes, ..info })
    }

    /// Looks for hosts, and for daemons of this one, that use another store. Returns why this host
    /// may claim nothing yet, if so.
    ///
    /// Looks twice: as a host that waits, and as one that is about to claim.
    pub(super) async fn look_for_rivals(
        &self,
        info: HostInfo,
    ) -> Result<Option<String>, StoreError> {
        let looked = self.look_around(info).await;
        let claims = !matches!(looked, Ok(Some(_)) | Err(StoreError::Unreachable(_)));
        self.siblings.set_waits(!claims);
        looked
    }

    async fn look_around(&self, info: HostInfo) -> Result<Option<String>, StoreError> {
        let mut me = self.signed(info).await?;
        // A host that waits already continues to announce why.
        let why = me.waits.take().unwrap_or_else(|| LOOKING.to_owned());
        for waits in [Some(why), None] {
            self.siblings.set_waits(waits.is_some());
            me.waits = waits;
            if let Some(reason) = self.siblings.obstacle().await {
                me.waits = Some(reason.clone());
                // It waits even if it cannot announce so.
                let told = self.announce_self(&me).await;
                if let Err(error) = told {
                    tracing::debug!("cannot announce that this host waits: {error}");
                }
                return Ok(Some(reason));
            }
            if me.nodes.is_none() {
                continue;
            }
            self.announce_self(&me).await?;
            let obstacle = obstacle(&me, &self.store.peers().await?);
            if obstacle.is_some() {
                me.waits.clone_from(&obstacle);
                self.announce_self(&me).await?;
                return Ok(obstacle);
            }
        }
        Ok(None)
    }

    /// Who uses another store, of these hosts and of the daemons of this one.
    pub(super) async fn rivals(&self, me: &HostInfo, hosts: &[HostReport]) -> Vec<Rival> {
        let siblings = self.siblings.all().await;
        let of_host = siblings.iter().filter_map(Rival::of_sibling);
        Rival::all(me, hosts).into_iter().chain(of_host).collect()
    }
}

impl Daemon {
    /// This host may claim nothing yet: the jobs are registered later.
    pub(super) fn wait_for_rivals(&mut self, jobs: Vec<JobIx>, reason: String) {
        if self.agreement.waits().as_ref() != Some(&reason) {
            tracing::error!(
                host = %self.host,
                "another store is in use for the jobs of this list: {reason}. Jobs would run on \
                 both, so this host claims nothing until those that use it have ended. Give all \
                 hosts the same list (docs/stores.md, \"Moving to another store\")"
            );
        }
        self.agreement = Agreement::Waits(reason);
        self.be_ready();
        self.status();
        tasks::spawn(self.link.clone().register_soon(jobs));
    }

    /// Nobody uses another store, or nobody whom this host must wait for.
    pub(super) fn agreed(&mut self) {
        if matches!(self.agreement, Agreement::Claims(_)) {
            return;
        }
        self.start_anew_if_it_waited();
        self.agreement = Agreement::Claims(BTreeSet::new());
        self.announce();
        self.status();
    }

    /// No daemon of this host uses another store, and the store is away.
    pub(super) fn host_agrees(&mut self) {
        self.link.siblings.set_waits(false);
        if self.agreement.allows_runs_alone() {
            return;
        }
        self.start_anew_if_it_waited();
        self.agreement = Agreement::HostAgrees;
        if !self.health.is_up() {
            self.feed(Event::StoreDown);
        }
        self.status();
    }

    fn start_anew_if_it_waited(&mut self) {
        if self.agreement.is_waiting() {
            tracing::info!(
                host = %self.host,
                "no other store is in use for the jobs of this list any more: this host continues"
            );
            self.feed(Event::StartedAnew);
        }
    }

    /// Reports, once, who uses another store than this host.
    pub(super) fn rivals(&mut self, rivals: Vec<Rival>) {
        let Agreement::Claims(known) = &mut self.agreement else {
            return;
        };
        for rival in &rivals {
            if known.contains(rival) {
                continue;
            }
            let (host, text) = (&self.host, rival.text());
            if rival.waits {
                tracing::warn!(
                    %host,
                    "{text}: it waits until this daemon has ended. Give all hosts the same list \
                     (docs/stores.md, \"Moving to another store\")"
                );
            } else {
                tracing::error!(
                    %host,
                    "{text}: both claim, so jobs may run twice: stop one of the two. Give all hosts \
                     the same list (docs/stores.md, \"Moving to another store\")"
                );
            }
        }
        *known = rivals.into_iter().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreNodes;
    use crate::store::stub::host_info;
    use crate::time::Timestamp;

    fn host(name: &str, servers: &str, started: i64, waits: bool) -> HostInfo {
        HostInfo {
            started_at: Timestamp::from_secs(started),
            nodes: Some(StoreNodes {
                count: 3,
                servers: servers.chars().map(String::from).collect(),
            }),
            waits: waits.then(|| LOOKING.to_owned()),
            ..host_info(name)
        }
    }

    fn waits(me: &HostInfo, others: &[&HostInfo]) -> bool {
        let report = |info: &&HostInfo| HostReport {
            info: (*info).clone(),
            seen_at: Timestamp::EPOCH,
        };
        let hosts: Vec<_> = others.iter().map(report).collect();
        obstacle(me, &hosts).is_some()
    }

    #[test]
    fn a_host_waits_for_those_that_claim_on_other_servers() {
        let me = host("new", "ade", 9, true);
        assert!(!waits(&me, &[]));
        assert!(!waits(&me, &[&host("new", "abc", 1, false)]), "itself");
        assert!(!waits(&me, &[&host("old", "ade", 1, false)]));
        assert!(waits(&me, &[&host("old", "abc", 1, false)]));
        let late = host("old", "abc", 99, false);
        assert!(waits(&me, &[&late]), "also for a host that started first");
        let unknown = HostInfo {
            nodes: None,
            ..late
        };
        assert!(!waits(&me, &[&unknown]), "an earlier version");
    }

    #[test]
    fn of_hosts_that_all_wait_the_first_goes_on_and_one_that_claims_backs_its_own() {
        let (one, two) = (host("one", "abc", 1, true), host("two", "ade", 2, true));
        assert!(!waits(&one, &[&two]));
        assert!(waits(&two, &[&one]));
        // A restarted host is not kept by one that waits for the rest of its fleet.
        let restarted = host("restarted", "abc", 9, true);
        assert!(waits(&restarted, &[&two]));
        assert!(!waits(&restarted, &[&two, &host("old", "abc", 1, false)]));
    }
}
