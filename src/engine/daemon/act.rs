//! Starts a task for each action of the core.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Daemon;
use super::clock::Measure;
use super::newcomer::Newcomer;
use super::outstanding::OutstandingClaim;
use super::runs::{DaemonRun, RunOrigin};
use super::tasks::Entrance;
use crate::config::Job;
use crate::engine::core::{Action, ClaimId, ClaimSpec, DropSpec, Event, JobIx};
use crate::engine::finisher::PendingFinish;
use crate::engine::requests::Requests;
use crate::ground::tasks;
use crate::metrics::LatenessClock;
use crate::names::{RunId, Token};
use crate::notify::RunBegan;
use crate::observe::run_log;
use crate::run::{Assignment, Authority, RunControl, Tools};
use crate::store::{Claimant, Finish, Grant, Kind, Settle};
use crate::time::{BootInstant, Timestamp};

impl Daemon {
    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Claim(spec) => self.claim(spec),
            Action::Cancel { claim, .. } => self.cancel(claim),
            Action::GiveBack { job, grant } => self.give_back(job, grant.token),
            Action::Start {
                job,
                at,
                kind,
                grant,
                attempt,
                terms,
                ..
            } => {
                let authority = Authority::Granted { grant, terms };
                self.start(job, at, (kind, attempt), authority);
            }
            Action::StartWithoutStore { job, claim, at } => {
                if let Some(authority) = self.authority_alone(job, claim) {
                    self.start(job, at, (Kind::Schedule, 1), authority);
                }
            }
            Action::AwaitRelease { job, claim, limit } => {
                if let Some(lock) = self.job(job).map(|j| j.lock_on(&self.host)) {
                    tasks::spawn(self.link.clone().await_release(job, claim, lock, limit));
                }
            }
            Action::Settle { job: place, run_id } => {
                if let Some(job) = self.job(place) {
                    tasks::spawn(self.link.clone().settle(
                        place,
                        Settle {
                            lock: job.lock_on(&self.host),
                            job: job.name.clone(),
                            run_id,
                            keep: self.settings.history,
                        },
                    ));
                }
            }
            Action::Register { job } => self.to_register.push(job),
            Action::QueryLedger { job: place } => {
                if let Some(job) = self.job(place) {
                    let asked = (job.name.clone(), job.lock_on(&self.host));
                    tasks::spawn(self.link.clone().look(place, asked));
                }
            }
            Action::Drops(spec) => self.drops(spec),
            Action::Report { job, at, notice } => self.report(job, at, &notice),
        }
    }

    fn requests<'a>(&'a self, job: &'a Job) -> Requests<'a> {
        Requests {
            job,
            host: &self.host,
            keep: self.settings.history,
        }
    }

    pub(super) fn job(&self, job: JobIx) -> Option<&Arc<Job>> {
        self.jobs.get(&job)
    }

    /// A new run, and the token that its claim carries.
    fn new_run(&self) -> (Token, RunId) {
        let run_id = RunId::new();
        (Token::new(&self.host, &run_id), run_id)
    }

    fn claim(&mut self, spec: ClaimSpec) {
        let Some(job) = self.job(spec.job) else {
            return;
        };
        let (token, run_id) = self.new_run();
        let (place, id) = (spec.job, spec.claim);
        let asks = spec.asks_first.then_some(spec.not_before);
        let asks_until = asks.and_then(|at| self.clock.asks_until(at, self.clock.now()));
        let claim = self.requests(job).claim(spec, token, run_id);
        let mut claimant = Claimant::new(claim, self.settings.history);
        if let Some(until) = asks_until {
            claimant = claimant.asking_first(until);
        }
        self.send(place, id, claimant);
    }

    fn drops(&mut self, spec: DropSpec) {
        let Some(job) = self.job(spec.job) else {
            return;
        };
        let (token, run_id) = self.new_run();
        let claim = self.requests(job).drops(spec.answer, token, run_id);
        let claimant = Claimant::new(claim, self.settings.history);
        self.send(spec.job, spec.claim, claimant);
    }

    fn send(&mut self, place: JobIx, id: ClaimId, claimant: Claimant) {
        let sending = self.link.clone().claim(place, id, claimant.clone());
        let sender = tasks::spawn(sending).abort_handle();
        let out = OutstandingClaim { claimant, sender };
        self.claims.insert(id, out);
    }

    /// Stops sending the claim, and cancels the copies that may be granted.
    fn cancel(&mut self, claim: ClaimId) {
        if let Some(out) = self.claims.remove(claim) {
            out.sender.abort();
            self.deliver(out.claimant.give_up());
        }
    }

    /// A claim was granted. If it was cancelled meanwhile, its cancellation gives the grant back.
    pub(super) fn granted(&mut self, job: JobIx, claim: ClaimId, (grant, attempt): (Grant, u32)) {
        if let Some(out) = self.claims.remove(claim) {
            out.claimant.hand_over();
            self.clock.claim_granted(&grant, BootInstant::now());
            self.set_lead();
            self.feed(Event::Granted {
                job,
                claim,
                grant,
                attempt,
            });
        }
    }

    /// A claim was refused. An earlier copy of it that is still on its way must not be granted
    /// afterwards, because no run would use the grant.
    pub(super) fn refused(&mut self, claim: ClaimId) {
        if let Some(out) = self.claims.remove(claim) {
            self.deliver(out.claimant.give_up());
        }
    }

    pub(super) fn deliver(&self, finish: Option<Finish>) {
        if let Some(finish) = finish {
            self.finisher.send(PendingFinish {
                finish,
                lease: None,
                job: None,
                spooled: false,
            });
        }
    }

    fn give_back(&self, job: JobIx, token: Token) {
        let finish = (self.job(job)).map(|job| self.requests(job).give_back(token));
        self.deliver(finish);
    }

    /// What a run starts under that the store did not grant: the token of its claim in doubt, if
    /// there is one. The result of the run then also ends what that claim may be granted.
    fn authority_alone(&mut self, job: JobIx, claim: ClaimId) -> Option<Authority> {
        let lock = self.job(job)?.lock_on(&self.host);
        let (token, run_id) = match self.claims.remove(claim) {
            Some(out) => {
                out.sender.abort();
                out.claimant.hand_over();
                let claim = out.claimant.claim();
                (claim.token.clone(), claim.run_id.clone())
            }
            None => self.new_run(),
        };
        Some(Authority::Alone {
            lock,
            token,
            run_id,
        })
    }

    fn start(
        &mut self,
        place: JobIx,
        at: Timestamp,
        (kind, attempt): (Kind, u32),
        authority: Authority,
    ) {
        let Some(job) = self.job(place).map(Arc::clone) else {
            return;
        };
        let assignment = Assignment {
            job,
            host: self.host.clone(),
            kind,
            scheduled_at: Some(at),
            attempt,
            authority,
            cause: None,
        };
        let fields = assignment.fields();
        if let Some(fence) = assignment.fence() {
            run_log!(debug, fields, fence, attempt, "granted");
        } else {
            run_log!(
                warn,
                fields,
                "the store is unreachable: running without a lock (on_store_down: run)"
            );
        }
        let reporter = &self.link.reporter;
        let watch = reporter.notifier.watch(RunBegan {
            job: assignment.job.name.clone(),
            run_id: assignment.run_id().clone(),
            scheduled_at: assignment.scheduled_at,
        });
        let job = &assignment.job;
        let is_scheduled = kind == Kind::Schedule;
        let due = is_scheduled.then(|| at.plus(job.delay()));
        let lateness = due.map(|due| LatenessClock::new(due, self.clock.now().utc));
        let follower = reporter.metrics.follow(&job.name, lateness, watch);
        let tools = Tools {
            starts: self.tools.starts.of_run(follower),
            ..self.tools.clone()
        };
        let run = DaemonRun {
            origin: RunOrigin::Lane { job: place, at },
            assignment,
        };
        let control = RunControl::of(self.stop.subscribe());
        self.runs.start(run, tools, control);
    }

    /// Sends the registrations that have gathered, in one go.
    pub(super) fn flush_registrations(&mut self) {
        if self.to_register.is_empty() {
            return;
        }
        let wanted = std::mem::take(&mut self.to_register);
        let batch = wanted.into_iter().filter_map(|place| {
            let job = self.job(place)?;
            Some((place, self.requests(job).registration()))
        });
        let batch: Vec<_> = batch.collect();
        let newcomers = batch.iter().filter_map(|(place, registration)| {
            let job = self.job(*place)?;
            let known = || self.registry.last_entry(*place, job.lock_id());
            (!self.registry.knows(*place))
                .then(|| (*place, Newcomer::of(job, &self.host, registration, known())))
        });
        let newcomers: BTreeMap<_, _> = newcomers.collect();
        let announces = !newcomers.is_empty() && self.registry.take_unseen();
        // Once is enough: the announcements go on with it.
        let measure = match self.clock.offset() {
            Some(_) => Measure::Not,
            None => self.clock.measure(),
        };
        let link = self.link.clone();
        let entrance = Entrance {
            host: self.host.clone(),
            newcomers,
            measure,
            clock: self.clock.trust(),
            max_clock_skew: self.settings.max_clock_skew,
            // One that claims does not look again.
            first: self.agreement.waits().map(|_| self.word()),
            announces: announces.then(|| self.word()),
            waits_for_earlier: std::mem::take(&mut self.waits_for_earlier),
        };
        tasks::spawn(link.register(batch, entrance, self.finisher.clone()));
    }
}
