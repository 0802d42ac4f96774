//! What a daemon writes into the store's registry of listed jobs, as `engine::daemon::registry`
//! does it: a few requests one after the other.

use std::collections::{BTreeMap, BTreeSet};

use cronlatch::engine::simulated::{ClockTrust, JobIx};
use cronlatch::names::{HostName, JobName};
use cronlatch::store::registry::{COMPARED_EVERY, gives_way};
use cronlatch::store::relocate::{Destination, MoveStep, Relocated, Relocation};
use cronlatch::store::{Admission, Beginning, Entry, Listing, Lock, LockId};
use cronlatch::time::Timestamp;

use crate::message::{Reply, Request};

/// The entries of a host, and what is to be done about them.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: BTreeMap<JobIx, (JobName, Entry)>,
    /// Those of them that are to be entered once more.
    again: BTreeSet<JobIx>,
    /// Those that no store has registered since that had all of its data.
    unsettled: BTreeSet<JobIx>,
    /// Those that such a store has registered before.
    established: BTreeSet<JobIx>,
    pub(super) lost: bool,
    pub(super) compared: Option<i64>,
    pub(super) busy: bool,
    /// Others can have seen that this host lives.
    seen: bool,
    next: usize,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Next<T> {
    Send(Request, T),
    Done(T),
    Failed(T),
}

/// Jobs on their way into the registry, before they are registered; as `engine::daemon::admission`
/// does it.
#[derive(Debug, Clone)]
pub(super) struct Entering {
    /// All jobs that are then registered.
    pub(super) jobs: Vec<JobIx>,
    /// Those that are new, each with its ledger's beginning but for the instant.
    new: Vec<(JobIx, LockId, Beginning)>,
    /// This host's clock.
    clock: ClockTrust,
    /// What this host last wrote about them.
    known: BTreeMap<JobIx, Entry>,
    listings: Vec<Listing>,
    now: Timestamp,
    /// Those that may be entered now.
    pub(super) entries: Vec<(JobIx, JobName, Entry)>,
    /// Those that are held back.
    pub(super) held: Vec<JobIx>,
    /// Those among them whose entries were written just now: they are looked at once more.
    fresh: Vec<JobIx>,
    looks_again: bool,
    asked: Option<Lock>,
    moves: Vec<(JobIx, Relocation)>,
    /// Where the ledgers may lie that are to move.
    others: BTreeMap<JobIx, Vec<Lock>>,
}

impl Entering {
    pub(super) fn begin(
        jobs: Vec<JobIx>,
        new: Vec<(JobIx, LockId, Beginning)>,
        (registry, clock): (&Registry, ClockTrust),
    ) -> Self {
        let last = |ix: JobIx| Some((ix, registry.entries.get(&ix)?.1.clone()));
        let known = new.iter().filter_map(|(ix, ..)| last(*ix)).collect();
        Self {
            jobs,
            new,
            clock,
            known,
            listings: Vec::new(),
            now: Timestamp::EPOCH,
            entries: Vec::new(),
            held: Vec::new(),
            fresh: Vec::new(),
            looks_again: false,
            asked: None,
            moves: Vec::new(),
            others: BTreeMap::new(),
        }
    }

    /// All jobs that are to be registered, also those that are held back.
    pub(super) fn all(mut self) -> Vec<JobIx> {
        self.held.retain(|job| !self.jobs.contains(job));
        self.jobs.append(&mut self.held);
        self.jobs
    }

    pub(super) fn first_look(&self) -> Request {
        let names = self.new.iter().map(|(_, _, job)| job.job.clone());
        Request::Listings(names.collect())
    }

