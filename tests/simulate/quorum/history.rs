//! What is on record: all that any node took, each verdict once, as `history` shows it.

use cronlatch::store::majority::{Lease, Proposal, Taken};
use cronlatch::store::protocol::is_provisional;
use cronlatch::store::{Outcome, Record};

use crate::store::shown;
use crate::trace::{Added, Held};
use crate::world::{Item, Sim};

/// A node took a proposal, and its records.
pub(super) fn note(sim: &mut Sim, proposal: &Proposal, said: Taken) {
    if matches!(said, Taken::Outbid | Taken::Held) {
        return;
    }
    for (record, _) in &proposal.records {
        add(sim, &proposal.place.lock.name, record);
    }
    if let (Lease::Take(_), Some(token)) = (proposal.lease, &proposal.lock.token) {
        let (lock, token) = (proposal.place.lock.name.clone(), token.as_str().to_owned());
        sim.trace.reached.push((sim.now, lock, token));
    }
}

fn add(sim: &mut Sim, lock: &str, record: &Record) {
    // Each host has its own ledger of a job that takes no lock of the fleet's.
    let on_record =
        |added: &Added| !added.lost && added.lock == lock && covers(&added.record, record);
    if sim.trace.added.iter().any(on_record) {
        return;
    }
    let of_run = |known: &Record| known.run_id.is_some() && known.run_id == record.run_id;
    if is_provisional(record) {
        let reported = |added: &Added| !added.lost && of_run(&added.record);
        if sim.trace.added.iter().any(reported) {
            return;
        }
    }
    let of_occurrence = |added: &Added| {
        let at = |record: &Record| (record.job.clone(), record.scheduled_at);
        !added.lost && added.lock == lock && at(&added.record) == at(record)
    };
    let is_overtaken = |record: &Record| {
        let outcomes = [Outcome::Skipped, Outcome::Missed, Outcome::Unknown];
        record.run_id.is_none() && record.until.is_none() && outcomes.contains(&record.outcome)
    };
    let started = |added: &Added| added.record.run_id.is_some() && of_occurrence(added);
    if is_overtaken(record) && sim.trace.added.iter().any(started) {
        return;
    }
    // The host of an interrupted run has reported its result after all; or what was said not to have
    // been started was, by a decision that overtook that one.
    for added in &mut sim.trace.added {
        let overtaken = record.run_id.is_some() && is_overtaken(&added.record);
        added.replaced |= of_run(&added.record) && is_provisional(&added.record)
            || overtaken && of_occurrence(added);
    }
    let text = shown(record);
    sim.trace.line(sim.now, || format!("RECORD {text}"));
    sim.trace.added.push(Added {
        at: sim.now,
        lock: lock.to_owned(),
        record: record.clone(),
        lost: false,
        replaced: false,
    });
}

/// Whether `record` says nothing that `known` does not say.
fn covers(known: &Record, record: &Record) -> bool {
    if known.job != record.job || known.outcome != record.outcome {
        return false;
    }
    if known.run_id.is_some() || record.run_id.is_some() {
        return known.run_id == record.run_id && known.attempts == record.attempts;
    }
    let range = |it: &Record| Some((it.scheduled_at?, it.until.or(it.scheduled_at)?));
    match (range(known), range(record)) {
        (Some((from, until)), Some((a, b))) => {
            known.reason == record.reason && from <= a && b <= until
        }
        _ => false,
    }
}

/// A majority took a proposal: who holds the lock now, and who is woken.
pub(super) fn decided(sim: &mut Sim, proposal: &Proposal) {
    let lock = proposal.place.lock.name.clone();
    let token = proposal.lock.token.as_ref();
    let until = match proposal.lease {
        Lease::Take(ttl) => Some(sim.now + i64::try_from(ttl.as_millis()).unwrap_or(0)),
        // The lease that is written here is its holder's, brought back after a loss.
        Lease::Stay(left) if token.is_some() && !left.is_zero() && left == proposal.place.ttl => {
            Some(sim.now + i64::try_from(left.as_millis()).unwrap_or(0))
        }
        // It ends when it would have ended.
        Lease::Stay(_) | Lease::Over(_) => token.is_none().then_some(sim.now),
    };
    if let Some(until) = until {
        sim.trace.held.push(Held {
            at: sim.now,
            lock: lock.clone(),
            token: token.map(|it| it.as_str().to_owned()),
            until,
            exclusive: proposal.place.lock.exclusive,
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
