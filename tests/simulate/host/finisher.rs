//! Verdicts on their way to the store, as `engine::finisher` brings them there.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cronlatch::engine::simulated::JobIx;
use cronlatch::lease::table::LeaseId;
use cronlatch::names::JobName;
use cronlatch::store::{Finish, FinishReply};

use super::runner::Runner;
use super::{Env, Timer};
use crate::message::Request;

/// Verdicts in flight at a time.
const TURNS: usize = 32;
const FIRST_DELAY: i64 = 100;
const LONGEST_DELAY: i64 = 5_000;
/// How long the store may take.
const RESPONSE: Duration = Duration::from_secs(1);

/// A verdict, or the cancellation of a claim, to be delivered.
#[derive(Debug, Clone)]
pub(crate) struct PendingFinish {
    pub(crate) finish: Finish,
    pub(crate) lease: Option<LeaseId>,
    pub(crate) job: Option<JobIx>,
}

/// What the daemon must know of a try.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Closed(JobIx),
    StoreFailed,
    /// An occurrence came back undecided.
    Returned(JobName),
}

#[derive(Debug)]
pub(crate) struct Finisher {
    backlog: BTreeMap<u64, PendingFinish>,
    under_way: BTreeMap<u64, (u64, PendingFinish, bool)>,
    /// What waits for its turn.
    queue: VecDeque<(u64, PendingFinish, bool)>,
    retrying: bool,
    next: u64,
    delay: i64,
    retry_at: i64,
    armed: Option<i64>,
}

impl Finisher {
    pub(super) fn new(now: i64) -> Self {
        Self {
            backlog: BTreeMap::new(),
            under_way: BTreeMap::new(),
            queue: VecDeque::new(),
            retrying: false,
            next: 0,
            delay: FIRST_DELAY,
            retry_at: now,
            armed: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.backlog.is_empty() && self.under_way.is_empty() && self.queue.is_empty()
    }

    pub(super) fn waits_for(&self, id: u64) -> bool {
        self.under_way.contains_key(&id)
    }

    /// What has not been delivered, in order.
    pub(super) fn rest(self) -> Vec<Finish> {
        let under_way = self
            .under_way
            .into_values()
            .chain(self.queue)
            .map(|(n, pending, _)| (n, pending));
        let rest: BTreeMap<u64, PendingFinish> =
            self.backlog.into_iter().chain(under_way).collect();
        rest.into_values().map(|pending| pending.finish).collect()
    }

    pub(super) fn send(&mut self, env: &mut Env<'_>, pending: PendingFinish) {
        let number = self.next;
        self.next += 1;
        if self.backlog.is_empty() {
            self.send_or_queue(env, number, pending, false);
        } else {
            self.backlog.insert(number, pending);
            self.arm(env);
        }
    }

    fn send_or_queue(
        &mut self,
        env: &mut Env<'_>,
        number: u64,
        pending: PendingFinish,
        again: bool,
    ) {
        if self.under_way.len() >= TURNS {
            self.queue.push_back((number, pending, again));
            return;
        }
        let request = Request::Finish(Box::new(pending.finish.clone()));
        let id = env.send(request, RESPONSE);
        self.under_way.insert(id, (number, pending, again));
    }

    pub(super) fn retry_now(&mut self, env: &mut Env<'_>) {
        self.retry_at = env.sim.now;
        self.arm(env);
    }

    fn arm(&mut self, env: &mut Env<'_>) {
        let at = self.retry_at.max(env.sim.now);
        let armed = self.armed.filter(|armed| *armed > env.sim.now);
        if !self.backlog.is_empty() && armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            env.arm(at, Timer::Finisher);
        }
    }

    /// Tries the oldest of the backlog, if it is time.
    pub(super) fn wake(&mut self, env: &mut Env<'_>, runner: &Runner) -> Vec<Notice> {
        self.armed = None;
        if self.backlog.is_empty() || env.sim.now < self.retry_at {
            self.arm(env);
            return Vec::new();
        }
        let mut closed = Vec::new();
        for pending in self.backlog.values_mut() {
            if pending.lease.is_some_and(|lease| runner.is_lost(lease)) {
                pending.lease = None;
                closed.extend(pending.job.take().map(Notice::Closed));
            }
        }
        if !self.retrying
            && let Some((number, pending)) = self.backlog.pop_first()
        {
            self.retrying = true;
            self.send_or_queue(env, number, pending, true);
        }
        self.retry_at = env.sim.now + LONGEST_DELAY;
        self.arm(env);
        closed
    }

    /// A try was answered, or given up. Returns `None` when the request was not this one's, else
    /// the lease that is to be let go, and what the daemon must know.
    pub(super) fn tried(
        &mut self,
        env: &mut Env<'_>,
        id: u64,
        reply: Option<FinishReply>,
    ) -> Option<(Option<LeaseId>, Vec<Notice>)> {
        let (number, pending, again) = self.under_way.remove(&id)?;
        self.retrying = self.retrying && !again;
        let told = if let Some(reply) = reply {
            self.delay = FIRST_DELAY;
            self.retry_at = env.sim.now;
            let returned = pending.finish.give_back && reply == FinishReply::Released;
            let returned = pending.finish.job.filter(|_| returned);
            let notices = returned.map(Notice::Returned).into_iter();
            let notices = notices.chain(pending.job.map(Notice::Closed));
            if let Some((number, pending, again)) = self.queue.pop_front() {
                self.send_or_queue(env, number, pending, again);
            }
            (pending.lease, notices.collect())
        } else {
            self.backlog.insert(number, pending);
            // What waits for its turn would not be answered either.
            for (number, pending, again) in std::mem::take(&mut self.queue) {
                self.backlog.insert(number, pending);
                self.retrying = self.retrying && !again;
            }
            let share = env.sim.dice.range(50, 100);
            self.retry_at = env.sim.now + self.delay * share / 100;
            if again {
                self.delay = (self.delay * 2).min(LONGEST_DELAY);
            }
            (None, vec![Notice::StoreFailed])
        };
        self.arm(env);
        Some(told)
    }
}
