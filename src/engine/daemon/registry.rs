//! What this daemon writes into the store's registry: which jobs its host lists, since when.
//!
//! A job is entered once, before its first registration, and from then on the entry is kept here.
//! The daemon writes its entries again every day, and whenever the store may have lost them: only
//! the hosts know which jobs a store had before it lost its data. With them it has the store keep
//! the ledgers and histories of its jobs: what no host lists any more, the store deletes in time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::Daemon;
use super::message::Message;
use super::newcomer::{RegistryNews, keeping};
use super::recovery::SAME;
use super::tasks::TaskContext;
use crate::engine::core::JobIx;
use crate::ground::tasks;
use crate::names::{HostName, JobName};
use crate::store::registry::COMPARED_EVERY;
use crate::store::{Entry, JobsRevision, Keeping, Listing, LockId, Store, StoreError, apart};
use crate::time::{BootInstant, Timestamp};

/// How often the entries are written again, so that the store does not delete them.
const REFRESH_EVERY: Duration = Duration::from_secs(24 * 3600);

/// The entries of this host.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact on its own, and any of them may hold with any other"
)]
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: KnownEntries,
    /// Until when each shard of the store recovers from a loss of data.
    recovering: BTreeMap<u64, BootInstant>,
    /// When all entries were last written.
    written: Option<BootInstant>,
    /// The store may have lost entries.
    lost: bool,
    /// The entry that was checked last.
    checked: usize,
    /// When jobs that the store listed for this host and its list has not were last withdrawn.
    compared: Option<BootInstant>,
    /// What the store listed then, if nothing of it was to be withdrawn.
    revision: Option<JobsRevision>,
    /// The store may have lost data since the last look after the registry began.
    doubted: bool,
    /// A task that [`Daemon::look_after_registry`] started has not ended.
    busy: bool,
    /// Other hosts can have seen that this one lives.
    seen: bool,
    /// The list was replaced, and no look after the registry has begun since.
    relisted: bool,
}

/// The entries, in the order of their jobs. A daemon may have 100,000 of them, so they take little memory.
#[derive(Debug, Default)]
struct KnownEntries(Vec<KnownEntry>);

/// What this host wrote about a job.
#[derive(Debug)]
struct KnownEntry {
    job: JobIx,
    /// Shared by the jobs that were entered together. The lock is the job's.
    written: Arc<EntryTerms>,
    /// It is to be entered once more.
    again: bool,
    /// No store has registered the job since that had all of its data.
    unsettled: bool,
    /// Such a store has registered it before.
    established: bool,
}

/// What an [`Entry`] says whatever its lock: the lock of this one means nothing.
#[derive(Debug)]
struct EntryTerms(Entry);

impl EntryTerms {
    /// Returns the entry of a job with this lock.
    fn entry(&self, lock: LockId) -> Entry {
        Entry {
            lock,
            ..self.0.clone()
        }
    }

    /// Whether an entry differs in its lock at most.
    fn are_of(&self, entry: &Entry) -> bool {
        self.entry(entry.lock.clone()) == *entry
    }
}

impl KnownEntries {
    fn place(&self, job: JobIx) -> Result<usize, usize> {
        self.0.binary_search_by_key(&job, |known| known.job)
    }

    fn get(&self, job: JobIx) -> Option<&KnownEntry> {
        self.0.get(self.place(job).ok()?)
    }

    fn get_mut(&mut self, job: JobIx) -> Option<&mut KnownEntry> {
        let place = self.place(job).ok()?;
        self.0.get_mut(place)
    }

