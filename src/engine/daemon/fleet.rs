//! The other hosts: those whose job list differs, and those that vanish.
//!
//! Every daemon sees all hosts. So that a fleet logs each fact once and not once a host, one host logs it:
//! that a host vanished, the live host with the first name; that lists differ, the first host with the
//! list that most hosts have, and each host that has another one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Daemon;
use super::message::Message;
use super::tasks::TaskContext;
use crate::config::{self, Job, JobList};
use crate::ground::tasks;
use crate::names::HostName;
use crate::preflight;
use crate::store::{Fingerprint, HostReport, ListedJobs};
use crate::time::BootInstant;

/// How long after a host was last seen it is asked whether it has vanished. The announcement of a host
/// that would have logged this, and has vanished, too, expires within that time.
const ASKED_FOR: Duration = Duration::from_secs(60);
/// How often the jobs of another list are asked for: its host may have just begun to use it.
const TRIES: u32 = 3;
/// How long between two of these.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What is known of the other hosts.
#[derive(Debug, Default)]
pub(super) struct OtherHosts {
    /// The hosts that were live at the last look, with this one.
    live: BTreeSet<HostName>,
    /// Those that were live before and are not any more, and since when.
    left: BTreeMap<HostName, BootInstant>,
    /// Those that this host has reported as vanished.
    vanished: BTreeSet<HostName>,
    /// The lists that this host has reported: its own, and another one.
    reported: BTreeSet<(Fingerprint, Fingerprint)>,
}

/// A list that differs from that of this host, and the hosts that have it.
#[derive(Debug, PartialEq, Eq)]
struct OtherListSeen {
    list: Fingerprint,
    hosts: Vec<HostName>,
}

/// What is to be logged about lists.
#[derive(Debug, PartialEq, Eq)]
enum ListNews {
    Differ(Vec<OtherListSeen>),
    /// They differed, and do not any more.
    AllAlike,
}

impl OtherHosts {
    /// Notes which hosts are live. Returns those that had vanished and report again.
    fn looked(&mut self, live: BTreeSet<HostName>, now: BootInstant) -> Vec<HostName> {
        for host in self.live.difference(&live) {
            self.left.entry(host.clone()).or_insert(now);
        }
        self.left
            .retain(|host, at| !live.contains(host) && now.since(*at) < ASKED_FOR);
        let back: Vec<HostName> = self.vanished.intersection(&live).cloned().collect();
        self.vanished.retain(|host| !live.contains(host));
        self.live = live;
        back
    }

    /// Returns those of the hosts with expired announcements that this host is to report.
    fn report_vanished(&mut self, me: &HostName, expired: Vec<HostReport>) -> Vec<HostReport> {
        if self.live.first() != Some(me) {
            return Vec::new();
        }
        let mut news = expired;
        news.retain(|report| self.left.remove(&report.info.host).is_some());
        let names = news.iter().map(|report| report.info.host.clone());
        self.vanished.extend(names);
        news
    }

    /// Returns what this host is to log about the lists of the live hosts.
    fn compare_lists(
        &mut self,
        (me, own): (&HostName, &Fingerprint),
        hosts: &[HostReport],
    ) -> Option<ListNews> {
        let mut lists: BTreeMap<&Fingerprint, Vec<&HostName>> = BTreeMap::new();
        for report in hosts {
            lists
                .entry(&report.info.config)
                .or_default()
                .push(&report.info.host);
        }
        if lists.len() < 2 {
            let differed = !std::mem::take(&mut self.reported).is_empty();
            return differed.then_some(ListNews::AllAlike);
        }
        let commonest = preflight::commonest(hosts)?.clone();
        let is_first = lists.get(own).and_then(|hosts| hosts.iter().min()) == Some(&me);
        let mine_is_common = *own == commonest;
        let others = lists.into_iter().filter(|(list, _)| {
            let reports = if mine_is_common {
                is_first
            } else {
                **list == commonest
            };
            *list != own && reports
        });
        let mut news = Vec::new();
        for (list, hosts) in others {
            if self.reported.insert((own.clone(), list.clone())) {
                let mut hosts: Vec<HostName> = hosts.into_iter().cloned().collect();
                hosts.sort();
                let list = list.clone();
                news.push(OtherListSeen { list, hosts });
            }
        }
        (!news.is_empty()).then_some(ListNews::Differ(news))
    }
}

impl OtherListSeen {
    /// The hosts, of many the first.
    fn named(&self) -> String {
        const SHOWN: usize = 5;
        let shown: Vec<&str> = self
            .hosts
            .iter()
            .take(SHOWN)
            .map(HostName::as_str)
            .collect();
        let noun = if self.hosts.len() == 1 {
            "host"
        } else {
            "hosts"
        };
        match self.hosts.len().saturating_sub(SHOWN) {
            0 => format!("{noun} {}", shown.join(", ")),
            more => format!("{noun} {} and {more} more", shown.join(", ")),
        }
    }
}

