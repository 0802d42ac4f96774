//! The end of a daemon: a drain that is bounded in time and reports what it gave up on.

use std::time::Duration;

use super::runs::whole_seconds;
use super::{Daemon, DaemonError};
use crate::config::show_duration;
use crate::engine::core::Event;
use crate::names::JobName;
use crate::notify::LAST_MESSAGES;
use crate::observe::run_log;
use crate::output::LAST_OUTPUT;
use crate::run::Stop;
use crate::store::{Finish, StoreError};
use crate::time::BootInstant;

/// How long verdicts may take to be delivered once the last run has ended.
const DELIVERY: Duration = Duration::from_secs(3);
/// What ending a process tree may take beyond its grace.
const MARGIN: Duration = Duration::from_secs(5);
/// A signal so soon after the first is the same word once more: `timeout` signals the process and
/// then its group, wrappers pass on the Ctrl-C that the terminal has sent to all of them.
const ECHO: Duration = Duration::from_millis(500);

/// When a drain first logs which runs are still in progress. Each further line comes after twice the
/// time, at the latest after [`REPORT_MOST`].
const REPORT_FIRST: Duration = Duration::from_secs(10);
const REPORT_MOST: Duration = Duration::from_secs(300);

/// A daemon that ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shutdown {
    /// Runs may finish until then.
    Draining {
        since: BootInstant,
        until: BootInstant,
        /// When the runs that are still in progress are logged next.
        report_at: BootInstant,
    },
    /// Runs are being ended; whatever is left then is given up.
    Ending { until: BootInstant },
    /// Something is left that would not end.
    GivenUp,
}

/// What a signal asks the daemon to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopRequest {
    /// To drain.
    Drain,
    /// What the signal before it asked for.
    Echo,
    /// Not to wait for the runs any longer.
    End,
    /// What is being done already.
    Nothing,
}

impl StopRequest {
    /// The first word drains, the second ends.
    fn of(shutdown: Option<Shutdown>, now: BootInstant) -> Self {
        match shutdown {
            None => Self::Drain,
            Some(Shutdown::Draining { since, .. }) if now.since(since) < ECHO => Self::Echo,
            Some(Shutdown::Draining { .. }) => Self::End,
            Some(Shutdown::Ending { .. } | Shutdown::GivenUp) => Self::Nothing,
        }
    }
}

/// Returns a number with its noun in the singular or the plural.
pub(super) fn counted(n: usize, thing: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {thing}{s}")
}

impl Daemon {
    /// SIGTERM or SIGINT came.
    pub(super) fn told_to_stop(&mut self, signal: &str) {
        let n = counted(self.runs.len(), "run");
        match StopRequest::of(self.shutdown, BootInstant::now()) {
            StopRequest::Drain => {
                let limit = self.settings.drain_timeout;
                if self.runs.len() == 0 {
                    tracing::info!("received {signal}: draining; no run is in progress");
                } else {
                    tracing::info!(
                        "received {signal}: draining; {n} may take up to {} (drain_timeout): {}",
                        show_duration(limit),
                        self.runs.listed(BootInstant::now())
                    );
                }
                self.begin(limit);
            }
            StopRequest::Echo => tracing::info!(
                "ignored a second {signal} within {}; the next signal kills the runs that are \
                 still in progress (now {})",
                show_duration(ECHO),
                self.runs.len()
            ),
            StopRequest::End => {
                tracing::warn!("received {signal} again: killing {n}");
                self.end_runs();
            }
            StopRequest::Nothing => {}
        }
    }

    /// Ends a daemon whose list of servers is wrong: waiting does not help. One that was served
    /// with this list goes on, as a server may have become a replica by mistake.
    pub(super) fn look_for_wrong_list(&mut self, error: &StoreError) {
        let StoreError::WrongList(why) = error else {
            return;
        };
        if self.was_served || self.wrong_list.is_some() || self.shutdown.is_some() {
            return;
        }
        self.wrong_list = Some(StoreError::WrongList(why.clone()));
        let n = counted(self.runs.len(), "run");
        let when = match self.runs.len() {
            0 => "now".to_owned(),
            _ => format!("when {n} on this host ended, at the latest after drain_timeout"),
        };
        tracing::error!(host = %self.host, "{error}; correct the list. The daemon exits {when}");
        self.begin(self.settings.drain_timeout);
    }

