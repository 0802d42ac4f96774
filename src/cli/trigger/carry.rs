//! One run carried by this process: claim, drive, finish.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::note;
use crate::cli::Failure;
use crate::config::Job;
use crate::engine::spool::Spool;
use crate::guard::Guard;
use crate::latch::waits_text;
use crate::lease::Watchdog;
use crate::names::{HostName, RunId, Token};
use crate::observe::plain_line;
use crate::run::{Assignment, Authority, Ended, Starts, Stop, Tools, drive, inherited};
use crate::store::relocate::{Destination, Relocated, Relocation, relocate};
use crate::store::{
    self, Claim, ClaimReply, ClaimTarget, Finish, Grant, Kind, ManualRun, Record, RunTerms, Store,
    StoreError, StoreSettings,
};
use crate::time::BootInstant;

/// How long a store that does not answer is asked for the claim.
const CLAIM_FOR: Duration = Duration::from_secs(5);
/// How long it is asked to take the record; the run itself is over by then.
const FINISH_FOR: Duration = Duration::from_secs(60);
/// The same, once somebody wants this process to end.
const FINISH_SOON: Duration = Duration::from_secs(2);
/// How long between two such questions.
const PAUSE: Duration = Duration::from_millis(250);

/// A job to be run, and with what.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) job: Arc<Job>,
    pub(super) host: HostName,
    pub(super) settings: StoreSettings,
    pub(super) keep: u32,
    /// Variables of the environment that the job does not inherit.
    pub(super) secret_variables: BTreeSet<String>,
}

/// A run that was granted and has not begun.
#[derive(Debug)]
pub(super) struct Granted {
    assignment: Assignment,
    /// For a record that the store does not take.
    spool: Spool,
    store: Arc<dyn Store>,
    tools: Tools,
    keep: u32,
    runtime: Runtime,
}

impl Errand {
    /// Takes the job's lock for a manual run. Must be called while this process has one thread.
    pub(super) fn grant(self) -> Result<Granted, Failure> {
        let internal = |e: std::io::Error| Failure::Internal(format!("cannot start: {e}"));
        // The guard comes first: it is forked from a process without threads.
        let guard = Guard::start().map_err(internal)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(internal)?;
        let (assignment, store, tools) = runtime.block_on(async {
            let processes = guard.serve().map_err(internal)?;
            let store = store::open(&self.settings)?;
            let watchdog = Watchdog::start(&self.settings, Some(Box::new(processes.deadlines())))
                .map_err(internal)?;
            let tools = Tools {
                store: Arc::clone(&store),
                processes,
                watchdog,
                environment: Arc::new(inherited(&self.secret_variables)),
                starts: Starts::default(),
            };
            Ok::<_, Failure>((self.claim(&*store).await?, store, tools))
        })?;
        Ok(Granted {
            spool: Spool::of_run(&self.host, assignment.run_id(), &self.settings),
            assignment,
            store,
            tools,
            keep: self.keep,
            runtime,
        })
    }

    async fn claim(&self, store: &dyn Store) -> Result<Assignment, Failure> {
        let run_id = RunId::new();
        let claim = Claim {
            lock: self.job.lock_on(&self.host),
            token: Token::new(&self.host, &run_id),
            run_id,
            ttl: self.job.lock.ttl,
            what: ClaimTarget::Manual {
                job: self.job.name.clone(),
            },
        };
        patiently(CLAIM_FOR, async || self.lock_in_use(store).await).await??;
        // Before the claim, so that no run is open that nobody would look after.
        let run = ManualRun {
            run_id: claim.run_id.clone(),
            job: self.job.name.clone(),
            lock: claim.lock.clone(),
        };
        patiently(CLAIM_FOR, async || note::leave(store, &run).await).await?;
        let granted = self.claim_noted(store, claim).await;
        if granted.is_err() {
            note::take_back(store, &run.run_id).await;
        }
        granted
    }