/// The list of this daemon. Its jobs in short are made when somebody asks for them, which is seldom.
#[derive(Debug)]
pub(super) struct OwnList {
    fingerprint: Fingerprint,
    jobs: Vec<Arc<Job>>,
}

impl OwnList {
    /// Returns the list, unless a part of it was left out.
    pub(super) fn of(list: &JobList) -> Option<Arc<Self>> {
        Some(Arc::new(Self {
            fingerprint: list.known_fingerprint()?.clone(),
            jobs: list.jobs.clone(),
        }))
    }

    /// The jobs in short, made on a thread of their own: there may be many. `None` if the daemon ends.
    async fn in_short(self: &Arc<Self>) -> Option<ListedJobs> {
        let own = Arc::clone(self);
        let make = move || config::listed_jobs(own.fingerprint.clone(), &own.jobs);
        tokio::task::spawn_blocking(make).await.ok()
    }
}

impl Daemon {
    /// Looked which other hosts report.
    pub(super) fn hosts_seen(&mut self, mut hosts: Vec<HostReport>) {
        // The store may have an earlier announcement of this one.
        hosts.retain(|report| report.info.host != self.host);
        let others = hosts.iter().map(|report| report.info.host.clone());
        let live = others.chain([self.host.clone()]).collect();
        for back in self.fleet.looked(live, BootInstant::now()) {
            tracing::info!(host = %self.host, "host {back}, which had vanished, reports again");
        }
        if !self.fleet.left.is_empty() {
            tasks::spawn(self.link.clone().look_for_vanished());
        }
        // One that drains has the list that the next daemon replaces.
        hosts.retain(|report| !report.info.draining);
        let (Some(own), None) = (self.listed.clone(), &self.shutdown) else {
            return;
        };
        let mut me = self.word();
        me.config.clone_from(&own.fingerprint);
        let seen_at = self.clock.now().utc;
        hosts.push(HostReport { info: me, seen_at });
        match self
            .fleet
            .compare_lists((&self.host, &own.fingerprint), &hosts)
        {
            None => {}
            Some(ListNews::AllAlike) => tracing::info!(
                host = %self.host,
                "all live hosts have the same job list again"
            ),
            Some(ListNews::Differ(lists)) => {
                let (link, host) = (self.link.clone(), self.host.clone());
                tasks::spawn(link.report_lists(lists, own, host));
            }
        }
    }

    /// These hosts have not reported lately, and did not say that they stop.
    pub(super) fn hosts_vanished(&mut self, expired: Vec<HostReport>) {
        for report in self.fleet.report_vanished(&self.host, expired) {
            tracing::warn!(
                host = %self.host,
                "host {} has vanished: its daemon last reported at {} and did not stop in an orderly \
                 way; other hosts run what comes due. When the leases of its runs end, these are \
                 recorded as interrupted, or run again (on_crash)",
                report.info.host,
                report.seen_at
            );
        }
    }

    /// Has the store keep the jobs of the list, for those who compare lists.
    pub(super) fn keep_list(&self) {
        if let Some(listed) = self.listed.clone().filter(|_| self.health.is_up()) {
            tasks::spawn(self.link.clone().keep_list(listed));
        }
    }
}

impl TaskContext {
    async fn look_for_vanished(self) {
        match self.store.vanished().await {
            Ok(expired) => self.tell(Message::Vanished(expired)),
            Err(error) => tracing::debug!("cannot ask which hosts have vanished: {error}"),
        }
    }

    async fn report_lists(self, lists: Vec<OtherListSeen>, own: Arc<OwnList>, host: HostName) {
        let Some(own) = own.in_short().await else {
            return;
        };
        for other in lists {
            let what = match self.jobs_of(&other.list).await {
                Some(theirs) => format!("it {}", theirs.compared_with(&own).text()),
                None => "which jobs differ is not known".to_owned(),
            };
            tracing::warn!(
                %host,
                "the job list of {} differs from that of this host: {what}; deploy the same list to all \
                 hosts, and reload their daemons",
                other.named()
            );
        }
    }

    async fn jobs_of(&self, list: &Fingerprint) -> Option<ListedJobs> {
        for attempt in 1..=TRIES {
            match self.store.listed_jobs(list).await {
                Ok(Some(jobs)) => return Some(jobs),
                Ok(None) => {}
                Err(error) => tracing::debug!("cannot read the jobs of another list: {error}"),
            }
            if attempt < TRIES {
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
        None
    }

    async fn keep_list(self, own: Arc<OwnList>) {
        let list = &own.fingerprint;
        let kept = match self.store.keep_list(list, None).await {
            Ok(false) => match own.in_short().await {
                Some(jobs) => self.store.keep_list(list, Some(&jobs)).await,
                None => return,
            },
            kept => kept,
        };
        if let Err(error) = kept {
            tracing::debug!("the store does not keep the jobs of this list now: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
