//! What the views of several nodes say together: which nodes count, and the state of lock and job
//! that the rules of the protocol are then applied to.
//!
//! Plain data, no I/O. Two things are merged in two ways. *What is written* (fence, token of the
//! newest grant, finished tokens, ledger) is a register: the proposal with the greatest number
//! wins, for whoever proposes has first heard a majority, and so knows what any earlier majority
//! took. *What passes with time* (the lock, its lease end) is counted: a lock is free when a
//! majority of all nodes has it free, and a lease lasts as long as that is not so.

use std::time::Duration;

use super::clock::{deciding_clock, latest_deciding, lost_at};
use crate::names::Token;
use crate::store::protocol::{Clock, JobState, Key, LockState, given_back, horizon_of};
use crate::store::redis::node::{Ballot, Held, LookAnswer, View};
use crate::time::Timestamp;

/// How many of `nodes` are a majority.
pub fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Which views a decision may rest on.
#[derive(Debug, PartialEq, Eq)]
pub enum Counting {
    /// These, by index. What was due up to the horizon and stands in no ledger cannot be known:
    /// too many nodes have lost their data.
    On {
        counted: Vec<usize>,
        horizon: Option<Timestamp>,
    },
    /// Enough nodes answer, but too many of them lost their data a moment ago.
    Recovering(Duration),
    /// Too few nodes answer.
    TooFew,
}

/// Which of the views count. One that refused to promise counts for nothing but a read.
pub fn count(views: &[View], quorum: usize) -> Counting {
    let usable = || {
        views
            .iter()
            .enumerate()
            .filter(|(_, view)| matches!(view.said, LookAnswer::Promised | LookAnswer::Read))
    };
    let ready = |view: &View| view.recovering.is_zero();
    let sound: Vec<usize> = usable()
        .filter(|(_, view)| ready(view) && view.remembers)
        .map(|(at, _)| at)
        .collect();
    if sound.len() >= quorum {
        return Counting::On {
            counted: sound,
            horizon: None,
        };
    }
    let there: Vec<usize> = usable()
        .filter(|(_, view)| ready(view))
        .map(|(at, _)| at)
        .collect();
    if there.len() >= quorum {
        return forgetful(views, quorum, there);
    }
    let mut waits: Vec<Duration> = usable().map(|(_, view)| view.recovering).collect();
    waits.sort();
    match waits.get(quorum - 1) {
        Some(wait) => Counting::Recovering(*wait),
        None => Counting::TooFew,
    }
}

/// As [`count`], for what a holder reports of its own run: nodes that recover count as well.
pub fn count_recovering(views: &[View], quorum: usize) -> Counting {
    let usable = |view: &View| matches!(view.said, LookAnswer::Promised | LookAnswer::Read);
    let there: Vec<usize> = (0..views.len()).filter(|at| usable(&views[*at])).collect();
    if there.len() >= quorum {
        forgetful(views, quorum, there)
    } else {
        Counting::TooFew
    }
}

/// Counts these nodes, of which some have lost their data.
fn forgetful(views: &[View], quorum: usize, there: Vec<usize>) -> Counting {
    let latest = latest_deciding(views, &there, quorum);
    let horizon = there
        .iter()
        .filter(|at| !views[**at].remembers)
        .filter_map(|at| lost_at(&views[*at], latest))
        .max()
        .map(horizon_of);
    Counting::On {
        counted: there,
        horizon,
    }
}

/// Whether a majority ever knew of the open run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// It did, or there is no run.
    None,
    /// Nobody could tell when the run was proposed again. The replies of further nodes do not change
    /// that.
    Proposed,
    /// Too few of these nodes know of the run: the others must say whether a majority does.
    FewKnow,
}

