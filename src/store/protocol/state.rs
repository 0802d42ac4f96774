//! What the store keeps of a lock and of a job, and the questions the rules ask of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::recovery::Past;
use crate::names::{HostName, RunId, Token};
use crate::store::{Fingerprint, Head, Kind, Lock, LockRef, OpenRun, Record, RunTerms};
use crate::time::Timestamp;

/// How many finished tokens a lock remembers.
pub const FINISHED_KEPT: usize = 64;

/// How many fingerprints a job remembers, so that a rolling deploy does not flip them.
pub const FINGERPRINTS_KEPT: usize = 3;

/// How many occurrences beyond the watermark a job remembers as decided.
pub const BEYOND_KEPT: usize = 100;

/// Who is said to hold a raw key that is not a string.
pub const OTHER_TYPE: &str = "(a key of another type)";

/// Foreign values are shown up to this length, in bytes.
const SHOWN_MAX: usize = 100;

/// The store's clocks at one operation, and what it knows of its past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// UTC, in microseconds since the epoch: for the ledger and the fence.
    pub micros: u64,
    /// What lease ends are counted in, in milliseconds: UTC in Redis, boot time in `SQLite`.
    pub lease: u64,
    /// Whether it has lost data.
    pub past: Past,
}

impl Clock {
    /// UTC.
    pub fn utc(self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.micros / 1000).unwrap_or(i64::MAX))
    }

    pub(super) fn after(self, ttl: Duration) -> u64 {
        self.lease
            .saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
    }

    /// How long ago `end` was, on [`Self::lease`].
    pub(super) fn since(self, end: u64) -> Duration {
        Duration::from_millis(self.lease.saturating_sub(end))
    }

    pub(super) fn until(self, end: u64) -> Duration {
        Duration::from_millis(end.saturating_sub(self.lease))
    }
}

/// The lock itself: in Redis a key with a TTL. One whose end has come reads as `Absent`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub enum Key {
    /// Nobody holds it.
    #[default]
    Absent,
    /// Somebody does.
    Value {
        /// A token, or what another program wrote.
        text: String,
        /// When it ends on [`Clock::lease`]; `None` without TTL.
        end: Option<u64>,
    },
    /// A raw key that is no string: held, by whom nobody can say.
    OtherType {
        /// When it ends on [`Clock::lease`]; `None` without TTL.
        end: Option<u64>,
    },
}

/// How a token ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// `finish` answered `Released`.
    Released,
    /// `finish` answered `Lost`.
    Lost,
    /// Its run was recorded as interrupted; its `finish` has not come.
    Interrupted,
}

/// All that is kept of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct LockState {
    /// The lock itself.
    pub key: Key,
    /// The newest fencing token given out; 0 before the first.
    pub fence: u64,
    /// The token of the newest grant, until it finishes or its run is settled.
    pub token: Option<Token>,
    /// When that lease ends on [`Clock::lease`], whatever becomes of the key.
    pub lease_end: u64,
    /// The run of that grant.
    pub run_id: Option<RunId>,
    /// The tokens that ended, oldest first, at most [`FINISHED_KEPT`].
    pub finished: Vec<(Token, Ending)>,
}

/// All that is kept of a job, its history apart.
///
/// The nodes of a Redlock keep it as JSON, so every field must survive a round trip through serde.
/// A field that is added later needs `#[serde(default)]`, or the nodes' ledgers need a new version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobState {
    /// The watermark: every occurrence up to it is decided.
    pub last: Timestamp,
    /// Occurrences after `last` that are decided, ascending, at most [`BEYOND_KEPT`]: hosts ran
    /// them without the store. What lies before each of them may still be undecided.
    #[serde(default)]
    pub beyond: Vec<Timestamp>,
    /// The run that was granted and has not ended.
    pub open: Option<Open>,
    /// The occurrences that the ledger has accepted and that are still to run, in the order in
    /// which they will. All of them lie at or before `last`.
    #[serde(default)]
    pub waiting: Vec<Waiting>,
    /// The schedules seen and when each first was, oldest first, at most [`FINGERPRINTS_KEPT`].
    pub fingerprints: Vec<(Fingerprint, Timestamp)>,
    /// Which lock the job uses, if that ever changed.
    #[serde(default)]
    pub moved: Option<Moved>,
}

