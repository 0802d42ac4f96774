//! Merges the ledgers that a job had into the one that it begins with under its new lock. There are
//! several if each host had its own.

use crate::ground::sorting::SortShort as _;
use crate::store::contract::{
    Crashed, FINGERPRINTS_KEPT, Fingerprint, JobState, Kind, Ledger, Open, Pause, Waiting,
};
use crate::time::Timestamp;

/// A ledger of which no run holds a lease.
#[derive(Debug, Clone, Copy)]
struct SourceLedger<'a> {
    state: &'a JobState,
    /// When the lease of its open run ended, as [`Ledger::ended_at`] says.
    ended_at: Option<Timestamp>,
}

/// The ledgers with whose data the new one begins.
#[derive(Debug, Default)]
pub(super) struct SourceLedgers<'a> {
    /// Ledgers that count; several if each host had its own.
    live: Vec<SourceLedger<'a>>,
    /// Tombstones whose data no ledger has taken over.
    left: Vec<SourceLedger<'a>>,
    /// A ledger of the fleet that another host continues: this host only begins where it ended.
    pub(super) passed: Vec<&'a JobState>,
}

impl<'a> SourceLedgers<'a> {
    /// Adds a ledger whose data are `state`.
    pub(super) fn add(&mut self, ledger: &Ledger, state: &'a JobState, is_live: bool) {
        let source = SourceLedger {
            state,
            ended_at: ledger.ended_at,
        };
        if is_live {
            self.live.push(source);
        } else {
            self.left.push(source);
        }
    }

    /// Returns the ledgers that count. Of the tombstones these are the ones that began last: the data of
    /// the others are in them. A tombstone where there was no ledger has no data.
    fn counting(&self) -> Vec<SourceLedger<'a>> {
        let since = |source: &SourceLedger<'_>| source.state.began_with();
        let left = self.left.iter().copied();
        let left: Vec<_> = left.filter(|source| !is_blank(source.state)).collect();
        let newest = left.iter().map(since).max();
        let left = left.into_iter();
        let left = left.filter(|source| Some(since(source)) == newest);
        self.live.iter().copied().chain(left).collect()
    }
}

/// Whether a ledger has nothing but, perhaps, the name of the lock that it moved to.
fn is_blank(state: &JobState) -> bool {
    let moved = state.moved.clone();
    *state == JobState { moved, ..empty() }
}

/// Returns an empty ledger.
pub(super) fn empty() -> JobState {
    JobState::starting_after(Timestamp::EPOCH)
}

/// Returns the ledger that continues where `sources` ended, or `None` without any source.
pub(super) fn merge(
    sources: &SourceLedgers<'_>,
    now: Timestamp,
    counts_from: Timestamp,
) -> Option<JobState> {
    let counting = sources.counting();
    if counting.is_empty() {
        let mut state = empty();
        state.last = sources.passed.iter().map(|state| state.last).max()?;
        state.last = state.last.max(counts_from.min(now));
        state.fingerprints = fingerprints(&sources.passed);
        state.pauses = pauses(&sources.passed);
        decide_beyond(&mut state, &sources.passed);
        return Some(state);
    }
    let mut state = empty();
    let all = || {
        let all = sources.live.iter().chain(&sources.left);
        all.map(|source| source.state)
    };
    // A result alone, of a run without the store, begins no ledger, and neither does a manual run:
    // what lies before them is undecided.
    let begun = all().filter(|state| !state.fingerprints.is_empty());
    let watermark = begun.map(|state| state.last).max();
    state.last = watermark.or_else(|| all().map(|state| state.last).max())?;
    let states: Vec<&JobState> = counting.iter().map(|source| source.state).collect();
    state.fingerprints = fingerprints(&states);
    state.pauses = pauses(&states);
    decide_beyond(&mut state, &states);
    for source in &states {
        state.summary = state.summary.merged(source.summary.clone());
    }
    merge_runs(&mut state, &counting, now);
    Some(state)
}