    /// The store's reply to the last request came.
    pub(super) fn go_on(mut self, host: &HostName, reply: Reply) -> Next<Self> {
        match reply {
            Reply::Announced => {
                let request = self.first_look();
                Next::Send(request, self)
            }
            Reply::Listings(listings) => {
                self.listings = listings;
                let next = if self.looks_again {
                    Request::Hosts
                } else {
                    Request::Now
                };
                Next::Send(next, self)
            }
            Reply::Now(now) => {
                self.now = now;
                Next::Send(Request::Hosts, self)
            }
            Reply::Hosts(live) if self.looks_again => {
                let waits = self.look_again(host, &live);
                if waits.is_empty() {
                    self.begin_moves(host);
                    return self.next_move();
                }
                Next::Send(Request::Enlist(host.clone(), waits), self)
            }
            Reply::Hosts(live) => {
                let written = self.admit(host, &live);
                Next::Send(Request::Enlist(host.clone(), written), self)
            }
            Reply::Enlisted if self.looks_again || self.fresh.is_empty() => {
                self.begin_moves(host);
                self.next_move()
            }
            Reply::Enlisted => {
                self.looks_again = true;
                let entered = self
                    .entries
                    .iter()
                    .filter(|(ix, ..)| self.fresh.contains(ix));
                let names = entered.map(|(_, job, _)| job.clone()).collect();
                Next::Send(Request::Listings(names), self)
            }
            Reply::Ledger(ledger) => {
                let lock = self.asked.take();
                if let (Some((_, relocation)), Some(lock)) = (self.moves.last_mut(), lock) {
                    relocation.read(&lock, *ledger);
                }
                self.next_move()
            }
            Reply::Replaced(reply) => {
                if let Some((_, relocation)) = self.moves.last_mut() {
                    relocation.replaced(reply);
                }
                self.next_move()
            }
            Reply::LedgersBegun => Next::Done(self),
            _ => Next::Failed(self),
        }
    }

    /// Returns what is to be written.
    fn admit(&mut self, host: &HostName, live: &BTreeSet<HostName>) -> Vec<(JobName, Entry)> {
        let mut written = Vec::new();
        for ((ix, lock, job), listing) in self.new.iter_mut().zip(&self.listings) {
            let whole = listing.with(host, self.known.get(ix));
            let mut entry = whole.enter(host, lock.clone(), self.now);
            match whole.admits(host, lock, |host| live.contains(host)) {
                Admission::Enter(_)
                    if self.clock == ClockTrust::Wrong && whole.may_take_from_fleet(lock) =>
                {
                    entry = entry.waiting();
                    self.held.push(*ix);
                }
                Admission::Hold(_) => {
                    entry = entry.waiting();
                    self.held.push(*ix);
                }
                Admission::Enter(others) => {
                    job.counts = entry.counts();
                    self.others.insert(*ix, others);
                    self.entries.push((*ix, job.job.clone(), entry.clone()));
                    if !listing.has(host, &entry) {
                        self.fresh.push(*ix);
                    }
                }
            }
            written.push((job.job.clone(), entry));
        }
        written
    }

    /// Returns what is to be written.
    fn look_again(&mut self, host: &HostName, live: &BTreeSet<HostName>) -> Vec<(JobName, Entry)> {
        let mut waits = Vec::new();
        let entered = self
            .entries
            .iter()
            .filter(|(ix, ..)| self.fresh.contains(ix));
        for ((ix, job, entry), listing) in entered.zip(&self.listings) {
            match listing.admits(host, &entry.lock, |host| live.contains(host)) {
                Admission::Enter(others) => {
                    self.others.insert(*ix, others);
                }
                Admission::Hold(users) => {
                    self.held.push(*ix);
                    if gives_way(host, &users) {
                        waits.push((job.clone(), entry.again(entry.at).waiting()));
                    }
                }
            }
        }
        self.entries.retain(|(ix, ..)| !self.held.contains(ix));
        waits
    }

    fn begin_moves(&mut self, host: &HostName) {
        for (ix, _, entry) in &self.entries {
            let others = self.others.remove(ix).unwrap_or_default();
            let of = self.new.iter().find(|(of, ..)| of == ix);
            let Some((_, lock, job)) = of.filter(|_| !others.is_empty()) else {
                continue;
            };
            let destination = Destination {
                job: &job.job,
                lock,
                host,
                ttl: job.ttl,
                now: self.now,
                counts_from: entry.counts().at,
            };
            self.moves
                .push((*ix, Relocation::new(&destination, others)));
        }
    }

