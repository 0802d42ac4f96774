//! Merges the replies of several nodes: which nodes count, and the state of lock and job to which the
//! rules are then applied.
//!
//! Pure, no I/O. There are two kinds of state. *Registers* (fence, token of the newest grant, finished
//! tokens, ledger): the value with the highest ballot wins, because its proposer had read from a
//! majority and therefore knew what any earlier majority accepted. *What expires* (the lock, its
//! lease): it is counted. A lock is free if a majority of all nodes has it free; until then its
//! lease lasts.

use std::time::Duration;

use super::blocks::Blocks;
use super::clock::{after, deciding_clock, latest_deciding, lost_at, whole_millis};
use crate::ground::sorting::SortShort as _;
use crate::names::Token;
use crate::store::protocol::{Clock, JobState, LockState, horizon_of};
use crate::store::redis::node::{
    Ballot, JobView, KeyHolder, LockView, PrepareReply, PrepareStatus,
};
use crate::time::Timestamp;

/// Returns how many of `nodes` are a majority.
pub fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Whether enough replies count for a decision.
#[derive(Debug, PartialEq, Eq)]
pub enum QuorumCheck {
    /// These count, by index. Undecided occurrences that were due until the horizon are unknown,
    /// because too many nodes have lost their data.
    Met {
        counted: Vec<usize>,
        horizon: Option<Timestamp>,
    },
    /// Enough nodes replied, but too many of them lost their data recently. The time until enough
    /// of them count.
    Recovering(Duration),
    /// Too few nodes replied.
    TooFew,
}

/// Returns which replies count. A node that refused to promise does not count.
pub fn check_quorum(replies: &[PrepareReply], quorum: usize) -> QuorumCheck {
    let usable = || {
        replies.iter().enumerate().filter(|(_, reply)| {
            matches!(reply.status, PrepareStatus::Promised | PrepareStatus::Read)
        })
    };
    let ready = |reply: &PrepareReply| reply.recovering.is_zero();
    let sound: Vec<usize> = usable()
        .filter(|(_, reply)| ready(reply) && reply.remembers)
        .map(|(at, _)| at)
        .collect();
    if sound.len() >= quorum {
        return QuorumCheck::Met {
            counted: sound,
            horizon: None,
        };
    }
    let there: Vec<usize> = usable()
        .filter(|(_, reply)| ready(reply))
        .map(|(at, _)| at)
        .collect();
    if there.len() >= quorum {
        return forgetful(replies, quorum, there);
    }
    let mut waits: Vec<Duration> = usable().map(|(_, reply)| reply.recovering).collect();
    waits.sort();
    match waits.get(quorum - 1) {
        Some(wait) => QuorumCheck::Recovering(*wait),
        None => QuorumCheck::TooFew,
    }
}

/// Whether so many nodes have promised a later ballot that no majority can promise this one, whatever the
/// `silent` nodes reply.
pub fn is_preempted(replies: &[PrepareReply], silent: usize, quorum: usize) -> bool {
    let preempted = |reply: &&PrepareReply| reply.status == PrepareStatus::Preempted;
    let lost = replies.iter().filter(preempted).count();
    lost > 0 && replies.len() - lost + silent < quorum
}

/// As [`check_quorum`], for the report of a holder on its own run: nodes that recover count as well.
pub fn check_quorum_for_holder(replies: &[PrepareReply], quorum: usize) -> QuorumCheck {
    let usable = |reply: &PrepareReply| {
        matches!(reply.status, PrepareStatus::Promised | PrepareStatus::Read)
    };
    let there: Vec<usize> = (0..replies.len())
        .filter(|at| usable(&replies[*at]))
        .collect();
    if there.len() >= quorum {
        forgetful(replies, quorum, there)
    } else {
        QuorumCheck::TooFew
    }
}

/// Counts these nodes, some of which have lost their data.
fn forgetful(replies: &[PrepareReply], quorum: usize, there: Vec<usize>) -> QuorumCheck {
    let latest = latest_deciding(replies, &there, quorum);
    let horizon = there
        .iter()
        .filter(|at| !replies[**at].remembers)
        .filter_map(|at| lost_at(&replies[*at], latest))
        .max()
        .map(horizon_of);
    QuorumCheck::Met {
        counted: there,
        horizon,
    }
}

