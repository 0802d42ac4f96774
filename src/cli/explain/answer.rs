//! What the facts mean for one instant.

use super::explanation::Explanation;
use super::facts::OccurrenceFacts;
use super::known::{of_open_run, of_record, of_schedule, of_waiting};
use super::undecided::{future, past};
use crate::config::Scope;
use crate::time::Timestamp;

/// Explains an instant of a job.
pub(super) fn explain(facts: &OccurrenceFacts, at: Timestamp) -> Explanation {
    let found = [of_record, of_open_run, of_waiting, of_schedule]
        .into_iter()
        .find_map(|look| look(facts, at));
    let mut explanation = found.unwrap_or_else(|| {
        if at > facts.now {
            future(facts, at)
        } else {
            past(facts, at)
        }
    });
    if facts.job.lock.scope != Scope::Fleet {
        explanation.details.push(format!(
            "with this `lock.scope` each host has occurrences of its own: this is about host {} \
             (--host names another one)",
            facts.host
        ));
    }
    if let Some(nothing) = &facts.grants_nothing {
        explanation
            .details
            .push(format!("nothing is claimed now: {}", nothing.why));
    }
    explanation
}