/// Which lock a job uses, kept in every ledger that the job had before.
///
/// If it is not the lock that the ledger lies under, the ledger is a tombstone: it keeps its data
/// until the ledger under the other lock has begun with them, and refuses every claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Moved {
    /// The move that wrote this. Later moves have greater numbers.
    pub number: u64,
    /// The move with whose data this ledger began; 0 if it began without a move.
    pub since: u64,
    /// The lock.
    pub to: LockRef,
}

/// An open run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Open {
    /// Its occurrence; `None` for a manual run.
    pub scheduled_at: Option<Timestamp>,
    /// The run.
    pub run_id: RunId,
    /// The token it was granted under.
    pub token: Token,
    /// The newest attempt, retries and reruns counted; starts at 1.
    pub attempt: u32,
    /// How it came to be.
    pub kind: Kind,
    /// Its fencing token.
    pub fence: u64,
    /// The store's clock at the grant.
    pub started_at: Timestamp,
    /// The host that has it.
    pub host: String,
    /// What its claim asked for.
    pub terms: RunTerms,
}

/// An occurrence that waits: for the lock, for a host, or to be run again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Waiting {
    /// The occurrence.
    pub scheduled_at: Timestamp,
    /// How its run will be recorded.
    pub kind: Kind,
    /// When it is too late to start it.
    pub deadline: Timestamp,
    /// Whether a newer occurrence takes its place.
    pub yields: bool,
    /// The attempts that were made before.
    pub attempts: u32,
    /// The reruns that there were before.
    pub reruns: u32,
    /// The run that is to be repeated, while its end is not on record.
    pub crashed: Option<Crashed>,
}

/// A run whose lease ended without a result, and which is to be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Crashed {
    /// The run.
    pub run_id: RunId,
    /// The token it was granted under.
    pub token: Token,
    /// How it came to be.
    pub kind: Kind,
    /// Its fencing token.
    pub fence: u64,
    /// The store's clock at the grant.
    pub started_at: Timestamp,
    /// The host that had it.
    pub host: String,
}

impl Waiting {
    /// What a host needs to know to claim it.
    pub fn head(&self) -> Head {
        Head {
            scheduled_at: self.scheduled_at,
            kind: self.kind,
            deadline: self.deadline,
        }
    }
}

/// What the store does besides keeping the new states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Adds a record to the history of the record's job.
    Append {
        /// The record.
        record: Box<Record>,
        /// How many records the history then keeps; `None`: the request did not say.
        keep: Option<u32>,
        /// The watermark that the recorded verdict moved: what says whether it follows the newest
        /// record without a gap. See [`merge`](super::merge).
        follows: Option<Timestamp>,
        /// Whether a provisional record of the same run is removed, as
        /// [`is_provisional`](super::is_provisional) says: its host has reported the result after
        /// all.
        replaces: bool,
    },
    /// Wakes those who wait for the lock.
    Released,
}

/// The host of a token, or a foreign value, cut to 100 bytes.
///
/// Ours read `HOST:PID:RUN_ID:HEX`.
pub fn holder(value: &str) -> String {
    let parts: Vec<&str> = value.split(':').collect();
    if let [host, pid, run, random] = parts[..]
        && HostName::parse(host).is_ok()
        && !pid.is_empty()
        && pid.bytes().all(|b| b.is_ascii_digit())
        && !run.is_empty()
        && !random.is_empty()
        && random.bytes().all(|b| b.is_ascii_hexdigit())
    {
        return host.to_owned();
    }
    let end = (0..=SHOWN_MAX.min(value.len()))
        .rev()
        .find(|&at| value.is_char_boundary(at))
        .unwrap_or(0);
    value[..end].to_owned()
}

/// How the lock stands to one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is held under this token.
    Ours,
    /// This token may take it.
    Free,
    /// It is another's, or its lease end has not come.
    Other {
        by: String,
        remaining: Option<Duration>,
    },
}

