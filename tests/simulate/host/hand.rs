//! `trigger`: a run by hand, in a process of its own, as `cli::trigger` carries it.

use std::sync::Arc;
use std::time::Duration;

use cronlatch::config::Job;
use cronlatch::engine::simulated::Requests;
use cronlatch::names::{RunId, Token};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, Finish, IfPaused, Kind, ManualRun, StoreError,
};
use cronlatch::time::BootInstant;

use super::daemon::identity;
use super::runner::{Assignment, Granted, Runner};
use super::tasks::RESPONSE;
use super::{Env, Timer};
use crate::message::{Reply, Request, unanswered};
use crate::plan::JobPlan;

/// How long a store that does not answer is asked for the claim, in milliseconds.
const CLAIM_FOR: i64 = 5_000;
/// How long it is asked to take the record.
const FINISH_FOR: i64 = 60_000;
/// How long it is asked to take a cancellation.
const CANCEL_FOR: i64 = 2_000;
const PAUSE: i64 = 250;
/// How often the note of the run is written again.
const NOTE_AGAIN: i64 = 20_000;

#[derive(Debug)]
enum Stage {
    Notes,
    Claims { sent: BootInstant },
    Runs,
    Finishes { finish: Box<Finish> },
    Done,
}

#[derive(Debug)]
pub(super) struct Hand {
    pub(super) life: u32,
    job: Arc<Job>,
    plan: JobPlan,
    token: Token,
    run_id: RunId,
    runner: Runner,
    stage: Stage,
    until: i64,
    unanswered: bool,
    asked: Option<u64>,
}

impl Hand {
    pub(super) fn start(env: &mut Env<'_>, plan: &JobPlan) -> Self {
        let (run_id, token) = identity(env);
        let mut hand = Self {
            life: env.life,
            job: Arc::new(plan.job()),
            plan: plan.clone(),
            token,
            run_id,
            runner: Runner::default(),
            stage: Stage::Notes,
            until: env.sim.now + CLAIM_FOR,
            unanswered: false,
            asked: None,
        };
        hand.ask(env);
        hand
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    fn ask(&mut self, env: &mut Env<'_>) {
        env.longest = Duration::ZERO;
        let request = match &mut self.stage {
            Stage::Notes => self.note(env),
            Stage::Claims { sent } => {
                *sent = env.sim.boot();
                Request::Claim(Box::new(Claim {
                    lock: self.job.lock_on(env.name),
                    token: self.token.clone(),
                    run_id: self.run_id.clone(),
                    ttl: self.job.lock.ttl,
                    what: ClaimTarget::Manual {
                        job: self.job.name.clone(),
                        if_paused: IfPaused::Refuse,
                    },
                }))
            }
            Stage::Finishes { finish } => Request::Finish(finish.clone()),
            Stage::Runs => {
                // Nothing depends on the reply.
                let note = self.note(env);
                env.send(note, RESPONSE);
                env.arm(env.sim.now + NOTE_AGAIN, Timer::Hand);
                return;
            }
            Stage::Done => return,
        };
        self.asked = Some(env.send(request, RESPONSE));
    }

    /// What lets any daemon record the end of the run.
    fn note(&self, env: &Env<'_>) -> Request {
        Request::NoteManual(Box::new(ManualRun {
            run_id: self.run_id.clone(),
            job: self.job.name.clone(),
            lock: self.job.lock_on(env.name),
        }))
    }

    /// The run is over, or was not granted.
    fn done(&mut self, env: &mut Env<'_>) {
        self.stage = Stage::Done;
        env.send(Request::ForgetManual(self.run_id.clone()), RESPONSE);
    }

    pub(super) fn timer(&mut self, env: &mut Env<'_>, timer: Timer) {
        match timer {
            Timer::GiveUp(id) => self.answered(env, id, Err(unanswered())),
            Timer::Hand if self.asked.is_none() => self.ask(env),
            Timer::Watchdog => self.runner.tend(env),
            Timer::Exited(process, report) => self.runner.exited(env, process, report),
            Timer::Retry(run) => self.runner.retry(env, run),
            Timer::TimedOut(run, tries) => self.runner.timed_out(env, run, tries),
            _ => {}
        }
        self.follow(env);
    }

    /// What follows from whatever has just happened.
    fn follow(&mut self, env: &mut Env<'_>) {
        for over in self.runner.take_over() {
            let requests = Requests {
                job: &over.job,
                host: env.name,
                keep: cronlatch::store::Retention::of_records(1_000_000),
            };
            let finish = requests.verdict(over.token, over.record);
            self.finish(env, finish, FINISH_FOR);
        }
    }

    fn finish(&mut self, env: &mut Env<'_>, finish: Finish, limit: i64) {
        self.until = env.sim.now + limit;
        self.stage = Stage::Finishes {
            finish: Box::new(finish),
        };
        self.ask(env);
    }

    pub(super) fn answered(
        &mut self,
        env: &mut Env<'_>,
        id: u64,
        result: Result<Box<Reply>, StoreError>,
    ) {
        let replies = match result.as_deref() {
            Ok(Reply::Renew(replies)) => Some(replies.clone()),
            _ => None,
        };
        let reply = result.as_deref().ok();
        if self.runner.counted(env, id, reply)
            || self.runner.renewed(env, id, replies)
            || self.asked != Some(id)
        {
            return self.follow(env);
        }
        self.asked = None;
        if result.is_err() && env.sim.now < self.until {
            self.unanswered |= !matches!(self.stage, Stage::Notes);
            env.arm(env.sim.now + PAUSE, Timer::Hand);
            return;
        }
        match (&self.stage, result.map(|reply| *reply)) {
            (Stage::Notes, Ok(_)) => {
                let sent = env.sim.boot();
                self.stage = Stage::Claims { sent };
                self.until = env.sim.now + CLAIM_FOR;
                self.ask(env);
            }
            (Stage::Claims { sent }, Ok(Reply::Claim(ClaimReply::Granted { fence, .. }))) => {
                let assignment = Assignment {
                    job: Arc::clone(&self.job),
                    plan: self.plan.clone(),
                    place: None,
                    token: self.token.clone(),
                    run_id: self.run_id.clone(),
                    kind: Kind::Manual,
                    at: None,
                    attempt: 1,
                    granted: Some(Granted {
                        starts_at: None,
                        fence,
                        sent: *sent,
                        terms: cronlatch::store::RunTerms::NONE,
                    }),
                };
                self.stage = Stage::Runs;
                env.arm(env.sim.now + NOTE_AGAIN, Timer::Hand);
                self.runner.begin(env, assignment);
            }
            (Stage::Claims { .. }, reply) => {
                if let Ok(Reply::Claim(ClaimReply::Held { by, .. })) = &reply
                    && !self.job.lock_on(env.name).exclusive
                {
                    let text = format!("trigger of {} was refused for {by}", self.plan.name);
                    env.sim.trace.refused.push((env.sim.now, text));
                }
                if self.unanswered || reply.is_err() {
                    let requests = Requests {
                        job: &self.job,
                        host: env.name,
                        keep: cronlatch::store::Retention::of_records(1_000_000),
                    };
                    let finish = requests.give_back(self.token.clone());
                    self.finish(env, finish, CANCEL_FOR);
                } else {
                    self.done(env);
                }
            }
            (Stage::Finishes { .. }, Ok(_)) => self.done(env),
            _ => self.stage = Stage::Done,
        }
    }
}