    fn next_move(mut self) -> Next<Self> {
        while let Some((ix, relocation)) = self.moves.last_mut() {
            match relocation.step() {
                MoveStep::Read(lock) => {
                    let job = self.new.iter().find(|(of, ..)| of == ix);
                    let job = job.expect("it moves a new job").2.job.clone();
                    self.asked = Some(lock.clone());
                    return Next::Send(Request::Ledger(job, lock), self);
                }
                MoveStep::Replace(replacement) => {
                    return Next::Send(Request::Replace(replacement), self);
                }
                MoveStep::Done(relocated) => {
                    let ix = *ix;
                    self.moves.pop();
                    if !matches!(relocated, Relocated::Home { .. }) {
                        self.held.push(ix);
                        self.entries.retain(|(of, ..)| *of != ix);
                    }
                }
            }
        }
        self.jobs.retain(|job| !self.held.contains(job));
        let is_held = |job: &JobIx| self.held.contains(job);
        let begin = self.new.iter().filter(|(ix, ..)| !is_held(ix));
        let begin = begin.map(|(_, _, job)| job.clone()).collect();
        Next::Send(Request::BeginLedgers(begin), self)
    }
}

/// One look after the registry.
#[derive(Debug, Clone, Default)]
pub(super) struct Round {
    /// The enabled jobs, if those that are not among them are still to be withdrawn.
    withdraw_all_but: Option<BTreeSet<JobName>>,
    gone: Vec<JobName>,
    listings: Vec<Listing>,
    /// Entries to be written again.
    write: Vec<(JobName, Entry)>,
    look_at: Option<(JobName, Entry)>,
    pub(super) withdrawn: bool,
    pub(super) written: bool,
    pub(super) lost: bool,
}

impl Registry {
    /// The store may have lost data, and with them that this host withdrew a job.
    pub(super) fn doubt(&mut self) {
        self.lost = true;
        self.compared = None;
    }

    /// The list was replaced.
    pub(super) fn keep_only(&mut self, is_listed: impl Fn(JobIx) -> bool) {
        for places in [&mut self.unsettled, &mut self.again, &mut self.established] {
            places.retain(|job| is_listed(*job));
        }
        self.entries.retain(|job, _| is_listed(*job));
        self.compared = None;
    }

    pub(super) fn leave_all(&mut self) {
        self.unsettled.clear();
        self.again.extend(self.entries.keys());
        self.seen = false;
    }

    /// The job is to be entered once more.
    pub(super) fn leave(&mut self, job: JobIx) {
        self.unsettled.remove(&job);
        self.again.insert(job);
    }

    /// As the daemon's own.
    pub(super) fn entered_jobs(&self) -> Vec<JobIx> {
        let entered = |job: &JobIx| !self.unsettled.contains(job) && !self.again.contains(job);
        self.entries.keys().copied().filter(entered).collect()
    }

    pub(super) fn held(&mut self, job: JobIx) {
        if let Some((_, entry)) = self.entries.get_mut(&job) {
            *entry = entry.waiting();
        }
    }

    /// As the daemon's own.
    pub(super) fn waits_for_others(&mut self, job: JobIx) -> bool {
        let waits = self.unsettled.contains(&job) && !self.established.contains(&job);
        if waits {
            self.held(job);
        }
        waits
    }

    pub(super) fn not_registered(&mut self) {
        self.seen = false;
    }

    /// Whether this host is to say that it lives before it looks who uses which lock.
    pub(super) fn take_unseen(&mut self) -> bool {
        !std::mem::replace(&mut self.seen, true)
    }

    pub(super) fn entered(&mut self, entries: Vec<(JobIx, JobName, Entry)>) {
        for (job, name, entry) in entries {
            self.unsettled.insert(job);
            self.again.remove(&job);
            self.entries.insert(job, (name, entry));
        }
    }

