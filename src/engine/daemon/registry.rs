//! What this daemon writes into the store's registry: which jobs its host lists, since when.
//!
//! A job is entered once, before its first registration, and from then on the entry is kept here.
//! The daemon writes its entries again every day, and whenever the store may have lost them: only
//! the hosts know which jobs a store had before it lost its data. With them it has the store keep
//! the ledgers and histories of its jobs: what no host lists any more, the store deletes in time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Daemon;
use super::message::Message;
use super::newcomer::{RegistryNews, keeping};
use super::recovery::SAME;
use super::tasks::TaskContext;
use crate::engine::core::JobIx;
use crate::names::{HostName, JobName};
use crate::store::registry::COMPARED_EVERY;
use crate::store::{Entry, Keeping, Listing, StoreError, apart};
use crate::time::BootInstant;

/// How often the entries are written again, so that the store does not delete them.
const REFRESH_EVERY: Duration = Duration::from_secs(24 * 3600);

/// The entries of this host.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact on its own, and any of them may hold with any other"
)]
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: BTreeMap<JobIx, Entry>,
    /// Those of them that are to be entered once more.
    again: BTreeSet<JobIx>,
    /// Those that no store has registered since that had all of its data.
    unsettled: BTreeSet<JobIx>,
    /// Those that such a store has registered before.
    established: BTreeSet<JobIx>,
    /// Until when each shard of the store recovers from a loss of data.
    recovering: BTreeMap<u64, BootInstant>,
    /// When all entries were last written.
    written: Option<BootInstant>,
    /// The store may have lost entries.
    lost: bool,
    /// The entry that is checked next.
    next: usize,
    /// When jobs that the store listed for this host and its list has not were last withdrawn.
    compared: Option<BootInstant>,
    /// A task that [`Daemon::look_after_registry`] started has not ended.
    busy: bool,
    /// Other hosts can have seen that this one lives.
    seen: bool,
    /// The list was replaced, and no look after the registry has begun since.
    relisted: bool,
}

/// What one task does.
#[derive(Debug)]
struct RegistrationRound {
    host: HostName,
    /// The enabled jobs, if those that are not among them are still to be withdrawn.
    withdraw_all_but: Option<BTreeSet<JobName>>,
    /// Entries to be written again.
    write: Vec<(JobName, Entry)>,
    /// What is to be kept of the jobs that are entered, whenever their entries are written again.
    keep: Vec<Keeping>,
    /// A job whose entry should be there, as this host wrote it.
    look_at: Option<(JobName, Entry)>,
    /// Whether to wait until the registrations of an earlier list are over.
    waits_for_earlier: bool,
}

impl Registry {
    pub(super) fn knows(&self, job: JobIx) -> bool {
        self.entries.contains_key(&job) && !self.again.contains(&job)
    }

    pub(super) fn entered(&mut self, entries: Vec<(JobIx, Entry)>) {
        for (job, entry) in entries {
            self.unsettled.insert(job);
            self.again.remove(&job);
            self.entries.insert(job, entry);
        }
    }

    /// What this daemon last wrote about a job.
    pub(super) fn last_entry(&self, job: JobIx) -> Option<&Entry> {
        self.entries.get(&job)
    }

    /// The job waits, as its entry says: hosts that live use another lock.
    pub(super) fn held(&mut self, job: JobIx) {
        if let Some(entry) = self.entries.get_mut(&job) {
            *entry = entry.waiting();
        }
    }

    /// A job that a recovering store registers for the first time waits, so that a host which used
    /// another lock before the loss goes on with it. Returns whether this job does.
    pub(super) fn waits_for_others(&mut self, job: JobIx) -> bool {
        let waits = self.unsettled.contains(&job) && !self.established.contains(&job);
        if waits {
            self.held(job);
        }
        waits
    }

    /// Whether the job was entered by listings that were whole. A store that recovers from a loss of
    /// data may lack those of hosts that live and use another lock: they write them again before it
    /// has recovered.
    pub(super) fn is_settled(&mut self, job: JobIx, recovering: Duration) -> bool {
        if recovering.is_zero() {
            self.unsettled.remove(&job);
        }
        let settled = !self.unsettled.contains(&job);
        if settled {
            self.established.insert(job);
        }
        settled
    }

    /// The jobs that were entered by listings that were whole.
    pub(super) fn entered_jobs(&self) -> Vec<JobIx> {
        let entered = |job: &JobIx| !self.unsettled.contains(job) && !self.again.contains(job);
        self.entries.keys().copied().filter(entered).collect()
    }

