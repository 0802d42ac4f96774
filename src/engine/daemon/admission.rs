//! Decides which jobs this host may claim while their lock is being changed: only those for which no live
//! host uses another lock.
//!
//! While a rolling restart changes a job's lock, the hosts with the new list hold the job back
//! until the last host with the old one has ended. Then one of them moves the ledger to the new
//! lock ([`crate::store::relocate`]), and all of them go on. Both sides log this.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Daemon;
use super::clock::ClockTrust;
use super::held_back::{HeldBack, HoldReason, Neighbour};
use super::message::Message;
use super::newcomer::Newcomer;
use super::tasks::TaskContext;
use crate::engine::core::JobIx;
use crate::names::{HostName, JobName};
use crate::store::registry::gives_way;
use crate::store::relocate::{Destination, Relocated, Relocation, relocate};
use crate::store::{
    Admission, Beginning, Entry, HeldJob, Listing, Lock, PauseOrder, PauseRequest, Standing,
    StoreError,
};
use crate::time::Timestamp;

/// The jobs that this host holds back.
#[derive(Debug, Default)]
pub(super) struct HeldJobs {
    held: BTreeMap<JobIx, HeldState>,
    /// The hosts that the log has named.
    neighbours: BTreeSet<Neighbour>,
}

#[derive(Debug)]
struct HeldState {
    job: HeldJob,
    /// A registration was sent to find out whether the host may claim the job now.
    asked: bool,
}

impl HeldJobs {
    pub(super) fn count(&self) -> usize {
        self.held.len()
    }

    /// The list was replaced: these places are in the new one.
    pub(super) fn keep_only(&mut self, is_listed: impl Fn(JobIx) -> bool) {
        self.held.retain(|job, _| is_listed(*job));
    }

    pub(super) fn held_jobs(&self) -> Vec<HeldJob> {
        self.held.values().map(|held| held.job.clone()).collect()
    }
}

impl Daemon {
    /// Holds jobs back, and registers them again every second.
    pub(super) fn hold_back(&mut self, jobs: Vec<(JobIx, HeldBack)>) {
        let mut is_new = false;
        for (place, held) in jobs {
            self.registry.held(place);
            let Some(job) = self.job(place).map(|job| job.name.clone()) else {
                continue;
            };
            let now = HeldState {
                job: held.held_job(&job),
                asked: false,
            };
            let reason = now.job.reason.clone();
            let known = self.admission.held.insert(place, now);
            if known.is_some_and(|known| {
                known.job.reason == reason || matches!(held.why, HoldReason::Recovering(_))
            }) {
                continue;
            }
            is_new = true;
            tracing::warn!(
                %job,
                host = %self.host,
                "this host's list uses {} for this job, but {}",
                held.lock.shown(),
                held.log_text()
            );
        }
        if is_new {
            self.be_ready();
            self.announce();
            self.status();
        }
    }

    /// Registers the jobs again that are held back.
    pub(super) fn look_at_admission(&mut self) {
        if !self.health.is_up() || self.shutdown.is_some() {
            return;
        }
        for (job, held) in &mut self.admission.held {
            if !std::mem::replace(&mut held.asked, true) {
                self.to_register.push(*job);
            }
        }
        self.flush_registrations();
    }

    /// The job is registered under the lock of this host's list.
    pub(super) fn admitted(&mut self, place: JobIx) {
        let Some(held) = self.admission.held.remove(&place) else {
            return;
        };
        tracing::info!(
            job = %held.job.job,
            host = %self.host,
            "the job is no longer held back; this host runs it under {}",
            held.job.lock
        );
        self.announce();
        self.status();
    }

    /// Reports, once, which hosts hold jobs back on account of this one.
    pub(super) fn neighbours(&mut self, neighbours: Vec<Neighbour>) {
        for neighbour in &neighbours {
            if self.admission.neighbours.contains(neighbour) {
                continue;
            }
            let Neighbour { host, job, lock } = neighbour;
            tracing::warn!(
                %job,
                host = %self.host,
                "host {host} holds this job back: its list uses {lock} for the job, and the list \
                 of {me} another lock. {me} continues to run the job. The list of {me} is older, or \
                 different: reload {me} with the list of {host}, or {host} with the list of {me}",
                me = self.host
            );
        }
        self.admission.neighbours = neighbours.into_iter().collect();
    }
}

