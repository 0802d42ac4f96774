//! One node of several, in plain form: what it promises, takes, extends and tells.
//!
//! No I/O and no clock. The scripts (`look.lua`, `accept.lua`, `extend.lua`, `withdraw.lua`,
//! `declare.lua`) do the same on a server and are compared with these functions call by call
//! (`tests/it/redlock/member.rs`); the model checker searches worlds made of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::names::{JobName, RunId, Token};
use crate::store::Renewal;
use crate::store::protocol::{JobState, Key, LEDGER_AHEAD, ListedTtls};
use crate::store::redis::node::{
    Ballot, Extended, Held, JobView, Lease, LockView, LongestTtl, LookAnswer, Mode, Place,
    Proposal, Taken, View, finished_text,
};
use crate::time::Timestamp;

/// The node's clock, and which server process it is.
#[derive(Debug, Clone, Copy)]
pub struct Here<'a> {
    /// UTC in microseconds since the epoch.
    pub micros: u64,
    pub server: &'a str,
}

/// All that a node keeps of a lock and its jobs, histories apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Member {
    /// `None`: it knows nothing of its past, for it is new or has lost its data.
    pub marker: Option<Identity>,
    /// The lock itself.
    pub key: Key,
    /// The lock's state.
    pub seat: Seat,
    pub ledgers: BTreeMap<JobName, Ledger>,
}

/// What the data say of the process that keeps them; times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    pub server: String,
    /// When a loss of data was noticed; `None`: nothing ever was lost.
    pub lost_at: Option<u64>,
    /// Before it no lock counts as free.
    pub until: u64,
    /// The longest TTLs of the fleet's job lists.
    pub listed: ListedTtls,
}

/// A lock's state, with what was promised and taken.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Seat {
    pub fence: u64,
    pub token: Option<Token>,
    /// In milliseconds since the epoch.
    pub lease_end: u64,
    pub run_id: Option<RunId>,
    /// The tokens that ended, as [`finished_text`] writes them; empty before the first proposal.
    pub ended: String,
    /// The proposal that was taken last.
    pub ballot: Ballot,
    /// The newest that was promised.
    pub promised: Ballot,
    /// Who has the vote, and until when (ms).
    pub vote: Option<(u64, u64)>,
    /// The loss under which the state was last written.
    pub epoch: Option<u64>,
}

/// A job's ledger, and the proposal that wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ledger {
    pub ballot: Ballot,
    pub state: JobState,
    pub doubt: bool,
    pub horizon: Option<Timestamp>,
    /// The loss under which it was last written.
    pub epoch: Option<u64>,
}

/// What is left of the past, as one request finds it.
#[derive(Clone, Copy)]
struct Past {
    lost_at: Option<u64>,
    /// For so long no lock counts as free, in milliseconds.
    left: u64,
    longest: u64,
}

impl Past {
    fn remembers(self, epoch: Option<u64>) -> bool {
        self.lost_at.is_none() || epoch == self.lost_at
    }
}

impl Here<'_> {
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

impl Member {
    /// Declares the node new: it has nothing to remember.
    pub fn declare_new(&mut self, server: &str) {
        self.marker = Some(Identity {
            server: server.to_owned(),
            lost_at: None,
            until: 0,
            listed: ListedTtls::default(),
        });
    }

    /// A look at a lock and a job; a vote or a promise is given on the way, if it can be.
    /// `vote`: how long others let who gets the vote finish what it began.
    pub fn look(
        &mut self,
        here: Here<'_>,
        place: &Place,
        (mode, asked): (Mode, Ballot),
        vote: Duration,
    ) -> View {
        self.expire(here);
        let past = self.recollect(here, place.longest, millis(place.waits_for()));
        let (said, promised) = self.answer(here, (mode, asked), millis(vote));
        let ledger = place.job.as_ref().map(|job| self.ledgers.get(job));
        let known = ledger.is_none_or(|it| past.remembers(it.and_then(|it| it.epoch)));
        View {
            said,
            promised,
            micros: here.micros,
            server: here.server.to_owned(),
            lost_at: past.lost_at.map(instant),
            recovering: Duration::from_millis(past.left),
            longest: Duration::from_millis(past.longest),
            remembers: past.remembers(self.seat.epoch) && known,
            held: self.held(here, place.lock.exclusive),
            lock: self.seat.view(here),
            job: ledger.flatten().map(Ledger::view),
        }
    }

