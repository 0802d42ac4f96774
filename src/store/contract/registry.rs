//! The registry: which hosts have a job in their lists, since when, and under which lock.
//!
//! A store keeps one [`Listing`] per job name, apart from the job's ledger, because the ledger
//! lies under the job's lock and a list may change that lock. A listing has one [`Entry`] per
//! host. Only that host writes its entry, so entries need no transaction: a store only reads and
//! writes them, and the rules are the plain functions here.
//!
//! The network may deliver a copy of a write late, after the same host has written something else.
//! A store therefore rejects a write whose entry has a smaller [`Entry::at`] than the stored one. A
//! host chooses `at` above that of every entry that it has read or written: by the store's clock, and
//! past the stored one if that clock was set back in the meantime. Therefore a rejected write is always
//! a late one, and a host that writes later always replaces its entry. What remains: the clocks of
//! servers that replace one another may differ by a second, so what a daemon sent in the last second of
//! its life may still replace what the host's next daemon writes within that second.
//!
//! An entry stays when its host crashes or stops. A host removes its entry when it starts with a
//! list that no longer has the job enabled. Therefore a job whose entries were all removed was
//! disabled, while one that has any entry was only not running.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::lock::{Fingerprint, Lock, LockRef};
use super::lock_id::LockId;
use crate::names::{HostName, JobName};
use crate::time::Timestamp;

/// An entry that was not refreshed for this long no longer counts, and a store may delete it.
/// Hosts refresh their entries every day.
pub const LISTED_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long after a host was last seen its own data may be deleted.
pub const HOST_KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long a store remembers a host whose announcement expired: it did not report that it stops.
pub const VANISHED_FOR: Duration = Duration::from_secs(24 * 3600);

/// How often a host compares the jobs that the store lists for it with its list: the store may have
/// lost, with its newest data, that the host withdrew a job, and a host that claims nothing may not
/// notice the loss. The jobs are read only if they no longer have the [`JobsRevision`] of the last
/// comparison. Lost data take the revision with them, or bring back an older one.
pub const COMPARED_EVERY: Duration = Duration::from_secs(60);

/// An entry that is further ahead of the store's clock than this was written while that clock was
/// wrong. The same as for a ledger: [`LEDGER_AHEAD`](crate::store::protocol::LEDGER_AHEAD).
pub const FAR_AHEAD: Duration = Duration::from_secs(3 * 3600);

/// How many earlier locks an entry remembers.
const EARLIER_LOCKS: usize = 3;

/// What a host does with a job of its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The host claims the job's occurrences.
    Uses,
    /// The host has the job enabled, but claims nothing while other hosts use another lock.
    Waits,
    /// The host's list no longer has the job enabled.
    Withdrawn,
}

/// From when a job's occurrences count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountsFrom {
    /// Nothing that was due up to this instant, on the store's clock, is caught up.
    pub at: Timestamp,
    /// The job was disabled before: its ledger may end long before `at` and is moved up to it.
    pub again: bool,
}

/// What one host says about one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What the host does with the job.
    pub standing: Standing,
    /// The lock that the host's list gives to the job.
    pub lock: LockId,
    /// Locks that this host used for the job before, newest first: a ledger may still lie there.
    pub earlier: Vec<LockId>,
    /// From when the job counts, if all hosts share its ledger.
    pub fleet: CountsFrom,
    /// From when the job counts on this host, if each host has its own ledger.
    pub own: CountsFrom,
    /// The store's clock when the host wrote or refreshed the entry; larger with each entry that
    /// the host writes, also if that clock was set back.
    pub at: Timestamp,
}

/// All hosts' entries for one job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The entries, including those of hosts that are down or have withdrawn.
    pub entries: BTreeMap<HostName, Entry>,
}

/// Identifies what a store lists for a host: each write of these jobs gives them another revision,
/// which they never had before. Only the store that returned it can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsRevision(pub(in crate::store) String);

impl JobsRevision {
    /// Returns a revision for a write.
    pub(in crate::store) fn new() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }
}

