//! A loss of data: how a store notices it, how long claims wait, and how holders restore their leases.
//!
//! The data name the server process that keeps them ([`Marker`]). If another process wrote them, or
//! there are none, leases, finished runs and decided occurrences may be missing. Nothing is granted
//! until every lease that may have been granted before has ended or was renewed
//! ([`Past::recovering`]). In the meantime a holder whose lease is valid by its own clock renews it, and
//! its renewal contains everything that the store needs to restore the lease ([`reassert`]). An
//! occurrence that was due before the loss and is in no ledger stays `unknown`.
//!
//! All leases of a lock have the same TTL, so a claim waits for at least its own TTL. All claims wait
//! for the longest TTL that a job list has, or had until recently ([`ListedTtls`]).

use super::effect::Effect;
use super::lock::{Ending, Key, LockState, holder};
use std::time::Duration;

use super::clock::{Clock, LEDGER_AHEAD, Past, horizon_of};
use super::history::{NoResult, REASON_UNKNOWN_END, append, of_open};
use super::listed::ListedTtls;
use crate::store::contract::{Grant, GrantedRun, JobState, Open, Outcome, RenewReply, Renewal};
use crate::time::Timestamp;

/// What the data say about the server that keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Marker {
    /// The server process. A process that was a replica in the meantime counts as another one.
    pub server: String,
    /// When it was first seen with these data.
    pub since: Timestamp,
    /// When the loss was noticed; `None` for a store that was initialised.
    pub lost_at: Option<Timestamp>,
    /// All claims wait until then, in milliseconds on [`Clock::lease`].
    pub until: u64,
    /// The longest TTLs of the job lists, and until when each matters, on [`Clock::lease`].
    pub listed: ListedTtls,
}

impl Marker {
    /// Returns the marker of an initialised store, which never granted anything before.
    pub fn new(server: &str, clock: Clock) -> Self {
        Self {
            server: server.to_owned(),
            since: clock.utc(),
            lost_at: None,
            until: 0,
            listed: ListedTtls::default(),
        }
    }

    /// Returns what follows from the marker. Only for stores whose two clocks are the same.
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

/// Compares the marker with the current server, and notes a loss.
///
/// `longest` is the longest TTL of the job list behind the request; zero without a list.
///
/// After a loss all TTLs of the marker count, including those that no longer matter: the data may be an
/// old snapshot, and such a TTL may have been used again since.
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

fn end(lost_at: Timestamp, ttl: u64) -> u64 {
    let lost_at = u64::try_from(lost_at.millis()).unwrap_or(0);
    lost_at.saturating_add(ttl)
}

/// Restores a lease that the store has lost, if the data contain no later one. Only while the store
/// recovers, because nothing was granted since the loss.
///
/// If the data and a holder name two leases of one lock, the one with the larger fence is the later one,
/// and the other one had ended before.
pub fn reassert(
    lock: &mut LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    renewal: &Renewal,
) -> (bool, Vec<Effect>) {
    let Renewal { grant, run } = renewal;
    let token = &grant.token;
    let earlier = |lock: &LockState| lock.fence < grant.fence;
    // A holder without a fence never got a reply to its claim.
    if grant.fence == 0 {
        return (false, Vec::new());
    }
    let free = match &lock.key {
        _ if !grant.lock.exclusive => true,
        Key::Absent => true,
        // Renewed just before on nodes that had lost it.
        Key::Value { text, .. } if text == token.as_str() => true,
        // The data are older than this lease.
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
        // It ended after these data were written.
        let why = NoResult::new(Outcome::Unknown, REASON_UNKNOWN_END);
        record = Some(append(of_open(&run.job, open, why, clock), None));
        let ended = open.token.clone();
        if lock.ending(&ended).is_none() {
            lock.remember(&ended, Ending::Interrupted);
        }
    }
    state.last = state.last.max(scheduled_at.unwrap_or(state.last));
    // In old data it may still wait.
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

/// Whether the store lost this lock and has granted nothing under it since. Then the token that
/// finishes now held the lock to the end.
pub(super) fn is_forgotten(lock: &LockState, clock: Clock) -> bool {
    lock.key == Key::Absent && lock.fence == 0 && clock.past.horizon.is_some()
}

/// Returns the reply to a renewal that does not match the data.
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
