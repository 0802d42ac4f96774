//! From the core's actions to tasks.

use std::sync::Arc;

use tokio::task::AbortHandle;

use super::Daemon;
use super::clock::Measure;
use super::say::say;
use crate::config::Job;
use crate::engine::core::{Action, ClaimId, ClaimSpec, Event, JobIx};
use crate::engine::finisher::Parcel;
use crate::engine::message::Message;
use crate::engine::run::{Assignment, Right, drive};
use crate::names::{RunId, Token};
use crate::observe::{Occurrence, RunFields, run_log};
use crate::store::{Claim, Due, Finish, Kind, Outcome, Range, Record, Registration, Settle, What};
use crate::time::{BootInstant, Timestamp};

/// A claim that is out, or was granted and not yet acted on.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) token: Token,
    pub(super) run_id: RunId,
    /// When the copy that was granted was sent.
    pub(super) sent: Option<BootInstant>,
    /// A copy of the claim was not answered: it may still reach the store.
    pub(super) in_doubt: bool,
    /// Stops resending.
    task: Option<AbortHandle>,
}

impl Daemon {
    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Claim(spec) => self.claim(spec),
            Action::Cancel { job, claim } => self.cancel(job, claim),
            Action::Start {
                job,
                claim,
                at,
                kind,
                fence,
                attempt,
            } => {
                let Some(ticket) = self.tickets.remove(&claim) else {
                    return;
                };
                let sent = ticket
                    .sent
                    .unwrap_or(BootInstant::from_duration(std::time::Duration::ZERO));
                self.start(
                    job,
                    ticket,
                    at,
                    kind,
                    attempt,
                    Right::Granted { fence, sent },
                );
            }
            Action::StartAlone { job, claim, at } => {
                let ticket = self.tickets.remove(&claim).unwrap_or_else(|| self.ticket());
                if let Some(task) = &ticket.task {
                    task.abort();
                }
                self.start(job, ticket, at, Kind::Schedule, 1, Right::Alone);
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
                            keep: self.keep,
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
            Action::RecordSkips { job, range } => self.record_skips(job, range),
            Action::Say { job, at, said } => {
                if let Some(job) = self.job(job) {
                    say(&job.name, at, &self.host, &said);
                }
            }
        }
    }

    pub(super) fn job(&self, job: JobIx) -> Option<&Arc<Job>> {
        self.jobs.get(job.index())
    }

    fn ticket(&self) -> Ticket {
        let run_id = RunId::new();
        Ticket {
            token: Token::new(&self.host, &run_id),
            run_id,
            sent: None,
            in_doubt: false,
            task: None,
        }
    }

    fn claim(&mut self, spec: ClaimSpec) {
        let Some(job) = self.job(spec.job) else {
            return;
        };
        let mut ticket = self.ticket();
        let claim = Box::new(Claim {
            lock: job.lock_on(&self.host),
            token: ticket.token.clone(),
            run_id: ticket.run_id.clone(),
            ttl: job.lock.ttl,
            what: What::Occurrence {
                job: job.name.clone(),
                kind: spec.kind,
                due: Due {
                    scheduled_at: spec.at,
                    not_before: spec.not_before,
                    deadline: spec.deadline,
                    prev: spec.prev,
                    fingerprint: job.fingerprint.clone(),
                    gap: spec.gap,
                    max_reruns: spec.max_reruns,
                },
                overlap: spec.overlap,
                keep: self.keep,
            },
        });
        let task = tokio::spawn(self.link.clone().claim(spec.job, spec.claim, claim));
        ticket.task = Some(task.abort_handle());
        self.tickets.insert(spec.claim, ticket);
    }

    fn cancel(&mut self, job: JobIx, claim: ClaimId) {
        if let Some(ticket) = self.tickets.remove(&claim) {
            if let Some(task) = &ticket.task {
                task.abort();
            }
            self.give_back(job, ticket.token);
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
        self.finisher.send(Parcel {
            finish: Finish {
                lock: job.lock_on(&self.host),
                token,
                record: None,
                job: Some(job.name.clone()),
                give_back: true,
                keep: self.keep,
            },
            lease: None,
            job: None,
            spooled: false,
        });
    }

    fn start(
        &mut self,
        place: JobIx,
        ticket: Ticket,
        at: Timestamp,
        kind: Kind,
        attempt: u32,
        right: Right,
    ) {
        let Some(job) = self.job(place).map(Arc::clone) else {
            return;
        };
        let fields = RunFields {
            job: job.name.clone(),
            run: ticket.run_id.clone(),
            occurrence: Occurrence(Some(at)),
            host: self.host.clone(),
        };
        match right {
            Right::Granted { fence, .. } => run_log!(info, fields, fence, attempt, "granted"),
            Right::Alone => run_log!(
                warn,
                fields,
                "the store does not answer: running without a lock (on_store_down: run)"
            ),
        }
        let assignment = Assignment {
            lock: job.lock_on(&self.host),
            job,
            host: self.host.clone(),
            token: ticket.token,
            run_id: ticket.run_id,
            kind,
            scheduled_at: Some(at),
            attempt,
            right,
        };
        self.running += 1;
        let (tools, stop) = (self.tools.clone(), self.stop.subscribe());
        let (finisher, inbox, keep) = (self.finisher.clone(), self.link.inbox.clone(), self.keep);
        self.runs.spawn(async move {
            let ended = drive(&assignment, &tools, stop).await;
            // In this order: the lane must hear of the end before the verdict's arrival.
            let _ = inbox.send(Message::Core(Event::RunEnded { job: place }));
            finisher.send(Parcel {
                finish: Finish {
                    lock: assignment.lock,
                    token: assignment.token,
                    job: Some(assignment.job.name.clone()),
                    record: Some(ended.record),
                    give_back: false,
                    keep,
                },
                lease: ended.lease,
                job: Some(place),
                spooled: false,
            });
        });
    }

    /// Skips that no claim can carry: the verdict goes out under a token of its own.
    fn record_skips(&mut self, place: JobIx, range: Range) {
        let Some(job) = self.job(place) else {
            return;
        };
        let several = range.count > 1;
        let record = Record {
            job: job.name.clone(),
            run_id: None,
            kind: Kind::Schedule,
            scheduled_at: Some(range.from),
            until: several.then_some(range.until),
            count: several.then_some(range.count),
            started_at: None,
            finished_at: Some(Timestamp::now()),
            host: Some(self.host.clone()),
            outcome: Outcome::Skipped,
            reason: Some("the store did not answer (on_store_down: skip)".to_owned()),
            by: None,
            exit_code: None,
            signal: None,
            attempts: 0,
            fence: None,
            output_tail: None,
        };
        self.finisher.send(Parcel {
            finish: Finish {
                lock: job.lock_on(&self.host),
                token: self.ticket().token,
                job: Some(job.name.clone()),
                record: Some(record),
                give_back: false,
                keep: self.keep,
            },
            lease: None,
            job: Some(place),
            spooled: false,
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
            let registration = Registration {
                job: job.name.clone(),
                lock: job.lock_on(&self.host),
                fingerprint: job.fingerprint.clone(),
                ttl: job.lock.ttl,
            };
            Some((place, registration))
        });
        let batch = batch.collect();
        // Once is enough: the announcements go on with it.
        let measure = match self.clock.offset() {
            Some(_) => Measure::Not,
            None => self.clock.measure(),
        };
        let link = self.link.clone();
        tokio::spawn(link.register(batch, self.finisher.clone(), measure));
    }
}
