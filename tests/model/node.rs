//! One node among several: what `node.lua`, `look.lua` and `accept.lua` do, in plain form.

use std::time::Duration;

use cronlatch::store::majority::{
    Ballot, Held, JobView, LockView, Said, Taken, View, finished_text,
};
use cronlatch::store::protocol::{JobState, Key, LockState};
use cronlatch::time::Timestamp;

use crate::ids::{Tick, clock, fingerprint, instant, ticks};

/// A ledger, as a node keeps it or is proposed it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    pub(crate) ballot: Ballot,
    pub(crate) state: JobState,
    pub(crate) doubt: bool,
    pub(crate) horizon: Option<Timestamp>,
    pub(crate) epoch: Option<Tick>,
}

impl Ledger {
    pub(crate) fn new(ballot: Ballot, state: JobState) -> Self {
        Self {
            ballot,
            state,
            doubt: false,
            horizon: None,
            epoch: None,
        }
    }
}

/// What is proposed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Proposal {
    pub(crate) ballot: Ballot,
    pub(crate) lock: LockState,
    pub(crate) take: bool,
    /// What is left of the lease of the lock's token.
    pub(crate) left: Duration,
    pub(crate) ledger: Option<Ledger>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// Whether it knows what server it is; one that lost its data does not.
    marked: bool,
    pub(crate) lost_at: Option<Tick>,
    pub(crate) promised: Ballot,
    /// Its last writer.
    pub(crate) ballot: Ballot,
    epoch: Option<Tick>,
    pub(crate) lock: LockState,
    pub(crate) ledger: Option<Ledger>,
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).expect("short spans")
}

impl Node {
    /// One that knows a job of which nothing was due yet.
    pub(crate) fn new() -> Self {
        let mut state = JobState::starting_after(instant(0));
        state.fingerprints.push((fingerprint(0), instant(0)));
        Self {
            marked: true,
            ledger: Some(Ledger::new(Ballot::default(), state)),
            ..Self::empty()
        }
    }

    /// One that comes back without its data.
    pub(crate) fn empty() -> Self {
        Self {
            marked: false,
            lost_at: None,
            promised: Ballot::default(),
            ballot: Ballot::default(),
            epoch: None,
            lock: LockState::default(),
            ledger: None,
        }
    }

    /// A tick passes.
    pub(crate) fn tick(&mut self, now: Tick) {
        let now = clock(now).lease;
        if let Key::Value { end: Some(end), .. } = &self.lock.key
            && *end <= now
        {
            self.lock.key = Key::Absent;
        }
        if self.lock.lease_end <= now {
            self.lock.lease_end = 0;
        }
    }

    /// Looks whether data were lost; how long its locks do not count as free.
    fn recollect(&mut self, now: Tick, ttl: Tick) -> Tick {
        if !self.marked {
            self.marked = true;
            self.lost_at = Some(now);
        }
        self.lost_at.map_or(0, |at| (at + ttl - now).max(0))
    }

    fn remembers(&self) -> bool {
        let since = |epoch: Option<Tick>| epoch == self.lost_at;
        self.lost_at.is_none()
            || since(self.epoch) && self.ledger.as_ref().is_some_and(|it| since(it.epoch))
    }

    /// The vote of a node that is asked first: it names the number.
    pub(crate) fn vote(&mut self, now: Tick, id: u64) -> Ballot {
        let number = clock(now).micros.max(self.promised.number + 1);
        self.promised = Ballot { number, id };
        self.promised
    }

    /// A promise to take nothing older.
    pub(crate) fn promise(&mut self, ballot: Ballot) -> bool {
        let given = self.promised <= ballot;
        if given {
            self.promised = ballot;
        }
        given
    }

    /// What it tells of itself, once the promise is given.
    pub(crate) fn view(&mut self, now: Tick, ttl: Tick) -> View {
        let left = self.recollect(now, ttl);
        let ends = |end: u64| Duration::from_millis(end.saturating_sub(clock(now).lease));
        View {
            said: Said::Promised,
            promised: self.promised.number,
            micros: clock(now).micros,
            server: String::new(),
            lost_at: self.lost_at.map(instant),
            recovering: ticks(left),
            longest: ticks(ttl),
            remembers: self.remembers(),
            held: match &self.lock.key {
                Key::Value { text, end } => Held::By(text.clone(), end.map(ends)),
                Key::Absent | Key::OtherType { .. } => Held::No,
            },
            lock: LockView {
                ballot: self.ballot,
                fence: self.lock.fence,
                token: self.lock.token.clone(),
                left: ends(self.lock.lease_end),
                run_id: self.lock.run_id.clone(),
                finished: finished_text(&self.lock),
            },
            job: self.ledger.clone().map(|it| JobView {
                ballot: it.ballot,
                state: it.state,
                doubt: it.doubt,
                horizon: it.horizon,
            }),
        }
    }

    /// A proposal arrives.
    pub(crate) fn accept(&mut self, now: Tick, ttl: Tick, proposal: &Proposal) -> Taken {
        let left = self.recollect(now, ttl);
        if self.promised != proposal.ballot {
            return Taken::Outbid;
        }
        let new = &proposal.lock;
        let token = new.token.as_ref();
        let mut key = self.lock.key.clone();
        if let Key::Value { text, .. } = &key {
            let over = new.finished.iter().any(|(ended, _)| ended.as_str() == text);
            if over {
                key = Key::Absent;
            } else if proposal.take && token.is_none_or(|token| token.as_str() != text) {
                return Taken::Held;
            }
        }
        let standing = if left > 0 {
            Taken::Recovering
        } else if self.remembers() {
            Taken::Yes
        } else {
            Taken::Forgetful
        };
        if let Some(ledger) = &proposal.ledger {
            self.ledger = Some(Ledger {
                epoch: self.lost_at,
                ..ledger.clone()
            });
        }
        let span = if proposal.take {
            ticks(ttl)
        } else {
            proposal.left
        };
        let end = clock(now).lease + millis(span);
        let lease_end = match token {
            Some(_) if proposal.take || self.lock.token.as_ref() != token => end,
            Some(_) if !proposal.left.is_zero() => self.lock.lease_end,
            _ => 0,
        };
        if let Some(token) = token.filter(|_| proposal.take) {
            key = Key::Value {
                text: token.as_str().to_owned(),
                end: Some(end),
            };
        }
        self.lock = LockState {
            key,
            lease_end,
            ..new.clone()
        };
        (self.ballot, self.epoch) = (proposal.ballot, self.lost_at);
        standing
    }
}