    /// Notes what was written about jobs.
    fn note(&mut self, entries: Vec<(JobIx, Entry)>) {
        let mut new = Vec::new();
        let mut last: Option<Arc<EntryTerms>> = None;
        for (job, entry) in entries {
            let written = match last.take().filter(|last| last.are_of(&entry)) {
                Some(equal) => equal,
                None => Arc::new(EntryTerms(entry)),
            };
            last = Some(Arc::clone(&written));
            match self.get_mut(job) {
                Some(known) => {
                    known.written = written;
                    (known.again, known.unsettled) = (false, true);
                }
                None => new.push(KnownEntry {
                    job,
                    written,
                    again: false,
                    unsettled: true,
                    established: false,
                }),
            }
        }
        // Exactly: there are many, and seldom more.
        self.0.reserve_exact(new.len());
        self.0.append(&mut new);
        if !self.0.is_sorted_by_key(|known| known.job) {
            self.0.sort_by_key(|known| known.job);
        }
    }
}

/// What one task does.
#[derive(Debug)]
struct RegistrationRound {
    host: HostName,
    /// The enabled jobs, if those that are not among them are still to be withdrawn.
    withdraw_all_but: Option<EnabledJobs>,
    /// Entries to be written again.
    write: Vec<(JobName, Entry)>,
    /// What is to be kept of the jobs that are entered, whenever their entries are written again.
    keep: Vec<Keeping>,
    /// A job whose entry should be there, as this host wrote it.
    look_at: Option<(JobName, Entry)>,
    /// Whether to wait until the registrations of an earlier list are over.
    waits_for_earlier: bool,
}

/// The jobs that a list has enabled.
#[derive(Debug)]
struct EnabledJobs {
    names: Arc<HashMap<JobName, JobIx>>,
    /// With this revision the store lists no others.
    revision: Option<JobsRevision>,
}

impl Registry {
    pub(super) fn knows(&self, job: JobIx) -> bool {
        self.entries.get(job).is_some_and(|known| !known.again)
    }

    pub(super) fn entered(&mut self, entries: Vec<(JobIx, Entry)>) {
        self.entries.note(entries);
    }

    /// What this daemon last wrote about a job, whose lock is `lock`.
    pub(super) fn last_entry(&self, job: JobIx, lock: LockId) -> Option<Entry> {
        self.entries.get(job).map(|known| known.written.entry(lock))
    }

    /// The job waits, as its entry says: hosts that live use another lock.
    pub(super) fn held(&mut self, job: JobIx) {
        if let Some(known) = self.entries.get_mut(job) {
            known.written = Arc::new(EntryTerms(known.written.0.waiting()));
        }
    }

    /// A job that a recovering store registers for the first time waits, so that a host which used
    /// another lock before the loss goes on with it. Returns whether this job does.
    pub(super) fn waits_for_others(&mut self, job: JobIx) -> bool {
        let known = self.entries.get(job);
        let waits = known.is_some_and(|known| known.unsettled && !known.established);
        if waits {
            self.held(job);
        }
        waits
    }

    /// Whether the job was entered by listings that were whole. A store that recovers from a loss of
    /// data may lack those of hosts that live and use another lock: they write them again before it
    /// has recovered.
    pub(super) fn is_settled(&mut self, job: JobIx, recovering: Duration) -> bool {
        let Some(known) = self.entries.get_mut(job) else {
            return true;
        };
        known.unsettled &= !recovering.is_zero();
        known.established |= !known.unsettled;
        !known.unsettled
    }

    /// The jobs that were entered by listings that were whole.
    pub(super) fn entered_jobs(&self) -> Vec<JobIx> {
        let entered = self.entries.0.iter();
        let entered = entered.filter(|known| !known.unsettled && !known.again);
        entered.map(|known| known.job).collect()
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
        if let Some(known) = self.entries.get_mut(job) {
            (known.unsettled, known.again) = (false, true);
        }
    }

    /// The list was replaced: these places are in the new one. Jobs that it has no more are withdrawn
    /// at once.
    pub(super) fn keep_only(&mut self, is_listed: impl Fn(JobIx) -> bool) {
        self.entries.0.retain(|known| is_listed(known.job));
        (self.compared, self.revision) = (None, None);
        self.relisted = true;
    }