    async fn claim_noted(&self, store: &dyn Store, claim: Claim) -> Result<Assignment, Failure> {
        let mut sent = BootInstant::now();
        let mut unanswered = false;
        let asked = patiently(CLAIM_FOR, async || {
            sent = BootInstant::now();
            let answer = store.claim(&claim).await;
            unanswered |= answer.is_err();
            answer
        });
        let answer = asked.await;
        if unanswered && !matches!(answer, Ok(ClaimReply::Granted { .. })) {
            // Perhaps a copy was granted all the same, or will be: nobody will use it.
            self.cancel(store, &claim).await;
        }
        match answer? {
            ClaimReply::Granted { fence, .. } => Ok(Assignment {
                job: Arc::clone(&self.job),
                host: self.host.clone(),
                kind: Kind::Manual,
                scheduled_at: None,
                attempt: 1,
                authority: Authority::Granted {
                    grant: Grant::of(&claim, fence, sent),
                    terms: RunTerms::NONE,
                },
            }),
            ClaimReply::Held { by, remaining } => Err(self.held(&by, remaining)),
            ClaimReply::Recovering { remaining } => Err(Failure::NotAcquired(format!(
                "{}: {}",
                self.job.name,
                waits_text(remaining)
            ))),
            ClaimReply::Moved { to } => Err(Failure::NotAcquired(format!(
                "job {}: its lock has just changed to {}; nothing was started. Start the hosts \
                 with this list, or use theirs",
                self.job.name, to.name
            ))),
            other => Err(Failure::Internal(format!(
                "the store returned an unexpected reply to a manual claim: {other:?}"
            ))),
        }
    }

    /// Fails while the job runs under another lock than the list says: a run under this one could
    /// overlap a scheduled run. If no host uses another lock any more, the ledger moves to this one.
    async fn lock_in_use(&self, store: &dyn Store) -> Result<Result<(), Failure>, StoreError> {
        let (name, id) = (&self.job.name, self.job.lock_id());
        let listings = store.listings(std::slice::from_ref(name)).await?;
        let Some(listing) = listings.into_iter().next() else {
            return Ok(Ok(()));
        };
        if listing.other_locks(&self.host, &id).is_empty() {
            return Ok(Ok(()));
        }
        let hosts = store.hosts().await?;
        let live = |host: &HostName| {
            let mut up = hosts.iter().filter(|report| !report.info.draining);
            up.any(|report| report.info.host == *host)
        };
        let refused = |why: String| {
            Failure::NotAcquired(format!(
                "job {name}: this list uses {}, but {why}; nothing was started",
                id.shown()
            ))
        };
        // What this host's own daemon uses counts, too.
        let users = listing.users_of_another(&id, live);
        if !users.is_empty() {
            let users: Vec<_> = users
                .iter()
                .map(|(host, lock)| format!("{host} still uses {}", lock.shown()))
                .collect();
            return Ok(Err(refused(users.join(", "))));
        }
        let now = store.now().await?;
        let destination = Destination {
            job: name,
            lock: &id,
            host: &self.host,
            ttl: self.job.lock.ttl,
            now,
            counts_from: now,
        };
        let relocation = Relocation::new(&destination, listing.other_locks(&self.host, &id));
        Ok(match relocate(store, relocation).await? {
            Relocated::Home { .. } => Ok(()),
            Relocated::Leased { lock, by, .. } => Err(refused(format!(
                "a run on {by} still holds the lock {}",
                lock.name
            ))),
            Relocated::Recovering { remaining } => Err(Failure::NotAcquired(format!(
                "{name}: {}",
                waits_text(remaining)
            ))),
            Relocated::Contended => Err(refused("its hosts are changing the lock now".to_owned())),
        })
    }

    /// Has the store refuse what may still come of the claim.
    async fn cancel(&self, store: &dyn Store, claim: &Claim) {
        let finish = Finish {
            lock: claim.lock.clone(),
            token: claim.token.clone(),
            record: None,
            job: Some(self.job.name.clone()),
            give_back: true,
            keep: self.keep,
        };
        if let Err(error) = patiently(FINISH_SOON, async || store.finish(&finish).await).await {
            tracing::debug!("cannot cancel the claim, it ends with its TTL: {error}");
        }
    }

