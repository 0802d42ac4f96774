//! The acceptor of a quorum as plain Rust: what one node promises, accepts, extends and returns.
//!
//! No I/O and no clock. The scripts (`prepare.lua`, `accept.lua`, `extend.lua`, `withdraw.lua`,
//! `declare.lua`) do the same on a server, and a property test compares them with these functions call by call
//! (`tests/it/redlock/acceptor.rs`); the model checker and the simulated fleets run these functions.

use std::collections::BTreeMap;
use std::time::Duration;

use cronlatch::names::{JobName, RunId, Token};
use cronlatch::store::Renewal;
use cronlatch::store::protocol::{JobState, Key, LEDGER_AHEAD, ListedTtls};
use cronlatch::store::quorum::{
    AcceptStatus, Ballot, ExtendReply, JobView, KeyHolder, LockView, LongestTtl, PrepareMode,
    PrepareReply, PrepareStatus, Proposal, ProposedLease, RequestTarget, finished_text,
};
use cronlatch::time::Timestamp;

/// The node's clock, and which server process it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerNow<'a> {
    /// UTC in microseconds since the epoch.
    pub(crate) micros: u64,
    pub(crate) server: &'a str,
}

/// What a node keeps of a lock and its jobs, without histories.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Acceptor {
    /// `None`: the node is new or has lost its data.
    pub(crate) marker: Option<NodeMarker>,
    /// The lock itself.
    pub(crate) key: Key,
    /// The lock's state.
    pub(crate) register: LockRegister,
    pub(crate) ledgers: BTreeMap<JobName, JobRegister>,
}

/// Identifies the server process that keeps the data. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NodeMarker {
    pub(crate) server: String,
    /// When the node noticed a loss of data; `None` if it never lost any.
    pub(crate) lost_at: Option<u64>,
    /// Until then no lock counts as free.
    pub(crate) until: u64,
    /// The longest TTLs of the fleet's job lists.
    pub(crate) listed: ListedTtls,
}

/// A lock's state, with the ballots promised and accepted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct LockRegister {
    pub(crate) fence: u64,
    pub(crate) token: Option<Token>,
    /// In milliseconds since the epoch.
    pub(crate) lease_end: u64,
    pub(crate) run_id: Option<RunId>,
    /// The tokens that ended, as [`finished_text`] writes them; empty before the first proposal.
    pub(crate) ended: String,
    /// The ballot accepted last.
    pub(crate) ballot: Ballot,
    /// The highest ballot promised.
    pub(crate) promised: Ballot,
    /// Who has the vote, and until when (ms).
    pub(crate) vote: Option<(u64, u64)>,
    /// The loss under which the state was last written.
    pub(crate) epoch: Option<u64>,
}

/// A job's ledger, and the ballot that wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct JobRegister {
    pub(crate) ballot: Ballot,
    pub(crate) state: JobState,
    pub(crate) doubt: bool,
    pub(crate) horizon: Option<Timestamp>,
    /// The loss under which it was last written.
    pub(crate) epoch: Option<u64>,
}

/// The node's last loss of data, as one request finds it.
#[derive(Clone, Copy)]
struct Past {
    lost_at: Option<u64>,
    /// How much longer no lock counts as free, in milliseconds.
    left: u64,
    longest: u64,
}

impl Past {
    fn remembers(self, epoch: Option<u64>) -> bool {
        self.lost_at.is_none() || epoch == self.lost_at
    }
}