    fn answer(
        &mut self,
        here: Here<'_>,
        (mode, asked): (Mode, Ballot),
        vote: u64,
    ) -> (LookAnswer, u64) {
        let seat = &mut self.seat;
        let promised = seat.promised.number;
        match mode {
            Mode::Vote => {
                let another =
                    |(id, until): &(u64, u64)| !asked.supersedes(*id) && *until > here.now();
                if seat.vote.as_ref().is_some_and(another) {
                    return (LookAnswer::Busy, promised);
                }
                let number = (promised + 1).max(here.micros).max(asked.number);
                seat.promised = Ballot { number, ..asked };
                seat.vote = Some((asked.id, here.now() + vote));
                (LookAnswer::Promised, number)
            }
            Mode::Promise if seat.promised > asked => (LookAnswer::Outbid, promised),
            Mode::Promise => {
                seat.promised = asked;
                (LookAnswer::Promised, asked.number)
            }
            Mode::Read => (LookAnswer::Read, promised),
            Mode::Yield => {
                seat.vote = seat.vote.filter(|(id, _)| *id != asked.id);
                (LookAnswer::Read, promised)
            }
        }
    }

    /// A proposal arrives. Its records are added unless the answer is `Outbid` or `Held`.
    pub fn accept(&mut self, here: Here<'_>, proposal: &Proposal) -> Taken {
        self.expire(here);
        let place = &proposal.place;
        let (take, span) = match proposal.lease {
            Lease::Take(ttl) => (true, millis(ttl)),
            Lease::Stay(left) => (false, millis(left)),
            Lease::Over(_) => (false, 0),
        };
        let past = self.recollect(here, LongestTtl::default(), if take { span } else { 0 });
        if self.seat.promised != proposal.ballot {
            return Taken::Outbid;
        }
        let ended = finished_text(&proposal.lock);
        let token = proposal.lock.token.as_ref();
        let over = place.lock.exclusive && self.is_of_ended(&ended);
        if take && place.lock.exclusive && !over && !self.is_free_for(token) {
            return Taken::Held;
        }
        let epoch = place
            .job
            .as_ref()
            .map(|job| self.ledgers.get(job).and_then(|it| it.epoch));
        let standing = if past.left > 0 {
            Taken::Recovering
        } else if past.remembers(self.seat.epoch) && epoch.is_none_or(|it| past.remembers(it)) {
            Taken::Yes
        } else {
            Taken::Forgetful
        };
        if let (Some(name), Some(job)) = (&place.job, &proposal.job) {
            let ledger = Ledger {
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
            (None, _) | (_, Lease::Over(None)) => 0,
            (_, Lease::Over(Some(span))) => here.now().saturating_sub(millis(span)),
            _ if take || self.seat.token.as_ref() != token => end,
            _ => self.seat.lease_end,
        };
        let vote = self.seat.vote;
        self.seat = Seat {
            fence: proposal.lock.fence,
            token: token.cloned(),
            lease_end,
            run_id: proposal.lock.run_id.clone(),
            ended,
            ballot: proposal.ballot,
            promised: self.seat.promised,
            vote: vote.filter(|(id, _)| *id != proposal.ballot.id),
            epoch: past.lost_at,
        };
        if let Some(token) = token.filter(|_| take && place.lock.exclusive) {
            self.set(token, end);
        } else if over {
            self.key = Key::Absent;
        }
        standing
    }

    /// Extends a lease whose token matches. One that is gone is set again while its end has not
    /// come, while the node recovers, and with `again`, because a majority has it; never for a
    /// token that ended.
    pub fn extend(
        &mut self,
        here: Here<'_>,
        renewal: &Renewal,
        longest: LongestTtl,
        again: bool,
    ) -> Extended {
        self.expire(here);
        let (token, ttl) = (&renewal.grant.token, millis(renewal.grant.ttl));
        let exclusive = renewal.grant.lock.exclusive;
        let past = self.recollect(here, longest, ttl);
        let mut granted = self.seat.token.as_ref() == Some(token);
        match &self.key {
            Key::Value { text, .. } if exclusive && text == token.as_str() => {}
            Key::Value { .. } | Key::OtherType { .. } if exclusive => return Extended::Taken,
            _ if has_ended(&self.seat.ended, token.as_str()) => return Extended::Absent,
            _ if granted && (!exclusive || self.seat.lease_end > here.now()) => {}
            _ if !again && past.left == 0 => return Extended::Absent,
            _ if exclusive => {}
            _ if self.seat.token.is_none() => {
                self.seat.token = Some(token.clone());
                granted = true;
            }
            _ => return Extended::Absent,
        }
        if exclusive {
            self.set(token, here.now() + ttl);
        }
        if granted {
            self.seat.lease_end = here.now() + ttl;
        }
        // A token without a run was set here by a renewal.
        if granted && self.seat.run_id.is_some() {
            Extended::Renewed
        } else {
            Extended::Unrecorded
        }
    }

    /// Takes the lock of a proposal back that found no majority; answers whether any of it was
    /// here. What a later proposal wrote is not touched.
    pub fn withdraw(
        &mut self,
        here: Here<'_>,
        exclusive: bool,
        ballot: Ballot,
        token: &Token,
    ) -> bool {
        self.expire(here);
        if self.seat.ballot != ballot || self.seat.token.as_ref() != Some(token) {
            return false;
        }
        self.seat.lease_end = 0;
        if exclusive && self.is_held_by(token) {
            self.key = Key::Absent;
        }
        true
    }

    /// A key whose end has come is gone.
    fn expire(&mut self, here: Here<'_>) {
        if let Key::Value { end: Some(end), .. } | Key::OtherType { end: Some(end) } = &self.key
            && *end <= here.now()
        {
            self.key = Key::Absent;
        }
    }

    /// Compares the marker with the server, and writes down a loss.
    fn recollect(&mut self, here: Here<'_>, longest: LongestTtl, ttl: u64) -> Past {
        let now = here.now();
        let asked = millis(longest.listed.max(longest.elsewhere));
        let is_wrong = |at: u64| at > now + millis(LEDGER_AHEAD);
        let mut kept = match self.marker.take() {
            // Noticed under a clock that was wrong: it counts as another loss, noticed now.
            Some(kept) if kept.lost_at.is_some_and(is_wrong) => {
                let waits = kept.until.saturating_sub(kept.lost_at.unwrap_or(now));
                Identity {
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
                Identity { until, ..kept }
            }
            kept => {
                let (listed, until) =
                    kept.map_or_else(Default::default, |it| (it.listed, it.until));
                Identity {
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

    fn held(&self, here: Here<'_>, exclusive: bool) -> Held {
        let left = |end: &Option<u64>| end.map(|end| here.left(end));
        match &self.key {
            Key::Value { text, end } if exclusive => Held::By(text.clone(), left(end)),
            Key::OtherType { end } if exclusive => Held::Other(left(end)),
            _ => Held::No,
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
    let view = LockView {
        finished: list.to_owned(),
        ..LockView::default()
    };
    view.has_ended(value)
}

fn instant(ms: u64) -> Timestamp {
    Timestamp::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))
}

impl Seat {
    fn view(&self, here: Here<'_>) -> LockView {
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

impl Ledger {
    fn view(&self) -> JobView {
        JobView {
            ballot: self.ballot,
            state: self.state.clone(),
            doubt: self.doubt,
            horizon: self.horizon,
        }
    }
}