impl LockState {
    /// How `token` ended, if it did.
    pub(super) fn ending(&self, token: &Token) -> Option<Ending> {
        self.finished
            .iter()
            .find(|(ended, _)| ended == token)
            .map(|(_, ending)| *ending)
    }

    /// Remembers how `token` ended, and forgets the oldest beyond [`FINISHED_KEPT`].
    pub(super) fn remember(&mut self, token: &Token, ending: Ending) {
        self.finished.retain(|(ended, _)| ended != token);
        self.finished.push((token.clone(), ending));
        let surplus = self.finished.len().saturating_sub(FINISHED_KEPT);
        self.finished.drain(..surplus);
    }

    pub(in crate::store) fn is_granted_to(&self, token: &Token) -> bool {
        self.token.as_ref() == Some(token)
    }

    pub(in crate::store) fn key_holds(&self, token: &Token) -> bool {
        matches!(&self.key, Key::Value { text, .. } if text == token.as_str())
    }

    pub(super) fn standing(&self, exclusive: bool, token: &Token, clock: Clock) -> Standing {
        if exclusive {
            match &self.key {
                Key::Value { text, .. } if text == token.as_str() => return Standing::Ours,
                Key::Value { text, end } => {
                    return Standing::Other {
                        by: holder(text),
                        remaining: end.map(|end| clock.until(end)),
                    };
                }
                Key::OtherType { end } => {
                    return Standing::Other {
                        by: OTHER_TYPE.to_owned(),
                        remaining: end.map(|end| clock.until(end)),
                    };
                }
                Key::Absent => (),
            }
        }
        match &self.token {
            Some(granted) if granted == token => {
                if exclusive {
                    Standing::Free
                } else {
                    Standing::Ours
                }
            }
            // Evicted or deleted under its holder, who may not know yet.
            Some(granted) if exclusive && self.lease_end > clock.lease => Standing::Other {
                by: holder(granted.as_str()),
                remaining: Some(clock.until(self.lease_end)),
            },
            _ => Standing::Free,
        }
    }

    /// Takes the lock for `token`, or extends it, until `end`.
    pub(super) fn take(&mut self, exclusive: bool, token: &Token, end: u64) {
        if exclusive {
            self.key = Key::Value {
                text: token.as_str().to_owned(),
                end: Some(end),
            };
        }
        self.token = Some(token.clone());
        self.lease_end = end;
    }

    pub(super) fn next_fence(&self, clock: Clock) -> u64 {
        clock.micros.max(self.fence.saturating_add(1))
    }

    /// How long the lease of `token` lasts; zero when it is over.
    pub(super) fn remaining(&self, token: &Token, clock: Clock) -> Duration {
        match &self.key {
            Key::Value { text, end } if text == token.as_str() => {
                // A key that holds the token is alive, even with its last millisecond spent.
                clock
                    .until(end.unwrap_or(self.lease_end))
                    .max(Duration::from_millis(1))
            }
            _ if self.is_granted_to(token) => clock.until(self.lease_end),
            _ => Duration::ZERO,
        }
    }
}

impl LockState {
    /// How long ago the lease of `token` ended. `None` while it lasts, and where nobody knows:
    /// another lease followed, or the machine was restarted.
    pub(super) fn over_for(&self, token: &Token, clock: Clock) -> Option<Duration> {
        let known = self.is_granted_to(token) && self.lease_end > 0;
        (known && self.lease_end <= clock.lease).then(|| clock.since(self.lease_end))
    }
}

impl JobState {
    /// A job nobody decided anything for: its occurrences count from after `last`.
    pub fn starting_after(last: Timestamp) -> Self {
        Self {
            last,
            beyond: Vec::new(),
            open: None,
            waiting: Vec::new(),
            fingerprints: Vec::new(),
            moved: None,
        }
    }

    /// The lock that the job uses instead of `lock`, if this ledger is a tombstone.
    pub fn moved_from(&self, lock: &Lock) -> Option<&LockRef> {
        let moved = self.moved.as_ref()?;
        (!moved.to.is(lock)).then_some(&moved.to)
    }

