//! Takes the lock, runs the command under it, and lets go.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::exit_code::{exit_code, exit_code_of_spawn_error};
use super::plan::Plan;
use super::signals::{CaughtSignals, IgnoredSignals};
use super::{internal, show};
use crate::cli::Failure;
use crate::config::OnLost;
use crate::ground::timing;
use crate::guard::{Guard, Processes, Spawn, Stdio, Stream};
use crate::latch::{Acquisition, NotAcquired, WaitLimit, release};
use crate::lease::{Lease, LeaseLost, NewLease, Watchdog};
use crate::names::HostName;
use crate::observe::plain_line;
use crate::run::{Interruption, KillReason, Limits, RunLease, Supervisor, follow};
use crate::store::{FinishReply, Grant, Store, StoreError, StoreSettings};

/// How long the release is tried: while the lease lasts, within these bounds.
const RELEASE_LEAST: Duration = Duration::from_secs(1);
const RELEASE_MOST: Duration = Duration::from_secs(10);

/// What an outer run may have left in the environment.
const NOT_OURS: [&str; 1] = ["CRONLATCH_SCHEDULED_AT"];

pub(super) async fn run(
    plan: &Plan,
    host: &HostName,
    settings: &StoreSettings,
    guard: Guard,
    ignored: IgnoredSignals,
) -> Result<ExitCode, Failure> {
    let mut signals = CaughtSignals::catch(ignored).map_err(|e| internal("catch signals", &e))?;
    let processes = guard
        .serve()
        .map_err(|e| internal("talk to the guard process", &e))?;
    let store = crate::store::open(settings)?;
    let grant = match take(plan, host, &store, &mut signals).await? {
        AcquireOutcome::Granted(grant) => grant,
        AcquireOutcome::Signalled(signal) => return Ok(ended_by(signal)),
    };
    let mut session = ExecSession {
        plan,
        lock: plan.lock.name.clone(),
        store,
        lease: RunLease::default(),
        grant,
        signals,
    };
    let result = session.run(host, settings, &processes).await;
    session.let_go(result).await
}

enum AcquireOutcome {
    Granted(Grant),
    Signalled(Signal),
}

async fn take(
    plan: &Plan,
    host: &HostName,
    store: &Arc<dyn Store>,
    signals: &mut CaughtSignals,
) -> Result<AcquireOutcome, Failure> {
    let lock = plan.lock.clone();
    let mut acquisition = Acquisition::new(store.clone(), host, lock, plan.ttl, plan.wait);
    // Both arms are cancel-safe; a claim under way when a signal comes is cancelled below.
    let acquired = tokio::select! {
        biased;
        signal = signals.next_to_end() => Err(signal),
        acquired = acquisition.acquire() => Ok(acquired),
    };
    match acquired {
        Ok(Ok(grant)) => {
            acquisition.hand_over();
            Ok(AcquireOutcome::Granted(grant))
        }
        Ok(Err(why)) => {
            acquisition.cancel().await;
            Err(not_acquired(plan, &why))
        }
        Err(signal) => {
            acquisition.cancel().await;
            Ok(AcquireOutcome::Signalled(signal))
        }
    }
}

fn not_acquired(plan: &Plan, why: &NotAcquired) -> Failure {
    let lock = &plan.lock.name;
    match why {
        NotAcquired::Held { by, remaining } => {
            let left = match remaining {
                // Milliseconds are noise here.
                Some(left) => format!(
                    "its lease expires in {} unless renewed",
                    show(Duration::from_secs(left.as_secs() + 1))
                ),
                None => "its key has no TTL and never expires".to_owned(),
            };
            let waited = match plan.wait {
                WaitLimit::UpTo(wait) if !wait.is_zero() => format!("; waited {}", show(wait)),
                _ => String::new(),
            };
            Failure::NotAcquired(format!(
                "lock {lock:?} is held by {}, {left}{waited}",
                plain_line(by)
            ))
        }
        NotAcquired::Recovering { .. } => Failure::NotAcquired(format!("lock {lock:?}: {why}")),
        NotAcquired::Store(error @ StoreError::WrongList(_)) => Failure::Config(error.to_string()),
        NotAcquired::Store(error) => Failure::Unavailable(format!("lock {lock:?}: {error}")),
    }
}

fn ended_by(signal: Signal) -> ExitCode {
    tracing::info!("received {signal} while waiting for the lock");
    ExitCode::from(u8::try_from(128 + signal as i32).unwrap_or(u8::MAX))
}

/// A lock that is held for one command.
struct ExecSession<'a> {
    plan: &'a Plan,
    lock: String,
    store: Arc<dyn Store>,
    grant: Grant,
    /// Without a lease until the watchdog renews it.
    lease: RunLease,
    signals: CaughtSignals,
}

