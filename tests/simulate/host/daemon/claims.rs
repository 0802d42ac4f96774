//! Requests that are sent until they are answered, as `engine::daemon::tasks` sends them.

use std::collections::{BTreeSet, VecDeque};

use cronlatch::engine::simulated::{ClaimId, Event, JobIx};
use cronlatch::store::{Claim, ClaimReply, Grant};

use super::Daemon;
use super::act::Ticket;
use crate::host::tasks::{Ask, Errand, LONGEST_PAUSE, RESPONSE, Task};
use crate::host::{Env, Timer};
use crate::message::{Reply, Request};

/// A store that answered so recently is not down, whatever became of another request.
const RECENTLY: i64 = 500;
/// How often a claim is sent again that is not answered while others are.
const ALONE: u32 = 3;
/// Claims, and what is asked about open runs, in flight at a time.
const TURNS: usize = 64;

/// Which tasks have sent their requests, and which wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    taken: BTreeSet<u64>,
    queue: VecDeque<u64>,
}

impl Daemon {
    /// Sends a claim, once it is its turn.
    pub(super) fn send_claim(
        &mut self,
        env: &mut Env<'_>,
        (job, id): (JobIx, ClaimId),
        mut ticket: Ticket,
        claim: Claim,
    ) {
        let task = env.sim.fresh();
        ticket.task = Some(task);
        self.tickets.insert(id, ticket);
        let request = Request::Claim(Box::new(claim));
        self.begin_task(env, task, (Errand::Claim(job, id), request), 50);
    }

    pub(super) fn task(&mut self, env: &mut Env<'_>, errand: Errand, request: Request) {
        let id = env.sim.fresh();
        self.begin_task(env, id, (errand, request), 100);
    }

    fn begin_task(
        &mut self,
        env: &mut Env<'_>,
        id: u64,
        (errand, request): (Errand, Request),
        pause: i64,
    ) {
        let task = Task {
            errand,
            request,
            pause,
            sent: env.sim.boot(),
            waits: false,
            alone: 0,
        };
        self.tasks.insert(id, task);
        self.send_task(env, id);
    }

    pub(super) fn send_task(&mut self, env: &mut Env<'_>, id: u64) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.waits = false;
        if self.turns.taken.len() >= TURNS {
            self.turns.queue.push_back(id);
            return;
        }
        self.turns.taken.insert(id);
        if let Errand::Claim(_, claim) = task.errand
            && let Some(ticket) = self.tickets.get_mut(&claim)
        {
            ticket.departed = true;
        }
        task.sent = env.sim.boot();
        let asked = env.send(task.request.clone(), RESPONSE);
        self.asked.insert(asked, Ask::Task(id));
    }

    /// The request of a task is over, and so is its turn.
    fn end_turn(&mut self, env: &mut Env<'_>, id: u64) {
        if self.turns.taken.remove(&id)
            && let Some(next) = self.turns.queue.pop_front()
        {
            self.send_task(env, next);
        }
    }

    pub(super) fn abort(&mut self, env: &mut Env<'_>, ticket: &Ticket) {
        if let Some(id) = ticket.task {
            self.tasks.remove(&id);
            self.turns.queue.retain(|waiting| *waiting != id);
            self.end_turn(env, id);
        }
    }

    /// The store is down: what waits for its turn is not sent.
    pub(super) fn give_up_turns(&mut self, env: &mut Env<'_>) {
        for id in std::mem::take(&mut self.turns.queue) {
            self.pause_task(env, id);
            let errand = self.tasks.get(&id).map(|task| task.errand);
            if let Some(Errand::Claim(job, claim)) = errand {
                self.feed(env, Event::NoReply { job, claim });
            }
        }
    }

    /// The task sends its request again after a pause.
    fn pause_task(&mut self, env: &mut Env<'_>, id: u64) {
        if let Some(task) = self.tasks.get_mut(&id) {
            let share = env.sim.dice.range(50, 100);
            env.arm(env.sim.now + task.pause * share / 100, Timer::Task(id));
            task.pause = (task.pause * 2).min(LONGEST_PAUSE);
        }
    }

    pub(super) fn task_answered(&mut self, env: &mut Env<'_>, id: u64, reply: Reply) {
        self.end_turn(env, id);
        let Some(task) = self.tasks.remove(&id) else {
            return;
        };
        match (task.errand, reply) {
            (Errand::Claim(job, claim), Reply::Claim(reply)) => {
                self.last_answer = Some(env.sim.now);
                if let ClaimReply::Recovering { remaining } = reply {
                    self.store_recovers(env, remaining);
                }
                let ticket = self.tickets.remove(&claim);
                if let ClaimReply::Granted {
                    fence,
                    attempt,
                    starts_in,
                    ..
                } = reply
                {
                    if let (Request::Claim(asked), Some(_)) = (&task.request, ticket) {
                        let grant = Grant::of(asked, fence, task.sent)
                            .starting_in(starts_in, env.sim.boot());
                        let event = Event::Granted {
                            job,
                            claim,
                            grant,
                            attempt,
                        };
                        self.feed(env, event);
                    }
                    return;
                }
                if let Some(ticket) = ticket
                    && ticket.in_doubt
                {
                    self.give_back(env, job, ticket.token);
                }
                if let ClaimReply::Moved { .. } = reply {
                    self.registry.leave(job);
                }
                self.feed(env, Event::Replied { job, claim, reply });
            }
            (Errand::Settle(job), Reply::Settled(false)) => {
                self.feed(env, Event::NotSettled { job });
            }
            (Errand::Look(job), Reply::Report(report)) => {
                let event = Event::LedgerQueried {
                    job,
                    head: report.waiting.first().copied(),
                    behind: report.first_due_behind_head(),
                    open: report.open,
                };
                self.feed(env, event);
            }
            _ => {}
        }
    }

    pub(super) fn task_failed(&mut self, env: &mut Env<'_>, id: u64) {
        let recently = self.answered_recently(env);
        self.end_turn(env, id);
        self.pause_task(env, id);
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.alone += u32::from(recently);
        let (errand, alone) = (task.errand, task.alone);
        let Errand::Claim(job, claim) = errand else {
            return self.store_failed(env);
        };
        if let Some(ticket) = self.tickets.get_mut(&claim) {
            ticket.in_doubt = true;
        }
        if !recently {
            self.store_failed(env);
            self.feed(env, Event::NoReply { job, claim });
        } else if alone > ALONE {
            self.feed(env, Event::NoReplyForLock { job, claim });
        }
    }

    pub(super) fn answered_recently(&self, env: &Env<'_>) -> bool {
        (self.last_answer).is_some_and(|last| env.sim.now - last < RECENTLY)
    }
}
