//! One run that this process carries: it claims, drives the run, and delivers its record.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::cli::Failure;
use crate::config::{Job, NotifyTarget, OutputPolicy, state_directory};
use crate::engine::spool::Spool;
use crate::ground::tasks;
use crate::guard::Guard;
use crate::lease::Watchdog;
use crate::names::{HostName, RunId};
use crate::notify::{LAST_MESSAGES, NotifiedList, Notifier, NotifierSetup, Role, RunBegan};
use crate::output::{self, LAST_OUTPUT, OutputKeeper};
use crate::run::{
    Assignment, Cause, Ended, ManualClaim, ManualRefusal, PendingClaims, RunControl, Starts, Stop,
    Tools, drive, inherited, note_again, take_back_note,
};
use crate::store::{
    self, Claim, CopyReply, Finish, IfPaused, Record, Retention, RetryPace, Store, StoreError,
    StoreSettings, retry,
};
use crate::time::TimeSource;

/// How the delivery of the record is repeated; the run itself is over by then.
const FINISHING: RetryPace = RetryPace::no_reply(Duration::from_secs(60));
/// How long the delivery may take after this process received a signal to end.
const FINISH_SOON: Duration = Duration::from_secs(2);

/// A job to be run, and what that needs.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) job: Arc<Job>,
    pub(super) host: HostName,
    pub(super) settings: StoreSettings,
    pub(super) keep: Retention,
    /// Environment variables that the job does not inherit.
    pub(super) secret_variables: BTreeSet<String>,
    /// The targets of notifications.
    pub(super) targets: Vec<NotifyTarget>,
    /// What happens if the job is paused.
    pub(super) if_paused: IfPaused,
    /// The output of runs that stays in files.
    pub(super) output: OutputPolicy,
    /// Who asks, and why.
    pub(super) cause: Cause,
}

/// A run that was granted and has not begun.
#[derive(Debug)]
pub(super) struct Granted {
    assignment: Assignment,
    /// Keeps a record that the store does not accept.
    spool: Spool,
    store: Arc<dyn Store>,
    tools: Tools,
    notifier: Notifier,
    keep: Retention,
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
        let environment = Arc::new(inherited(&self.secret_variables));
        let (assignment, store, notifier, tools) = tasks::block_on(&runtime, async {
            let processes = guard.serve().map_err(internal)?;
            let store = store::open(&self.settings)?;
            let watchdog = Watchdog::start(&self.settings, Some(Box::new(processes.deadlines())))
                .map_err(internal)?;
            let notifier = Notifier::start(NotifierSetup {
                list: NotifiedList {
                    targets: self.targets.clone(),
                    jobs: vec![Arc::clone(&self.job)],
                    keep: self.keep.records,
                    environment: Arc::clone(&environment),
                },
                store: Arc::clone(&store),
                host: self.host.clone(),
                role: Role::SingleRun,
            })
            .map_err(internal)?;
            let assignment = self.claim(&*store, &notifier).await?;
            let watch = notifier.watch(RunBegan {
                job: self.job.name.clone(),
                run_id: assignment.run_id().clone(),
                scheduled_at: None,
            });
            let tools = Tools {
                store: Arc::clone(&store),
                processes,
                watchdog,
                environment,
                pending_claims: PendingClaims::default(),
                starts: Starts::default().of_run(watch),
                outputs: self.outputs().map_err(internal)?,
                clock: TimeSource::default(),
            };
            Ok::<_, Failure>((assignment, store, notifier, tools))
        })?;
        Ok(Granted {
            spool: Spool::of_run(&self.host, assignment.run_id(), &self.settings),
            assignment,
            store,
            tools,
            notifier,
            keep: self.keep,
            runtime,
        })
    }

    /// Starts what keeps the output, where a daemon of the same user keeps it.
    fn outputs(&self) -> std::io::Result<OutputKeeper> {
        let directory = state_directory().map(|state| output::directory_in(&state));
        OutputKeeper::start(directory, self.output)
    }

    async fn claim(&self, store: &dyn Store, notifier: &Notifier) -> Result<Assignment, Failure> {
        let claim = ManualClaim {
            job: Arc::clone(&self.job),
            host: self.host.clone(),
            run_id: RunId::new(),
            if_paused: self.if_paused,
            keep: self.keep,
            cause: self.cause.clone(),
        };
        let replied = |claim: &Claim, reply: &CopyReply| notifier.claimed(claim, reply);
        claim.send(store, &replied).await.map_err(refused)
    }
}

