//! After a loss of data: how a store notices it, how long claims wait, and how holders take their
//! leases back.
//!
//! The data say which server process keeps them ([`Marker`]). Data that another process wrote, or
//! none at all, may be older than what that process had answered: leases, finished runs and
//! decided occurrences may be missing. Until every lease that may have been granted before is over
//! or renewed, nothing is granted ([`Past::recovering`]); a holder whose lease is valid by its own
//! clock renews it meanwhile, and its renewal brings all that the store needs to take it back
//! ([`reassert`]). What was due before the loss and stands in no ledger is `unknown` for ever.
//!
//! Leases of one lock have one TTL, so a claim waits for its own TTL at least, and all claims wait
//! for the longest that a job list has or had until lately ([`ListedTtls`]).

use std::time::Duration;

use super::claim::LEDGER_AHEAD;
use super::history::{REASON_UNKNOWN_END, append, of_open};
use super::listed::ListedTtls;
use super::state::{Clock, Effect, Ending, JobState, Key, LockState, Open, holder};
use crate::store::{Grant, GrantedRun, Outcome, RenewReply, Renewal};
use crate::time::Timestamp;

/// How far the clock of a server may be behind that of the one it replaces.
///
/// An occurrence that was due by the old server's clock may have been granted by it and forgotten
/// with the rest, though by the new one's it comes due only after the loss was noticed. Servers
/// that tell the time by NTP or PTP differ by milliseconds, and a leap second is one second.
pub const SUCCESSOR_SKEW: Duration = Duration::from_secs(1);

/// For so long after a loss a job that the store does not know counts as forgotten, not as new.
pub const AFTERMATH: Duration = Duration::from_secs(3600);

/// What the data say of the server that keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Marker {
    /// The server process; one that was a replica meanwhile is another.
    pub server: String,
    /// When it was first seen with these data.
    pub since: Timestamp,
    /// When the loss was noticed; `None` for a store that was declared new.
    pub lost_at: Option<Timestamp>,
    /// Until then all claims wait, in milliseconds on [`Clock::lease`].
    pub until: u64,
    /// The longest TTLs of the job lists, and until when each matters, on [`Clock::lease`].
    pub listed: ListedTtls,
}

/// What a store knows of its own past; the default is that of one that cannot lose its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Past {
    /// Up to here the ledger may be wrong about what it does not know: when a loss was noticed,
    /// and [`SUCCESSOR_SKEW`] more.
    pub horizon: Option<Timestamp>,
    /// When the loss was noticed, on [`Clock::lease`].
    pub since: u64,
    /// Until then all claims wait, on [`Clock::lease`].
    pub until: u64,
    /// For so long after the loss the claim at hand waits at least
    /// ([`least_wait`](super::least_wait)).
    pub least: Duration,
}

impl Marker {
    /// The marker of a store that was declared new: nothing was ever granted before.
    pub fn new(server: &str, clock: Clock) -> Self {
        Self {
            server: server.to_owned(),
            since: clock.utc(),
            lost_at: None,
            until: 0,
            listed: ListedTtls::default(),
        }
    }

    /// What follows from it. Only for stores whose two clocks are one.
    pub fn past(&self) -> Past {
        Past {
            horizon: self.lost_at.map(horizon_of),
            since: self
                .lost_at
                .map_or(0, |at| u64::try_from(at.millis()).unwrap_or(0)),
            until: self.until,
            least: Duration::ZERO,
        }
    }
}

/// Compares the marker with the server that answers, and writes down a loss.
///
/// `longest` is the longest TTL of the job list behind the request; zero when there is none.
///
/// At a loss all TTLs of the marker count, also those that have stopped to matter by now: the data
/// may be a snapshot from long ago, and be used again since.
pub fn notice(marker: &mut Option<Marker>, server: &str, clock: Clock, longest: Duration) -> Past {
    let now = clock.utc();
    let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    let is_wrong = |at: &Timestamp| *at > now.plus(LEDGER_AHEAD);
    let mut kept = match marker.take() {
        Some(kept) if kept.lost_at.as_ref().is_some_and(is_wrong) => {
            let waits = kept
                .until
                .saturating_sub(end(kept.lost_at.unwrap_or(now), 0));
            Marker {
                server: server.to_owned(),
                lost_at: Some(now),
                until: end(now, waits.max(longest).max(kept.listed.longest())),
                ..kept
            }
        }
        Some(kept) if kept.server == server => {
            let until = match kept.lost_at {
                Some(lost_at) if kept.until > clock.lease => kept.until.max(end(lost_at, longest)),
                _ => kept.until,
            };
            Marker { until, ..kept }
        }
        kept => {
            let (listed, until) = kept.map_or_else(Default::default, |it| (it.listed, it.until));
            Marker {
                server: server.to_owned(),
                since: now,
                lost_at: Some(now),
                until: until.max(end(now, longest.max(listed.longest()))),
                listed,
            }
        }
    };
    kept.listed.note(clock.lease, longest);
    marker.insert(kept).past()
}

/// Up to when what came due may have been granted before a loss that was noticed then.
pub fn horizon_of(lost_at: Timestamp) -> Timestamp {
    lost_at.plus(SUCCESSOR_SKEW)
}

fn end(lost_at: Timestamp, ttl: u64) -> u64 {
    let lost_at = u64::try_from(lost_at.millis()).unwrap_or(0);
    lost_at.saturating_add(ttl)
}

