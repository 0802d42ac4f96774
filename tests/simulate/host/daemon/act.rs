//! From the core's actions to requests and runs, as `engine::daemon::act` has it.

use cronlatch::engine::simulated::{Action, ClaimId, JobIx};
use cronlatch::names::{RunId, Token};
use cronlatch::store::{Kind, Settle};
use cronlatch::time::Timestamp;

use super::{Daemon, KEEP};
use crate::host::finisher::PendingFinish;
use crate::host::runner::{Assignment, Granted};
use crate::host::tasks::Errand;
use crate::host::{Env, Timer};
use crate::message::Request;

/// How long a channel is fresh, how long it is then waited for, and how long at most.
const FRESH: i64 = 2_000;
const FRESH_WAIT: i64 = 200;
const LONGEST_WAIT: i64 = 5_000;

/// A claim that is out.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) token: Token,
    pub(super) run_id: RunId,
    pub(super) in_doubt: bool,
    pub(super) task: Option<u64>,
    /// A copy was sent, or may yet be.
    pub(super) departed: bool,
}

impl Daemon {
    pub(super) fn act(&mut self, env: &mut Env<'_>, action: Action) {
        match action {
            Action::Claim(spec) => {
                let Some(job) = self.job(spec.job) else {
                    return;
                };
                let (place, id) = (spec.job, spec.claim);
                let ticket = ticket(env);
                let (token, run_id) = (ticket.token.clone(), ticket.run_id.clone());
                let claim = Self::requests(&job, env).claim(spec, token, run_id);
                self.send_claim(env, (place, id), ticket, claim);
            }
            Action::Cancel { job, claim } => {
                if let Some(ticket) = self.tickets.remove(&claim) {
                    self.abort(env, &ticket);
                    if ticket.departed {
                        self.give_back(env, job, ticket.token);
                    }
                }
            }
            Action::GiveBack { job, grant } => self.give_back(env, job, grant.token),
            Action::Start {
                job,
                at,
                kind,
                grant,
                attempt,
                terms,
                ..
            } => {
                let granted = Some(Granted {
                    fence: grant.fence,
                    sent: grant.sent,
                    starts_at: grant.starts_at,
                    terms,
                });
                let identity = (grant.run_id, grant.token);
                self.begin(env, (job, at), (kind, attempt), identity, granted);
            }
            Action::StartWithoutStore { job, claim, at } => {
                let ticket = self.tickets.remove(&claim).unwrap_or_else(|| ticket(env));
                self.abort(env, &ticket);
                let identity = (ticket.run_id, ticket.token);
                self.begin(env, (job, at), (Kind::Schedule, 1), identity, None);
            }
            Action::AwaitRelease { job, claim, limit } => {
                if let Some(it) = self.job(job) {
                    let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX / 4);
                    self.await_release(env, (job, claim), it.lock_on(env.name).name, limit);
                }
            }
            Action::Settle { job: place, run_id } => {
                if let Some(job) = self.job(place) {
                    let settle = Settle {
                        lock: job.lock_on(env.name),
                        job: job.name.clone(),
                        run_id,
                        keep: KEEP,
                    };
                    let request = Request::Settle(Box::new(settle));
                    self.task(env, Errand::Settle(place), request);
                }
            }
            Action::Register { job } => self.to_register.push(job),
            Action::QueryLedger { job: place } => {
                if let Some(job) = self.job(place) {
                    let request = Request::Jobs(job.name.clone(), job.lock_on(env.name));
                    self.task(env, Errand::Look(place), request);
                }
            }
            Action::Drops(spec) => {
                let Some(job) = self.job(spec.job) else {
                    return;
                };
                let ticket = ticket(env);
                let (token, run_id) = (ticket.token.clone(), ticket.run_id.clone());
                let claim = Self::requests(&job, env).drops(spec.answer, token, run_id);
                self.send_claim(env, (spec.job, spec.claim), ticket, claim);
            }
            Action::Report { .. } => {}
        }
    }

    /// As `store::redis::conn::pubsub` waits: a channel that was just subscribed, or just told of a
    /// release, may have missed the next one.
    pub(super) fn await_release(
        &mut self,
        env: &mut Env<'_>,
        wait: (JobIx, ClaimId),
        lock: String,
        limit: i64,
    ) {
        let now = env.sim.now;
        let longest = match self.channels.get(&lock) {
            None => env.sim.dice.range(2, 8),
            Some(eventful) if now - eventful < FRESH => FRESH_WAIT,
            Some(_) => LONGEST_WAIT,
        };
        self.channels.entry(lock.clone()).or_insert(now);
        self.waits.insert(wait, lock);
        env.arm(now + limit.min(longest), Timer::Waited(wait.0, wait.1));
    }

    pub(super) fn begin(
        &mut self,
        env: &mut Env<'_>,
        (place, at): (JobIx, Timestamp),
        (kind, attempt): (Kind, u32),
        (run_id, token): (RunId, Token),
        granted: Option<Granted>,
    ) {
        let Some(job) = self.job(place) else {
            return;
        };
        let plan = self.jobs[&place].1.clone();
        self.running += 1;
        let assignment = Assignment {
            job,
            plan,
            place: Some(place),
            token,
            run_id,
            kind,
            at: Some(at),
            attempt,
            granted,
        };
        self.runner.begin(env, assignment);
    }

    pub(super) fn give_back(&mut self, env: &mut Env<'_>, place: JobIx, token: Token) {
        if let Some(job) = self.job(place) {
            let finish = Self::requests(&job, env).give_back(token);
            let (lease, job) = (None, None);
            self.finisher
                .send(env, PendingFinish { finish, lease, job });
        }
    }
}

fn ticket(env: &mut Env<'_>) -> Ticket {
    let (run_id, token) = identity(env);
    Ticket {
        token,
        run_id,
        in_doubt: false,
        task: None,
        departed: false,
    }
}

/// A new run id, and a token for it.
pub(in crate::host) fn identity(env: &mut Env<'_>) -> (RunId, Token) {
    let number = env.sim.fresh();
    let (name, life) = (env.name, env.life);
    let run_id = format!("run-{number}");
    let token = Token::from_text(&format!("{name}:{life}:{run_id}:{number:032x}"));
    (RunId::from_text(&run_id), token)
}
