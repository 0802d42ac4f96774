//! The histories of several nodes as one.
//!
//! A node adds the records of every proposal that it accepts, also of one that finds no majority. The
//! next proposal then decides the same occurrences again, under a larger ballot: if the earlier one
//! had been chosen, the later proposer would have read its ledger and decided nothing. So of two
//! verdicts on one occurrence the one with the larger ballot counts.

use std::collections::HashSet;

use crate::ground::sorting::SortShort as _;
use crate::names::RunId;
use crate::store::protocol::is_provisional;
use crate::store::redis::node::{HistoryEntry, StreamId};
use crate::store::{Outcome, Record};

/// Returns all records that any node has, each once, newest first.
pub(super) fn merged_records(found: Vec<Vec<HistoryEntry>>) -> Vec<Record> {
    let all = merge_histories(found);
    all.into_iter().map(|entry| entry.record).collect()
}

/// Returns the failures of all jobs that any node has, each once, newest first, without those that a
/// later result of their runs replaced.
///
/// A success is in no list of failures, so a node that missed it still has the provisional record. Every
/// decided record was written by a majority. So if a majority of nodes lack it, although their lists reach
/// further back, at least one of them has removed it because of the result.
pub(super) fn merged_failures(mut found: Vec<Vec<HistoryEntry>>, quorum: usize) -> Vec<Record> {
    let nodes: Vec<_> = found
        .iter()
        .map(|entries| known_failures(entries))
        .collect();
    let is_replaced = |entry: &HistoryEntry| {
        let run_id = entry.record.run_id.as_ref();
        let denies = |(oldest, provisional): &&(Option<_>, HashSet<_>)| {
            oldest.is_some_and(|oldest| oldest < entry.id)
                && run_id.is_some_and(|run_id| !provisional.contains(run_id))
        };
        is_provisional(&entry.record) && nodes.iter().filter(denies).count() >= quorum
    };
    for entries in &mut found {
        entries.retain(|entry| !is_replaced(entry));
    }
    merged_records(found)
}

/// Returns the position of a node's oldest failure, and the runs of its provisional records.
fn known_failures(entries: &[HistoryEntry]) -> (Option<StreamId>, HashSet<RunId>) {
    let oldest = entries.iter().map(|entry| entry.id).min();
    let provisional = entries.iter().filter(|it| is_provisional(&it.record));
    let runs = provisional.filter_map(|it| it.record.run_id.clone());
    (oldest, runs.collect())
}

/// Returns all entries that any node has, each once, newest first. A node that was away lacks some,
/// and has ranges in pieces that another has as one.
pub(super) fn merge_histories(found: Vec<Vec<HistoryEntry>>) -> Vec<HistoryEntry> {
    let mut all: Vec<HistoryEntry> = found.into_iter().flatten().collect();
    drop_provisional(&mut all);
    drop_overtaken(&mut all);
    // From the largest range to the smallest, so that a piece finds the whole.
    all.sort_short_by_key(|it| {
        (
            std::cmp::Reverse(it.record.count.unwrap_or(1)),
            it.id.number,
        )
    });
    let mut merged: Vec<HistoryEntry> = Vec::new();
    for entry in all {
        let record = &entry.record;
        match merged.iter_mut().find(|it| covers(&it.record, record)) {
            // A record that was copied later lies where it does not belong.
            Some(whole) if whole.record.until == record.until => whole.id = whole.id.min(entry.id),
            Some(_) => {}
            None => merged.push(entry),
        }
    }
    merged.sort_short_by_key(|entry| std::cmp::Reverse(entry.id));
    merged
}

/// Returns the entries oldest first, each with a larger id than the one before, as a stream needs them.
pub(super) fn with_rising_ids(newest_first: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
    let mut before = StreamId::default();
    let mut all: Vec<HistoryEntry> = newest_first.into_iter().rev().collect();
    for entry in &mut all {
        if entry.id <= before {
            entry.id = StreamId {
                number: before.number + 1,
                ..before
            };
        }
        before = entry.id;
    }
    all
}