    /// This shard recovers until then. Returns whether that is news.
    pub(super) fn recovers(&mut self, shard: u64, until: BootInstant) -> bool {
        let known = self.recovering.get(&shard).copied();
        self.recovering
            .insert(shard, known.max(Some(until)).unwrap_or(until));
        known.is_none_or(|known| until > known.plus(SAME))
    }

    /// The job is to be entered once more before it is registered: its lock may have changed.
    pub(super) fn leave(&mut self, job: JobIx) {
        self.unsettled.remove(&job);
        self.again.insert(job);
    }

    /// The list was replaced: these places are in the new one. Jobs that it has no more are withdrawn
    /// at once.
    pub(super) fn keep_only(&mut self, is_listed: impl Fn(JobIx) -> bool) {
        for places in [&mut self.unsettled, &mut self.again, &mut self.established] {
            places.retain(|job| is_listed(*job));
        }
        self.entries.retain(|job, _| is_listed(*job));
        self.compared = None;
        self.relisted = true;
    }

    /// All jobs are to be entered once more before they are registered.
    pub(super) fn leave_all(&mut self) {
        self.unsettled.clear();
        self.again.extend(self.entries.keys());
        self.seen = false;
    }

    /// Whether this host is to say that it lives before it looks which hosts use which lock: if it
    /// does not, hosts that enter the job under another lock pass over it.
    pub(super) fn take_unseen(&mut self) -> bool {
        !std::mem::replace(&mut self.seen, true)
    }

    /// The jobs could not be registered, perhaps because this host could not say that it lives.
    pub(super) fn not_registered(&mut self) {
        self.seen = false;
    }

    /// Whether the jobs that the store lists for this host are to be compared with its list.
    fn is_to_compare(&self, now: BootInstant) -> bool {
        let since = self.compared.map(|at| now.since(at));
        since.is_none_or(|since| since >= COMPARED_EVERY)
    }

    /// The entry that is looked at next, among those of jobs that need not be entered once more.
    fn next_entry(&mut self) -> Option<(&JobIx, &Entry)> {
        let known = |(job, _): &(&JobIx, &Entry)| !self.again.contains(job);
        let entries = self.entries.iter().filter(known);
        self.next = (self.next + 1) % entries.clone().count().max(1);
        entries.clone().nth(self.next)
    }

    /// The store may have lost its data, and with them that this host withdrew a job.
    pub(super) fn doubt(&mut self) {
        self.lost = true;
        self.compared = None;
    }
}

impl Daemon {
    /// Does what is due, in one task at a time: withdraws the jobs that the list no longer has,
    /// writes entries again that are old or may be lost, and looks whether one is still there.
    pub(super) fn look_after_registry(&mut self) {
        let registry = &mut self.registry;
        if registry.busy || !self.health.is_up() {
            return;
        }
        registry.busy = true;
        let relisted = std::mem::take(&mut registry.relisted);
        let now = BootInstant::now();
        let written = *registry.written.get_or_insert(now);
        let old = now.since(written) >= REFRESH_EVERY;
        let entry = |(job, entry): (&JobIx, &Entry)| {
            let job = self.jobs.get(job)?;
            Some((job.name.clone(), entry.clone()))
        };
        let mut round = RegistrationRound {
            host: self.host.clone(),
            withdraw_all_but: None,
            write: Vec::new(),
            keep: Vec::new(),
            look_at: None,
            waits_for_earlier: relisted,
        };
        if registry.is_to_compare(now) {
            round.withdraw_all_but = Some(self.jobs.values().map(|job| job.name.clone()).collect());
        }
        if registry.lost || old {
            round.write = registry.entries.iter().filter_map(entry).collect();
            let kept = |job: &JobIx| Some(keeping(self.jobs.get(job)?, &self.host));
            round.keep = registry.entries.keys().filter_map(kept).collect();
        } else if let Some(looked_at) = registry.next_entry() {
            round.look_at = entry(looked_at);
        }
        tokio::spawn(self.link.clone().registry_round(round));
    }

