//! The loop, and how it handles each message.
//!
//! It never waits for a store or a process, so that signals, timers and the service manager are
//! always served.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::list_source::ReloadCause;
use super::message::Message;
use super::shutdown::counted;
use super::{Daemon, DaemonError};
use crate::config::Job;
use crate::engine::core::{ClaimId, Event, JobIx};
use crate::engine::finisher::PendingFinish;
use crate::ground::tasks;
use crate::guard::Processes;
use crate::schedule::ticker::{Firing, Ticker};
use crate::store::{ClaimReply, CopyReply, Registered, Returned, StoreError};
use crate::time::BootInstant;

/// How often the daemon runs its periodic checks.
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
        self.look_after_registry();
        self.flush_registrations();
        tasks::spawn(self.link.clone().listen_for_returned());
        tasks::spawn(self.link.clone().listen_for_requests(self.host.clone()));
        if self.jobs.is_empty() {
            // Without jobs no registration reports that the daemon is ready.
            self.be_ready();
        }
        let (mut ticker, mut firings) = self.start_ticker().await?;
        self.board = Some(ticker.board());
        self.set_lead();
        let mut round = tokio::time::interval(ROUND);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ping = tokio::time::interval(self.manager.ping_every().unwrap_or(Duration::MAX));
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pings = self.manager.ping_every().is_some();
        let starts = self.tools.starts.clone();
        let mut guard_is_gone = false;
        while !self.is_done() {
            let deadline = self.deadline();
            // Every arm is cancel-safe: channels, tasks, timers, signals, and the end of the guard.
            tokio::select! {
                Some(message) = messages.recv() => self.take(message),
                Some(firing) = firings.recv() => self.fire(&firing),
                Some(ended) = self.runs.next() => self.run_ended(ended),
                () = until(self.core.next_timer()) => self.feed(Event::Timer),
                Some(()) = terminate.recv() => self.told_to_stop("SIGTERM"),
                Some(()) = interrupt.recv() => self.told_to_stop("SIGINT"),
                Some(()) = hangup.recv() => self.reload_wanted(ReloadCause::Signal),
                () = until(self.reloads.due()) => self.read_list(),
                () = starts.next() => self.resources_back(),
                _ = round.tick() => self.round(),
                _ = ping.tick(), if pings => self.ping(),
                () = processes.guard_gone(), if !guard_is_gone => {
                    guard_is_gone = true;
                    tracing::error!(
                        "the guard process has died: all jobs were killed. The daemon exits with \
                         70; other hosts run what it had not started. Look for the kernel's OOM \
                         messages"
                    );
                    self.stop_now();
                }
                () = until(deadline) => self.deadline_passed(),
            }
            if let Some(read) = self.reloads.take_read() {
                self.apply_list(read, &ticker, &mut firings);
            }
        }
        ticker.stop().await?;
        let wrong_list = self.wrong_list.take();
        let ended = self.end().await;
        if guard_is_gone {
            return Err(DaemonError::GuardGone);
        }
        // A restart does not fix a list that cannot be used, so this error takes precedence.
        wrong_list.map_or(ended, |error| Err(error.into()))
    }

    async fn start_ticker(&self) -> Result<(Ticker, mpsc::UnboundedReceiver<Firing>), DaemonError> {
        let (tx, firings) = mpsc::unbounded_channel();
        // What came due but may not start yet (`jitter`) is the ticker's; what may, the ledger's.
        let job = |job: &Arc<Job>| self.ticker_job(job, self.started_at);
        let clock = Arc::new(self.clock.store_clock());
        let jobs = self.jobs.values().map(job).collect();
        let ticker = Ticker::start_with_clock(jobs, tx, clock).await?;
        Ok((ticker, firings))
    }

    /// Hands what an earlier daemon could not deliver to the finisher.
    fn deliver_spool(&self) {
        let undelivered = self.spool.load();
        let results = undelivered.iter().filter(|it| it.record.is_some()).count();
        if results > 0 {
            let runs = counted(results, "run");
            tracing::info!(
                "delivering the results of {runs} that an earlier daemon could not deliver"
            );
        }
        for finish in undelivered {
            self.finisher.send(PendingFinish {
                finish,
                lease: None,
                job: None,
                spooled: true,
            });
        }
    }

    pub(super) fn feed(&mut self, event: Event) {
        self.look_at_pauses();
        for action in self.core.handle(self.clock.now(), event) {
            self.act(action);
        }
        if self.health.is_up() {
            self.flush_registrations();
        }
    }

    pub(super) fn fire(&mut self, firing: &Firing) {
        if let Some(job) = self.names.get(&firing.job) {
            self.feed(Event::Due {
                job: *job,
                at: firing.scheduled_at,
            });
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Core(event) => self.feed(event),
            Message::Answered { job, claim, reply } => self.claim_answered(job, claim, reply),
            Message::ClaimFailed { job, claim, error } => self.claim_failed(job, claim, error),
            Message::Clock(offset, epoch) => self.clock_measured(offset, epoch),
            Message::Returned(Returned::Any) => self.feed(Event::Returned { job: None }),
            Message::Returned(Returned::Jobs(jobs)) => {
                for name in jobs {
                    if let Some(job) = self.names.get(&name).copied() {
                        self.feed(Event::Returned { job: Some(job) });
                    }
                }
            }
            Message::StoreFailed(error) => {
                self.store_failed(&error);
                self.look_for_wrong_list(&error);
            }
            Message::StoreAnswers => self.store_answers(),
            Message::Registered(answers) => self.registered(answers),
            Message::Entered(mut entries) => {
                // A reload may have replaced some of them meanwhile.
                entries.retain(|(job, _)| self.jobs.contains_key(job));
                self.registry.entered(entries);
            }
            Message::ListChanged => self.reload_wanted(ReloadCause::Change),
            Message::ListRead(read) => self.list_was_read(*read),
            Message::HeldBack(jobs) => self.hold_back(jobs),
            Message::Neighbours(neighbours) => self.neighbours(neighbours),
            Message::Hosts(hosts) => self.hosts_seen(hosts),
            Message::Vanished(expired) => self.hosts_vanished(expired),
            Message::Namesake(seen) => self.namesake(seen),
            Message::Rivals(rivals) => self.rivals(rivals),
            Message::Disagreed(jobs, reason) => self.wait_for_rivals(jobs, reason),
            Message::Agreed => self.agreed(),
            Message::Registry(news) => self.registry_news(news),
            Message::NotRegistered(jobs, error) => self.not_registered(jobs, error),
            Message::Requests(filed) => self.requests_found(filed),
            Message::RequestTaken(id, request) => self.request_taken(id, request),
            Message::ClaimedByRequest(claimed) => self.claimed_by_request(*claimed),
            Message::RegisterAgain(jobs) => {
                self.to_register.extend(jobs);
                // Whether a daemon of this host uses another store is found without the store.
                if self.health.is_up() || self.agreement.is_waiting() {
                    self.flush_registrations();
                }
            }
        }
    }

    fn claim_answered(&mut self, job: JobIx, claim: ClaimId, reply: CopyReply) {
        self.keys_usable(job);
        match reply {
            CopyReply::Granted { grant, attempt } => self.granted(job, claim, (grant, attempt)),
            CopyReply::Refused(reply) => {
                self.refused(claim);
                if let ClaimReply::Moved { .. } = reply {
                    self.registry.leave(job);
                }
                if let ClaimReply::Recovering { remaining } = reply {
                    self.store_recovers(job, remaining);
                }
                self.feed(Event::Replied { job, claim, reply });
            }
            CopyReply::NotSent => {}
        }
    }

    fn claim_failed(&mut self, job: JobIx, claim: ClaimId, error: StoreError) {
        self.claims.note_failure(claim);
        self.store_failed(&error);
        self.look_for_wrong_list(&error);
        let event = match error {
            StoreError::PartUnreachable(_) => Event::NoReplyForLock { job, claim },
            StoreError::Key(fault) => {
                self.keys_unusable(job, &fault);
                Event::KeysUnusable { job, claim }
            }
            _ => Event::NoReply { job, claim },
        };
        self.feed(event);
    }

    fn not_registered(&mut self, jobs: Vec<JobIx>, error: StoreError) {
        self.registry.not_registered();
        self.host_agrees();
        self.store_failed(&error);
        self.look_for_wrong_list(&error);
        if let StoreError::Key(fault) = &error {
            for job in &jobs {
                self.keys_unusable(*job, fault);
            }
        }
        self.is_ready_while_waiting(&error);
        let is_up = self.health.is_up();
        if is_up || matches!(error, StoreError::PartUnreachable(_) | StoreError::Key(_)) {
            let link = self.link.clone();
            tasks::spawn(async move { link.register_later(jobs, &error).await });
        } else {
            self.to_register.extend(jobs);
        }
    }

    fn registered(&mut self, answers: Vec<(JobIx, Registered)>) {
        let recovering = answers.iter().map(|(_, answer)| answer.recovering).max();
        let recovering = recovering.unwrap_or_default();
        (self.spare_memory).registered(answers.len(), BootInstant::now());
        let mut waits = false;
        for (job, answer) in answers.iter().filter(|(_, it)| !it.recovering.is_zero()) {
            waits |= self.registry.waits_for_others(*job);
            self.store_recovers(*job, answer.recovering);
        }
        if waits {
            self.look_after_registry();
        }
        self.was_served = true;
        let mut unsettled = Vec::new();
        for (job, answer) in answers {
            if !self.jobs.contains_key(&job) {
                continue;
            }
            self.keys_usable(job);
            if answer.moved {
                self.registry.leave(job);
            }
            if !self.registry.knows(job) {
                self.to_register.push(job);
                continue;
            }
            if !self.registry.is_settled(job, answer.recovering) {
                self.registry.leave(job);
                unsettled.push(job);
                continue;
            }
            self.admitted(job);
            self.feed(Event::Registered { job, reply: answer });
        }
        if !unsettled.is_empty() {
            tasks::spawn(self.link.clone().register_after(unsettled, recovering));
        }
        if self.health.is_up() {
            self.flush_registrations();
        }
        self.be_ready();
    }
}
