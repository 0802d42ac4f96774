//! Explains occurrences without a verdict: those in the future, and past ones that no host ran.

use super::explanation::{ExplainAnswer, Explanation, begin};
use super::facts::OccurrenceFacts;
use crate::config::{CatchUp, OnOverlap, Scope, show_duration};
use crate::store::{Pause, Standing};
use crate::time::Timestamp;

/// The pause during which it is due, as far as the ledger still keeps it.
pub(super) fn pause_at(facts: &OccurrenceFacts, at: Timestamp) -> Option<&Pause> {
    let mut pauses = facts.report.pauses.iter();
    pauses.find(|pause| pause.covers(at))
}

/// The job is, or was, paused then.
fn paused(facts: &OccurrenceFacts, at: Timestamp) -> Option<Explanation> {
    let pause = pause_at(facts, at)?;
    let since = pause.since;
    let until = match pause.until {
        Some(until) => format!("until {until}"),
        None => "until somebody resumes the job".to_owned(),
    };
    let text = format!(
        "skipped, once a host claims it: paused by {} since {since}, {until}",
        pause.cause()
    );
    Some(begin(facts, at, ExplainAnswer::Paused, text))
}

/// It comes after now.
pub(super) fn future(facts: &OccurrenceFacts, at: Timestamp) -> Explanation {
    if let Some(stopped) = disabled(facts, at).or_else(|| paused(facts, at)) {
        return stopped;
    }
    let job = &facts.job;
    let mut explanation = begin(facts, at, ExplainAnswer::Future, String::new());
    let able = explanation
        .hosts
        .iter()
        .filter(|host| host.decision.can_run());
    let able: Vec<&str> = able.map(|host| host.host.as_str()).collect();
    let delay = job.delay();
    let when = if delay.is_zero() {
        format!("at {at}")
    } else {
        format!(
            "at {} ({} after its instant, by `jitter`)",
            at.plus(delay),
            show_duration(delay)
        )
    };
    explanation.text = match able.as_slice() {
        [] => return no_host(facts, at),
        [only] => format!("will run on host {only} {when}"),
        several => format!(
            "will run {when} on one of {} hosts, whichever claims it first: {}",
            several.len(),
            several.join(", ")
        ),
    };
    explanation.add_current_holder(facts);
    if explanation.held_by.is_some() {
        explanation.details.push(overlap(job.policies.on_overlap));
    }
    explanation.details.push(format!(
        "if no host can claim it before {}, `catch_up` decides",
        at.plus(delay).plus(job.policies.start_deadline)
    ));
    explanation
}

/// What happens to an occurrence that finds the lock held.
fn overlap(policy: OnOverlap) -> String {
    let text = match policy {
        OnOverlap::Skip => "if that still holds the lock then, the occurrence is skipped",
        OnOverlap::Wait => "if that still holds the lock then, the occurrence waits",
        OnOverlap::Queue { .. } => "if that still holds the lock then, the occurrence is queued",
    };
    format!("{text} (on_overlap)")
}

/// It has passed, and nothing names it.
pub(super) fn past(facts: &OccurrenceFacts, at: Timestamp) -> Explanation {
    let checks = [disabled, not_known, before_first_seen, decided, paused];
    if let Some(found) = checks.into_iter().find_map(|check| check(facts, at)) {
        return found;
    }
    let mut explanation = begin(facts, at, ExplainAnswer::Undecided, String::new());
    if !explanation.hosts.iter().any(|host| host.decision.can_run()) {
        return no_host(facts, at);
    }
    let job = &facts.job;
    let deadline = at.plus(job.delay()).plus(job.policies.start_deadline);
    explanation.text = if facts.now <= deadline {
        format!("not decided yet: hosts may claim it until {deadline} (start_deadline)")
    } else {
        format!(
            "not decided, though its start deadline was {deadline}: {}",
            catch_up(facts, at)
        )
    };
    explanation.add_current_holder(facts);
    explanation
}

fn catch_up(facts: &OccurrenceFacts, at: Timestamp) -> String {
    let job = &facts.job;
    let until = at.plus(job.policies.catch_up_window);
    match job.policies.catch_up {
        CatchUp::None => "hosts record it as missed (catch_up: none)".to_owned(),
        CatchUp::Latest | CatchUp::All if facts.now <= until => {
            format!("hosts catch it up until {until} (catch_up_window)")
        }
        CatchUp::Latest | CatchUp::All => {
            format!("its catch_up_window ended at {until}, and hosts record it as missed")
        }
    }
}