impl Past {
    /// How long a claim under a TTL waits yet, if it does. Never less than [`SUCCESSOR_SKEW`], so
    /// that fences, which follow the clock, have passed those of a server that was ahead.
    pub fn recovering(&self, clock: Clock, ttl: Duration) -> Option<Duration> {
        self.horizon?;
        let least = ttl.max(self.least).max(SUCCESSOR_SKEW);
        let own = self
            .since
            .saturating_add(u64::try_from(least.as_millis()).unwrap_or(u64::MAX));
        let left = clock.until(self.until.max(own));
        (!left.is_zero()).then_some(left)
    }

    /// Whether the ledger can know what became of an occurrence that it has not decided.
    pub fn is_unknowable(&self, scheduled_at: Timestamp) -> bool {
        self.horizon.is_some_and(|horizon| scheduled_at <= horizon)
    }

    /// From where on the occurrences of a job count that the store does not know: from now, or
    /// from the loss that made the store forget it.
    pub(super) fn beginning(&self, clock: Clock) -> Timestamp {
        self.forgot(clock).unwrap_or(clock.utc())
    }

    /// When the loss was noticed, however long ago.
    pub(super) fn lost_at(&self) -> Option<Timestamp> {
        self.horizon.map(|horizon| horizon.minus(SUCCESSOR_SKEW))
    }

    /// The loss, while it is fresh.
    pub(super) fn forgot(&self, clock: Clock) -> Option<Timestamp> {
        self.lost_at()
            .filter(|lost_at| clock.utc().since(*lost_at) < AFTERMATH)
    }
}

/// Takes back a lease that the store has forgotten, if no later one is known. Only while the
/// store recovers: nothing was granted since the loss.
///
/// Of two leases of one lock that the data and a holder tell of, the one with the larger fence is
/// the later, and the other had ended before.
pub fn reassert(
    lock: &mut LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    renewal: &Renewal,
) -> (bool, Vec<Effect>) {
    let Renewal { grant, run } = renewal;
    let token = &grant.token;
    let earlier = |lock: &LockState| lock.fence < grant.fence;
    // Without a fence its holder knows nothing of it.
    if grant.fence == 0 {
        return (false, Vec::new());
    }
    let free = match &lock.key {
        _ if !grant.lock.exclusive => true,
        Key::Absent => true,
        // Renewed a moment ago on nodes that had forgotten it.
        Key::Value { text, .. } if text == token.as_str() => true,
        // The data are from before ours was granted.
        Key::Value { text, .. } => {
            lock.token.as_ref().is_some_and(|t| t.as_str() == text) && earlier(lock)
        }
        Key::OtherType { .. } => false,
    };
    let ours = lock.is_granted_to(token) || earlier(lock) || lock.token.is_none();
    if !free || !ours || lock.fence > grant.fence || lock.ending(token).is_some() {
        return (false, Vec::new());
    }
    lock.fence = grant.fence;
    lock.run_id = Some(grant.run_id.clone());
    let mut effects = Vec::new();
    if let Some(run) = run {
        effects.extend(reopen(lock, job, clock, (grant, run)));
    }
    lock.take(grant.lock.exclusive, token, clock.after(grant.ttl));
    (true, effects)
}

/// Writes the run into the ledger again.
fn reopen(
    lock: &mut LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    (grant, run): (&Grant, &GrantedRun),
) -> Option<Effect> {
    let beginning = clock.past.beginning(clock);
    let scheduled_at = run.scheduled_at;
    let state =
        job.get_or_insert_with(|| JobState::starting_after(scheduled_at.unwrap_or(beginning)));
    let mut record = None;
    if let Some(open) = &state.open {
        if open.token == grant.token || open.fence >= grant.fence {
            return None;
        }
        // Its end was written down after what the data know.
        let why = (Outcome::Unknown, REASON_UNKNOWN_END);
        record = Some(append(of_open(&run.job, open, why, clock), None));
        let ended = open.token.clone();
        if lock.ending(&ended).is_none() {
            lock.remember(&ended, Ending::Interrupted);
        }
    }
    state.last = state.last.max(scheduled_at.unwrap_or(state.last));
    // Old data may still have it waiting.
    state
        .waiting
        .retain(|entry| Some(entry.scheduled_at) != scheduled_at);
    state.open = Some(Open {
        scheduled_at,
        run_id: grant.run_id.clone(),
        token: grant.token.clone(),
        attempt: run.attempt,
        kind: run.kind,
        fence: grant.fence,
        started_at: run.started_at,
        host: holder(grant.token.as_str()),
        terms: run.terms,
    });
    record
}

/// Whether a loss made the store forget this lock, and nothing was granted under it since: who
/// finishes now had it to the end.
pub(super) fn is_forgotten(lock: &LockState, clock: Clock) -> bool {
    lock.key == Key::Absent && lock.fence == 0 && clock.past.horizon.is_some()
}

/// The answer to a renewal that was refused by what the data say.
pub(super) fn renew_forgotten(
    lock: &mut LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    renewal: &Renewal,
    refused: RenewReply,
) -> (RenewReply, Vec<Effect>) {
    if clock.past.recovering(clock, renewal.grant.ttl).is_none() {
        return (refused, Vec::new());
    }
    let (taken_back, effects) = reassert(lock, job, clock, renewal);
    if taken_back {
        (RenewReply::Renewed, effects)
    } else {
        (refused, effects)
    }
}