    /// Without a drain.
    pub(super) fn stop_now(&mut self) {
        if self.shutdown.is_none() {
            self.begin(Duration::ZERO);
        }
        self.end_runs();
    }

    fn begin(&mut self, limit: Duration) {
        let since = BootInstant::now();
        self.shutdown = Some(Shutdown::Draining {
            since,
            until: since.plus(limit),
            report_at: since.plus(REPORT_FIRST),
        });
        // Before the manager learns of it: a command that was granted ahead and is not ordered yet is then never
        // ordered.
        self.stop.send_replace(Stop::Drain);
        self.manager
            .stopping(limit + self.longest_end(), &self.status_text());
        self.feed(Event::Drain);
        self.announce();
        self.status();
    }

    fn end_runs(&mut self) {
        let limit = self.longest_end();
        self.shutdown = Some(Shutdown::Ending {
            until: BootInstant::now().plus(limit),
        });
        self.manager.extend(limit + DELIVERY + LAST_MESSAGES);
        self.stop.send_replace(Stop::End);
    }

    /// How long it may take until no process of any job is left.
    fn longest_end(&self) -> Duration {
        let graces = self.jobs.values().map(|job| job.policies.kill.grace);
        // A run ends under the definition that it began with.
        let graces = graces.chain(self.runs.longest_grace());
        graces.max().unwrap_or_default() + MARGIN
    }

    pub(super) fn deadline(&self) -> Option<BootInstant> {
        match self.shutdown {
            Some(Shutdown::Draining { until, .. } | Shutdown::Ending { until }) => Some(until),
            Some(Shutdown::GivenUp) | None => None,
        }
    }

    pub(super) fn deadline_passed(&mut self) {
        let n = counted(self.runs.len(), "run");
        match self.shutdown {
            Some(Shutdown::Draining { .. }) => {
                let limit = self.settings.drain_timeout;
                let are = if self.runs.len() == 1 { "is" } else { "are" };
                tracing::warn!(
                    "{n} did not finish within {} (drain_timeout) and {are} killed: {}",
                    show_duration(limit),
                    self.runs.listed(BootInstant::now())
                );
                self.end_runs();
            }
            Some(Shutdown::Ending { .. }) => {
                tracing::error!("{n} did not end after SIGKILL; the guard keeps killing them");
                self.shutdown = Some(Shutdown::GivenUp);
            }
            Some(Shutdown::GivenUp) | None => {}
        }
    }

    /// Logs which runs a drain still waits for, ever more rarely.
    pub(super) fn report_drain(&mut self) {
        let now = BootInstant::now();
        let Some(Shutdown::Draining {
            since,
            until,
            report_at,
        }) = &mut self.shutdown
        else {
            return;
        };
        if now < *report_at || self.runs.len() == 0 {
            return;
        }
        *report_at = now.plus(now.since(*since).min(REPORT_MOST));
        let left = whole_seconds(until.since(now).as_secs());
        let (runs, are) = match self.runs.len() {
            1 => ("1 run".to_owned(), "is"),
            n => (counted(n, "run"), "are"),
        };
        tracing::info!(
            "draining: {runs} {are} still in progress and may take up to {left} (drain_timeout): \
             {}",
            self.runs.listed(now)
        );
    }

    /// Reports to the service manager that the daemon is still stopping.
    pub(super) fn extend_shutdown(&self) {
        if let Some(until) = self.deadline() {
            self.manager.extend(
                until.remaining() + self.longest_end() + DELIVERY + LAST_OUTPUT + LAST_MESSAGES,
            );
        }
    }

    pub(super) fn is_done(&self) -> bool {
        match self.shutdown {
            None => false,
            Some(Shutdown::GivenUp) => true,
            Some(_) => self.runs.len() == 0 && !self.requests.is_claiming(),
        }
    }

    /// `status` shall not go on for half a minute to show a host that is gone.
    async fn withdraw(&mut self) {
        // None may arrive after the withdrawal.
        self.announcements.shutdown().await;
        if self.health.is_up() {
            self.link.withdraw(self.word()).await;
        }
    }