/// What a store lists for a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostJobs {
    /// The jobs.
    pub jobs: Vec<JobName>,
    /// `None` if the store does not know it, because a version without revisions wrote the jobs, or
    /// because there are none.
    pub revision: Option<JobsRevision>,
}

/// Whether a host may claim a job's occurrences under the lock of its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may, once the ledgers that lie under these locks have moved to it.
    Enter(Vec<Lock>),
    /// It may not: these hosts live and use other locks.
    Hold(Vec<(HostName, LockId)>),
}

/// A job that a host's list gives a lock which other hosts do not use yet.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HeldJob {
    /// The job.
    pub job: String,
    /// The lock of that host's list.
    pub lock: String,
    /// The hosts that use another lock; empty if the host waits for something else.
    #[serde(rename = "by")]
    pub hosts: Vec<String>,
    /// What it waits for.
    pub reason: String,
}

/// A job whose ledger is created or moved up before the job is registered for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// The job.
    pub job: JobName,
    /// The lock under which its ledger lies.
    pub lock: Lock,
    /// Its schedule.
    pub fingerprint: Fingerprint,
    /// The TTL of its leases. After a loss of data no ledger is created for this long.
    pub ttl: Duration,
    /// From when it counts.
    pub counts: CountsFrom,
}

/// What a store is to keep of a job, because a host lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keeping {
    /// The job.
    pub job: JobName,
    /// The lock under which its ledger and its history lie.
    pub lock: Lock,
    /// For how long, unless a host asks for it again.
    pub span: Duration,
}

impl Keeping {
    /// What a host keeps of a job every day: for [`LISTED_FOR`] what all hosts share; what is its
    /// own for [`HOST_KEPT_FOR`], or for as long as the job is caught up, if that is more.
    pub fn of(job: JobName, id: &LockId, host: &HostName, catch_up_window: Duration) -> Self {
        let span = if id.is_shared() {
            LISTED_FOR
        } else {
            HOST_KEPT_FOR.max(catch_up_window)
        };
        let lock = id.on(host);
        Self { job, lock, span }
    }
}

impl Entry {
    /// Whether the host still has the job enabled, as far as the store knows at `now`.
    pub fn is_listed(&self, now: Timestamp) -> bool {
        self.standing != Standing::Withdrawn && now.since(self.at) < LISTED_FOR
    }

    /// Whether a store whose clock shows `now` puts this entry in the place of `known`, that of the
    /// same host. It does not if this one is a late copy: `known` was written later.
    ///
    /// An entry from far ahead of the clock was written while the clock was wrong. It gives way, or
    /// the job would count as listed until that time comes.
    pub fn replaces(&self, known: &Self, now: Timestamp) -> bool {
        known.at <= self.at || known.at > now.plus(FAR_AHEAD)
    }

    /// The same entry, written again at `now` by the store's clock.
    #[must_use]
    pub fn again(&self, now: Timestamp) -> Self {
        Self {
            at: after(Some(self), now),
            ..self.clone()
        }
    }

    /// The same entry of a host that claims nothing while others use another lock.
    #[must_use]
    pub fn waiting(&self) -> Self {
        Self {
            standing: Standing::Waits,
            ..self.clone()
        }
    }

    /// From when the job counts on the host that wrote this entry.
    pub fn counts(&self) -> CountsFrom {
        if self.lock.is_shared() {
            self.fleet
        } else {
            self.own
        }
    }

    /// The entry as a store keeps it: one line of numbers with the lock at its end, then one line
    /// for each earlier lock. [`Self::parse`] reads it.
    pub fn text(&self) -> String {
        let standing = match self.standing {
            Standing::Uses => 'u',
            Standing::Waits => 'w',
            Standing::Withdrawn => 'x',
        };
        let counts =
            |counts: CountsFrom| format!("{} {}", counts.at.millis(), u8::from(counts.again));
        let locks: Vec<String> = std::iter::once(&self.lock)
            .chain(&self.earlier)
            .map(|lock| lock.to_string().replace('%', "%25").replace('\n', "%0A"))
            .collect();
        let (fleet, own) = (counts(self.fleet), counts(self.own));
        format!(
            "{standing} {fleet} {own} {} {}",
            self.at.millis(),
            locks.join("\n")
        )
    }

