//! The checks of `doctor` at the start of a daemon: in the background, or, with `strict`, before it.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::DaemonError;
use super::service_manager::ServiceManager;
use crate::guard::Processes;
use crate::preflight::{self, Finding, PreflightReport, Severity, Subject, ids};

/// How long between two tries to reach a store that must be looked at.
const AGAIN: Duration = Duration::from_secs(1);
/// How often the log repeats that the store cannot be checked.
const REPORT_AGAIN: Duration = Duration::from_secs(300);
/// How long the service manager is to wait for the next try, at least.
const TRY: Duration = Duration::from_secs(30);

/// Whether the daemon continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Startup {
    /// It does.
    Go,
    /// The daemon received a signal to stop before it began.
    Stop,
}

/// Runs the checks once the store replies, and logs what is worth a warning. Nothing waits for it.
pub(super) async fn look_beside(subject: Subject) {
    // At once: a store that is away must not hide it.
    let here = subject.clone();
    let means = tokio::task::spawn_blocking(move || preflight::look_at_means(&here)).await;
    let means = means.unwrap_or_default();
    means.iter().for_each(log);
    loop {
        let report = preflight::look(&subject).await;
        if report.unreachable.is_none() {
            for finding in &report.findings {
                // Said by those who notice it whenever it changes.
                let elsewhere = [ids::EVICTION, ids::CLOCK, ids::LEDGER];
                let logged = means.iter().any(|known| known.id == finding.id);
                if !logged && !elsewhere.iter().any(|id| id.0 == finding.id) {
                    log(finding);
                }
            }
            return;
        }
        tokio::time::sleep(AGAIN * 5).await;
    }
}

/// Looks before anything starts: waits for the store, and refuses what is dangerous.
pub(super) async fn look_first(
    subject: &Subject,
    processes: &Processes,
    manager: &ServiceManager,
) -> Result<Startup, DaemonError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // The default action of SIGHUP would end the process; the loop handles it later.
    let _hangup = signal(SignalKind::hangup())?;
    // Every arm is cancel-safe: a look that is given up has changed nothing.
    tokio::select! {
        report = reachable(subject, manager) => judge(&report),
        Some(()) = terminate.recv() => Ok(stopped("SIGTERM")),
        Some(()) = interrupt.recv() => Ok(stopped("SIGINT")),
        () = processes.guard_gone() => Err(DaemonError::GuardGone),
    }
}

fn stopped(signal: &str) -> Startup {
    tracing::info!("received {signal} before the start was complete; the daemon exits");
    Startup::Stop
}

/// Runs the checks until the store replies.
async fn reachable(subject: &Subject, manager: &ServiceManager) -> PreflightReport {
    let mut logged: Option<Instant> = None;
    loop {
        let report = preflight::look(subject).await;
        let Some(error) = &report.unreachable else {
            return report;
        };
        if logged.is_none_or(|at| at.elapsed() >= REPORT_AGAIN) {
            logged = Some(Instant::now());
            tracing::error!(
                "strict: the daemon has not started: {error}; it retries until the store can be \
                 checked"
            );
        }
        manager.status("waiting until the store can be checked (strict)");
        manager.extend(TRY);
        tokio::time::sleep(AGAIN).await;
    }
}

fn judge(report: &PreflightReport) -> Result<Startup, DaemonError> {
    report.findings.iter().for_each(log);
    let dangers: Vec<String> = report
        .dangers()
        .map(|f| format!("{} ({}): {}\n  help: {}", f.id, f.subject, f.text, f.fix))
        .collect();
    if dangers.is_empty() {
        return Ok(Startup::Go);
    }
    Err(DaemonError::FailedCheck(format!(
        "strict: refusing to start\n{}",
        dangers.join("\n")
    )))
}

/// One line, with what is to be done.
fn log(finding: &Finding) {
    let Finding {
        id,
        subject,
        text,
        fix,
        ..
    } = finding;
    if *id == ids::LISTS.0 {
        // The daemon reports it while it runs, once for each list.
        return;
    }
    match finding.severity {
        Severity::Danger => {
            tracing::error!(finding = id, subject, "{subject}: {text}. To fix: {fix}");
        }
        Severity::Warning => {
            tracing::warn!(finding = id, subject, "{subject}: {text}. To fix: {fix}");
        }
        Severity::Hint | Severity::Ok => {
            tracing::debug!(finding = id, subject, "{subject}: {text}");
        }
    }
}