/// Lock and job as the counted views have them.
#[derive(Debug)]
pub struct Merged {
    pub lock: LockState,
    pub job: Option<JobState>,
    pub clock: Clock,
    pub doubt: Doubt,
    /// The proposal that the job's state was taken from.
    pub base: Ballot,
    /// Whether a majority has exactly this state: then it need not be proposed again.
    pub agreed: bool,
    /// What is left of the lease of the lock's token.
    pub left: Duration,
    /// How long ago that lease ended; `None` while it lasts, or if nobody knows.
    pub over_for: Option<Duration>,
    /// Of the nodes that count, too few for a majority have the lock free, and too few have it held:
    /// the others must say which it is.
    pub torn: bool,
}

/// Puts the views together, as they stand to `me`, the token of the request if it has one.
/// `counted` is never empty.
pub fn merge(
    views: &[View],
    counted: &[usize],
    quorum: usize,
    (exclusive, me): (bool, Option<&Token>),
) -> Merged {
    let clock = deciding_clock(counted.iter().map(|at| views[*at].micros).collect());
    let newest = views.iter().max_by_key(|view| view.lock.ballot);
    let base = newest.map(|view| view.lock.clone()).unwrap_or_default();
    let newest_job = views
        .iter()
        .filter_map(|view| view.job.as_ref())
        .max_by_key(|job| job.ballot);
    let open = newest_job.and_then(|job| job.state.open.as_ref());
    let known: Vec<&Token> = [me, base.token.as_ref(), open.map(|open| &open.token)]
        .into_iter()
        .flatten()
        .collect();
    let counted: Vec<&View> = counted.iter().map(|at| &views[*at]).collect();
    let left = base.token.as_ref().map_or(Duration::ZERO, |token| {
        let lefts = counted
            .iter()
            .map(|view| lease_left(view, exclusive, token));
        nth(lefts, quorum)
    });
    let over_for = (base.token.as_ref())
        .filter(|_| left.is_zero())
        .and_then(|token| over_for(&counted, token, quorum));
    let blocks = Blocks {
        base: &base,
        exclusive,
        me,
        clock,
    };
    let lock = LockState {
        key: blocks.key(&counted, quorum),
        fence: views.iter().map(|view| view.lock.fence).max().unwrap_or(0),
        token: base.token.clone(),
        lease_end: match over_for {
            _ if !left.is_zero() => after(clock, left),
            Some(span) => clock.lease.saturating_sub(whole_millis(span)),
            None => 0,
        },
        run_id: base.run_id.clone(),
        finished: base.endings(&known),
    };
    let know_of_it = open.map_or(views.len(), |open| {
        let has = |view: &&View| {
            let theirs = view.job.as_ref().and_then(|job| job.state.open.as_ref());
            theirs.is_some_and(|theirs| theirs.token == open.token)
        };
        views.iter().filter(has).count()
    });
    let same = |view: &&&View| {
        view.lock.ballot == base.ballot
            && view.job.as_ref().map(|job| job.ballot) == newest_job.map(|job| job.ballot)
    };
    let mut merged = Merged {
        agreed: counted.iter().filter(same).count() >= quorum,
        base: newest_job.map(|job| job.ballot).unwrap_or_default(),
        doubt: if know_of_it < quorum {
            Doubt::FewKnow
        } else if newest_job.is_some_and(|job| job.doubt) {
            Doubt::Proposed
        } else {
            Doubt::None
        },
        torn: blocks.are_torn(&counted, quorum),
        job: newest_job.map(|job| job.state.clone()),
        lock,
        clock,
        left,
        over_for,
    };
    merged.forget_before(newest_job.and_then(|job| job.horizon));
    if let Some(open) = open.filter(|open| is_dead_letter(views, quorum, &open.token)) {
        merged.take_back(&open.token.clone());
    }
    merged
}

/// Whether a run can never have been granted: too few nodes know of it for a majority, and those
/// that do not have promised to take nothing as old as its proposal any more. A job starts only
/// after a majority took the proposal that opens its run, so it has not started and never will.
fn is_dead_letter(views: &[View], quorum: usize, token: &Token) -> bool {
    let denies = |view: &&View| {
        let open = view.job.as_ref().and_then(|job| job.state.open.as_ref());
        view.said == LookAnswer::Promised
            && view.remembers
            && view.recovering.is_zero()
            && open.is_none_or(|open| open.token != *token)
    };
    // An even number of nodes is one less: then this is the cautious side.
    let nodes = 2 * quorum - 1;
    nodes - views.iter().filter(denies).count() < quorum
}

