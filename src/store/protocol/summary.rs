//! What a record changes in the summary of its job.

use super::clock::{Clock, LEAD};
use super::effect::Effect;
use super::history::{is_provisional, is_replaced_by, merge};
use crate::store::contract::{
    FAILURES_NOTED, JobState, Outcome, RECENT_KEPT, RecentOutcome, Record, Retention, Summary,
};
use crate::time::Timestamp;

/// Notes the records among these effects in the ledger, if there is one. The store that executes an
/// operation calls this with its effects.
pub fn summarize(job: &mut Option<JobState>, effects: &[Effect], clock: Clock) {
    let Some(state) = job else {
        return;
    };
    for effect in effects {
        if let Effect::Append {
            record,
            follows,
            replaces,
            ..
        } = effect
        {
            if *replaces {
                withdraw(&mut state.summary, record);
            }
            note(&mut state.summary, record, *follows, clock.utc());
        }
    }
}

/// Removes the provisional outcome of a run whose host has reported the result.
fn withdraw(summary: &mut Summary, record: &Record) {
    let Some(run_id) = &record.run_id else {
        return;
    };
    let of_run = |known: &Record| is_replaced_by(known, record);
    let recent = &mut summary.recent;
    recent.retain(|known| known.provisional.as_ref() != Some(run_id));
    summary.failures.retain(|known| !of_run(known));
    if summary.newest.as_ref().is_some_and(of_run) {
        summary.newest = None;
    }
}

fn note(summary: &mut Summary, record: &Record, follows: Option<Timestamp>, now: Timestamp) {
    let record = Record {
        output_tail: None,
        usage: None,
        ..record.clone()
    };
    if !record.is_correction() {
        let recent = RecentOutcome {
            outcome: record.outcome,
            provisional: record.run_id.clone().filter(|_| is_provisional(&record)),
        };
        let count = usize::try_from(record.count.unwrap_or(1)).unwrap_or(RECENT_KEPT);
        let times = std::iter::repeat_n(recent, count.min(RECENT_KEPT));
        summary.recent.extend(times);
        let surplus = summary.recent.len().saturating_sub(RECENT_KEPT);
        summary.recent.drain(..surplus);
    }
    if record.outcome == Outcome::Succeeded {
        if is_later(summary.last_success.as_ref(), &record, now) {
            summary.last_success = Some(record.clone());
        }
    } else if record.outcome.is_failure() && is_later(summary.last_failure(), &record, now) {
        summary.failures.insert(0, record.clone());
        let of_record = summary.failures.iter();
        let provisional = of_record.take_while(|it| is_provisional(it)).count();
        summary
            .failures
            .truncate(FAILURES_NOTED.min(provisional + 1));
    }
    let both = (summary.newest.as_ref()).and_then(|newest| merge(newest, &record, follows));
    summary.newest = Some(both.unwrap_or(record));
}

/// Whether a record is later than the one that is kept: a result may be delivered long after its run. A
/// kept one from the store's future was written under a clock that was wrong.
fn is_later(known: Option<&Record>, record: &Record, now: Timestamp) -> bool {
    let Some(known) = known.and_then(|known| known.finished_at) else {
        return true;
    };
    known > now.plus(LEAD) || record.finished_at.is_some_and(|at| at >= known)
}

/// Removes what a history (oldest first) no longer keeps. Age is left to the stores, which know when
/// each record was written.
pub fn trim(history: &mut Vec<Record>, keep: Retention) {
    let (mut records, mut failures) = (0, 0);
    let mut kept: Vec<bool> = Vec::with_capacity(history.len());
    for record in history.iter().rev() {
        records += 1;
        failures += u32::from(record.outcome.is_failure());
        let is_kept_failure = record.outcome.is_failure() && failures <= keep.failures;
        kept.push(records <= keep.records || is_kept_failure);
    }
    history.retain(|_| kept.pop().unwrap_or(true));
}
