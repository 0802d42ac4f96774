//! What the daemon asks of the store, each request in a task of its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::clock::Measure;
use super::health::Health;
use crate::engine::core::{ClaimId, Event, JobIx};
use crate::engine::finisher::Finisher;
use crate::engine::message::Message;
use crate::engine::run::random;
use crate::names::JobName;
use crate::preflight::Offset;
use crate::store::{Claim, HostInfo, Lock, Registration, Settle, Store, StoreError};
use crate::time::BootInstant;

/// How many jobs are registered in one request.
const BATCH: usize = 500;
/// When jobs are registered again whose part of the store was away.
const REGISTER_AGAIN: Duration = Duration::from_secs(1);
/// How long the store may take to hear that this host is gone.
const WITHDRAW: Duration = Duration::from_secs(1);
/// A host that has been silent for so long is forgotten.
pub(super) const ANNOUNCED_FOR: Duration = Duration::from_secs(30);

/// The way to store and loop, for all tasks.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) store: Arc<dyn Store>,
    pub(super) inbox: mpsc::UnboundedSender<Message>,
    pub(super) health: watch::Receiver<Health>,
}

impl Link {
    fn tell(&self, message: Message) {
        // Fails only when the loop has ended; then nobody wants to know.
        let _ = self.inbox.send(message);
    }

    /// Waits a little, then until the store is believed to answer.
    async fn pause(&mut self, delay: &mut Duration) {
        tokio::time::sleep(delay.mul_f64(0.5 + random() / 2.0)).await;
        *delay = (*delay * 2).min(Duration::from_secs(2));
        let _ = self.health.wait_for(|health| *health == Health::Up).await;
    }

    /// Sends a claim until it is answered: the same claim with the same token each time, so that
    /// an answer that was lost is given again.
    pub(super) async fn claim(mut self, job: JobIx, id: ClaimId, claim: Box<Claim>) {
        let mut delay = Duration::from_millis(50);
        loop {
            let sent = BootInstant::now();
            match self.store.claim(&claim).await {
                Ok(reply) => {
                    self.tell(Message::Answered {
                        job,
                        claim: id,
                        reply,
                        sent,
                    });
                    return;
                }
                Err(error) => self.tell(Message::ClaimFailed {
                    job,
                    claim: id,
                    error,
                }),
            }
            self.pause(&mut delay).await;
        }
    }

    pub(super) async fn await_release(
        self,
        job: JobIx,
        claim: ClaimId,
        lock: Lock,
        limit: Duration,
    ) {
        if self.store.released(&lock, limit).await.is_err() {
            // The claim that follows will tell that the store is away.
            tokio::time::sleep(limit.min(Duration::from_secs(1))).await;
        }
        self.tell(Message::Core(Event::Woken { job, claim }));
    }

    pub(super) async fn settle(mut self, job: JobIx, settle: Settle) {
        let mut delay = Duration::from_millis(100);
        loop {
            match self.store.settle(&settle).await {
                Ok(true) => {
                    tracing::warn!(
                        job = %settle.job,
                        run = %settle.run_id,
                        "its host died under this run: recorded as interrupted"
                    );
                    return;
                }
                Ok(false) => {
                    self.tell(Message::Core(Event::NotSettled { job }));
                    return;
                }
                Err(error) => self.tell(Message::StoreFailed(error)),
            }
            self.pause(&mut delay).await;
        }
    }

    /// Asks for the open run of a job.
    pub(super) async fn look(mut self, job: JobIx, asked: (JobName, Lock)) {
        let mut delay = Duration::from_millis(100);
        loop {
            match self.store.jobs(std::slice::from_ref(&asked)).await {
                Ok(reports) => {
                    let open = reports.into_iter().find_map(|report| report.open);
                    self.tell(Message::Core(Event::Found { job, open }));
                    return;
                }
                Err(error) => self.tell(Message::StoreFailed(error)),
            }
            self.pause(&mut delay).await;
        }
    }

