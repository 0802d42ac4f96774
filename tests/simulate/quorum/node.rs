//! One of several independent servers: the product's own plain form of it, and what befalls it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::acceptor::{Acceptor, NodeMarker, ServerNow};
use cronlatch::names::{LockName, Token};
use cronlatch::store::protocol::Key;
use cronlatch::store::quorum::{
    AcceptStatus, Ballot, ExtendReply, LongestTtl, PrepareMode, PrepareReply, Proposal,
    RequestTarget,
};
use cronlatch::store::{Lock, Renewal};
use cronlatch::time::Timestamp;

use super::wire::Envelope;
use crate::gate::Gate;
use crate::plan::millis;
use crate::store::is_foreign;
use crate::world::Sim;

/// How long others let the holder of a vote finish, in milliseconds.
const VOTE: i64 = 1_500;

/// What a node is asked.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    Prepare(RequestTarget, (PrepareMode, Ballot)),
    Propose(Box<Proposal>),
    Withdraw(Lock, Ballot, Token),
    /// Extends leases; sets those again that are gone, if told to.
    Extend(Vec<Renewal>, bool),
}

/// What it answers.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Prepare(Box<PrepareReply>),
    Accept(AcceptStatus),
    Withdrawn,
    Extend(Vec<ExtendReply>),
    /// The connection is refused.
    Refused,
}

/// What it keeps: of each lock by its name, and which process wrote it.
#[derive(Debug, Clone, Default)]
struct Data {
    marker: Option<NodeMarker>,
    locks: BTreeMap<String, Acceptor>,
}

#[derive(Debug)]
pub(super) struct Node {
    data: Data,
    saved: Option<Data>,
    server: String,
    starts: u32,
    number: usize,
    /// A lock was taken or deleted that another program has.
    pub(super) trespass: Option<String>,
    pub(super) gate: Gate<Envelope>,
    /// Its clock less the true time, in milliseconds.
    pub(super) offset: i64,
}

impl Node {
    /// A node that was declared new.
    pub(super) fn new(number: usize) -> Self {
        let mut node = Self {
            data: Data::default(),
            saved: None,
            server: String::new(),
            starts: 0,
            number,
            trespass: None,
            gate: Gate::new(),
            offset: 0,
        };
        node.start();
        let mut new = Acceptor::default();
        new.declare_new(&node.server);
        node.data.marker = new.marker;
        node
    }

    fn start(&mut self) {
        self.starts += 1;
        self.server = format!("node-{}-{}", self.number, self.starts);
    }

    pub(super) fn save(&mut self) {
        self.saved = Some(self.data.clone());
    }

    /// Another process takes over with these data.
    pub(super) fn restart(&mut self, with: Kept) {
        self.start();
        self.gate.forget();
        match with {
            Kept::All => {}
            Kept::Saved => self.data = self.saved.clone().unwrap_or_default(),
            Kept::Nothing => self.data = Data::default(),
        }
    }

    /// Another program writes a lock's key, or deletes the one that it wrote.
    pub(super) fn write_key(&mut self, lock: &str, key: &Key) {
        let member = self.data.locks.entry(lock.to_owned()).or_default();
        if *key != Key::Absent || is_foreign(&member.key) {
            member.key.clone_from(key);
        }
    }