    /// Reads what [`Self::text`] returned; `None` if it is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(7, ' ');
        let standing = match parts.next()? {
            "u" => Standing::Uses,
            "w" => Standing::Waits,
            "x" => Standing::Withdrawn,
            _ => return None,
        };
        let mut counts = || {
            let at = Timestamp::from_millis(parts.next()?.parse().ok()?);
            let again = parts.next()? == "1";
            Some(CountsFrom { at, again })
        };
        let (fleet, own) = (counts()?, counts()?);
        let at = Timestamp::from_millis(parts.next()?.parse().ok()?);
        let mut locks = parts.next()?.lines().map(|line| {
            let line = line.replace("%0A", "\n").replace("%25", "%");
            LockId::parse(&line)
        });
        Some(Self {
            standing,
            lock: locks.next()??,
            earlier: locks.collect::<Option<_>>()?,
            fleet,
            own,
            at,
        })
    }
}

impl Listing {
    /// The entry with which `host` enters a job that its list has enabled under `lock`.
    ///
    /// A job that some host lists already goes on counting as it does. A job that no host lists
    /// counts from `now`.
    pub fn enter(&self, host: &HostName, lock: LockId, now: Timestamp) -> Entry {
        let own = self.entries.get(host);
        let earliest = self
            .entries
            .values()
            .filter(|entry| entry.is_listed(now))
            .map(|entry| entry.fleet)
            .min_by_key(|counts| counts.at);
        let from_now = |again| CountsFrom { at: now, again };
        // No host lists the job, so no occurrence was missed in the meantime, whatever its scope.
        let anew = earliest.is_none() && !self.entries.is_empty();
        let mut earlier: Vec<LockId> = Vec::new();
        for known in own
            .iter()
            .flat_map(|own| std::iter::once(&own.lock).chain(&own.earlier))
        {
            if *known != lock && !earlier.contains(known) {
                earlier.push(known.clone());
            }
        }
        earlier.truncate(EARLIER_LOCKS);
        Entry {
            standing: Standing::Uses,
            earlier,
            fleet: earliest.unwrap_or(from_now(anew)),
            own: match own {
                Some(own) if own.is_listed(now) => own.own,
                other => from_now(other.is_some() || anew),
            },
            lock,
            at: after(own, now),
        }
    }

    /// The listing with the entry that `host` wrote last: a store that lost data may not have it, or
    /// have an older one.
    #[must_use]
    pub fn with(&self, host: &HostName, last: Option<&Entry>) -> Self {
        let mut whole = self.clone();
        if let Some(last) = last
            && (self.entries.get(host)).is_none_or(|known| known.at < last.at)
        {
            whole.entries.insert(host.clone(), last.clone());
        }
        whole
    }

    /// Whether the listing has this entry of `host`, whenever it was written.
    pub fn has(&self, host: &HostName, entry: &Entry) -> bool {
        let known = self.entries.get(host);
        known.is_some_and(|known| {
            let at = known.at;
            Entry {
                at,
                ..entry.clone()
            } == *known
        })
    }

    /// Whether `host` may claim the job's occurrences under `lock`; `live` are the hosts whose
    /// daemons are up and do not drain.
    pub fn admits(
        &self,
        host: &HostName,
        lock: &LockId,
        live: impl Fn(&HostName) -> bool,
    ) -> Admission {
        let users = self.users_of_another(lock, |other| other != host && live(other));
        if users.is_empty() {
            Admission::Enter(self.other_locks(host, lock))
        } else {
            Admission::Hold(users)
        }
    }