/// Whether a majority ever accepted the open run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// It did, or there is no run.
    None,
    /// It was unknown when the run was proposed again. Replies of further nodes do not change that.
    Proposed,
    /// Too few of these nodes know the run. The other nodes may show that a majority does.
    FewKnow,
}

/// The lock and the job according to the replies that count.
#[derive(Debug)]
pub struct MergedState {
    pub lock: LockState,
    pub job: Option<JobState>,
    pub clock: Clock,
    pub doubt: Doubt,
    /// The ballot of the job's state.
    pub base: Ballot,
    /// Whether a majority has exactly this state, so that it need not be proposed again.
    pub agreed: bool,
    /// The remaining time of the lease of the lock's token.
    pub left: Duration,
    /// How long ago that lease ended; `None` while it lasts, or if it is unknown.
    pub over_for: Option<Duration>,
    /// Of the nodes that count, neither a majority has the lock free nor a majority has it held. Other
    /// nodes must decide.
    pub torn: bool,
}

/// Merges the replies. `me` is the token of the request, if it has one. `counted` is never empty.
pub fn merge(
    replies: &[PrepareReply],
    counted: &[usize],
    quorum: usize,
    (exclusive, me): (bool, Option<&Token>),
) -> MergedState {
    let clock = deciding_clock(counted.iter().map(|at| replies[*at].micros).collect());
    let newest = replies.iter().max_by_key(|reply| reply.lock.ballot);
    let base = newest.map(|reply| reply.lock.clone()).unwrap_or_default();
    let newest_job = replies
        .iter()
        .filter_map(|reply| reply.job.as_ref())
        .max_by_key(|job| job.ballot);
    let open = newest_job.and_then(|job| job.state.open.as_ref());
    let known: Vec<&Token> = [me, base.token.as_ref(), open.map(|open| &open.token)]
        .into_iter()
        .flatten()
        .collect();
    let counted: Vec<&PrepareReply> = counted.iter().map(|at| &replies[*at]).collect();
    let (left, over_for) = lease_times((&base, exclusive), &counted, quorum);
    let blocks = Blocks {
        base: &base,
        exclusive,
        me,
        clock,
    };
    let lock = LockState {
        key: blocks.key(&counted, quorum),
        fence: replies
            .iter()
            .map(|reply| reply.lock.fence)
            .max()
            .unwrap_or(0),
        token: base.token.clone(),
        lease_end: match over_for {
            _ if !left.is_zero() => after(clock, left),
            Some(span) => clock.lease.saturating_sub(whole_millis(span)),
            None => 0,
        },
        run_id: base.run_id.clone(),
        finished: base.endings(&known),
    };
    let same = |reply: &&&PrepareReply| {
        reply.lock.ballot == base.ballot
            && reply.job.as_ref().map(|job| job.ballot) == newest_job.map(|job| job.ballot)
    };
    let mut merged = MergedState {
        agreed: counted.iter().filter(same).count() >= quorum,
        base: newest_job.map(|job| job.ballot).unwrap_or_default(),
        doubt: doubt_about(newest_job, replies, quorum),
        torn: blocks.are_torn(&counted, quorum),
        job: newest_job.map(|job| job.state.clone()),
        lock,
        clock,
        left,
        over_for,
    };
    merged.forget_before(newest_job.and_then(|job| job.horizon));
    if let Some(open) = open.filter(|open| is_dead_letter(replies, quorum, &open.token)) {
        merged.take_back(&open.token.clone());
    }
    merged
}

/// Returns how long the lease of the lock's token lasts, and how long ago it ended.
fn lease_times(
    (base, exclusive): (&LockView, bool),
    counted: &[&PrepareReply],
    quorum: usize,
) -> (Duration, Option<Duration>) {
    let Some(token) = base.token.as_ref() else {
        return (Duration::ZERO, None);
    };
    let lefts = counted
        .iter()
        .map(|reply| lease_left(reply, exclusive, token));
    let left = nth(lefts, quorum);
    let over_for = if left.is_zero() {
        over_for(counted, token, quorum)
    } else {
        None
    };
    (left, over_for)
}