    /// The keys of the locks.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&String, &Key)> {
        let locks = self.data.locks.iter();
        locks.map(|(name, member)| (name, &member.key))
    }

    pub(super) fn micros(&self, sim: &Sim) -> u64 {
        u64::try_from(sim.now + self.offset).unwrap_or(0) * 1_000
    }

    pub(super) fn utc(&self, sim: &Sim) -> Timestamp {
        sim.utc(self.offset)
    }

    pub(super) fn serve(&mut self, sim: &Sim, ask: &Ask, longest: i64) -> Answer {
        let micros = self.micros(sim);
        match ask {
            Ask::Prepare(target, question) => {
                Answer::Prepare(Box::new(self.at(&target.lock.name, micros, |it, here| {
                    it.prepare(here, target, *question, millis(VOTE))
                })))
            }
            Ask::Propose(proposal) => {
                let name = &proposal.target.lock.name;
                Answer::Accept(self.at(name, micros, |it, here| it.accept(here, proposal)))
            }
            Ask::Withdraw(lock, ballot, token) => {
                self.at(&lock.name, micros, |it, here| {
                    it.withdraw(here, lock.exclusive, *ballot, token)
                });
                Answer::Withdrawn
            }
            Ask::Extend(renewals, again) => {
                let extend = |renewal: &Renewal| {
                    self.at(&renewal.grant.lock.name, micros, |it, here| {
                        it.extend(here, renewal, longest_of(longest), *again)
                    })
                };
                Answer::Extend(renewals.iter().map(extend).collect())
            }
        }
    }

    /// Whatever else a host says to a node, the node notices then whether it has lost its data.
    pub(super) fn notice(&mut self, sim: &Sim, longest: Duration) {
        let target = RequestTarget {
            lock: Lock::named(&LockName::parse("nothing").expect("a name")),
            job: None,
            ttl: Duration::ZERO,
            longest: LongestTtl {
                listed: longest,
                ..LongestTtl::default()
            },
        };
        let micros = self.micros(sim);
        let read = (PrepareMode::Read, Ballot::default());
        self.at("nothing", micros, |it, here| {
            it.prepare(here, &target, read, Duration::ZERO)
        });
    }

    /// The plain form keeps one lock; the marker is the node's.
    fn at<R>(
        &mut self,
        lock: &str,
        micros: u64,
        what: impl FnOnce(&mut Acceptor, ServerNow<'_>) -> R,
    ) -> R {
        let here = ServerNow {
            micros,
            server: &self.server,
        };
        let member = self.data.locks.entry(lock.to_owned()).or_default();
        member.marker.clone_from(&self.data.marker);
        let before = member.key.clone();
        let answer = what(member, here);
        let is_over = match before {
            Key::Value { end, .. } | Key::OtherType { end } => {
                end.is_some_and(|end| end <= micros / 1_000)
            }
            Key::Absent => true,
        };
        if is_foreign(&before) && !is_over && member.key != before {
            let text = format!("{lock}: {before:?} became {:?}", member.key);
            self.trespass = Some(text);
        }
        self.data.marker.clone_from(&member.marker);
        answer
    }
}

/// What a server process finds when it starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    All,
    Saved,
    Nothing,
}

/// The TTLs that a host knows of: those of its list, in milliseconds.
pub(super) fn longest_of(longest: i64) -> LongestTtl {
    LongestTtl {
        listed: millis(longest),
        ..LongestTtl::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cronlatch::names::RunId;
    use cronlatch::store::protocol::LockState;
    use cronlatch::store::quorum::ProposedLease;

    const HERE: ServerNow<'_> = ServerNow {
        micros: 1_000_000_000,
        server: "this",
    };

    fn lock() -> Lock {
        Lock::named(&LockName::parse("job").expect("a name"))
    }

    /// A proposal that takes the lock for a token, or that ends another run.
    fn proposal(number: u64, token: Option<&Token>) -> Proposal {
        let ttl = millis(3_000);
        Proposal {
            ballot: Ballot { number, id: 1 },
            target: RequestTarget {
                lock: lock(),
                job: None,
                ttl,
                longest: LongestTtl::default(),
            },
            lock: LockState {
                token: token.cloned(),
                run_id: token.map(|_| RunId::from_text("run")),
                ..LockState::default()
            },
            lease: token.map_or(ProposedLease::Over(None), |_| ProposedLease::Take(ttl)),
            job: None,
            base: Ballot::default(),
            records: Vec::new(),
            keep: None,
            released: false,
        }
    }

    fn accept(node: &mut Acceptor, proposal: &Proposal) {
        node.register.promised = proposal.ballot;
        assert_eq!(node.accept(HERE, proposal), AcceptStatus::Accepted);
    }

    /// A node that has accepted these proposals, of which the first one is then withdrawn.
    fn withdrawn(later: &Proposal) -> Acceptor {
        let token = Token::from_text("mine");
        let mut node = Acceptor::default();
        node.declare_new(HERE.server);
        accept(&mut node, &proposal(1, Some(&token)));
        accept(&mut node, later);
        node.withdraw(HERE, true, Ballot { number: 1, id: 1 }, &token);
        node
    }

    #[test]
    fn a_withdrawn_lock_is_free_although_somebody_elses_proposal_was_accepted_since() {
        assert_eq!(withdrawn(&proposal(2, None)).key, Key::Absent);
    }

    #[test]
    fn a_late_withdrawal_leaves_the_lock_that_a_later_proposal_of_the_same_claim_took() {
        let token = Token::from_text("mine");
        let node = withdrawn(&proposal(2, Some(&token)));
        assert!(matches!(node.key, Key::Value { .. }));
    }
}
