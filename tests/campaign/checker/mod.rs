//! The checker: from what jobs wrote and what the history says to the first broken guarantee.
//!
//! It knows nothing of daemons and stores. A [`Story`] may come from a campaign or be forged, and
//! [`Story::first_violation`] decides G1 to G7 on it: G4 and G5 on what was seen of the locks
//! themselves ([`locks`]), the others on what jobs wrote and the history says ([`rules`]).

mod locks;
mod rules;
mod timeline;

#[cfg(test)]
mod forged;
#[cfg(test)]
mod forged_locks;

use std::fmt;

use cronlatch::store::Record;

use crate::support::runlog::Entry;

pub(crate) use locks::{Death, Holding, Sight, Sighting, Write};

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
    /// Who shares the lock and the ledger.
    pub(crate) shared_by: SharedBy,
    /// Hosts that do not reach the store run it all the same (`on_store_down: run`).
    pub(crate) runs_without_store: bool,
    /// Which of its occurrences have verdicts that are read.
    pub(crate) verdicts: Verdicts,
}

/// Who shares a job's lock and ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedBy {
    /// All hosts.
    Fleet,
    /// Each host has its own (`scope: host`).
    Nobody,
    /// Each host has a ledger of its own, and there is no lock (`scope: none`).
    NobodyWithoutLock,
}

/// Which occurrences of a job have verdicts that the campaign reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdicts {
    All,
    /// Those that ran: hosts list the job only now and then.
    OfRuns,
    /// None: each host has a history of its own.
    None,
}

impl JobRule {
    /// What tells apart who must not run one occurrence twice: the host, if each has a ledger.
    pub(crate) fn party<'a>(&self, host: &'a str) -> &'a str {
        match self.shared_by {
            SharedBy::Fleet => "",
            SharedBy::Nobody | SharedBy::NobodyWithoutLock => host,
        }
    }
}

/// Something that was done to the fleet.
#[derive(Debug, Clone)]
pub(crate) struct Suffered {
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
    pub(crate) faults: Vec<Suffered>,
    /// Between these instants every occurrence has a verdict; `None`: nothing is asked.
    pub(crate) decided: Option<Span>,
    /// When a host and the store were up and left alone: nothing may be missed.
    pub(crate) quiet: Vec<Span>,
    /// When the store and all hosts were left alone: even a job that runs without the store runs once.
    pub(crate) calm: Vec<Span>,
    /// Around a loss of the store's data: what was due then may have a verdict no more.
    pub(crate) forgotten: Vec<Span>,
    /// By how much the clock of a server may be ahead of the true one, in milliseconds: nothing
    /// begins earlier than that before its instant.
    pub(crate) clock_ahead: i64,
    /// How far the clocks of servers that take one another's place are apart, in milliseconds: the
    /// end of a lease goes over from one to the other as an instant.
    pub(crate) clock_spread: i64,
    /// What was seen of the locks, server by server in order.
    pub(crate) sightings: Vec<Sighting>,
    /// The daemons that died.
    pub(crate) deaths: Vec<Death>,
    /// The TTL of all leases, in milliseconds.
    pub(crate) ttl: i64,
}

/// Which guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Exclusion,
    Once,
    Early,
    Missed,
    Progress,
    OwnLock,
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
            Rule::Progress => "G4: a dead holder held its lock for longer than one TTL",
            Rule::OwnLock => "G5: a lease was changed that is another's",
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
        let all = rules::ALL.iter().chain(&locks::ALL);
        let all = all.flat_map(|rule| rule(self));
        all.min_by_key(|violation| violation.at)
    }
}
