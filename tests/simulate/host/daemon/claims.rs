//! Requests that are sent until they are answered, as `engine::daemon::tasks` sends them.

use cronlatch::engine::simulated::Event;
use cronlatch::store::ClaimReply;

use super::Daemon;
use crate::host::tasks::{Ask, Errand, LONGEST_PAUSE, RESPONSE, Task};
use crate::host::{Env, Timer};
use crate::message::{Reply, Request};

/// A store that answered so recently is not down, whatever became of another request.
const RECENTLY: i64 = 500;
/// How often a claim is sent again that is not answered while others are.
const ALONE: u32 = 3;

impl Daemon {
    pub(super) fn task(
        &mut self,
        env: &mut Env<'_>,
        errand: Errand,
        request: Request,
        pause: i64,
    ) -> u64 {
        let id = env.sim.fresh();
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
        id
    }

    pub(super) fn send_task(&mut self, env: &mut Env<'_>, id: u64) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.sent = env.sim.boot();
            task.waits = false;
            let asked = env.send(task.request.clone(), RESPONSE);
            self.asked.insert(asked, Ask::Task(id));
        }
    }

    pub(super) fn task_answered(&mut self, env: &mut Env<'_>, id: u64, reply: Reply) {
        let Some(task) = self.tasks.remove(&id) else {
            return;
        };
        match (task.errand, reply) {
            (Errand::Claim(job, claim), Reply::Claim(reply)) => {
                self.last_answer = Some(env.sim.now);
                self.recovers(env, matches!(reply, ClaimReply::Recovering { .. }));
                if let ClaimReply::Granted { .. } = reply {
                    if let Some(ticket) = self.tickets.get_mut(&claim) {
                        ticket.sent = Some(task.sent);
                    }
                } else if let Some(ticket) = self.tickets.remove(&claim)
                    && ticket.in_doubt
                {
                    self.give_back(env, job, ticket.token);
                }
                if let ClaimReply::Moved { .. } = reply {
                    self.registry.entries.remove(&job);
                }
                self.feed(env, Event::Answered { job, claim, reply });
            }
            (Errand::Settle(job), Reply::Settled(false)) => {
                self.feed(env, Event::NotSettled { job });
            }
            (Errand::Look(job), Reply::Report(report)) => {
                let (open, head) = (report.open, report.waiting.first().copied());
                self.feed(env, Event::Found { job, open, head });
            }
            _ => {}
        }
    }

    pub(super) fn task_failed(&mut self, env: &mut Env<'_>, id: u64) {
        let recently = self.answered_recently(env);
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let share = env.sim.dice.range(50, 100);
        env.arm(env.sim.now + task.pause * share / 100, Timer::Task(id));
        task.pause = (task.pause * 2).min(LONGEST_PAUSE);
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
            self.feed(env, Event::Unanswered { job, claim });
        } else if alone > ALONE {
            self.feed(env, Event::UnansweredAlone { job, claim });
        }
    }

    pub(super) fn answered_recently(&self, env: &Env<'_>) -> bool {
        (self.last_answer).is_some_and(|last| env.sim.now - last < RECENTLY)
    }
}