/// A job that this host may claim according to the first read.
struct AdmissionCandidate {
    ix: JobIx,
    job: Newcomer,
    entry: Entry,
    /// Whether this host has just written the entry.
    is_new: bool,
    /// Where the ledger may lie that is to move to this host's lock.
    others: Vec<Lock>,
    /// The ledgers of the other hosts, if this host has none yet and each host has its own.
    siblings: Vec<Lock>,
}

/// What the registry says about jobs before this host has written its own entries.
#[derive(Default)]
struct FirstLook {
    held: Vec<(JobIx, HeldBack)>,
    /// The entries to write.
    entries: Vec<(JobName, Entry)>,
    admitted: Vec<AdmissionCandidate>,
}

impl FirstLook {
    fn at(
        host: &HostName,
        jobs: impl Iterator<Item = ((JobIx, Newcomer), Listing)>,
        live: &BTreeSet<HostName>,
        (now, clock): (Timestamp, ClockTrust),
    ) -> Self {
        let mut look = Self::default();
        for ((ix, job), listing) in jobs {
            let name = job.beginning.job.clone();
            let whole = listing.with(host, job.known.as_ref());
            let mut entry = whole.enter(host, job.lock.clone(), now);
            let others = match whole.admits(host, &job.lock, |host| live.contains(host)) {
                // It would claim nothing of what waits there.
                Admission::Enter(_)
                    if clock == ClockTrust::Wrong && whole.may_take_from_fleet(&job.lock) =>
                {
                    Err(HoldReason::Clock)
                }
                Admission::Enter(others) => Ok(others),
                Admission::Hold(users) => Err(HoldReason::Hosts(users)),
            };
            let others = others.map_err(|why| {
                entry = entry.waiting();
                let lock = job.lock.clone();
                look.held.push((ix, HeldBack { lock, why }));
            });
            let is_new = !is_written(&listing, host, &entry);
            if is_new {
                look.entries.push((name, entry.clone()));
            }
            let siblings = siblings(host, &job, &listing);
            look.admitted
                .extend(others.ok().map(|others| AdmissionCandidate {
                    ix,
                    job,
                    entry,
                    is_new,
                    others,
                    siblings,
                }));
        }
        look
    }
}