    /// As the daemon's own.
    pub(super) fn is_settled(&mut self, job: JobIx, recovers: bool) -> bool {
        if !recovers {
            self.unsettled.remove(&job);
        }
        let settled = !self.unsettled.contains(&job);
        if settled {
            self.established.insert(job);
        }
        settled
    }

    pub(super) fn knows(&self, job: JobIx) -> bool {
        self.entries.contains_key(&job) && !self.again.contains(&job)
    }

    /// The round that is due, and its first request.
    pub(super) fn round(
        &mut self,
        host: &HostName,
        enabled: BTreeSet<JobName>,
        now: i64,
    ) -> Option<(Request, Round)> {
        if self.busy {
            return None;
        }
        let mut round = Round::default();
        let every = i64::try_from(COMPARED_EVERY.as_millis()).unwrap_or(i64::MAX);
        if self.compared.is_none_or(|at| now - at >= every) {
            round.withdraw_all_but = Some(enabled);
        }
        if self.lost {
            round.write = self.entries.values().cloned().collect();
        } else {
            let known = |(job, _): &(&JobIx, _)| !self.again.contains(*job);
            let entries = self.entries.iter().filter(known).map(|(_, it)| it);
            self.next = (self.next + 1) % entries.clone().count().max(1);
            round.look_at = entries.clone().nth(self.next).cloned();
        }
        match round.after_withdrawal(host, None) {
            Next::Send(request, round) => {
                self.busy = true;
                Some((request, round))
            }
            Next::Done(_) | Next::Failed(_) => None,
        }
    }
}

impl Round {
    /// What follows once the jobs that are gone are withdrawn, or are to be.
    fn after_withdrawal(mut self, host: &HostName, now: Option<Timestamp>) -> Next<Self> {
        if self.withdraw_all_but.is_some() {
            return Next::Send(Request::ListedBy(host.clone()), self);
        }
        if !self.write.is_empty() {
            let Some(now) = now else {
                return Next::Send(Request::Now, self);
            };
            let write = std::mem::take(&mut self.write);
            let again = |(job, entry): (JobName, Entry)| (job, entry.again(now));
            let entries = write.into_iter().map(again).collect();
            self.written = true;
            return Next::Send(Request::Enlist(host.clone(), entries), self);
        }
        match &self.look_at {
            Some((job, _)) => Next::Send(Request::Listings(vec![job.clone()]), self),
            None => Next::Done(self),
        }
    }

    pub(super) fn go_on(mut self, host: &HostName, reply: Reply) -> Next<Self> {
        match reply {
            Reply::Listed(mut gone) => {
                let enabled = self.withdraw_all_but.take().unwrap_or_default();
                gone.retain(|job| !enabled.contains(job));
                if gone.is_empty() {
                    self.withdrawn = true;
                    return self.after_withdrawal(host, None);
                }
                self.gone.clone_from(&gone);
                Next::Send(Request::Listings(gone), self)
            }
            Reply::Listings(listings) if !self.gone.is_empty() => {
                self.listings = listings;
                Next::Send(Request::Now, self)
            }
            Reply::Listings(listings) => {
                let entry = self.look_at.take();
                let is_there = |listing: &Listing| {
                    (entry.as_ref()).is_some_and(|(_, entry)| listing.has(host, entry))
                };
                self.lost = !listings.iter().any(is_there);
                Next::Done(self)
            }
            Reply::Now(now) if !self.gone.is_empty() => {
                let gone = std::mem::take(&mut self.gone).into_iter();
                let entries = gone.zip(std::mem::take(&mut self.listings));
                let entries = entries
                    .filter_map(|(job, listing)| Some((job, listing.withdraw(host, now)?)))
                    .collect();
                Next::Send(Request::Enlist(host.clone(), entries), self)
            }
            Reply::Now(now) => self.after_withdrawal(host, Some(now)),
            Reply::Enlisted if self.written => Next::Done(self),
            Reply::Enlisted => {
                self.withdrawn = true;
                self.after_withdrawal(host, None)
            }
            _ => Next::Failed(self),
        }
    }
}
