//! `register` and `jobs`: registers jobs, and reads what the store knows about them. Registering a
//! known job changes nothing.

use super::clock::Clock;
use super::lock::{Key, LockState, OTHER_TYPE, holder};
use crate::names::JobName;
use crate::store::contract::{JobReport, JobState, LockHolder, Registered, Registration, Waiting};

/// Creates the ledger of a new job, which starts now, or at a recent loss of data, and adds a new
/// schedule.
pub fn register(
    lock: &LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    registration: &Registration,
) -> Registered {
    let now = clock.utc();
    let recovering = clock.past.recovering(clock, registration.ttl);
    // After a loss, a job that is unknown may be new or lost. Another host may still hold occurrences
    // of a lost job from the recovery period, so the ledger must not advance past them.
    let beginning = clock.past.beginning(clock);
    if job.is_none() && recovering.is_some() {
        return Registered {
            decided_until: beginning,
            now,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
            open: None,
            head: None,
            recovering: recovering.unwrap_or_default(),
            moved: false,
        };
    }
    let state = job.get_or_insert_with(|| JobState::starting_after(beginning));
    let moved = state.moved_from(&registration.lock).is_some();
    if !moved {
        state.note(&registration.fingerprint, beginning);
    }
    let open = state.open.as_ref().filter(|_| !moved);
    let base = state.base(&registration.fingerprint);
    Registered {
        decided_until: base,
        decided_beyond: state.decided_beyond(base),
        pauses: state.pauses.clone(),
        now,
        open: open.map(|open| open.report(lock, clock)),
        head: state.head().filter(|_| !moved),
        recovering: recovering.unwrap_or_default(),
        moved,
    }
}

/// Returns what the store knows about a job and its lock.
pub fn report(
    name: &JobName,
    lock: &LockState,
    exclusive: bool,
    job: Option<&JobState>,
    clock: Clock,
) -> JobReport {
    let token = lock.token.as_ref();
    let shown = |value: &str, end: Option<u64>| LockHolder {
        value: value.to_owned(),
        by: holder(value),
        remaining: end.map(|end| clock.until(end)),
    };
    let holder = match &lock.key {
        Key::Value { text, end } if exclusive => Some(shown(text, *end)),
        Key::OtherType { end } if exclusive => Some(shown(OTHER_TYPE, *end)),
        // Not exclusive, or the key is gone before its end: the state names the holder.
        _ => token
            .filter(|_| lock.lease_end > clock.lease)
            .map(|token| shown(token.as_str(), Some(lock.lease_end))),
    };
    JobReport {
        job: name.clone(),
        last: job.map(|job| job.last),
        open: job
            .and_then(|job| job.open.as_ref())
            .map(|open| open.report(lock, clock)),
        waiting: job
            .map(|job| job.waiting.iter().map(Waiting::head).collect())
            .unwrap_or_default(),
        pauses: job.map(|job| job.pauses.clone()).unwrap_or_default(),
        // Only Redis has replicas to wait for.
        unacknowledged: None,
        holder,
        fence: lock.fence,
        fingerprints: job.map(|job| job.fingerprints.clone()).unwrap_or_default(),
        summary: job.map(|job| job.summary.clone()).unwrap_or_default(),
    }
}