impl ExecSession<'_> {
    /// Runs the command to its end; the lock is held all the while, and afterwards.
    async fn run(
        &mut self,
        host: &HostName,
        settings: &StoreSettings,
        processes: &Processes,
    ) -> Result<ExitCode, Failure> {
        // Not before the lock is ours: most hosts of a fleet never need it.
        let watchdog = Watchdog::start(settings, Some(Box::new(processes.deadlines())))
            .map_err(|e| internal("start the thread that renews the lease", &e))?;
        let lease = watchdog.hold(NewLease {
            grant: self.grant.clone(),
            run: None,
            guarded: self.plan.on_lost.into(),
            renew_until: None,
            while_held: None,
        });
        let spawn = self.command(host, &lease);
        self.lease = RunLease::new(Some(lease));
        let running = match processes.spawn(spawn).await {
            Ok(running) => running,
            Err(error) => return exit_code_of_spawn_error(&error, &self.lock),
        };
        let limits = Limits {
            timeout: self.plan.timeout,
            on_lost: self.plan.on_lost,
        };
        let mut supervisor = CommandSupervisor {
            signals: &mut self.signals,
        };
        let followed = follow(running, limits, &mut self.lease, &mut supervisor).await;
        exit_code(&followed, &self.lock)
    }

    fn command(&self, host: &HostName, lease: &Lease) -> Spawn {
        let kill_at = timing::kill_at(lease.ends());
        Spawn {
            run: self.grant.run_id.clone(),
            argv: self.plan.argv.clone(),
            inherited: Arc::default(),
            env: self.environment(host),
            working_dir: None,
            user: None,
            umask: None,
            nice: None,
            start: None,
            start_until: Some(kill_at),
            deadline: (self.plan.on_lost == OnLost::Kill).then_some(kill_at),
            signal: Signal::SIGTERM,
            grace: self.plan.grace,
            stdio: Stdio::Inherit,
        }
    }

    fn environment(&self, host: &HostName) -> BTreeMap<OsString, OsString> {
        let ours = [
            ("CRONLATCH_JOB", self.lock.clone()),
            ("CRONLATCH_RUN_ID", self.grant.run_id.to_string()),
            ("CRONLATCH_ATTEMPT", "1".to_owned()),
            ("CRONLATCH_FENCING_TOKEN", self.grant.fence.to_string()),
            ("CRONLATCH_HOST", host.to_string()),
        ];
        let mut env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        for name in NOT_OURS {
            env.remove(&OsString::from(name));
        }
        env.extend(ours.map(|(name, value)| (name.into(), value.into())));
        env
    }

    /// Releases the lock. The command's exit code stands, unless the lock was lost before.
    async fn let_go(mut self, result: Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
        let known_lost = matches!(result, Err(Failure::NotAcquired(_)));
        let left = self.grant.ends().remaining();
        let left = self.lease.lease().map_or(left, Lease::validity);
        let limit = left.clamp(RELEASE_LEAST, RELEASE_MOST);
        // Both arms are cancel-safe; what is not released ends with its TTL.
        let released = tokio::select! {
            biased;
            signal = self.signals.next_to_end() => Err(signal.to_string()),
            released = release(&*self.store, &self.grant, limit) => {
                released.map_err(|e| e.to_string())
            }
        };
        let why = self
            .lease
            .lease()
            .and_then(|lease| lease.view().known_loss());
        drop(self.lease);
        match released {
            Ok(FinishReply::Lost) if !known_lost => {
                let why = why.unwrap_or(LeaseLost::Absent);
                Err(Failure::NotAcquired(format!(
                    "lock {:?}: {why}; the command had just ended",
                    self.lock
                )))
            }
            Err(why) if !known_lost => {
                tracing::warn!(
                    "cannot release lock {:?}: {why}; it expires after its TTL",
                    self.lock
                );
                result
            }
            _ => result,
        }
    }
}

/// Logs what happens to the command, and passes signals on to it.
struct CommandSupervisor<'a> {
    signals: &'a mut CaughtSignals,
}

impl Supervisor for CommandSupervisor<'_> {
    /// The command writes to the caller's own output.
    fn line(&mut self, _: Stream, _: &str) {}

    fn killing(&mut self, reason: KillReason, _: &RunLease) {
        match reason {
            KillReason::TimedOut(limit) => {
                let limit = show(limit);
                tracing::warn!("killing the command: it ran longer than its timeout of {limit}");
            }
            KillReason::Lost(why) => tracing::warn!("killing the command: {why}"),
            KillReason::Interrupted => {}
        }
    }

    fn continuing(&mut self, why: LeaseLost, _: &RunLease) {
        tracing::warn!("the command continues without its lock (on_lost: continue): {why}");
    }

    async fn interrupted(&mut self) -> Interruption {
        Interruption::Signal(self.signals.next().await)
    }
}