impl Merged {
    /// Puts the occurrence of the open run back into the waiting list, as `finish` does with a run
    /// that is given back.
    fn take_back(&mut self, token: &Token) {
        if let Some(job) = &mut self.job
            && let Some(open) = job.open.take()
            && let Some(scheduled_at) = open.scheduled_at
        {
            job.put_back(given_back(&open, scheduled_at));
        }
        if self.lock.token.as_ref() == Some(token) {
            self.lock.token = None;
            self.lock.run_id = None;
            self.lock.lease_end = 0;
            self.left = Duration::ZERO;
            self.over_for = None;
        }
        self.doubt = Doubt::None;
        self.agreed = false;
    }

    /// Whether it cannot be told if a majority ever knew of the open run.
    pub fn is_in_doubt(&self) -> bool {
        self.doubt != Doubt::None
    }

    /// Whether the replies of further nodes may change the outcome. They may show that a majority knows
    /// of the open run, that the lock is free or held, or that `reporter`, who reports on its own run,
    /// holds it. Right after a grant, a node that promised before the grant reached it knows neither the
    /// run nor the lock. A node that a release did not reach still has a lock that nobody holds.
    pub fn needs_more(&self, exclusive: bool, reporter: Option<&Token>) -> bool {
        let lock = &self.lock;
        let is_half_mine = |me: &Token| exclusive && lock.is_granted_to(me) && !lock.key_holds(me);
        self.doubt == Doubt::FewKnow || self.torn || reporter.is_some_and(is_half_mine)
    }

    /// What was due up to the horizon and is not decided cannot be known.
    pub fn forget_before(&mut self, horizon: Option<Timestamp>) {
        let past = &mut self.clock.past;
        past.horizon = past.horizon.max(horizon);
    }
}

fn after(clock: Clock, left: Duration) -> u64 {
    clock.lease.saturating_add(whole_millis(left))
}

fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// After how long a majority of all nodes is free of a lease, given what is left of it on those
/// that count.
fn nth(lefts: impl Iterator<Item = Duration>, quorum: usize) -> Duration {
    let mut lefts: Vec<Duration> = lefts.collect();
    lefts.sort();
    lefts.get(quorum - 1).copied().unwrap_or(Duration::MAX)
}

fn lease_left(view: &View, exclusive: bool, token: &Token) -> Duration {
    let by_state = || {
        if view.lock.token.as_ref() == Some(token) {
            view.lock.left
        } else {
            Duration::ZERO
        }
    };
    match &view.held {
        Held::By(value, left) if exclusive && value == token.as_str() => {
            left.unwrap_or(view.lock.left)
        }
        // The lease lasts whatever another program does to the key: its holder may not know yet.
        Held::No | Held::By(..) | Held::Other(_) => by_state(),
    }
}

/// For how long a majority of all nodes has been free of a lease that is over. A node that does not
/// know the lease has always been free of it.
fn over_for(counted: &[&View], token: &Token, quorum: usize) -> Option<Duration> {
    let spans = counted.iter().map(|view| {
        let lock = &view.lock;
        let lasts = !lock.left.is_zero();
        match lock.over_for {
            Some(span) if lock.token.as_ref() == Some(token) => span,
            None if lock.token.as_ref() == Some(token) && lasts => Duration::ZERO,
            _ => Duration::MAX,
        }
    });
    let mut spans: Vec<Duration> = spans.collect();
    spans.sort_by(|one, other| other.cmp(one));
    let span = spans.get(quorum - 1).copied();
    span.filter(|span| *span != Duration::MAX)
}

