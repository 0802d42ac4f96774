//! The judge: from what truly happened and what the history says to broken promises.
//!
//! Every rule states what the documents promise, never what the code happens to do. What is
//! forgiven is an excuse (`excuse`): a named rule of its own, with a test.

mod excuse;
mod facts;
mod pauses;
mod policies;
mod radius;
mod reruns;
mod runs;
mod verdicts;

#[cfg(test)]
mod tests;

use std::fmt;

use crate::plan::Plan;
use crate::trace::Trace;
pub(crate) use facts::Facts;

/// A promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// G1: two runs under one lock at once.
    Exclusion,
    /// G2: an occurrence started more often than allowed.
    Once,
    /// G2: a run began before its instant.
    Early,
    /// G3: missed though a host and the store were up.
    Missed,
    /// G4: a dead holder held its lock for longer than one TTL.
    Progress,
    /// G5: a lease was changed that is another's.
    OwnLock,
    /// G6: a fencing token did not rise.
    Fencing,
    /// G7: no verdict within ten seconds of the last deadline.
    Silence,
    /// G7: two verdicts.
    TwoVerdicts,
    /// G7: the history tells what did not happen.
    Untrue,
    /// A verdict before its occurrence was due.
    Foretold,
    /// The occurrence does not count: the job was not enabled, or not on this schedule.
    DoesNotCount,
    /// Attempts that are miscounted, or more of them than allowed.
    Attempts,
    /// A newer occurrence before an older one.
    Order,
    /// `on_crash: rerun` and no rerun.
    NoRerun,
    /// A rerun that starts after its window, or none, and a record that does not say so.
    RerunWindow,
    /// `catch_up` runs what it should not, or does not run what it should.
    CatchUp,
    /// A skip or a miss for a reason that does not hold.
    Reason,
    /// More runs on a host than `max_running`.
    MaxRunning,
    /// A paused job started.
    Paused,
    /// A job without a lock was refused as if it took one.
    TakesNoLock,
    /// G8: what befalls one job or host holds up another.
    Radius,
    /// A host or the store repeats something for ever.
    Endless,
}

/// A promise that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    /// When, by the true clock.
    pub(crate) at: i64,
    pub(crate) job: String,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rule, job, text, ..
        } = self;
        write!(f, "{rule:?} of {job}: {text}")
    }
}

const ALL: [fn(&Facts<'_>) -> Vec<Violation>; 23] = [
    runs::exclusion,
    runs::once,
    runs::early,
    runs::fencing,
    runs::attempts,
    runs::order,
    runs::max_running,
    runs::progress,
    runs::own_lock,
    verdicts::silence,
    verdicts::two_verdicts,
    verdicts::ran_and_did_not,
    verdicts::untrue,
    verdicts::foretold,
    verdicts::does_not_count,
    verdicts::missed,
    policies::reasons,
    reruns::lost_runs_are_repeated,
    reruns::in_their_window,
    policies::catch_up,
    policies::takes_no_lock,
    pauses::no_run_is_granted,
    radius::held_up,
];

/// Returns all broken promises, the first first.
pub(crate) fn judge(plan: &Plan, trace: &Trace) -> Vec<Violation> {
    if let Some(at) = trace.endless {
        // Of what comes after it nothing can be said.
        return vec![Violation {
            rule: Rule::Endless,
            at,
            job: "all".to_owned(),
            text: format!("nothing ends after T+{}", at - plan.start),
        }];
    }
    let facts = Facts::of(plan, trace);
    let mut found: Vec<Violation> = ALL.iter().flat_map(|rule| rule(&facts)).collect();
    found.sort_by_key(|violation| (violation.at, violation.rule));
    found
}
