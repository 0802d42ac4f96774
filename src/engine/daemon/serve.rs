//! The loop, and what becomes of each thing that it hears.
//!
//! It never waits for a store or a process, so that signals, timers and the service manager are
//! always served.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::{Daemon, DaemonError};
use crate::config::Job;
use crate::engine::core::{Event, Now};
use crate::engine::finisher::Parcel;
use crate::engine::message::Message;
use crate::process::Processes;
use crate::schedule::ticker::{Firing, Ticker, TickerJob};
use crate::store::{ClaimReply, StoreError};
use crate::time::BootInstant;

/// How often the daemon looks after itself.
const ROUND: Duration = Duration::from_secs(1);

/// Waits until an instant since boot; for ever without one. Cancel-safe.
async fn until(at: Option<BootInstant>) {
    match at {
        Some(at) => tokio::time::sleep(at.remaining()).await,
        None => pending().await,
    }
}

impl Daemon {
    pub(super) async fn serve(
        mut self,
        mut messages: mpsc::UnboundedReceiver<Message>,
        processes: Processes,
    ) -> Result<(), DaemonError> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        self.deliver_spool();
        self.flush_registrations();
        let (mut ticker, mut firings) = self.start_ticker().await?;
        let mut round = tokio::time::interval(ROUND);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ping = tokio::time::interval(self.manager.ping_every().unwrap_or(Duration::MAX));
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pings = self.manager.ping_every().is_some();
        let mut guard_is_gone = false;
        while !self.is_done() {
            // Every arm is cancel-safe: channels, timers, signals, and the guard's word.
            tokio::select! {
                Some(message) = messages.recv() => self.take(message),
                Some(firing) = firings.recv() => self.fire(&firing),
                () = until(self.core.next_timer()) => self.feed(Event::Timer),
                Some(()) = terminate.recv() => self.told_to_stop("SIGTERM"),
                Some(()) = interrupt.recv() => self.told_to_stop("SIGINT"),
                Some(()) = hangup.recv() => {
                    tracing::warn!("SIGHUP: reload is not supported yet; restart to read the list again");
                }
                _ = round.tick() => self.round(),
                _ = ping.tick(), if pings => self.ping(),
                () = processes.guard_gone(), if !guard_is_gone => {
                    guard_is_gone = true;
                    tracing::error!("the guard process is gone: every job was ended, and so am I");
                    self.stop_now();
                }
                () = until(self.deadline()) => self.deadline_passed(),
            }
        }
        ticker.stop().await?;
        self.end().await;
        if guard_is_gone {
            return Err(DaemonError::GuardGone);
        }
        Ok(())
    }

    async fn start_ticker(&self) -> Result<(Ticker, mpsc::UnboundedReceiver<Firing>), DaemonError> {
        let (tx, firings) = mpsc::unbounded_channel();
        let job = |job: &Arc<Job>| TickerJob {
            name: job.name.clone(),
            schedule: job.schedule.clone(),
            delay: job.delay(),
            // What came due but may not start yet (`jitter`) is the ticker's; what may, the
            // ledger's.
            from: self.started_at.minus(job.delay()),
        };
        let ticker = Ticker::start(self.jobs.iter().map(job).collect(), tx).await?;
        Ok((ticker, firings))
    }

    /// Hands what an earlier daemon could not deliver to the finisher.
    fn deliver_spool(&self) {
        let undelivered = self.spool.load();
        if !undelivered.is_empty() {
            let n = undelivered.len();
            tracing::info!("{n} verdicts of an earlier start are still to be delivered");
        }
        for finish in undelivered {
            self.finisher.send(Parcel {
                finish,
                lease: None,
                job: None,
                spooled: true,
            });
        }
    }

    pub(super) fn feed(&mut self, event: Event) {
        for action in self.core.handle(Now::read(), event) {
            self.act(action);
        }
        if self.health.is_up() {
            self.flush_registrations();
        }
    }

    fn fire(&mut self, firing: &Firing) {
        if let Some(job) = self.names.get(&firing.job) {
            self.feed(Event::Due {
                job: *job,
                at: firing.scheduled_at,
            });
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Core(event) => {
                if matches!(event, Event::RunEnded { .. }) {
                    self.running -= 1;
                    while self.runs.try_join_next().is_some() {}
                }
                self.feed(event);
            }
            Message::Answered {
                job,
                claim,
                reply,
                sent,
            } => {
                if let ClaimReply::Granted { .. } = reply {
                    if let Some(ticket) = self.tickets.get_mut(&claim) {
                        ticket.sent = Some(sent);
                    }
                } else {
                    self.not_granted(job, claim);
                }
                if let ClaimReply::Recovering { remaining } = reply {
                    self.store_recovers(remaining);
                }
                self.feed(Event::Answered { job, claim, reply });
            }
            Message::ClaimFailed { job, claim, error } => {
                self.store_failed(&error);
                if let Some(ticket) = self.tickets.get_mut(&claim) {
                    ticket.in_doubt = true;
                }
                self.feed(match error {
                    StoreError::PartUnreachable(_) => Event::UnansweredAlone { job, claim },
                    _ => Event::Unanswered { job, claim },
                });
            }
            Message::Clock(offset) => {
                if let Some(event) = self.clock.measured(offset) {
                    self.feed(event);
                }
            }
            Message::StoreFailed(error) => self.store_failed(&error),
            Message::StoreAnswers => self.store_answers(),
            Message::Registered(answers) => {
                let recovering = answers.iter().map(|(_, answer)| answer.recovering).max();
                self.store_recovers(recovering.unwrap_or_default());
                for (job, answer) in answers {
                    self.feed(Event::Registered {
                        job,
                        decided_until: answer.decided_until,
                        store_now: answer.now,
                        open: answer.open,
                    });
                }
                self.be_ready();
            }
            Message::NotRegistered(jobs, error) => {
                self.store_failed(&error);
                self.is_ready_while_waiting();
                if matches!(error, StoreError::PartUnreachable(_)) {
                    tokio::spawn(self.link.clone().register_later(jobs));
                } else {
                    self.to_register.extend(jobs);
                }
            }
            Message::RegisterAgain(jobs) => {
                self.to_register.extend(jobs);
                if self.health.is_up() {
                    self.flush_registrations();
                }
            }
        }
    }
}