impl TaskContext {
    /// Enters jobs into the registry, moves their ledgers if their lock has changed, and begins
    /// those that are new. Returns the jobs that are held back.
    pub(super) async fn enter(
        &self,
        (host, clock): (&HostName, ClockTrust),
        jobs: Vec<(JobIx, Newcomer)>,
    ) -> Result<Vec<(JobIx, HeldBack)>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let (listings, live) = self
            .listings_of(host, jobs.iter().map(|(_, job)| job))
            .await?;
        let now = self.store.now().await?;
        let FirstLook {
            mut held,
            entries,
            mut admitted,
        } = FirstLook::at(host, jobs.into_iter().zip(listings), &live, (now, clock));
        if !entries.is_empty() {
            self.store.enlist(host, &entries).await?;
        }
        held.extend(self.look_again(host, &mut admitted).await?);
        let mut entered = Vec::with_capacity(admitted.len());
        let mut beginnings = Vec::with_capacity(admitted.len());
        let mut kept = Vec::with_capacity(admitted.len());
        let mut joined = Vec::new();
        for candidate in admitted {
            let AdmissionCandidate {
                ix,
                job,
                entry,
                others,
                siblings,
                ..
            } = candidate;
            if let Some(why) = self.move_here(host, &job, (&entry, now), others).await? {
                held.push((ix, why));
                continue;
            }
            let Newcomer {
                beginning, keeping, ..
            } = job;
            if !siblings.is_empty() {
                joined.push((beginning.job.clone(), beginning.lock.clone(), siblings));
            }
            kept.push(keeping);
            beginnings.push(Beginning {
                counts: entry.counts(),
                ..beginning
            });
            entered.push((ix, entry));
        }
        // A job that cannot begin because the store recovers begins with its first claim.
        self.store.begin(&beginnings).await?;
        for (job, lock, siblings) in joined {
            self.take_over_pause(&job, lock, siblings).await?;
        }
        self.store.keep(&kept).await?;
        self.tell(Message::Entered(entered));
        Ok(held)
    }

    /// Pauses the new ledger of this host if those of the other hosts are paused.
    async fn take_over_pause(
        &self,
        job: &JobName,
        lock: Lock,
        siblings: Vec<Lock>,
    ) -> Result<(), StoreError> {
        let asked = siblings.into_iter().map(|lock| (job.clone(), lock));
        let reports = self.store.jobs(&asked.collect::<Vec<_>>()).await?;
        let newest = reports.iter().filter_map(|report| report.pauses.last());
        let Some(pause) = newest.max_by_key(|pause| pause.asked_at) else {
            return Ok(());
        };
        if pause.resumed_by.is_some() {
            return Ok(());
        }
        let request = PauseRequest {
            job: job.clone(),
            lock,
            order: PauseOrder::Pause {
                until: pause.until,
                reason: pause.reason.clone(),
            },
            by: pause.by.clone(),
            asked_at: pause.asked_at,
        };
        self.store.pause(&request).await.map(drop)
    }

    /// Two hosts that enter a job under different new locks at once may both read before either
    /// writes. So each reads once more after it has written its entry: at least the later one then
    /// sees the other's. Returns those of the candidates that are held back after all.
    async fn look_again(
        &self,
        host: &HostName,
        candidates: &mut Vec<AdmissionCandidate>,
    ) -> Result<Vec<(JobIx, HeldBack)>, StoreError> {
        let is_new = |candidate: &&mut AdmissionCandidate| candidate.is_new;
        if !candidates.iter().any(|candidate| candidate.is_new) {
            return Ok(Vec::new());
        }
        let jobs = candidates.iter().filter(|it| it.is_new).map(|it| &it.job);
        let (listings, live) = self.listings_of(host, jobs).await?;
        let (mut held, mut waits) = (BTreeMap::new(), Vec::new());
        for (candidate, listing) in candidates.iter_mut().filter(is_new).zip(listings) {
            let lock = candidate.job.lock.clone();
            match listing.admits(host, &lock, |host| live.contains(host)) {
                Admission::Enter(others) => candidate.others = others,
                Admission::Hold(users) => {
                    if gives_way(host, &users) {
                        let job = candidate.job.beginning.job.clone();
                        let entry = candidate.entry.again(candidate.entry.at);
                        waits.push((job, entry.waiting()));
                    }
                    let why = HoldReason::Hosts(users);
                    held.insert(candidate.ix, HeldBack { lock, why });
                }
            }
        }
        candidates.retain(|candidate| !held.contains_key(&candidate.ix));
        if !waits.is_empty() {
            self.store.enlist(host, &waits).await?;
        }
        Ok(held.into_iter().collect())
    }

    /// The listings of these jobs, and the hosts that live and do not drain; not asked for while
    /// all listings agree.
    async fn listings_of(
        &self,
        host: &HostName,
        jobs: impl Iterator<Item = &Newcomer> + Clone + Send,
    ) -> Result<(Vec<Listing>, BTreeSet<HostName>), StoreError> {
        let names: Vec<_> = (jobs.clone().map(|job| job.beginning.job.clone())).collect();
        let listings = self.store.listings(&names).await?;
        let agree = jobs.zip(&listings).all(|(job, listing)| {
            let admission = listing.admits(host, &job.lock, |_| true);
            matches!(admission, Admission::Enter(_))
        });
        if agree {
            return Ok((listings, BTreeSet::new()));
        }
        let hosts = self.store.hosts().await?;
        let live = hosts.into_iter().filter(|report| !report.info.draining);
        Ok((listings, live.map(|report| report.info.host).collect()))
    }

    /// Moves the ledger of one job to the lock of this host's list. Whatever hinders that concerns
    /// this job alone.
    async fn move_here(
        &self,
        host: &HostName,
        job: &Newcomer,
        (entry, now): (&Entry, Timestamp),
        others: Vec<Lock>,
    ) -> Result<Option<HeldBack>, StoreError> {
        if others.is_empty() {
            return Ok(None);
        }
        let destination = Destination {
            job: &job.beginning.job,
            lock: &job.lock,
            host,
            ttl: job.beginning.ttl,
            now,
            counts_from: entry.counts().at,
        };
        let relocation = Relocation::new(&destination, others);
        match relocate(&*self.store, relocation).await {
            Ok(Relocated::Home { from }) => {
                for lock in from {
                    tracing::warn!(
                        job = %job.beginning.job,
                        %host,
                        "this job's lock was changed; its ledger moved from lock {} to {}",
                        lock.name,
                        job.lock.shown()
                    );
                }
                Ok(None)
            }
            Ok(other) => Ok(HeldBack::of(&job.lock, other)),
            Err(error @ (StoreError::PartUnreachable(_) | StoreError::Key(_))) => {
                let (lock, why) = (job.lock.clone(), HoldReason::Store(error.to_string()));
                Ok(Some(HeldBack { lock, why }))
            }
            Err(error) => Err(error),
        }
    }
}