    /// Delivers the last results, or keeps them for the next start.
    pub(super) async fn end(mut self) -> Result<(), DaemonError> {
        for result in self.unsent_results() {
            self.finisher.send(result);
        }
        let mut rest = self.finisher.end(DELIVERY).await;
        // Runs that this daemon had given up on may have ended meanwhile.
        rest.extend(self.unsent_results().into_iter().map(|it| it.finish));
        let n = rest.iter().filter(|finish| finish.record.is_some()).count();
        let runs = counted(n, "run");
        let mut lost = self.report_abandoned();
        match self.spool.keep(&rest) {
            Ok(()) if n > 0 => tracing::warn!(
                host = %self.host,
                "the store did not accept the results of {runs}; they are kept in {}. Start the \
                 daemon on this host again to deliver them; until then other hosts may record \
                 these runs as interrupted, or run them again (on_crash: rerun)",
                self.spool.place()
            ),
            Ok(()) => {}
            // An earlier start's file that cannot be taken away; nothing of this one's is lost.
            Err(error) if rest.is_empty() => {
                tracing::debug!("cannot clear the file of undelivered results: {error}");
            }
            Err(error) => {
                for finish in &rest {
                    self.report_lost(finish);
                }
                // A claim that was not returned is over when its lease expires.
                if n > 0 {
                    lost = Err(DaemonError::ResultsLost {
                        runs,
                        place: self.spool.place(),
                        source: error,
                    });
                }
            }
        }
        self.withdraw().await;
        self.tools.outputs.flush(LAST_OUTPUT).await;
        self.link.reporter.notifier.end(LAST_MESSAGES).await;
        self.front.close().await;
        tracing::info!(host = %self.host, "stopped");
        lost
    }

    /// Logs the runs that did not end. Their leases are not renewed any more.
    fn report_abandoned(&self) -> Result<(), DaemonError> {
        for fields in self.runs.under_way() {
            run_log!(
                error,
                fields,
                "run abandoned: its processes survive SIGKILL (another user's program, or \
                 uninterruptible sleep), and the daemon exits without a result for it. When its \
                 lease has expired, other hosts record it as interrupted or rerun it (on_crash: \
                 rerun), while it may still be running"
            );
        }
        match self.runs.under_way().len() {
            0 => Ok(()),
            n => Err(DaemonError::RunsAbandoned(counted(n, "run"))),
        }
    }

    /// Logs what the store will not learn from this host. After the lease of the run, other hosts
    /// record it as `interrupted`, or run it again (`on_crash: rerun`).
    fn report_lost(&self, finish: &Finish) {
        let Some(record) = &finish.record else {
            let job = finish.job.as_ref().map_or("-", JobName::as_str);
            tracing::warn!(
                %job,
                lock = finish.lock.name,
                "could not return a claim to the store; its lock is free again when its lease \
                 expires"
            );
            return;
        };
        tracing::error!(
            job = %record.job,
            run_id = record.run_id.as_ref().map(tracing::field::display),
            scheduled_at = record.scheduled_at.map(tracing::field::display),
            host = %self.host,
            outcome = record.outcome.word(),
            exit_code = record.exit_code,
            "the result of this run is lost: the store did not accept it, and it could not be \
             written to disk. Other hosts record this run as interrupted, or run it again \
             (on_crash: rerun)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{BootInstant, Duration, Shutdown, StopRequest};

    #[test]
    fn a_second_word_counts_from_half_a_second_after_the_first() {
        let at = |millis| BootInstant::from_duration(Duration::from_millis(millis));
        let draining = Some(Shutdown::Draining {
            since: at(10_000),
            until: at(70_000),
            report_at: at(20_000),
        });
        let ending = Some(Shutdown::Ending { until: at(20_000) });
        assert_eq!(StopRequest::of(None, at(10_000)), StopRequest::Drain);
        assert_eq!(StopRequest::of(draining, at(10_000)), StopRequest::Echo);
        assert_eq!(StopRequest::of(draining, at(10_499)), StopRequest::Echo);
        assert_eq!(StopRequest::of(draining, at(10_500)), StopRequest::End);
        assert_eq!(StopRequest::of(ending, at(10_001)), StopRequest::Nothing);
        assert_eq!(
            StopRequest::of(Some(Shutdown::GivenUp), at(10_001)),
            StopRequest::Nothing
        );
    }
}