impl ServerNow<'_> {
    fn now(self) -> u64 {
        self.micros / 1000
    }

    fn left(self, end: u64) -> Duration {
        Duration::from_millis(end.saturating_sub(self.now()))
    }

    /// How long ago a lease ended; `None` while it lasts, or if no end is known.
    fn over_for(self, end: u64) -> Option<Duration> {
        let span = self.now().checked_sub(end).filter(|_| end > 0);
        span.map(Duration::from_millis)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl Acceptor {
    /// Declares the node new: it has nothing to remember.
    pub(crate) fn declare_new(&mut self, server: &str) {
        self.marker = Some(NodeMarker {
            server: server.to_owned(),
            lost_at: None,
            until: 0,
            listed: ListedTtls::default(),
        });
    }

    /// Reads a lock and a job, and gives the vote or the promise that is asked for, if possible. `vote`:
    /// how long a vote lasts.
    pub(crate) fn prepare(
        &mut self,
        here: ServerNow<'_>,
        target: &RequestTarget,
        (mode, asked): (PrepareMode, Ballot),
        vote: Duration,
    ) -> PrepareReply {
        self.expire(here);
        let past = self.recollect(here, target.longest, millis(target.waits_for()));
        let (status, promised) = self.answer(here, (mode, asked), millis(vote));
        let ledger = target.job.as_ref().map(|job| self.ledgers.get(job));
        let known = ledger.is_none_or(|it| past.remembers(it.and_then(|it| it.epoch)));
        PrepareReply {
            status,
            promised,
            micros: here.micros,
            server: here.server.to_owned(),
            lost_at: past.lost_at.map(instant),
            recovering: Duration::from_millis(past.left),
            longest: Duration::from_millis(past.longest),
            remembers: past.remembers(self.register.epoch) && known,
            held: self.held(here, target.lock.exclusive),
            lock: self.register.view(here),
            job: ledger.flatten().map(JobRegister::view),
        }
    }

    fn answer(
        &mut self,
        here: ServerNow<'_>,
        (mode, asked): (PrepareMode, Ballot),
        vote: u64,
    ) -> (PrepareStatus, u64) {
        let register = &mut self.register;
        let promised = register.promised.number;
        match mode {
            PrepareMode::Vote => {
                let another =
                    |(id, until): &(u64, u64)| !asked.supersedes(*id) && *until > here.now();
                if register.vote.as_ref().is_some_and(another) {
                    return (PrepareStatus::Busy, promised);
                }
                let number = (promised + 1).max(here.micros).max(asked.number);
                register.promised = Ballot { number, ..asked };
                register.vote = Some((asked.id, here.now() + vote));
                (PrepareStatus::Promised, number)
            }
            PrepareMode::Promise if register.promised > asked => {
                (PrepareStatus::Preempted, promised)
            }
            PrepareMode::Promise => {
                register.promised = asked;
                (PrepareStatus::Promised, asked.number)
            }
            PrepareMode::Read => (PrepareStatus::Read, promised),
            PrepareMode::Yield => {
                register.vote = register.vote.filter(|(id, _)| *id != asked.id);
                (PrepareStatus::Read, promised)
            }
        }
    }

    /// Accepts or rejects a proposal. Its records are added unless the result is `Preempted` or `Held`.
    pub(crate) fn accept(&mut self, here: ServerNow<'_>, proposal: &Proposal) -> AcceptStatus {
        self.expire(here);
        let target = &proposal.target;
        let (take, span) = match proposal.lease {
            ProposedLease::Take(ttl) => (true, millis(ttl)),
            ProposedLease::Stay(left) => (false, millis(left)),
            ProposedLease::Over(_) => (false, 0),
        };
        let past = self.recollect(here, LongestTtl::default(), if take { span } else { 0 });
        if self.register.promised != proposal.ballot {
            return AcceptStatus::Preempted;
        }
        let ended = finished_text(&proposal.lock);
        let token = proposal.lock.token.as_ref();
        let over = target.lock.exclusive && self.is_of_ended(&ended);
        if take && target.lock.exclusive && !over && !self.is_free_for(token) {
            return AcceptStatus::Held;
        }
        let epoch = target
            .job
            .as_ref()
            .map(|job| self.ledgers.get(job).and_then(|it| it.epoch));
        let standing = if past.left > 0 {
            AcceptStatus::Recovering
        } else if past.remembers(self.register.epoch) && epoch.is_none_or(|it| past.remembers(it)) {
            AcceptStatus::Accepted
        } else {
            AcceptStatus::Forgetful
        };
        if let (Some(name), Some(job)) = (&target.job, &proposal.job) {
            let ledger = JobRegister {
                ballot: proposal.ballot,
                state: job.state.clone(),
                doubt: job.doubt,
                horizon: job.horizon,
                epoch: past.lost_at,
            };
            self.ledgers.insert(name.clone(), ledger);
        }
        let end = here.now() + span;
        let lease_end = match (token, proposal.lease) {
            (None, _) | (_, ProposedLease::Over(None)) => 0,
            (_, ProposedLease::Over(Some(span))) => here.now().saturating_sub(millis(span)),
            _ if take || self.register.token.as_ref() != token => end,
            _ => self.register.lease_end,
        };
        let vote = self.register.vote;
        self.register = LockRegister {
            fence: proposal.lock.fence,
            token: token.cloned(),
            lease_end,
            run_id: proposal.lock.run_id.clone(),
            ended,
            ballot: proposal.ballot,
            promised: self.register.promised,
            vote: vote.filter(|(id, _)| *id != proposal.ballot.id),
            epoch: past.lost_at,
        };
        if let Some(token) = token.filter(|_| take && target.lock.exclusive) {
            self.set(token, end);
        } else if over {
            self.key = Key::Absent;
        }
        standing
    }

    /// Extends a lease whose token matches. One that is gone is set again while its end has not
    /// come, while the node recovers, and with `again`, because a majority has it; never for a
    /// token that ended.
    pub(crate) fn extend(
        &mut self,
        here: ServerNow<'_>,
        renewal: &Renewal,
        longest: LongestTtl,
        again: bool,
    ) -> ExtendReply {
        self.expire(here);
        let (token, ttl) = (&renewal.grant.token, millis(renewal.grant.ttl));
        let exclusive = renewal.grant.lock.exclusive;
        let past = self.recollect(here, longest, ttl);
        let mut granted = self.register.token.as_ref() == Some(token);
        match &self.key {
            Key::Value { text, .. } if exclusive && text == token.as_str() => {}
            Key::Value { .. } | Key::OtherType { .. } if exclusive => return ExtendReply::Taken,
            _ if has_ended(&self.register.ended, token.as_str()) => return ExtendReply::Absent,
            _ if granted && (!exclusive || self.register.lease_end > here.now()) => {}
            _ if !again && past.left == 0 => return ExtendReply::Absent,
            _ if exclusive => {}
            _ if self.register.token.is_none() => {
                self.register.token = Some(token.clone());
                granted = true;
            }
            _ => return ExtendReply::Absent,
        }
        if exclusive {
            self.set(token, here.now() + ttl);
        }
        if granted {
            self.register.lease_end = here.now() + ttl;
        }
        // A token without a run was set here by a renewal.
        if granted && self.register.run_id.is_some() {
            ExtendReply::Renewed
        } else {
            ExtendReply::Unrecorded
        }
    }

    /// Withdraws the lock of a proposal that no majority accepted. Returns whether this node had accepted
    /// it. What a later proposal wrote stays, and so does the lock if that one was of the same token. A later
    /// one of somebody else leaves the lock, but knows that nobody was granted it.
    pub(crate) fn withdraw(
        &mut self,
        here: ServerNow<'_>,
        exclusive: bool,
        ballot: Ballot,
        token: &Token,
    ) -> bool {
        self.expire(here);
        let is_its = self.register.token.as_ref() == Some(token);
        let is_accepted = is_its && self.register.ballot == ballot;
        let is_left = !is_its && self.register.ballot > ballot;
        let is_held = exclusive && self.is_held_by(token);
        if is_accepted {
            self.register.lease_end = 0;
        } else if !(is_left && is_held) {
            return false;
        }
        if is_held {
            self.key = Key::Absent;
        }
        true
    }

    /// A key whose end has come is gone.
    fn expire(&mut self, here: ServerNow<'_>) {
        if let Key::Value { end: Some(end), .. } | Key::OtherType { end: Some(end) } = &self.key
            && *end <= here.now()
        {
            self.key = Key::Absent;
        }
    }

    /// Compares the marker with the server, and notes a loss.
    fn recollect(&mut self, here: ServerNow<'_>, longest: LongestTtl, ttl: u64) -> Past {
        let now = here.now();
        let asked = millis(longest.listed.max(longest.elsewhere));
        let is_wrong = |at: u64| at > now + millis(LEDGER_AHEAD);
        let mut kept = match self.marker.take() {
            // Noticed under a clock that was wrong: it counts as another loss, noticed now.
            Some(kept) if kept.lost_at.is_some_and(is_wrong) => {
                let waits = kept.until.saturating_sub(kept.lost_at.unwrap_or(now));
                NodeMarker {
                    server: here.server.to_owned(),
                    lost_at: Some(now),
                    until: now + waits.max(asked).max(kept.listed.longest()),
                    ..kept
                }
            }
            Some(kept) if kept.server == here.server => {
                let until = match kept.lost_at {
                    Some(lost_at) if kept.until > now => kept.until.max(lost_at + asked),
                    _ => kept.until,
                };
                NodeMarker { until, ..kept }
            }
            kept => {
                let (listed, until) =
                    kept.map_or_else(Default::default, |it| (it.listed, it.until));
                NodeMarker {
                    server: here.server.to_owned(),
                    lost_at: Some(now),
                    until: until.max(now + asked.max(listed.longest())),
                    listed,
                }
            }
        };
        kept.listed.note(now, millis(longest.listed));
        let kept = self.marker.insert(kept);
        Past {
            lost_at: kept.lost_at,
            left: (kept.lost_at).map_or(0, |at| kept.until.max(at + ttl).saturating_sub(now)),
            longest: kept.listed.longest(),
        }
    }

    fn held(&self, here: ServerNow<'_>, exclusive: bool) -> KeyHolder {
        let left = |end: &Option<u64>| end.map(|end| here.left(end));
        match &self.key {
            Key::Value { text, end } if exclusive => KeyHolder::Value(text.clone(), left(end)),
            Key::OtherType { end } if exclusive => KeyHolder::OtherType(left(end)),
            _ => KeyHolder::Nobody,
        }
    }

    fn is_held_by(&self, token: &Token) -> bool {
        matches!(&self.key, Key::Value { text, .. } if text == token.as_str())
    }

    fn is_free_for(&self, token: Option<&Token>) -> bool {
        self.key == Key::Absent || token.is_some_and(|token| self.is_held_by(token))
    }

    /// Whether the lock is of a token that ended: its release did not reach this node.
    fn is_of_ended(&self, ended: &str) -> bool {
        matches!(&self.key, Key::Value { text, .. } if has_ended(ended, text))
    }

    fn set(&mut self, token: &Token, end: u64) {
        self.key = Key::Value {
            text: token.as_str().to_owned(),
            end: Some(end),
        };
    }
}

fn has_ended(list: &str, value: &str) -> bool {
    let reply = LockView {
        finished: list.to_owned(),
        ..LockView::default()
    };
    reply.has_ended(value)
}

fn instant(ms: u64) -> Timestamp {
    Timestamp::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))
}

impl LockRegister {
    fn view(&self, here: ServerNow<'_>) -> LockView {
        LockView {
            ballot: self.ballot,
            fence: self.fence,
            token: self.token.clone(),
            left: here.left(self.lease_end),
            over_for: here.over_for(self.lease_end),
            run_id: self.run_id.clone(),
            finished: if self.ended.is_empty() {
                "\n".to_owned()
            } else {
                self.ended.clone()
            },
        }
    }
}

impl JobRegister {
    fn view(&self) -> JobView {
        JobView {
            ballot: self.ballot,
            state: self.state.clone(),
            doubt: self.doubt,
            horizon: self.horizon,
        }
    }
}
