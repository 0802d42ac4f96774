//! The checker: from what jobs wrote and what the history says to the first broken guarantee.
//!
//! It knows nothing of daemons and stores. A [`Story`] may come from a campaign or be forged, and
//! [`Story::first_violation`] decides G1 to G7 on it: G4 and G5 on what was seen of the locks
//! themselves ([`locks`]), the others on what jobs wrote and the history says ([`rules`],
//! [`verdicts`], [`attempts`]); and whether the jobs' policies were followed ([`policies`]).

mod attempts;
mod locks;
mod policies;
mod rules;
mod timeline;
mod verdicts;

#[cfg(test)]
mod forged;
#[cfg(test)]
mod forged_locks;
#[cfg(test)]
mod forged_policies;
#[cfg(test)]
mod forged_runs;

use std::fmt;

use cronlatch::store::Record;

use crate::policies::Policies;
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

    pub(crate) fn meets(self, other: Self) -> bool {
        self.from <= other.until && other.from <= self.until
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
    /// Its policies in the two lists that a host may have.
    pub(crate) policies: [Policies; 2],
    /// Whether its command fails, by the instant at which it was due and the number of the attempt.
    pub(crate) fails: fn(i64, u32) -> bool,
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
    /// A command that does not fail of its own.
    pub(crate) fn never(_: i64, _: u32) -> bool {
        false
    }

    /// How many times a crashed run may be run again.
    pub(crate) fn reruns(&self) -> u32 {
        let reruns = self.policies.map(Policies::reruns);
        reruns[0].max(reruns[1])
    }

    /// How many attempts `retry` allows a run.
    pub(crate) fn attempts(&self) -> u32 {
        self.policies[0].attempts.max(self.policies[1].attempts)
    }

    /// Whether the policies of a host may be such ones: hosts have either list.
    pub(crate) fn may(&self, are: impl Fn(&Policies) -> bool) -> bool {
        self.policies.iter().any(are)
    }

    /// Whether every host's policies are such ones.
    pub(crate) fn must(&self, are: impl Fn(&Policies) -> bool) -> bool {
        self.policies.iter().all(are)
    }

    /// What tells apart who must not run one occurrence twice: the host, if each has a ledger.
    pub(crate) fn party<'a>(&self, host: &'a str) -> &'a str {
        match self.shared_by {
            SharedBy::Fleet => "",
            SharedBy::Nobody | SharedBy::NobodyWithoutLock => host,
        }
    }
}

/// A time in which nobody could claim anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dark {
    pub(crate) span: Span,
    pub(crate) why: Away,
}

/// Who was not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Away {
    /// No daemon ran.
    Hosts,
    /// The store did not run, and hosts took a while to notice.
    Store,
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
    /// What the history said, each record as it was read last.
    pub(crate) records: Vec<Record>,
    /// What it said at once: before each fault of the store, and in the end.
    pub(crate) readings: Vec<Vec<Record>>,
    /// What was done.
    pub(crate) faults: Vec<Suffered>,
    /// Between these instants every occurrence has a verdict; `None`: nothing is asked.
    pub(crate) decided: Option<Span>,
    /// When a host and the store were up and left alone: nothing may be missed.
    pub(crate) quiet: Vec<Span>,
    /// When the store and all hosts were left alone: even a job that runs without the store runs once.
    pub(crate) calm: Vec<Span>,
    /// When nobody could claim anything.
    pub(crate) dark: Vec<Dark>,
    /// Around a loss of the store's data: what was due then may have a verdict no more.
    pub(crate) forgotten: Vec<Span>,
    /// By how much the clock of a server may be ahead of the true one, in milliseconds: nothing
    /// begins earlier than that before its instant.
    pub(crate) clock_ahead: i64,
    /// The same for the server that is furthest behind: a negative number.
    pub(crate) clock_behind: i64,
    /// How far the clocks of servers that take one another's place are apart, in milliseconds: the
    /// end of a lease goes over from one to the other as an instant.
    pub(crate) clock_spread: i64,
    /// What was seen of the locks, server by server in order.
    pub(crate) sightings: Vec<Sighting>,
    /// Whether independent nodes vote: what they decide is on record a while after they were asked.
    pub(crate) votes: bool,
    /// The daemons that died.
    pub(crate) deaths: Vec<Death>,
    /// The TTL of all leases, in milliseconds.
    pub(crate) ttl: i64,
    /// How late a job may start, in milliseconds.
    pub(crate) deadline: i64,
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
    TwoVerdicts,
    Order,
    Attempts,
    Reason,
    CatchUp,
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
            Rule::TwoVerdicts => "G7: two verdicts",
            Rule::Order => "an occurrence began after a newer one",
            Rule::Attempts => "`retry`: attempts that are not counted, or not allowed",
            Rule::Reason => "a verdict whose reason does not hold",
            Rule::CatchUp => "`catch_up` was not followed",
        };
        write!(f, "{rule}\n  {}", self.text)
    }
}

impl Story {
    /// The violation that happened first, if there is any.
    pub(crate) fn first_violation(&self) -> Option<Violation> {
        let all = rules::ALL.iter().chain(&locks::ALL).chain(&verdicts::ALL);
        let all = all.chain(&attempts::ALL).chain(&policies::ALL);
        let all = all.flat_map(|rule| rule(self));
        all.min_by_key(|violation| violation.at)
    }
}