/// Returns whether it is unknown if a majority ever accepted the open run of `newest`.
fn doubt_about(newest: Option<&JobView>, replies: &[PrepareReply], quorum: usize) -> Doubt {
    let open = newest.and_then(|job| job.state.open.as_ref());
    let knows = |reply: &&PrepareReply| {
        let theirs = reply.job.as_ref().and_then(|job| job.state.open.as_ref());
        open.is_none_or(|open| theirs.is_some_and(|theirs| theirs.token == open.token))
    };
    if replies.iter().filter(knows).count() < quorum {
        Doubt::FewKnow
    } else if newest.is_some_and(|job| job.doubt) {
        Doubt::Proposed
    } else {
        Doubt::None
    }
}

/// Whether a run was never granted and never can be: fewer nodes than a majority know it, and the
/// others have promised a higher ballot. A job starts only after a majority has accepted the
/// proposal that opens its run, so this job has not started and never will.
fn is_dead_letter(replies: &[PrepareReply], quorum: usize, token: &Token) -> bool {
    let denies = |reply: &&PrepareReply| {
        let open = reply.job.as_ref().and_then(|job| job.state.open.as_ref());
        reply.status == PrepareStatus::Promised
            && reply.remembers
            && reply.recovering.is_zero()
            && open.is_none_or(|open| open.token != *token)
    };
    // With an even number of nodes this assumes one node less, which errs on the safe side.
    let nodes = 2 * quorum - 1;
    nodes - replies.iter().filter(denies).count() < quorum
}

impl MergedState {
    /// Returns the occurrence of the open run to the waiting list, as `finish` does with a run that
    /// was not started.
    fn take_back(&mut self, token: &Token) {
        if let Some(job) = &mut self.job
            && let Some(open) = job.open.take()
            && let Some(scheduled_at) = open.scheduled_at
        {
            job.give_back(&open, scheduled_at);
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

    /// Whether it is unknown if a majority ever accepted the open run.
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

    /// Undecided occurrences that were due until the horizon are unknown.
    pub fn forget_before(&mut self, horizon: Option<Timestamp>) {
        let past = &mut self.clock.past;
        past.horizon = past.horizon.max(horizon);
    }
}

/// Returns after how long a majority of all nodes no longer has a lease, given its remaining time on
/// the nodes that count.
fn nth(lefts: impl Iterator<Item = Duration>, quorum: usize) -> Duration {
    let mut lefts: Vec<Duration> = lefts.collect();
    lefts.sort();
    lefts.get(quorum - 1).copied().unwrap_or(Duration::MAX)
}

fn lease_left(reply: &PrepareReply, exclusive: bool, token: &Token) -> Duration {
    let by_state = || {
        if reply.lock.token.as_ref() == Some(token) {
            reply.lock.left
        } else {
            Duration::ZERO
        }
    };
    match &reply.held {
        KeyHolder::Value(value, left) if exclusive && value == token.as_str() => {
            left.unwrap_or(reply.lock.left)
        }
        // The lease lasts even if another program changed the key: its holder may not know that yet.
        KeyHolder::Nobody | KeyHolder::Value(..) | KeyHolder::OtherType(_) => by_state(),
    }
}

/// Returns how long ago a majority of all nodes had no longer this lease. A node that does not know
/// the lease never had it.
fn over_for(counted: &[&PrepareReply], token: &Token, quorum: usize) -> Option<Duration> {
    let spans = counted.iter().map(|reply| {
        let lock = &reply.lock;
        let lasts = !lock.left.is_zero();
        match lock.over_for {
            Some(span) if lock.token.as_ref() == Some(token) => span,
            None if lock.token.as_ref() == Some(token) && lasts => Duration::ZERO,
            _ => Duration::MAX,
        }
    });
    let mut spans: Vec<Duration> = spans.collect();
    spans.sort_short_by(|one, other| other.cmp(one));
    let span = spans.get(quorum - 1).copied();
    span.filter(|span| *span != Duration::MAX)
}