/// Who is in the way of the request on each node.
struct Blocks<'a> {
    base: &'a crate::store::redis::node::LockView,
    exclusive: bool,
    me: Option<&'a Token>,
    clock: Clock,
}

/// What stands in the way on one node, in the order of how long it will.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Block {
    Free,
    Until(Duration, Who),
    ForEver(Who),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// The lock holds this.
    Value(String),
    OtherType,
    /// The lock is gone, its lease end has not come.
    Granted(String),
}

impl Blocks<'_> {
    /// The lock as a majority has it.
    fn key(&self, counted: &[&View], quorum: usize) -> Key {
        if !self.exclusive {
            return Key::Absent;
        }
        let mut blocks: Vec<Block> = counted.iter().map(|view| self.on(view)).collect();
        blocks.sort();
        let at = |left: &Duration| Some(after(self.clock, *left));
        match blocks.get(quorum - 1) {
            Some(Block::ForEver(Who::Value(text) | Who::Granted(text))) => Key::Value {
                text: text.clone(),
                end: None,
            },
            Some(Block::Until(left, Who::OtherType)) => Key::OtherType { end: at(left) },
            Some(Block::ForEver(Who::OtherType)) => Key::OtherType { end: None },
            // The token and the lease end of the state say the same.
            Some(Block::Until(_, Who::Granted(text)))
                if self.base.token.as_ref().map(Token::as_str) == Some(text) =>
            {
                Key::Absent
            }
            Some(Block::Until(left, Who::Value(text) | Who::Granted(text))) => Key::Value {
                text: text.clone(),
                end: at(left),
            },
            Some(Block::Free) | None => self.mine(counted, quorum),
        }
    }

    /// Whether these nodes alone cannot tell if a majority of all has the lock free.
    fn are_torn(&self, counted: &[&View], quorum: usize) -> bool {
        if !self.exclusive {
            return false;
        }
        let (free, held): (Vec<Block>, Vec<Block>) = (counted.iter())
            .map(|view| self.on(view))
            .partition(|block| *block == Block::Free);
        free.len() < quorum && held.len() < quorum
    }

    /// A lock that is ours on so many nodes that it is nobody else's. Of the nodes that do not
    /// count nobody knows: where a majority is free of a lease they are taken to hold it, and here
    /// to be free.
    fn mine(&self, counted: &[&View], quorum: usize) -> Key {
        let Some(me) = self.me else {
            return Key::Absent;
        };
        let lefts = counted.iter().filter_map(|view| match &view.held {
            Held::By(value, left) if value == me.as_str() => {
                Some(left.unwrap_or(Duration::MAX).max(Duration::from_millis(1)))
            }
            _ => None,
        });
        let mut lefts: Vec<Duration> = lefts.collect();
        lefts.sort_by(|one, other| other.cmp(one));
        let Some(left) = lefts.get(quorum - 1).copied() else {
            return Key::Absent;
        };
        Key::Value {
            text: me.as_str().to_owned(),
            end: (left != Duration::MAX).then(|| after(self.clock, left)),
        }
    }

    fn on(&self, view: &View) -> Block {
        match &view.held {
            Held::Other(Some(left)) => Block::Until(*left, Who::OtherType),
            Held::Other(None) => Block::ForEver(Who::OtherType),
            Held::By(value, left) => {
                let ours = self.me.is_some_and(|me| me.as_str() == value);
                // The release of a token that ended did not reach this node.
                if ours || self.base.has_ended(value) {
                    return Block::Free;
                }
                match left {
                    Some(left) => Block::Until(
                        (*left).max(Duration::from_millis(1)),
                        Who::Value(value.clone()),
                    ),
                    None => Block::ForEver(Who::Value(value.clone())),
                }
            }
            Held::No => match &view.lock.token {
                Some(token)
                    if Some(token) != self.me
                        && !view.lock.left.is_zero()
                        && !self.base.has_ended(token.as_str()) =>
                {
                    Block::Until(view.lock.left, Who::Granted(token.as_str().to_owned()))
                }
                _ => Block::Free,
            },
        }
    }
}