    pub(super) fn registry_news(&mut self, news: Result<RegistryNews, StoreError>) {
        let registry = &mut self.registry;
        registry.busy = false;
        match news {
            Ok(news) => {
                // What was compared and looked at was the list before.
                let relisted = registry.relisted;
                if news.withdrawn && !relisted {
                    registry.compared = Some(BootInstant::now());
                }
                if news.written {
                    registry.lost = false;
                    registry.written = Some(BootInstant::now());
                }
                if relisted {
                    self.look_after_registry();
                } else if news.lost {
                    self.entry_is_lost();
                }
            }
            Err(error) => self.store_failed(&error),
        }
    }

    /// The store has lost data, and nothing else showed it: this host claimed nothing until the store
    /// had recovered. The store may also have forgotten that a ledger has moved to another lock.
    fn entry_is_lost(&mut self) {
        self.registry.doubt();
        self.look_after_registry();
        if self.health.is_up() {
            self.was_absent();
        }
    }
}

impl TaskContext {
    async fn registry_round(self, round: RegistrationRound) {
        let _under_way = if round.waits_for_earlier {
            self.earlier.write().await.downgrade()
        } else {
            self.earlier.read().await
        };
        let news = self.registry_news(&round).await;
        self.tell(Message::Registry(news));
    }

    async fn registry_news(&self, round: &RegistrationRound) -> Result<RegistryNews, StoreError> {
        let mut news = RegistryNews::default();
        if let Some(enabled) = &round.withdraw_all_but {
            self.withdraw_all_but(&round.host, enabled).await?;
            news.withdrawn = true;
        }
        if !round.write.is_empty() {
            let now = self.store.now().await?;
            let again = |(job, entry): &(JobName, Entry)| (job.clone(), entry.again(now));
            let entries: Vec<_> = round.write.iter().map(again).collect();
            self.enlist_apart(&round.host, entries).await?;
            // What cannot be kept of one job is reported where that job is registered.
            let kept = apart(round.keep.clone(), async |part: Vec<Keeping>| {
                self.store.keep(&part).await?;
                Ok(vec![(); part.len()])
            });
            kept.await?;
            news.written = true;
        }
        if let Some((job, entry)) = &round.look_at {
            let listings = self.store.listings(std::slice::from_ref(job)).await?;
            let is_there = |listing: &Listing| listing.has(&round.host, entry);
            news.lost = !listings.iter().any(is_there);
        }
        Ok(news)
    }

    /// Withdraws the jobs that an earlier list of this host had enabled and this one has not.
    async fn withdraw_all_but(
        &self,
        host: &HostName,
        enabled: &BTreeSet<JobName>,
    ) -> Result<(), StoreError> {
        let mut gone = self.store.listed_by(host).await?;
        gone.retain(|job| !enabled.contains(job));
        if gone.is_empty() {
            return Ok(());
        }
        let listings = apart(gone.clone(), async |part: Vec<JobName>| {
            self.store.listings(&part).await
        });
        let listings = listings.await?;
        let now = self.store.now().await?;
        let entries: Vec<_> = gone
            .into_iter()
            .zip(listings)
            // A listing that cannot be read is looked at again with the next start.
            .filter_map(|(job, listing)| Some((job, listing.ok()?.withdraw(host, now)?)))
            .collect();
        self.enlist_apart(host, entries).await
    }

    /// Writes entries; if those of some jobs cannot be written, the others all the same.
    async fn enlist_apart(
        &self,
        host: &HostName,
        entries: Vec<(JobName, Entry)>,
    ) -> Result<(), StoreError> {
        let jobs: Vec<JobName> = entries.iter().map(|(job, _)| job.clone()).collect();
        let written = apart(entries, async |part: Vec<(JobName, Entry)>| {
            self.store.enlist(host, &part).await?;
            Ok(vec![(); part.len()])
        });
        for (job, written) in jobs.iter().zip(written.await?) {
            if let Err(error) = written {
                tracing::warn!(
                    %job,
                    %host,
                    "cannot register this job in the store: {error}; this host runs the job all the \
                     same, but hosts that are given another lock for it do not wait for this one. \
                     Retrying within a day"
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::seconds_after_boot as at;

    #[test]
    fn what_a_host_withdrew_is_looked_at_again_after_a_minute_and_after_a_loss_of_data() {
        let mut registry = Registry::default();
        assert!(registry.is_to_compare(at(1000)));
        registry.compared = Some(at(1000));
        assert!(!registry.is_to_compare(at(1059)));
        assert!(registry.is_to_compare(at(1060)));
        registry.doubt();
        assert!(registry.is_to_compare(at(1001)));
    }
}