/// Merges the open runs and the waiting lists of the ledgers.
fn merge_runs(state: &mut JobState, counting: &[SourceLedger<'_>], now: Timestamp) {
    let open = counting
        .iter()
        .filter_map(|source| Some((source.state.open.as_ref()?, source.ended_at)));
    let mut open: Vec<(&Open, Option<Timestamp>)> = open.collect();
    open.sort_short_by_key(|(open, _)| (open.started_at, &open.run_id));
    // One that is to be repeated waits from now on: its new lock does not know when its lease ended.
    let is_decided = |open: &Open| open.scheduled_at.is_some_and(|at| at <= state.last);
    let stays_open = open.pop_if(|(open, _)| !(open.may_rerun() && is_decided(open)));
    state.open = stays_open.map(|(open, _)| open.clone());
    let crashed = open.into_iter();
    let crashed = crashed.map(|(open, ended_at)| waiting_of(open, ended_at.unwrap_or(now)));
    let waiting = counting.iter();
    let waiting = waiting.flat_map(|it| it.state.waiting.iter().cloned());
    let mut all: Vec<Waiting> = waiting.chain(crashed).collect();
    all.sort_short_by_key(|entry| {
        (
            entry.kind != Kind::Rerun,
            entry.scheduled_at,
            entry.crashed.is_none(),
        )
    });
    // One that a host ran without the store, and reported under the lock of its own list, is decided.
    let decided_beyond: Vec<Timestamp> = counting
        .iter()
        .flat_map(|it| it.state.decided_beyond.iter().copied())
        .collect();
    all.retain(|entry| entry.kind == Kind::Rerun || !decided_beyond.contains(&entry.scheduled_at));
    let opened = state.open.as_ref().and_then(|open| open.scheduled_at);
    if let Some(at) = opened.filter(|at| decided_beyond.contains(at)) {
        state.note_decided(at);
    }
    for mut entry in all {
        let mut known = state.waiting.iter().map(|it| it.scheduled_at).chain(opened);
        if known.any(|at| at == entry.scheduled_at) {
            // Hosts that each had their own ledger owe one run of it together. A crashed run of
            // it still gets its verdict.
            if entry.crashed.is_none() {
                continue;
            }
            entry.deadline = Timestamp::EPOCH;
        }
        state.waiting.push(entry);
    }
}

/// Adds the occurrences after the watermark that any of the ledgers has decided.
fn decide_beyond(state: &mut JobState, sources: &[&JobState]) {
    for at in sources.iter().flat_map(|source| &source.decided_beyond) {
        state.decide_beyond(*at);
    }
}

/// Returns the schedules that any of the ledgers knows, each with the earliest instant at which it was
/// seen.
fn fingerprints(states: &[&JobState]) -> Vec<(Fingerprint, Timestamp)> {
    let mut all: Vec<(Fingerprint, Timestamp)> = Vec::new();
    for (fingerprint, seen) in states.iter().flat_map(|state| &state.fingerprints) {
        match all.iter_mut().find(|(known, _)| known == fingerprint) {
            Some((_, first)) => *first = (*first).min(*seen),
            None => all.push((fingerprint.clone(), *seen)),
        }
    }
    all.sort_short_by_key(|(_, seen)| *seen);
    let surplus = all.len().saturating_sub(FINGERPRINTS_KEPT);
    all.drain(..surplus);
    all
}

/// Returns the pauses of the ledger that contains the newest request: a request for a job goes to all
/// of its ledgers.
fn pauses(states: &[&JobState]) -> Vec<Pause> {
    let asked_at = |state: &&&JobState| state.pauses.last().map(|pause| pause.asked_at);
    let newest = states.iter().max_by_key(asked_at);
    newest.map_or_else(Vec::new, |state| state.pauses.clone())
}

/// A run whose lease ended at `lease_end`: it is repeated, or recorded as interrupted as soon as
/// anything is claimed.
fn waiting_of(open: &Open, lease_end: Timestamp) -> Waiting {
    let deadline = if open.may_rerun() {
        lease_end.plus(open.terms.rerun_window)
    } else {
        Timestamp::EPOCH
    };
    Waiting {
        scheduled_at: open.scheduled_at.unwrap_or(open.started_at),
        kind: Kind::Rerun,
        deadline,
        yields: false,
        attempts: open.attempt,
        reruns: open.terms.reruns + 1,
        crashed: Some(Crashed {
            run_id: open.run_id.clone(),
            token: open.token.clone(),
            kind: open.kind,
            fence: open.fence,
            started_at: open.started_at,
            host: open.host.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{RunId, Token};
    use crate::store::contract::{LockRef, Moved, RunTerms};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    fn begun(last: i64) -> JobState {
        let mut state = JobState::starting_after(at(last));
        let schedule = Fingerprint("every 3s".into());
        state.fingerprints = vec![(schedule, at(0))];
        state
    }

    fn merged(states: &[&JobState]) -> JobState {
        let mut sources = SourceLedgers::default();
        for state in states {
            sources.add(&Ledger::default(), state, true);
        }
        merge(&sources, at(30), at(30)).unwrap()
    }

    #[test]
    fn the_result_of_a_run_without_the_store_decides_nothing_that_came_due_before_it() {
        let mut result = JobState::starting_after(at(17));
        result.decide_beyond(at(18));
        result.decide_beyond(at(24));
        let state = merged(&[&begun(9), &result]);
        assert_eq!(
            (state.last, state.decided_beyond),
            (at(9), vec![at(18), at(24)])
        );
        let state = merged(&[&begun(21), &result]);
        assert_eq!((state.last, state.decided_beyond), (at(21), vec![at(24)]));
    }

    #[test]
    fn what_waits_and_has_run_without_the_store_under_another_lock_is_decided() {
        let waiting = |seconds: i64, kind: Kind| Waiting {
            scheduled_at: at(seconds),
            kind,
            deadline: at(60),
            yields: false,
            attempts: 0,
            reruns: 0,
            crashed: None,
        };
        let mut fleet = begun(24);
        fleet.waiting = vec![
            waiting(15, Kind::Rerun),
            waiting(18, Kind::Queue),
            waiting(21, Kind::Queue),
        ];
        let mut result = JobState::starting_after(at(14));
        result.decide_beyond(at(15));
        result.decide_beyond(at(18));
        let state = merged(&[&fleet, &result]);
        let left: Vec<_> = state
            .waiting
            .iter()
            .map(|it| (it.scheduled_at, it.kind))
            .collect();
        assert_eq!(left, [(at(15), Kind::Rerun), (at(21), Kind::Queue)]);
    }

    #[test]
    fn a_move_keeps_in_mind_that_the_open_run_is_decided_under_another_lock() {
        let mut fleet = begun(24);
        fleet.open = Some(Open {
            scheduled_at: Some(at(21)),
            run_id: RunId::from_text("run"),
            token: Token::from_text("host:1:run:0"),
            attempt: 1,
            kind: Kind::Schedule,
            fence: 1,
            started_at: at(21),
            host: "host".to_owned(),
            terms: RunTerms::NONE,
        });
        let mut result = JobState::starting_after(at(17));
        result.decide_beyond(at(18));
        assert_eq!(merged(&[&fleet, &result]).decided_beyond, []);
        result.decide_beyond(at(21));
        assert_eq!(merged(&[&fleet, &result]).decided_beyond, [at(21)]);
    }

    #[test]
    fn a_tombstone_without_data_hides_nothing_of_the_ledger_that_another_host_continues() {
        let fleet = begun(27);
        let blank = JobState {
            moved: Some(Moved {
                number: 1,
                since: 0,
                to: LockRef {
                    name: "job@host".to_owned(),
                    raw: false,
                },
            }),
            ..empty()
        };
        let mut sources = SourceLedgers::default();
        sources.passed.push(&fleet);
        sources.add(&Ledger::default(), &blank, false);
        let state = merge(&sources, at(30), at(2)).unwrap();
        assert_eq!(state.last, at(27));
    }

    #[test]
    fn of_ledgers_that_were_begun_the_one_that_has_come_furthest_counts() {
        assert_eq!(merged(&[&begun(9), &begun(12)]).last, at(12));
        let manual = JobState::starting_after(at(18));
        let state = merged(&[&begun(9), &manual]);
        assert_eq!((state.last, state.decided_beyond), (at(9), Vec::new()));
        assert_eq!(merged(&[&manual]).last, at(18), "no other is known");
    }
}
