//! Requests to a node and its replies, as plain data.

use std::collections::HashMap;
use std::time::Duration;

use crate::names::{JobName, RunId, Token};
use crate::store::protocol::{Ending, JobState, LockState};
use crate::store::{Lock, Record, Retention};
use crate::time::Timestamp;

/// The number of a proposal. Later proposals have greater numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot {
    pub number: u64,
    /// Distinguishes proposals with the same number: a random number of the process, then
    /// [`SERIAL_BITS`] that count its requests.
    pub id: u64,
}

/// How many of the low bits of [`Ballot::id`] count the requests of a process; as in `prepare.lua`.
pub(in crate::store) const SERIAL_BITS: u32 = 20;

impl Ballot {
    /// Whether this is a later request of the process that sent `other`. The earlier vote does not block
    /// it, because no task waits for the earlier reply any more.
    pub fn supersedes(self, other: u64) -> bool {
        self.id >> SERIAL_BITS == other >> SERIAL_BITS && self.id >= other
    }
}

/// The purpose of a prepare request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareMode {
    /// Become the only proposer. The node chooses the number.
    Vote,
    /// Make the node reject older proposals.
    Promise,
    /// Only read.
    Read,
    /// Give the vote back, so that another host can propose.
    Yield,
}

/// The lock and the job of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestTarget {
    pub lock: Lock,
    pub job: Option<JobName>,
    /// The TTL of the lock's leases; zero if the request names none.
    pub ttl: Duration,
    pub longest: LongestTtl,
}

/// The longest TTLs that a caller knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LongestTtl {
    /// The longest TTL of its own list. The node keeps it.
    pub listed: Duration,
    /// The longest TTL that other nodes know. A node that lost its data waits for it but does not keep
    /// it, so that no TTL is passed from node to node forever.
    pub elsewhere: Duration,
    /// The shortest time after a loss for which the current claim waits
    /// ([`least_wait`](crate::store::protocol::least_wait)).
    pub least: Duration,
}

impl RequestTarget {
    /// Returns the shortest time for which a node that lost its data does not count for this request.
    pub fn waits_for(&self) -> Duration {
        self.ttl.max(self.longest.least)
    }
}

/// What a node did with a prepare request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PrepareStatus {
    Promised,
    /// Another host has the vote.
    Busy,
    /// The node has promised a later proposal.
    Preempted,
    Read,
}

/// The reply of a node to a prepare request: what it knows about a lock and a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PrepareReply {
    pub status: PrepareStatus,
    /// The newest proposal number that the node has promised.
    pub promised: u64,
    pub micros: u64,
    /// The server process.
    pub server: String,
    /// When the node lost its data, if it ever did.
    pub lost_at: Option<Timestamp>,
    /// How much longer the node's locks do not count as free.
    pub recovering: Duration,
    /// The longest TTL that the node keeps.
    pub longest: Duration,
    /// Whether its lock and job also cover the time before the loss.
    pub remembers: bool,
    /// The lock itself.
    pub held: KeyHolder,
    pub lock: LockView,
    pub job: Option<JobView>,
}

/// The lock itself on one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeyHolder {
    Nobody,
    /// Held by a token or the value of another program, and for how long, if it has an end.
    Value(String, Option<Duration>),
    /// Held by a key of another type.
    OtherType(Option<Duration>),
}

/// A lock's state on one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LockView {
    pub ballot: Ballot,
    pub fence: u64,
    pub token: Option<Token>,
    /// The remaining time of the lease.
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
    /// It is unknown whether a majority ever accepted the open run.
    pub doubt: bool,
    /// Undecided occurrences that were due until then are unknown, because a majority lost its data.
    pub horizon: Option<Timestamp>,
}

/// A proposal to the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Proposal {
    pub ballot: Ballot,
    pub target: RequestTarget,
    pub lock: LockState,
    /// What happens to the lock itself.
    pub lease: ProposedLease,
    pub job: Option<JobView>,
    /// The proposal whose job state this one changes.
    pub base: Ballot,
    pub records: Vec<ProposedRecord>,
    pub keep: Option<Retention>,
    pub released: bool,
}

/// A record that a proposal adds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProposedRecord {
    pub record: Record,
    /// The watermark that the recorded verdict moved, as in
    /// [`Effect::Append`](crate::store::protocol::Effect::Append).
    pub follows: Option<Timestamp>,
    /// Whether it replaces a provisional record of the same run.
    pub replaces: bool,
}

/// What a proposal does with the lock itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProposedLease {
    /// It is taken for the token of the state, for this long.
    Take(Duration),
    /// It stays. The remaining time of its lease, for a node that does not know it.
    Stay(Duration),
    /// Its lease ended this long ago, or an unknown time ago.
    Over(Option<Duration>),
}

/// The reply of a node to a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptReply {
    pub status: AcceptStatus,
    /// The mark of a history that may lack records, because the node did not accept the preceding
    /// proposal.
    pub lacks: Option<String>,
}

/// The reply of a node to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendReply {
    /// The lease is extended, and the node knows of its grant.
    Renewed,
    /// The lease is extended, but the node does not know its grant: it was unreachable then, or has lost
    /// its data.
    Unrecorded,
    /// Another token holds the lock.
    Taken,
    /// The lease is over.
    Absent,
}

/// Whether a node accepted a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptStatus {
    /// It did, and counts in every quorum.
    Accepted,
    /// It did, but has not received the lock and the job since it lost its data.
    Forgetful,
    /// It did, but lost its data recently.
    Recovering,
    /// It has promised a later proposal.
    Preempted,
    /// Another token holds the lock.
    Held,
}

impl LockView {
    /// Returns how tokens ended. Only the random part of a token is kept; tokens in `known` are
    /// returned in full.
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

    /// Whether the value of the lock is a token that ended.
    pub fn has_ended(&self, value: &str) -> bool {
        let part = random_part(value);
        self.finished
            .lines()
            .any(|line| line.len() > 1 && line.get(1..) == Some(part))
    }
}

/// Returns how tokens ended, in the form of the scripts.
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

/// Returns the random part of a token, as in `lock.lua`.
fn random_part(token: &str) -> &str {
    token
        .rsplit_once(':')
        .map(|(_, part)| part)
        .filter(|part| part.len() == 32 && part.bytes().all(|b| b.is_ascii_hexdigit()))
        .unwrap_or(token)
}