/// Removes the provisional records of runs whose hosts have reported a result after all.
fn drop_provisional(all: &mut Vec<HistoryEntry>) {
    let reported: HashSet<_> = all
        .iter()
        .filter(|entry| !is_provisional(&entry.record))
        .filter_map(|entry| entry.record.run_id.clone())
        .collect();
    all.retain(|HistoryEntry { record, .. }| {
        let run_id = record.run_id.as_ref();
        !is_provisional(record) || run_id.is_none_or(|run_id| !reported.contains(run_id))
    });
}

/// Removes the records of decisions that another one overtook.
fn drop_overtaken(all: &mut Vec<HistoryEntry>) {
    let started = all.iter().filter(|it| it.record.run_id.is_some());
    let started: HashSet<_> = started
        .filter_map(|it| Some((it.record.job.clone(), it.record.scheduled_at?)))
        .collect();
    all.retain(|HistoryEntry { record, .. }| {
        let is_one = record.until.is_none() && is_unstarted(record);
        let of = record.scheduled_at.map(|at| (record.job.clone(), at));
        !is_one || of.is_none_or(|of| !started.contains(&of))
    });
    let overtaken: Vec<bool> = all
        .iter()
        .map(|entry| is_overtaken(entry, all.iter()))
        .collect();
    let mut overtaken = overtaken.into_iter();
    all.retain(|_| !overtaken.next().unwrap_or(false));
}

/// Whether a later decision replaced the one that `entry` records, about occurrences that were not
/// started.
///
/// Both ends of its range must be on record elsewhere, at least one of them with another verdict under
/// a larger ballot. So if a node merged an earlier record and an overtaken one into a range, the other
/// nodes' earlier record replaces that range. A range stays if the nodes lost their data after it was
/// decided and then decided only a part of it again.
pub fn is_overtaken<'a>(
    entry: &'a HistoryEntry,
    all: impl Iterator<Item = &'a HistoryEntry> + Clone,
) -> bool {
    let record = &entry.record;
    let (Some(from), Some(ballot)) = (record.scheduled_at, entry.ballot) else {
        return false;
    };
    if !is_unstarted(record) {
        return false;
    }
    // What a host ran without the store overtakes single records alone.
    let decides = |it: &Record| is_unstarted(it) || it.fence.is_some();
    let others = all.filter(|it| it.record.job == record.job && decides(&it.record));
    let verdict = |it: &'a Record| (it.outcome, it.reason.as_ref());
    let later = others.clone().filter(|it| it.ballot > Some(ballot));
    // The same verdict again is a range that a node has put together otherwise.
    let later = later.filter(|it| verdict(&it.record) != verdict(record));
    let others = others.filter(|it| it.record != *record);
    let (mut is_later, mut is_known) = (false, true);
    for end in [from, record.until.unwrap_or(from)] {
        let has = |it: &HistoryEntry| {
            let from = it.record.scheduled_at;
            from.is_some_and(|from| from <= end && end <= it.record.until.unwrap_or(from))
        };
        is_later |= later.clone().any(has);
        is_known &= others.clone().any(has);
    }
    is_later && is_known
}

fn is_unstarted(record: &Record) -> bool {
    let transition = [Outcome::Skipped, Outcome::Missed, Outcome::Unknown];
    record.run_id.is_none() && transition.contains(&record.outcome)
}

/// Whether `record` says nothing that `known` does not say.
pub fn covers(known: &Record, record: &Record) -> bool {
    if known == record {
        return true;
    }
    if let (Some(one), Some(two)) = (&known.run_id, &record.run_id) {
        // The same verdict, recorded on different nodes at different tries.
        return one == two
            && known.scheduled_at == record.scheduled_at
            && known.outcome == record.outcome
            && known.attempts == record.attempts;
    }
    let range = |r: &Record| Some((r.scheduled_at?, r.until.or(r.scheduled_at)?));
    match (range(known), range(record)) {
        (Some((from, until)), Some((a, b))) => {
            is_unstarted(known)
                && is_unstarted(record)
                && known.outcome == record.outcome
                && known.reason == record.reason
                && from <= a
                && b <= until
        }
        _ => false,
    }
}
