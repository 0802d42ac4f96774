//! What a node knows of a lock and a job, and what it is told: plain data.

use std::collections::HashMap;
use std::time::Duration;

use crate::names::{JobName, RunId, Token};
use crate::store::protocol::{Ending, JobState, LockState};
use crate::store::{Lock, Record};
use crate::time::Timestamp;

/// The number of a proposal; a later one has a greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot {
    pub number: u64,
    /// Tells apart what is proposed under one number: a random number of the process, then
    /// [`SERIAL_BITS`] that count its requests.
    pub id: u64,
}

/// How many of the low bits of [`Ballot::id`] count the requests of a process; as in `look.lua`.
pub(in crate::store) const SERIAL_BITS: u32 = 20;

impl Ballot {
    /// Whether this is a later request of the process that `other` is from. Its earlier vote does
    /// not stand in its way: nobody waits for the answer to that any more.
    pub(in crate::store) fn supersedes(self, other: u64) -> bool {
        self.id >> SERIAL_BITS == other >> SERIAL_BITS && self.id >= other
    }
}

/// What a look is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// To be the only one who proposes; the node names the number.
    Vote,
    /// To have older proposals refused.
    Promise,
    /// To know.
    Read,
    /// To let another propose after all.
    Yield,
}

/// A lock and a job, as a node is asked for them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    pub lock: Lock,
    pub job: Option<JobName>,
    /// The TTL of the lock's leases; zero when the request names none.
    pub ttl: Duration,
    pub longest: LongestTtl,
}

/// The longest TTLs that a caller knows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LongestTtl {
    /// Of its own list. The node keeps it.
    pub listed: Duration,
    /// That other nodes know. A node that lost its data waits for it, but does not keep it, so that
    /// no TTL is passed from node to node for ever.
    pub elsewhere: Duration,
    /// For so long after a loss the claim at hand waits at least
    /// ([`least_wait`](crate::store::protocol::least_wait)).
    pub least: Duration,
}

impl Place {
    /// For how long a node that lost its data does not count for this request, at least.
    pub fn waits_for(&self) -> Duration {
        self.ttl.max(self.longest.least)
    }
}

/// How a node answered a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LookAnswer {
    Promised,
    /// Another has the vote.
    Busy,
    /// A later proposal was promised.
    Outbid,
    Read,
}

/// What one node knows of a lock and a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    pub said: LookAnswer,
    /// The newest proposal number that the node has promised.
    pub promised: u64,
    pub micros: u64,
    /// The server process.
    pub server: String,
    /// When the node lost its data, if it ever did.
    pub lost_at: Option<Timestamp>,
    /// How long the node's locks do not count as free.
    pub recovering: Duration,
    /// The longest TTL that the node keeps.
    pub longest: Duration,
    /// Whether what it says of lock and job holds for the time before the loss too.
    pub remembers: bool,
    /// The lock itself.
    pub held: Held,
    pub lock: LockView,
    pub job: Option<JobView>,
}

/// The lock itself on one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Held {
    No,
    /// By a token or a foreign value; how long, if it has an end.
    By(String, Option<Duration>),
    /// A key of another type.
    Other(Option<Duration>),
}

/// A lock's state on one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LockView {
    pub ballot: Ballot,
    pub fence: u64,
    pub token: Option<Token>,
    /// What is left of the lease.
    pub left: Duration,
    /// How long ago the lease ended; `None` while it lasts, or if the node does not know.
    pub over_for: Option<Duration>,
    pub run_id: Option<RunId>,
    /// The tokens that ended, as kept: a letter, then the token's random part.
    pub finished: String,
}

/// A job's ledger on one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobView {
    pub ballot: Ballot,
    pub state: JobState,
    /// Whether a majority ever knew of the open run cannot be told.
    pub doubt: bool,
    /// What was due up to then and is not decided cannot be known: a majority forgot it.
    pub horizon: Option<Timestamp>,
}

/// What is proposed to the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Proposal {
    pub ballot: Ballot,
    pub place: Place,
    pub lock: LockState,
    /// Takes the lock for the state's token; else what is left of its lease.
    pub lease: Lease,
    pub job: Option<JobView>,
    /// The proposal that the job's state was taken from.
    pub base: Ballot,
    pub records: Vec<(Record, Option<Timestamp>)>,
    pub keep: Option<u32>,
    pub released: bool,
}

/// What a proposal does with the lock itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lease {
    /// It is taken for the state's token, for so long.
    Take(Duration),
    /// It stays. So much is left of its lease on a node that does not know it.
    Stay(Duration),
    /// Its lease is over: for so long, or for longer than anybody knows.
    Over(Option<Duration>),
}

/// A node's answer to a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub taken: Taken,
    /// The mark of a history that may lack records: it did not take the proposal before this one.
    pub lacks: Option<String>,
}

/// A node's answer to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    /// The lease is extended, and the node knows of its grant.
    Renewed,
    /// The lease is extended, and the node has no record of its grant: it was away at the time, or
    /// has lost its data.
    Unrecorded,
    /// Another holds the lock.
    Taken,
    /// The lease is over.
    Absent,
}

/// How a node took a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It did, and counts in any quorum.
    Yes,
    /// It did; it has not remembered lock and job since it lost its data.
    Forgetful,
    /// It did; it has lost its data a moment ago.
    Recovering,
    /// It has promised otherwise.
    Outbid,
    /// Another holds the lock.
    Held,
}

impl LockView {
    /// How tokens ended. Only the random part of a token is kept: those that `known` names are
    /// given back in full.
    pub(in crate::store) fn endings(&self, known: &[&Token]) -> Vec<(Token, Ending)> {
        let full: HashMap<&str, &Token> = known
            .iter()
            .map(|token| (random_part(token.as_str()), *token))
            .collect();
        self.finished
            .lines()
            .filter_map(|line| {
                let (letter, rest) = line.split_at_checked(1)?;
                let ending = match letter {
                    "R" => Ending::Released,
                    "L" => Ending::Lost,
                    "I" => Ending::Interrupted,
                    _ => return None,
                };
                let token = full
                    .get(rest)
                    .map_or_else(|| Token::from_text(rest), |token| (*token).clone());
                Some((token, ending))
            })
            .collect()
    }

    /// Whether a value under the lock is of a token that ended.
    pub(in crate::store) fn has_ended(&self, value: &str) -> bool {
        let part = random_part(value);
        self.finished
            .lines()
            .any(|line| line.len() > 1 && line.get(1..) == Some(part))
    }
}

/// How tokens ended, as a node keeps it.
pub fn finished_text(lock: &LockState) -> String {
    let mut lines = String::from("\n");
    for (token, ending) in &lock.finished {
        lines.push(match ending {
            Ending::Released => 'R',
            Ending::Lost => 'L',
            Ending::Interrupted => 'I',
        });
        lines.push_str(random_part(token.as_str()));
        lines.push('\n');
    }
    lines
}

/// The part of a token that no other shares; as in `prelude.lua`.
fn random_part(token: &str) -> &str {
    token
        .rsplit_once(':')
        .map(|(_, part)| part)
        .filter(|part| part.len() == 32 && part.bytes().all(|b| b.is_ascii_hexdigit()))
        .unwrap_or(token)
}