    /// Notes that an occurrence is decided, whatever lies before it. If there are too many of them,
    /// the watermark moves over the oldest.
    ///
    /// A ledger without a schedule was begun by such a result, and the next may be of an earlier
    /// occurrence: a move takes them all along.
    pub(crate) fn decide_beyond(&mut self, at: Timestamp) {
        let (last, is_begun) = (self.last, !self.fingerprints.is_empty());
        if is_begun && at <= last || self.beyond.contains(&at) {
            return;
        }
        self.beyond.retain(|known| !is_begun || *known > last);
        self.beyond.push(at);
        self.beyond.sort_unstable();
        let surplus = self.beyond.len().saturating_sub(BEYOND_KEPT);
        if let Some(newest) = self.beyond.drain(..surplus).next_back() {
            self.last = last.max(newest);
        }
    }

    /// The occurrences after `base` that are decided although the watermark lies before them.
    pub(super) fn beyond(&self, base: Timestamp) -> Vec<Timestamp> {
        let beyond = self.beyond.iter().copied();
        beyond.filter(|at| *at > base).collect()
    }

    /// Whether the data of this ledger include a run under `token` whose end is not on record.
    pub(super) fn carries(&self, token: &Token) -> bool {
        let crashed = |entry: &Waiting| entry.crashed.as_ref().is_some_and(|it| it.token == *token);
        self.open_under(token).is_some() || self.waiting.iter().any(crashed)
    }

    /// Notes that a schedule exists, whose occurrences count from `beginning`; of more than three
    /// the one first seen is forgotten. A ledger without any was made by something else than a
    /// registration, and from where it begins on nothing is decided.
    pub(super) fn note(&mut self, fingerprint: &Fingerprint, beginning: Timestamp) {
        if self
            .fingerprints
            .iter()
            .any(|(seen, _)| seen == fingerprint)
        {
            return;
        }
        let beginning = if self.fingerprints.is_empty() {
            beginning.min(self.last)
        } else {
            beginning
        };
        self.fingerprints.push((fingerprint.clone(), beginning));
        let surplus = self.fingerprints.len().saturating_sub(FINGERPRINTS_KEPT);
        self.fingerprints.drain(..surplus);
    }

    /// From where on the schedule's occurrences are undecided.
    pub(super) fn base(&self, fingerprint: &Fingerprint) -> Timestamp {
        self.fingerprints
            .iter()
            .find(|(seen, _)| seen == fingerprint)
            .map_or(self.last, |(_, first)| self.last.max(*first))
    }

    /// The first occurrence that waits.
    pub fn head(&self) -> Option<Head> {
        self.waiting.first().map(Waiting::head)
    }

    /// Puts a run that never started back into the waiting list: a repeated run to the front,
    /// others in the order of their instants.
    pub(crate) fn put_back(&mut self, entry: Waiting) {
        let before = |other: &Waiting| {
            other.kind == Kind::Rerun
                || (entry.kind != Kind::Rerun && other.scheduled_at < entry.scheduled_at)
        };
        let place = self
            .waiting
            .iter()
            .take_while(|other| before(other))
            .count();
        self.waiting.insert(place, entry);
    }

    pub(super) fn open_under(&self, token: &Token) -> Option<&Open> {
        self.open.as_ref().filter(|open| open.token == *token)
    }
}

impl Open {
    /// Whether the run is to be repeated now that its lease is over.
    pub(crate) fn may_rerun(&self) -> bool {
        let terms = &self.terms;
        self.scheduled_at.is_some()
            && terms.reruns < terms.max_reruns
            && (terms.max_attempts == 0 || self.attempt < terms.max_attempts)
    }

    pub(super) fn report(&self, lock: &LockState, clock: Clock) -> OpenRun {
        OpenRun {
            scheduled_at: self.scheduled_at,
            run_id: self.run_id.clone(),
            by: self.host.clone(),
            attempt: self.attempt,
            started_at: self.started_at,
            remaining: lock.remaining(&self.token, clock),
        }
    }
}