    /// The hosts, among those that `counts` names, that run the job under a lock with which runs
    /// under `lock` could overlap.
    pub fn users_of_another(
        &self,
        lock: &LockId,
        counts: impl Fn(&HostName) -> bool,
    ) -> Vec<(HostName, LockId)> {
        let users = self.entries.iter().filter(|(host, entry)| {
            entry.standing == Standing::Uses && entry.lock.conflicts_with(lock) && counts(host)
        });
        users
            .map(|(host, entry)| (host.clone(), entry.lock.clone()))
            .collect()
    }

    /// The locks under which the job may have a ledger that is to move to `lock` on `host`. A
    /// lock of the fleet takes over the ledgers of all hosts.
    pub fn other_locks(&self, host: &HostName, lock: &LockId) -> Vec<Lock> {
        let target = lock.on(host);
        let mut seen = BTreeSet::from([LockRef::of(&target)]);
        let mut locks = Vec::new();
        for (of, entry) in &self.entries {
            for known in std::iter::once(&entry.lock).chain(&entry.earlier) {
                let other = known.on(of);
                let counts = known.is_shared() || lock.is_shared() || of == host;
                if counts && seen.insert(LockRef::of(&other)) {
                    locks.push(other);
                }
            }
        }
        locks
    }

    /// Whether a host that enters the job under `lock` may take over a ledger of the fleet for itself, with
    /// all that waits in it.
    pub fn may_take_from_fleet(&self, lock: &LockId) -> bool {
        let entries = self.entries.values();
        let mut known = entries.flat_map(|it| std::iter::once(&it.lock).chain(&it.earlier));
        !lock.is_shared() && known.any(LockId::is_shared)
    }

    /// The entry with which `host` says that its list no longer has the job enabled; `None` if
    /// the listing says so already.
    pub fn withdraw(&self, host: &HostName, now: Timestamp) -> Option<Entry> {
        let own = self.entries.get(host)?;
        (own.standing != Standing::Withdrawn).then(|| Entry {
            standing: Standing::Withdrawn,
            at: after(Some(own), now),
            ..own.clone()
        })
    }

    /// The same job as several nodes keep it: of each host the newest entry.
    pub fn merge(listings: impl IntoIterator<Item = Self>) -> Self {
        let mut merged = Self::default();
        for (host, entry) in listings.into_iter().flat_map(|one| one.entries) {
            let newer = merged
                .entries
                .get(&host)
                .is_none_or(|known| known.at < entry.at);
            if newer {
                merged.entries.insert(host, entry);
            }
        }
        merged
    }
}

/// The instant of an entry that is written at `now` in the place of `known`: later than that one's,
/// unless `known` was written while the store's clock was far ahead (see [`Entry::replaces`]).
fn after(known: Option<&Entry>, now: Timestamp) -> Timestamp {
    let next = known.map(|known| known.at.plus(Duration::from_millis(1)));
    next.filter(|next| *next <= now.plus(FAR_AHEAD))
        .map_or(now, |next| next.max(now))
}

/// Whether a host that has entered a job under a new lock, and then finds that `users` have entered
/// it under others, says that it waits.
///
/// None of them may claim. If all said that they wait, they could all enter again at the same
/// moment, so the host with the smallest name keeps its entry and looks again. If it then still finds
/// others, they had been admitted before its entry was there, and it waits as usual.
pub fn gives_way(host: &HostName, users: &[(HostName, LockId)]) -> bool {
    users.iter().any(|(other, _)| other < host)
}

impl Listing {
    /// Adds the entry that a store keeps as these two texts. One that cannot be read is left out,
    /// with a warning: it matters for this job alone, and its host writes it again every day.
    pub(in crate::store) fn read(&mut self, job: &JobName, host: &str, text: &str) {
        if let Some((host, entry)) = HostName::parse(host).ok().zip(Entry::parse(text)) {
            self.entries.insert(host, entry);
        } else {
            tracing::warn!(
                %job,
                "ignoring an unreadable entry of host {host:?} in the store's job registry: \
                 {text:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests;