fn refused(refusal: ManualRefusal) -> Failure {
    match refusal {
        ManualRefusal::NotNow(why) => Failure::NotAcquired(why),
        ManualRefusal::Store(error) => error.into(),
        ManualRefusal::Unexpected(_) => Failure::Internal(refusal.to_string()),
    }
}

impl Granted {
    pub(super) fn run_id(&self) -> &RunId {
        self.assignment.run_id()
    }

    /// Runs the job to its end and delivers its record.
    pub(super) fn carry(self) -> Result<Record, Failure> {
        tasks::block_on(&self.runtime, async {
            let (stopper, stop) = watch::channel(Stop::Not);
            let received = Arc::new(OnceLock::new());
            let run = async {
                let run = self.assignment.manual_run();
                let control = RunControl::of_command(stop.clone(), Arc::clone(&received));
                // Stopped before `finish`: a note that was taken back must not be written again.
                let ended = tokio::select! {
                    ended = drive(&self.assignment, &self.tools, control) => ended,
                    never = note_again(&*self.store, &run) => match never {},
                };
                let record = self.finish(ended, stop.clone()).await;
                self.tools.outputs.flush(LAST_OUTPUT).await;
                self.notifier.end(LAST_MESSAGES).await;
                record
            };
            tokio::select! {
                record = run => record,
                never = stop_at_signals(&stopper, &received) => Err(never),
            }
        })
    }

    /// Delivers the record. The lease is held and renewed until the store has it; a record that the
    /// store does not accept is kept for the host's daemon.
    async fn finish(
        &self,
        ended: Ended,
        mut stop: watch::Receiver<Stop>,
    ) -> Result<Record, Failure> {
        let finish = self
            .assignment
            .finish(Some(ended.record.clone()), self.keep);
        let hurry = async {
            // Without a sender, no signal can arrive.
            if stop.wait_for(|stop| *stop == Stop::End).await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(FINISH_SOON).await;
        };
        // Both are cancel-safe: a finish sent again is written once.
        let delivered = tokio::select! {
            delivered = retry(FINISHING, || self.store.finish(&finish)) => delivered,
            () = hurry => Err(StoreError::unreachable("stopped before the store replied".to_owned())),
        };
        drop(ended.lease);
        match delivered {
            Ok(_) => {
                take_back_note(&*self.store, self.run_id()).await;
                self.notifier.verdict(&ended.record);
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

/// The first signal is noted and ends the run, which is then recorded as stopped. Returns only if it
/// cannot install the signal handlers.
async fn stop_at_signals(stopper: &watch::Sender<Stop>, received: &OnceLock<Signal>) -> Failure {
    let listen = |kind| {
        signal(kind).map_err(|e| Failure::Internal(format!("cannot install signal handlers: {e}")))
    };
    let installed = (
        listen(SignalKind::interrupt()),
        listen(SignalKind::terminate()),
        listen(SignalKind::hangup()),
    );
    let (mut interrupt, mut terminate, mut hangup) = match installed {
        (Ok(interrupt), Ok(terminate), Ok(hangup)) => (interrupt, terminate, hangup),
        (Err(failure), ..) | (_, Err(failure), _) | (.., Err(failure)) => return failure,
    };
    loop {
        // All three are cancel-safe.
        let signal = tokio::select! {
            _ = interrupt.recv() => Signal::SIGINT,
            _ = terminate.recv() => Signal::SIGTERM,
            _ = hangup.recv() => Signal::SIGHUP,
        };
        let _ = received.set(signal);
        stopper.send_replace(Stop::End);
    }
}
