//! What is on record: all that any node took, each verdict once, as `history` shows it.

use cronlatch::store::protocol::is_provisional;
use cronlatch::store::quorum::{
    AcceptStatus, HistoryEntry, Proposal, ProposedLease, StreamId, covers, is_overtaken,
};
use cronlatch::store::{Outcome, Record};

use crate::store::shown;
use crate::trace::{Added, Held, Told};
use crate::world::{Item, Sim};

/// A node took a proposal, and its records.
pub(super) fn note(sim: &mut Sim, proposal: &Proposal, said: AcceptStatus) {
    if matches!(said, AcceptStatus::Preempted | AcceptStatus::Held) {
        return;
    }
    for record in proposal.records.iter().map(|it| &it.record) {
        let entry = HistoryEntry {
            id: StreamId::default(),
            ballot: Some(proposal.ballot.number),
            record: record.clone(),
        };
        add(sim, &proposal.target.lock.name, &entry);
        sim.trace.told.extend(record.run_id.as_ref().map(|id| Told {
            at: sim.now,
            lock: proposal.target.lock.name.clone(),
            run_id: id.to_string(),
            ballot: proposal.ballot.number,
        }));
    }
    if let (ProposedLease::Take(_), Some(token)) = (proposal.lease, &proposal.lock.token) {
        let (lock, token) = (proposal.target.lock.name.clone(), token.as_str().to_owned());
        sim.trace.reached.push((sim.now, lock, token));
    }
}

fn add(sim: &mut Sim, lock: &str, entry: &HistoryEntry) {
    let record = &entry.record;
    // Each host has its own ledger of a job that takes no lock of the fleet's.
    let is_there =
        |added: &Added| !added.lost && added.lock == lock && added.record.job == record.job;
    let counts = |added: &Added| !added.replaced || added.record.run_id.is_some();
    let same = |it: &Added| is_there(it) && counts(it) && covers(&it.record, record);
    if let Some(known) = sim.trace.added.iter_mut().find(|it| same(it)) {
        known.ballot = known.ballot.max(entry.ballot);
        return;
    }
    let of_run = |known: &Record| known.run_id.is_some() && known.run_id == record.run_id;
    if is_provisional(record) {
        let reported = |added: &Added| !added.lost && of_run(&added.record);
        if sim.trace.added.iter().any(reported) {
            return;
        }
    }
    let is_unstarted = |record: &Record| {
        let outcomes = [Outcome::Skipped, Outcome::Missed, Outcome::Unknown];
        record.run_id.is_none() && record.until.is_none() && outcomes.contains(&record.outcome)
    };
    let of_occurrence =
        |added: &Added| is_there(added) && added.record.scheduled_at == record.scheduled_at;
    let started = |added: &Added| added.record.run_id.is_some() && of_occurrence(added);
    if is_unstarted(record) && sim.trace.added.iter().any(started) {
        return;
    }
    // The host of an interrupted run has reported its result after all; or what was said not to have
    // been started was, by a decision that overtook that one.
    for added in &mut sim.trace.added {
        let overtaken = record.run_id.is_some() && is_unstarted(&added.record);
        added.replaced |= of_run(&added.record) && is_provisional(&added.record)
            || overtaken && of_occurrence(added)
            || is_there(added) && covers(record, &added.record);
    }
    let text = shown(record);
    sim.trace.line(sim.now, || format!("RECORD {text}"));
    sim.trace.added.push(Added {
        at: sim.now,
        lock: lock.to_owned(),
        record: record.clone(),
        ballot: entry.ballot,
        lost: false,
        replaced: false,
    });
    drop_overtaken(sim, is_there);
}

/// Of two decisions about one occurrence the later one counts.
fn drop_overtaken(sim: &mut Sim, is_there: impl Fn(&Added) -> bool) {
    let all: Vec<(usize, HistoryEntry)> = (sim.trace.added.iter().enumerate())
        .filter(|(_, added)| is_there(added) && !added.replaced)
        .map(|(at, added)| {
            let entry = HistoryEntry {
                id: StreamId::default(),
                ballot: added.ballot,
                record: added.record.clone(),
            };
            (at, entry)
        })
        .collect();
    for (at, entry) in &all {
        if is_overtaken(entry, all.iter().map(|(_, entry)| entry)) {
            sim.trace.added[*at].replaced = true;
        }
    }
}

/// A majority took a proposal: who holds the lock now, and who is woken.
pub(super) fn decided(sim: &mut Sim, proposal: &Proposal) {
    let lock = proposal.target.lock.name.clone();
    let token = proposal.lock.token.as_ref();
    if let (Some(name), Some(job)) = (&proposal.target.job, &proposal.job) {
        sim.trace.note_waiting(sim.now, name, &job.state.waiting);
    }
    let until = match proposal.lease {
        ProposedLease::Take(ttl) => Some(sim.now + i64::try_from(ttl.as_millis()).unwrap_or(0)),
        // The lease that is written here is its holder's, brought back after a loss.
        ProposedLease::Stay(left)
            if token.is_some() && !left.is_zero() && left == proposal.target.ttl =>
        {
            Some(sim.now + i64::try_from(left.as_millis()).unwrap_or(0))
        }
        // It ends when it would have ended.
        ProposedLease::Stay(_) | ProposedLease::Over(_) => token.is_none().then_some(sim.now),
    };
    if let Some(until) = until {
        sim.trace.held.push(Held {
            at: sim.now,
            lock: lock.clone(),
            token: token.map(|it| it.as_str().to_owned()),
            until,
            exclusive: proposal.target.lock.exclusive,
        });
    }
    if proposal.released {
        for host in 0..sim.plan.hosts.len() {
            let lock = lock.clone();
            let at = sim.now + sim.dice.range(1, 4);
            sim.at(at, Item::Released { host, lock });
        }
    }
}

/// All nodes lost their data, or what they wrote since they were saved.
pub(super) fn lost(sim: &mut Sim, kept: usize) {
    for added in sim.trace.added.iter_mut().skip(kept) {
        added.lost = true;
    }
}