    /// Registers jobs, once. Verdicts under way go first: they may decide what the ledger is
    /// about to be asked.
    ///
    /// The clock is measured first, where it is to be: claims follow the answer.
    pub(super) async fn register(
        self,
        jobs: Vec<(JobIx, Registration)>,
        finisher: Finisher,
        measure: Measure,
    ) {
        if let Err(error) = self.measure(measure).await {
            let jobs = jobs.into_iter().map(|(job, _)| job).collect();
            self.tell(Message::NotRegistered(jobs, error));
            return;
        }
        finisher.idle(Duration::from_secs(2)).await;
        let mut batches = Batches::of(&jobs);
        while let Some(batch) = batches.next() {
            let (jobs, registrations): (Vec<_>, Vec<_>) = batch.iter().cloned().unzip();
            match self.store.register(&registrations).await {
                Ok(answers) => {
                    let answers = jobs.into_iter().zip(answers).collect();
                    self.tell(Message::Registered(answers));
                }
                Err(error @ StoreError::PartUnreachable(_)) => {
                    if !batches.split(batch, &*self.store) {
                        self.tell(Message::NotRegistered(jobs, error));
                    }
                }
                Err(error) => {
                    let rest = jobs.into_iter().chain(batches.rest()).collect();
                    self.tell(Message::NotRegistered(rest, error));
                    return;
                }
            }
        }
    }

    /// Has jobs registered once more, whose part of the store may be back by then.
    pub(super) async fn register_later(self, jobs: Vec<JobIx>) {
        tokio::time::sleep(REGISTER_AGAIN).await;
        self.tell(Message::RegisterAgain(jobs));
    }

    /// Asks until the store answers, with something that it must write: one whose disk or memory
    /// is full still reads.
    pub(super) async fn probe(self, word: HostInfo, mut delay: Duration) {
        loop {
            tokio::time::sleep(delay.mul_f64(0.5 + random() / 2.0)).await;
            match self.store.announce(&word, ANNOUNCED_FOR).await {
                // Part of it is enough to go on.
                Ok(()) | Err(StoreError::PartUnreachable(_)) => break,
                Err(error) => tracing::debug!("still waiting for the store: {error}"),
            }
            delay = (delay * 2).min(Duration::from_secs(1));
        }
        self.tell(Message::StoreAnswers);
    }

    /// Measures how far this host's clock is from the store's, where it is to be.
    async fn measure(&self, measure: Measure) -> Result<Option<Offset>, StoreError> {
        if measure == Measure::Not {
            return Ok(None);
        }
        let offset = Offset::measure(&*self.store).await?;
        self.tell(Message::Clock(offset));
        Ok(Some(offset))
    }

    pub(super) async fn announce(self, mut info: HostInfo, measure: Measure) {
        match self.measure(measure).await {
            Ok(Some(offset)) => info.clock_offset_ms = Some(offset.millis),
            Ok(None) => {}
            Err(error) => {
                self.tell(Message::StoreFailed(error));
                return;
            }
        }
        if let Err(error) = self.store.announce(&info, ANNOUNCED_FOR).await {
            self.tell(Message::StoreFailed(error));
        }
    }

    /// Takes the word back that this host lives. Without success it is forgotten all the same,
    /// only later.
    pub(super) async fn withdraw(&self, info: HostInfo) {
        let told = self.store.announce(&info, Duration::ZERO);
        match tokio::time::timeout(WITHDRAW, told).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("this host is listed for a while: {error}"),
            Err(_) => tracing::debug!("this host is listed for a while: no answer in {WITHDRAW:?}"),
        }
    }
}

/// Registrations still to be sent.
struct Batches(VecDeque<Vec<(JobIx, Registration)>>);

impl Batches {
    fn of(jobs: &[(JobIx, Registration)]) -> Self {
        Self(jobs.chunks(BATCH).map(<[_]>::to_vec).collect())
    }

    fn next(&mut self) -> Option<Vec<(JobIx, Registration)>> {
        self.0.pop_front()
    }

    /// Part of the store did not answer: each part is asked apart, if the batch was for several.
    fn split(&mut self, batch: Vec<(JobIx, Registration)>, store: &dyn Store) -> bool {
        let mut parts: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for job in batch {
            parts.entry(store.place(&job.1.lock)).or_default().push(job);
        }
        let several = parts.len() > 1;
        if several {
            self.0.extend(parts.into_values());
        }
        several
    }

    fn rest(self) -> impl Iterator<Item = JobIx> {
        self.0.into_iter().flatten().map(|(job, _)| job)
    }
}