/// No daemon has registered the job in this store. Hosts register only jobs that are for them.
fn not_known(facts: &OccurrenceFacts, at: Timestamp) -> Option<Explanation> {
    if facts.report.last.is_some() {
        return None;
    }
    let globs = &facts.job.policies.hosts;
    let mut live = facts.hosts.iter().map(|report| &report.info.host);
    if !facts.hosts.is_empty() && !live.any(|host| globs.matches(host)) {
        let globs = globs.0.join(", ");
        let text = format!("nobody ran it: its `hosts` ({globs}) match no live host");
        return Some(begin(facts, at, ExplainAnswer::NoHost, text));
    }
    let of_fleet = facts.job.lock.scope == Scope::Fleet;
    let mut live = facts.hosts.iter().map(|report| &report.info);
    let has_it = live.any(|info| {
        info.config == facts.config
            && globs.matches(&info.host)
            && (of_fleet || info.host == facts.host)
    });
    let why = if has_it {
        " yet: a daemon with this list is up, but has not registered it"
    } else {
        ", because no daemon with it has reached this store"
    };
    let text = format!("nobody ran it: the store does not know the job{why}");
    Some(begin(facts, at, ExplainAnswer::BeforeFirstSeen, text))
}

/// The job did not count yet.
fn before_first_seen(facts: &OccurrenceFacts, at: Timestamp) -> Option<Explanation> {
    let entries = facts.listing.entries.iter();
    let listed = entries.filter(|(host, entry)| {
        entry.is_listed(facts.now) && (entry.lock.is_shared() || **host == facts.host)
    });
    let counts = listed
        .map(|(_, entry)| entry.counts())
        .min_by_key(|counts| counts.at);
    if let Some(counts) = counts.filter(|counts| at <= counts.at) {
        let since = counts.at;
        let text = if counts.again {
            format!("nobody ran it: the job was disabled, and was enabled again at {since}")
        } else {
            format!("nobody ran it: the store first saw the job at {since}")
        };
        return Some(begin(facts, at, ExplainAnswer::BeforeFirstSeen, text));
    }
    let seen = &facts.report.fingerprints;
    let (_, since) = seen
        .iter()
        .find(|(known, _)| *known == facts.job.fingerprint)?;
    (at <= *since).then(|| {
        let text = format!("nobody ran it: hosts have this schedule only since {since}");
        begin(facts, at, ExplainAnswer::BeforeFirstSeen, text)
    })
}

/// Neither this list nor that of any host has the job enabled.
fn disabled(facts: &OccurrenceFacts, at: Timestamp) -> Option<Explanation> {
    let entries = &facts.listing.entries;
    let withdrawn = entries
        .values()
        .all(|entry| entry.standing == Standing::Withdrawn);
    let since = entries.values().map(|entry| entry.at).max();
    let since = since.filter(|_| withdrawn && !entries.is_empty());
    let text = match (facts.job.enabled, since) {
        (false, None) if entries.is_empty() => {
            "disabled: this list has `enabled: false`".to_owned()
        }
        (false, Some(since)) if since <= at => {
            format!("disabled since {since}: the list has `enabled: false`")
        }
        (true, Some(since)) if since <= at => {
            format!("disabled since {since}: no host has it enabled in its list any more")
        }
        _ => return None,
    };
    Some(begin(facts, at, ExplainAnswer::Disabled, text))
}

/// The ledger has passed it.
fn decided(facts: &OccurrenceFacts, at: Timestamp) -> Option<Explanation> {
    if facts.report.last.is_none_or(|last| last < at) {
        return None;
    }
    let kept = match facts
        .records
        .iter()
        .filter_map(|record| record.scheduled_at)
        .min()
    {
        None => "the history is empty".to_owned(),
        Some(oldest) => format!("the oldest record is of {oldest}"),
    };
    let text = format!(
        "decided, and its record is not kept any more: the history keeps {} records of each job, \
         and {kept}",
        facts.keeps
    );
    Some(begin(facts, at, ExplainAnswer::NotRecorded, text))
}

/// No live host can run it.
fn no_host(facts: &OccurrenceFacts, at: Timestamp) -> Explanation {
    let mut explanation = begin(facts, at, ExplainAnswer::NoHost, String::new());
    explanation.text = if explanation.hosts.is_empty() {
        "no host can run it: no daemon is up".to_owned()
    } else {
        "no host can run it: of each live host the reason is below".to_owned()
    };
    explanation
}