/// The ledgers that other hosts have of a job of which each host has its own, and this one has none yet:
/// a pause of the job is in them.
fn siblings(host: &HostName, job: &Newcomer, listing: &Listing) -> Vec<Lock> {
    if job.lock.is_shared() || listing.entries.contains_key(host) {
        return Vec::new();
    }
    let others = listing.entries.iter();
    let others = others.filter(|(_, it)| it.standing != Standing::Withdrawn);
    others.map(|(of, it)| it.lock.on(of)).collect()
}

/// Whether the listing says what `entry` says, but for a little while ago.
fn is_written(listing: &Listing, host: &HostName, entry: &Entry) -> bool {
    const LITTLE: Duration = Duration::from_secs(3600);
    let known = listing.entries.get(host);
    listing.has(host, entry) && known.is_some_and(|known| entry.at.since(known.at) < LITTLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Fingerprint, Keeping, LockId};

    /// A host that has the job with its own ledger looks at a listing in which another host shares one.
    fn looks(clock: ClockTrust) -> FirstLook {
        let [mine, other] = ["mine", "other"].map(|name| HostName::parse(name).unwrap());
        let job = JobName::parse("job").unwrap();
        let now = Timestamp::from_secs(1_700_000_000);
        let mut listing = Listing::default();
        let fleet = listing.enter(&other, LockId::Fleet("job".into()), now);
        listing.entries.insert(other, fleet);
        let lock = LockId::Host("job".into());
        let newcomer = Newcomer {
            known: None,
            keeping: Keeping::of(job.clone(), &lock, &mine, Duration::ZERO),
            beginning: Beginning {
                job,
                lock: lock.on(&mine),
                fingerprint: Fingerprint("every 5s".into()),
                ttl: Duration::from_secs(30),
                counts: crate::store::CountsFrom {
                    at: Timestamp::EPOCH,
                    again: false,
                },
            },
            lock,
        };
        let jobs = std::iter::once(((JobIx(0), newcomer), listing));
        FirstLook::at(&mine, jobs, &BTreeSet::new(), (now, clock))
    }

    #[test]
    fn a_host_whose_clock_is_wrong_leaves_what_waits_in_the_ledger_of_the_fleet_to_others() {
        let look = looks(ClockTrust::Wrong);
        assert!(matches!(
            look.held[..],
            [(
                _,
                HeldBack {
                    why: HoldReason::Clock,
                    ..
                }
            )]
        ));
        assert_eq!(look.entries[0].1.standing, Standing::Waits);
        assert!(look.admitted.is_empty());
        let look = looks(ClockTrust::Right);
        assert!(look.held.is_empty());
        assert_eq!(look.admitted.len(), 1);
    }
}
