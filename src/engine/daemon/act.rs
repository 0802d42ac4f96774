//! From the core's actions to tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::AbortHandle;

use super::Daemon;
use super::clock::Measure;
use super::departure::Departure;
use super::registry::Newcomer;
use super::say::say;
use super::tasks::Entrance;
use crate::config::Job;
use crate::engine::core::{Action, ClaimId, ClaimSpec, DropSpec, Event, JobIx};
use crate::engine::finisher::PendingFinish;
use crate::engine::message::{Message, NotStarted};
use crate::engine::requests::Requests;
use crate::names::{RunId, Token};
use crate::observe::run_log;
use crate::run::{Assignment, Authority, drive};
use crate::store::{Claim, Grant, Kind, Settle};
use crate::time::{BootInstant, Timestamp};

/// A claim that is out, or was granted and not yet acted on.
#[derive(Debug)]
pub(super) struct OutstandingClaim {
    pub(super) token: Token,
    pub(super) run_id: RunId,
    /// When the copy that was granted was sent.
    pub(super) sent: Option<BootInstant>,
    /// A copy of the claim was not answered: it may still reach the store.
    pub(super) in_doubt: bool,
    /// Whether a copy was sent, or can still be kept from being sent.
    departure: Departure,
    /// Stops resending.
    task: Option<AbortHandle>,
}

impl Daemon {
    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Claim(spec) => self.claim(spec),
            Action::Cancel { job, claim } => self.cancel(job, claim),
            Action::Start {
                job: place,
                claim,
                at,
                kind,
                fence,
                attempt,
                terms,
            } => {
                let Some(ticket) = self.tickets.remove(&claim) else {
                    return;
                };
                let Some(job) = self.job(place).map(Arc::clone) else {
                    return;
                };
                let grant = Grant {
                    lock: job.lock_on(&self.host),
                    token: ticket.token,
                    run_id: ticket.run_id,
                    fence,
                    ttl: job.lock.ttl,
                    sent: ticket.sent.unwrap_or(BootInstant::BOOT),
                };
                let authority = Authority::Granted { grant, terms };
                self.start(place, at, (kind, attempt), authority);
            }
            Action::StartAlone {
                job: place,
                claim,
                at,
            } => {
                let Some(job) = self.job(place).map(Arc::clone) else {
                    return;
                };
                let ticket = self.tickets.remove(&claim).unwrap_or_else(|| self.ticket());
                if let Some(task) = &ticket.task {
                    task.abort();
                }
                let authority = Authority::Alone {
                    lock: job.lock_on(&self.host),
                    token: ticket.token,
                    run_id: ticket.run_id,
                };
                self.start(place, at, (Kind::Schedule, 1), authority);
            }
            Action::AwaitRelease { job, claim, limit } => {
                if let Some(lock) = self.job(job).map(|j| j.lock_on(&self.host)) {
                    tokio::spawn(self.link.clone().await_release(job, claim, lock, limit));
                }
            }
            Action::Settle { job: place, run_id } => {
                if let Some(job) = self.job(place) {
                    tokio::spawn(self.link.clone().settle(
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
            Action::Look { job: place } => {
                if let Some(job) = self.job(place) {
                    let asked = (job.name.clone(), job.lock_on(&self.host));
                    tokio::spawn(self.link.clone().look(place, asked));
                }
            }
            Action::Drops(spec) => self.drops(spec),
            Action::Say { job, at, said } => {
                if let Some(job) = self.job(job) {
                    say(&job.name, at, &self.host, &said);
                }
            }
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

    fn ticket(&self) -> OutstandingClaim {
        let run_id = RunId::new();
        OutstandingClaim {
            token: Token::new(&self.host, &run_id),
            run_id,
            sent: None,
            in_doubt: false,
            departure: Departure::default(),
            task: None,
        }
    }

    fn claim(&mut self, spec: ClaimSpec) {
        let Some(job) = self.job(spec.job) else {
            return;
        };
        let ticket = self.ticket();
        let (place, id) = (spec.job, spec.claim);
        let claim = (self.requests(job)).claim(spec, ticket.token.clone(), ticket.run_id.clone());
        self.send(place, id, ticket, claim);
    }

    fn drops(&mut self, spec: DropSpec) {
        let Some(job) = self.job(spec.job) else {
            return;
        };
        let ticket = self.ticket();
        let (token, run_id) = (ticket.token.clone(), ticket.run_id.clone());
        let claim = self.requests(job).drops(spec.answer, token, run_id);
        self.send(spec.job, spec.claim, ticket, claim);
    }

    fn send(&mut self, place: JobIx, id: ClaimId, mut ticket: OutstandingClaim, claim: Claim) {
        let departure = ticket.departure.clone();
        let sending = (self.link.clone()).claim(place, id, Box::new(claim), departure);
        let task = tokio::spawn(sending);
        ticket.task = Some(task.abort_handle());
        self.tickets.insert(id, ticket);
    }

    fn cancel(&mut self, job: JobIx, claim: ClaimId) {
        if let Some(ticket) = self.tickets.remove(&claim) {
            if let Some(task) = &ticket.task {
                task.abort();
            }
            if !ticket.departure.cancel() {
                self.give_back(job, ticket.token);
            }
        }
    }

    /// A copy of the claim was not answered.
    pub(super) fn in_doubt(&mut self, claim: ClaimId) {
        if let Some(ticket) = self.tickets.get_mut(&claim) {
            ticket.in_doubt = true;
        }
    }

    /// The claim was answered, and not granted. An earlier copy of it that is still on its way
    /// must not be granted afterwards: nobody would use it.
    pub(super) fn not_granted(&mut self, job: JobIx, claim: ClaimId) {
        if let Some(ticket) = self.tickets.remove(&claim)
            && ticket.in_doubt
        {
            self.give_back(job, ticket.token);
        }
    }

    fn give_back(&self, job: JobIx, token: Token) {
        let Some(job) = self.job(job) else {
            return;
        };
        self.finisher.send(PendingFinish {
            finish: self.requests(job).give_back(token),
            lease: None,
            job: None,
            spooled: false,
        });
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
        self.running += 1;
        let (tools, stop) = (self.tools.clone(), self.stop.subscribe());
        let (finisher, inbox) = (self.finisher.clone(), self.link.inbox.clone());
        let keep = self.settings.history;
        let grace = assignment.job.kill.grace;
        self.runs.spawn(&fields.clone(), grace, async move {
            let ended = drive(&assignment, &tools, stop).await;
            let give_back = ended.shortage.is_some();
            // In this order: the lane must hear of the end before the verdict's arrival.
            let _ = inbox.send(match ended.shortage {
                None => Message::Core(Event::RunEnded { job: place }),
                Some(shortage) => Message::NotStarted(Box::new(NotStarted {
                    job: place,
                    at,
                    kind,
                    shortage,
                    reason: ended.record.reason.clone().unwrap_or_default(),
                    fields,
                })),
            });
            finisher.send(PendingFinish {
                finish: assignment.finish((!give_back).then_some(ended.record), keep),
                lease: ended.lease,
                job: Some(place),
                spooled: false,
            });
        });
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
            (!self.registry.knows(*place))
                .then(|| (*place, Newcomer::of(job, &self.host, registration)))
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
            // One that claims does not look again.
            first: self.agreement.waits().map(|_| self.word()),
            announces: announces.then(|| self.word()),
            waits_for_earlier: std::mem::take(&mut self.waits_for_earlier),
        };
        tokio::spawn(link.register(batch, entrance, self.finisher.clone()));
    }
}