    fn held(&self, by: &str, remaining: Option<Duration>) -> Failure {
        let by = plain_line(by);
        let name = &self.job.name;
        Failure::NotAcquired(match remaining {
            Some(left) => {
                format!("the lock of {name} is held by {by}, for {left:.1?} unless renewed")
            }
            None => format!("the lock of {name} is held by {by} and has no TTL: it never expires"),
        })
    }
}

impl Granted {
    pub(super) fn run_id(&self) -> &RunId {
        self.assignment.run_id()
    }

    /// Runs the job to its end and delivers its record.
    pub(super) fn carry(self) -> Result<Record, Failure> {
        self.runtime.block_on(async {
            let (stopper, stop) = watch::channel(Stop::Not);
            let run = async {
                let run = ManualRun {
                    run_id: self.run_id().clone(),
                    job: self.assignment.job.name.clone(),
                    lock: self.assignment.lock_and_token().0.clone(),
                };
                // Not beside `finish`: a note that is taken back must not be written again.
                let ended = tokio::select! {
                    ended = drive(&self.assignment, &self.tools, stop.clone()) => ended,
                    never = note::keep_up(&*self.store, &run) => match never {},
                };
                self.finish(ended, stop.clone()).await
            };
            tokio::select! {
                record = run => record,
                never = stop_at_signals(&stopper) => Err(never),
            }
        })
    }

    /// The lease is held, and renewed, until the store has the record. One that it does not take
    /// is kept for the host's daemon.
    async fn finish(
        &self,
        ended: Ended,
        mut stop: watch::Receiver<Stop>,
    ) -> Result<Record, Failure> {
        let finish = self
            .assignment
            .finish(Some(ended.record.clone()), self.keep);
        let hurry = async {
            // Without a sender nobody can hurry us.
            if stop.wait_for(|stop| *stop == Stop::End).await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(FINISH_SOON).await;
        };
        // Both are cancel-safe: a finish sent again is written once.
        let delivered = tokio::select! {
            delivered = patiently(FINISH_FOR, async || self.store.finish(&finish).await) => delivered,
            () = hurry => Err(StoreError::unreachable("stopped before the store replied".to_owned())),
        };
        drop(ended.lease);
        match delivered {
            Ok(_) => {
                note::take_back(&*self.store, self.run_id()).await;
                Ok(ended.record)
            }
            Err(error) => Err(self.keep(&finish, &error)),
        }
    }

    /// Keeps a record that could not be delivered.
    fn keep(&self, finish: &Finish, error: &StoreError) -> Failure {
        let kept = match self.spool.keep(std::slice::from_ref(finish)) {
            Ok(()) => {
                let place = self.spool.path().unwrap_or(Path::new("-")).display();
                format!("it is kept in {place}; this host's daemon delivers it at its next start")
            }
            Err(error) => format!("and could not be written to disk: {error}"),
        };
        let run = self.run_id();
        let job = &self.assignment.job.name;
        Failure::Unavailable(format!(
            "run {run} of job {job} (manual) ended, but its record could not be delivered \
             ({error}); {kept}"
        ))
    }
}

/// Asks again while the store does not answer.
async fn patiently<T>(
    limit: Duration,
    mut ask: impl AsyncFnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let began = Instant::now();
    loop {
        match ask().await {
            Err(StoreError::Unreachable(_) | StoreError::PartUnreachable(_))
                if began.elapsed() < limit =>
            {
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// The first signal ends the run; it is then recorded as stopped. Answers only when it cannot
/// listen.
async fn stop_at_signals(stopper: &watch::Sender<Stop>) -> Failure {
    let listen = |kind| {
        signal(kind).map_err(|e| Failure::Internal(format!("cannot install signal handlers: {e}")))
    };
    let heard = (
        listen(SignalKind::interrupt()),
        listen(SignalKind::terminate()),
        listen(SignalKind::hangup()),
    );
    let (mut interrupt, mut terminate, mut hangup) = match heard {
        (Ok(interrupt), Ok(terminate), Ok(hangup)) => (interrupt, terminate, hangup),
        (Err(failure), ..) | (_, Err(failure), _) | (.., Err(failure)) => return failure,
    };
    loop {
        // All three are cancel-safe.
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        stopper.send_replace(Stop::End);
    }
}