    /// All jobs are to be entered once more before they are registered.
    pub(super) fn leave_all(&mut self) {
        for known in &mut self.entries.0 {
            (known.unsettled, known.again) = (false, true);
        }
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
    fn next_entry(&mut self) -> Option<&KnownEntry> {
        let entries = &self.entries.0;
        let after = (self.checked + 1).min(entries.len());
        let (before, behind) = entries.split_at(after);
        let known = |(_, known): &(usize, &KnownEntry)| !known.again;
        let mut in_turn = (after..).zip(behind).chain((0..).zip(before));
        let (place, entry) = in_turn.find(known)?;
        self.checked = place;
        Some(entry)
    }

    /// The store may have lost its data, and with them that this host withdrew a job.
    pub(super) fn doubt(&mut self) {
        (self.lost, self.doubted) = (true, true);
        (self.compared, self.revision) = (None, None);
    }

    /// The jobs were compared with the present list: those that it lacks were withdrawn. With this
    /// revision there are none.
    fn was_compared(&mut self, revision: Option<JobsRevision>, now: BootInstant) {
        // What was read may have been there before the loss.
        if !self.doubted {
            (self.compared, self.revision) = (Some(now), revision);
        }
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
        registry.doubted = false;
        let relisted = std::mem::take(&mut registry.relisted);
        let now = BootInstant::now();
        let written = *registry.written.get_or_insert(now);
        let old = now.since(written) >= REFRESH_EVERY;
        let entry = |known: &KnownEntry| {
            let job = self.jobs.get(&known.job)?;
            Some((job.name.clone(), known.written.entry(job.lock_id())))
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
            round.withdraw_all_but = Some(EnabledJobs {
                names: Arc::clone(&self.names),
                revision: registry.revision.clone(),
            });
        }
        if registry.lost || old {
            let entries = &registry.entries.0;
            round.write = entries.iter().filter_map(entry).collect();
            let job_of = |known: &KnownEntry| self.jobs.get(&known.job);
            let kept = |known: &KnownEntry| Some(keeping(job_of(known)?, &self.host));
            round.keep = entries.iter().filter_map(kept).collect();
        } else if let Some(looked_at) = registry.next_entry() {
            round.look_at = entry(looked_at);
        }
        tasks::spawn(self.link.clone().registry_round(round));
    }

    pub(super) fn registry_news(&mut self, news: Result<RegistryNews, StoreError>) {
        let registry = &mut self.registry;
        registry.busy = false;
        match news {
            Ok(news) => {
                // What was compared and looked at was the list before.
                let relisted = registry.relisted;
                if news.withdrawn && !relisted {
                    registry.was_compared(news.revision, BootInstant::now());
                }
                if news.written {
                    // The loss may be later than what was written.
                    registry.lost = registry.doubted;
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
            news.revision = withdraw_all_but(&*self.store, &round.host, enabled).await?;
            news.withdrawn = true;
        }
        if !round.write.is_empty() {
            let now = self.store.now().await?;
            let again = |(job, entry): &(JobName, Entry)| (job.clone(), entry.again(now));
            let entries: Vec<_> = round.write.iter().map(again).collect();
            for (job, error) in enlist_apart(&*self.store, &round.host, entries).await? {
                tracing::warn!(
                    %job,
                    host = %round.host,
                    "cannot register this job in the store: {error}; this host runs the job all the \
                     same, but hosts that are given another lock for it do not wait for this one. \
                     Retrying within a day"
                );
            }
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
}

/// Withdraws the jobs that an earlier list of this host had enabled and this one has not. Returns the
/// revision with which the store lists none of them, if it is known.
async fn withdraw_all_but(
    store: &dyn Store,
    host: &HostName,
    enabled: &EnabledJobs,
) -> Result<Option<JobsRevision>, StoreError> {
    let known = enabled.revision.as_ref();
    let Some(listed) = store.listed_since(host, known).await? else {
        return Ok(enabled.revision.clone());
    };
    let mut gone = listed.jobs;
    gone.retain(|job| !enabled.names.contains_key(job));
    if gone.is_empty() {
        return Ok(listed.revision);
    }
    let listings = apart(gone.clone(), async |part: Vec<JobName>| {
        store.listings(&part).await
    });
    let listings = listings.await?;
    let all_are_read = listings.iter().all(Result::is_ok);
    let now = store.now().await?;
    let entries: Vec<_> = gone
        .into_iter()
        .zip(listings)
        .filter_map(|(job, listing)| Some((job, withdrawal(host, &listing.ok()?, now)?)))
        .collect();
    if entries.is_empty() && all_are_read {
        // Their listings do not have this host, so there is nothing to withdraw.
        return Ok(listed.revision);
    }
    for (job, error) in enlist_apart(store, host, entries).await? {
        tracing::warn!(
            %job,
            %host,
            "cannot withdraw this job, which this host's list no longer has: {error}; hosts that are \
             given another lock for it wait for this one. Retrying within a minute"
        );
    }
    // The next comparison shows whether the store lists them no more.
    Ok(None)
}

/// Returns the entry with which a host withdraws a job that the store lists for it. If the job was
/// withdrawn before, a late copy or a node that was away has brought it back, and the same entry removes it.
fn withdrawal(host: &HostName, listing: &Listing, now: Timestamp) -> Option<Entry> {
    let withdrawn = listing.withdraw(host, now);
    withdrawn.or_else(|| Some(listing.entries.get(host)?.again(now)))
}

/// Writes entries; if those of some jobs cannot be written, the others all the same. Returns the failures.
async fn enlist_apart(
    store: &dyn Store,
    host: &HostName,
    entries: Vec<(JobName, Entry)>,
) -> Result<Vec<(JobName, StoreError)>, StoreError> {
    let jobs: Vec<JobName> = entries.iter().map(|(job, _)| job.clone()).collect();
    let written = apart(entries, async |part: Vec<(JobName, Entry)>| {
        store.enlist(host, &part).await?;
        Ok(vec![(); part.len()])
    });
    let written = jobs.into_iter().zip(written.await?);
    Ok(written
        .filter_map(|(job, written)| Some((job, written.err()?)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{CountsFrom, Standing};
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

    fn job(name: &str) -> JobName {
        JobName::parse(name).expect("a name")
    }

    /// Has a store list these jobs for the host.
    async fn enlist(store: &dyn Store, host: &HostName, jobs: &[&str], at: i64) {
        let entries: Vec<_> = jobs.iter().map(|name| (job(name), entry(at))).collect();
        store.enlist(host, &entries).await.expect("it is written");
    }

    fn enabled(revision: Option<JobsRevision>) -> EnabledJobs {
        let names = HashMap::from([(job("listed"), JobIx(0))]);
        EnabledJobs {
            names: Arc::new(names),
            revision,
        }
    }

    #[tokio::test]
    async fn a_revision_is_remembered_once_nothing_is_to_be_withdrawn() {
        let store = crate::store::open_empty().expect("a store");
        let host = HostName::parse("h").expect("a name");
        enlist(&*store, &host, &["listed", "gone"], 1).await;
        let compare = async |known| {
            withdraw_all_but(&*store, &host, &enabled(known))
                .await
                .expect("a store")
        };
        let listed = async || store.listed_by(&host).await.expect("a store");
        assert_eq!(compare(None).await, None, "a job was withdrawn");
        assert_eq!(listed().await, [job("listed")]);
        let known = compare(None).await;
        assert!(known.is_some());
        assert_eq!(compare(known.clone()).await, known);
        // What has this revision is not read: this list would withdraw it.
        let nothing = EnabledJobs {
            names: Arc::default(),
            revision: known.clone(),
        };
        let compared = withdraw_all_but(&*store, &host, &nothing).await;
        assert_eq!(compared.expect("a store"), known);
        assert_eq!(listed().await, [job("listed")]);
        // A late copy lists it again, or lost data that came back.
        let now = store.now().await.expect("a clock").millis() / 1000;
        enlist(&*store, &host, &["gone"], now + 1).await;
        assert_eq!(compare(known).await, None);
        assert_eq!(listed().await, [job("listed")]);
    }

    #[tokio::test]
    async fn a_revision_is_forgotten_with_the_list_and_in_doubt() {
        let store = crate::store::open_empty().expect("a store");
        let host = HostName::parse("h").expect("a name");
        enlist(&*store, &host, &["listed"], 1).await;
        let listed = store.listed_since(&host, None).await.expect("a store");
        let revision = listed.and_then(|listed| listed.revision);
        assert!(revision.is_some());
        let mut registry = Registry::default();
        registry.was_compared(revision.clone(), at(1000));
        assert_eq!(registry.revision, revision);
        assert!(!registry.is_to_compare(at(1000)));
        registry.keep_only(|_| true);
        assert_eq!(registry.revision, None);
        registry.was_compared(revision.clone(), at(1000));
        registry.doubt();
        assert_eq!(registry.revision, None);
        // The comparison that was under way may have seen what is lost now.
        registry.was_compared(revision, at(1000));
        assert_eq!(registry.revision, None);
        assert!(registry.is_to_compare(at(1000)));
    }

    fn entry(at: i64) -> Entry {
        let counts = CountsFrom {
            at: Timestamp::EPOCH,
            again: false,
        };
        Entry {
            standing: Standing::Uses,
            lock: LockId::Fleet("j".into()),
            earlier: Vec::new(),
            fleet: counts,
            own: counts,
            at: Timestamp::from_secs(at),
        }
    }

    fn entered(jobs: &[u32], at: i64) -> Vec<(JobIx, Entry)> {
        jobs.iter().map(|job| (JobIx(*job), entry(at))).collect()
    }

    #[test]
    fn entries_are_checked_in_turn_except_those_that_are_written_once_more() {
        let mut registry = Registry::default();
        assert!(registry.next_entry().is_none());
        registry.entered(entered(&[4, 7], 1));
        registry.entered(entered(&[1, 5], 2));
        registry.leave(JobIx(5));
        let next = || registry.next_entry().map(|known| known.job.0);
        let checked: Vec<_> = std::iter::from_fn(next).take(5).collect();
        assert_eq!(checked, [4, 7, 1, 4, 7]);
    }

    #[test]
    fn what_was_last_written_of_a_job_is_known_with_its_lock() {
        let mut registry = Registry::default();
        registry.entered(entered(&[3, 1], 1));
        registry.entered(entered(&[3], 2));
        let lock = || LockId::Fleet("j".into());
        assert_eq!(registry.last_entry(JobIx(3), lock()), Some(entry(2)));
        registry.held(JobIx(1));
        assert_eq!(
            registry.last_entry(JobIx(1), lock()),
            Some(entry(1).waiting())
        );
        assert_eq!(registry.last_entry(JobIx(2), lock()), None);
    }

    #[test]
    fn jobs_that_are_entered_together_share_the_memory_of_their_entries() {
        // A daemon may have 100,000 of them.
        assert!(size_of::<KnownEntry>() <= 16);
        let mut registry = Registry::default();
        let lock = LockId::Fleet("of 2".into());
        let other = Entry {
            lock: lock.clone(),
            ..entry(1)
        };
        registry.entered(vec![(JobIx(1), entry(1)), (JobIx(2), other.clone())]);
        assert_eq!(registry.last_entry(JobIx(2), lock), Some(other));
        let [one, other] = &registry.entries.0[..] else {
            panic!("two entries");
        };
        assert!(Arc::ptr_eq(&one.written, &other.written));
    }
}
