//! The checker: from what jobs wrote and what the history says to the first broken guarantee.
//!
//! It knows nothing of daemons and stores. A [`Story`] may come from a campaign or be forged, and
//! [`Story::first_violation`] decides G1, G2, G3, G6 and G7 on it. G4 is part of G3 here: a dead
//! holder that blocked its lock for longer than a TTL would make occurrences of quiet times late
//! or missed. G5 shows as a lease taken from a living run, which is a break of G1.

mod rules;

#[cfg(test)]
mod forged;

use std::fmt;

use cronlatch::store::Record;

use crate::support::runlog::Entry;

/// A stretch of time, both ends included, in milliseconds since the epoch by the true clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

impl Span {
    pub(crate) fn holds(self, at: i64) -> bool {
        self.from <= at && at <= self.until
    }
}

/// What the checker must know of a job.
#[derive(Debug, Clone)]
pub(crate) struct JobRule {
    pub(crate) name: &'static str,
    /// Jobs with equal locks exclude one another.
    pub(crate) lock: &'static str,
    /// Milliseconds between its occurrences, which lie on multiples of it.
    pub(crate) interval: i64,
    /// How many times a crashed run may be run again.
    pub(crate) reruns: u32,
}

/// Something that was done to the fleet.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) span: Span,
    pub(crate) text: String,
}

/// All that is known of a campaign.
#[derive(Debug, Clone, Default)]
pub(crate) struct Story {
    pub(crate) jobs: Vec<JobRule>,
    /// What the jobs wrote.
    pub(crate) runs: Vec<Entry>,
    /// What the history says.
    pub(crate) records: Vec<Record>,
    /// What was done.
    pub(crate) faults: Vec<Fault>,
    /// Between these instants every occurrence has a verdict; `None`: nothing is asked.
    pub(crate) decided: Option<Span>,
    /// When a host and the store were up and left alone: nothing may be missed.
    pub(crate) quiet: Vec<Span>,
    /// After a loss of the store's data verdicts from before it may be gone.
    pub(crate) forgotten_until: Option<i64>,
}

/// Which guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Exclusion,
    Once,
    Early,
    Missed,
    Fencing,
    Silence,
    /// The history tells what did not happen.
    Untrue,
}

/// The first thing that must not be.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) at: i64,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.rule {
            Rule::Exclusion => "G1: two runs under one lock at once",
            Rule::Once => "G2: an occurrence started more often than allowed",
            Rule::Early => "G2: a run began before its instant",
            Rule::Missed => "G3: missed though a host and the store were up",
            Rule::Fencing => "G6: a fencing token did not rise",
            Rule::Silence => "G7: no verdict",
            Rule::Untrue => "G7: the history tells what did not happen",
        };
        write!(f, "{rule}\n  {}", self.text)
    }
}

impl Story {
    /// The violation that happened first, if there is any.
    pub(crate) fn first_violation(&self) -> Option<Violation> {
        let all = rules::ALL.iter().flat_map(|rule| rule(self));
        all.min_by_key(|violation| violation.at)
    }

    /// What happened around an instant, line by line, for a person.
    pub(crate) fn timeline(&self, around: i64) -> String {
        let near = Span {
            from: around - 8_000,
            until: around + 4_000,
        };
        let mut lines: Vec<(i64, String)> = Vec::new();
        for fault in &self.faults {
            lines.push((fault.span.from, format!("fault   {} begins", fault.text)));
            lines.push((fault.span.until, format!("fault   {} is over", fault.text)));
        }
        for run in &self.runs {
            let who = format!(
                "{} on {}, fence {}, {}",
                run.job, run.host, run.fence, run.run_id
            );
            lines.push((run.start, format!("began   {who}, due {:?}", run.scheduled)));
            let end = if run.ended { "ended " } else { "last sign of" };
            lines.push((run.last_sign, format!("{end}  {who}")));
        }
        for record in &self.records {
            let at = record.finished_at.or(record.scheduled_at);
            let at = at.map_or(around, cronlatch::time::Timestamp::millis);
            let text = format!(
                "record  {} due {:?} until {:?}: {:?} {:?} by {:?}",
                record.job,
                record.scheduled_at,
                record.until,
                record.outcome,
                record.reason,
                record.host
            );
            lines.push((at, text));
        }
        lines.sort();
        let near = lines.iter().filter(|(at, _)| near.holds(*at));
        let lines: Vec<_> = near
            .map(|(at, text)| format!("{:>8} ms  {text}", at - around))
            .collect();
        lines.join("\n")
    }
}
