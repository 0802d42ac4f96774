//! The end of a daemon: a drain, bounded in time, that says what it gave up on.

use std::time::Duration;

use super::Daemon;
use crate::engine::core::Event;
use crate::engine::run::Stop;
use crate::time::BootInstant;

/// The first wait before the store is asked whether it is back.
pub(super) const FIRST_PROBE: Duration = Duration::from_millis(100);
/// How long verdicts may take to be delivered once the last run has ended.
const DELIVERY: Duration = Duration::from_secs(3);
/// What ending a process tree may take beyond its grace.
const MARGIN: Duration = Duration::from_secs(5);

/// A daemon that ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shutdown {
    /// Runs may finish until then.
    Draining { until: BootInstant },
    /// Runs are being ended; whatever is left then is given up.
    Ending { until: BootInstant },
    /// Something is left that would not end.
    GivenUp,
}

impl Daemon {
    /// The first word drains, the second ends.
    pub(super) fn told_to_stop(&mut self, signal: &str) {
        match self.shutdown {
            None => {
                let limit = self.drain_timeout;
                let n = self.running;
                tracing::info!("{signal}: draining; {n} runs may take {limit:?} to finish");
                self.begin(limit);
            }
            Some(Shutdown::Draining { .. }) => {
                let n = self.running;
                tracing::warn!("{signal} again: ending {n} runs now");
                self.end_runs();
            }
            Some(Shutdown::Ending { .. } | Shutdown::GivenUp) => {}
        }
    }

    /// Without a drain.
    pub(super) fn stop_now(&mut self) {
        if self.shutdown.is_none() {
            self.begin(Duration::ZERO);
        }
        self.end_runs();
    }

    fn begin(&mut self, limit: Duration) {
        self.shutdown = Some(Shutdown::Draining {
            until: BootInstant::now().plus(limit),
        });
        self.manager
            .stopping(limit + self.longest_end(), &self.status_text());
        self.stop.send_replace(Stop::Drain);
        self.feed(Event::Drain);
        self.announce();
        self.status();
    }

    fn end_runs(&mut self) {
        let limit = self.longest_end();
        self.shutdown = Some(Shutdown::Ending {
            until: BootInstant::now().plus(limit),
        });
        self.manager.extend(limit + DELIVERY);
        self.stop.send_replace(Stop::End);
    }

    /// How long it may take until no process of any job is left.
    fn longest_end(&self) -> Duration {
        let graces = self.jobs.iter().map(|job| job.kill.grace);
        graces.max().unwrap_or_default() + MARGIN
    }

    pub(super) fn deadline(&self) -> Option<BootInstant> {
        match self.shutdown {
            Some(Shutdown::Draining { until } | Shutdown::Ending { until }) => Some(until),
            Some(Shutdown::GivenUp) | None => None,
        }
    }

    pub(super) fn deadline_passed(&mut self) {
        let n = self.running;
        match self.shutdown {
            Some(Shutdown::Draining { .. }) => {
                let limit = self.drain_timeout;
                tracing::warn!("{n} runs have not finished within {limit:?} (drain_timeout)");
                self.end_runs();
            }
            Some(Shutdown::Ending { .. }) => {
                tracing::error!("{n} runs would not end; leaving them to the guard");
                self.shutdown = Some(Shutdown::GivenUp);
            }
            Some(Shutdown::GivenUp) | None => {}
        }
    }

    /// Tells the manager that the end is still being worked on.
    pub(super) fn extend_shutdown(&self) {
        if let Some(until) = self.deadline() {
            self.manager
                .extend(until.remaining() + self.longest_end() + DELIVERY);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        match self.shutdown {
            None => false,
            Some(Shutdown::GivenUp) => true,
            Some(_) => self.running == 0,
        }
    }

    /// Delivers the last verdicts, or keeps them for the next start.
    pub(super) async fn end(mut self) {
        if !matches!(self.shutdown, Some(Shutdown::GivenUp)) {
            while self.runs.join_next().await.is_some() {}
        }
        let rest = self.finisher.close(DELIVERY).await;
        let n = rest.len();
        match self.spool.keep(&rest) {
            Ok(()) if n > 0 => {
                tracing::warn!(
                    "{n} verdicts could not be delivered; they will be at the next start"
                );
            }
            Ok(()) => {}
            // An earlier start's file that cannot be taken away; nothing of this one's is lost.
            Err(error) if n == 0 => tracing::debug!("cannot clear the spool: {error}"),
            Err(error) => {
                tracing::error!(
                    "{n} verdicts are lost: they could not be delivered, and not be kept: {error}"
                );
            }
        }
        tracing::info!(host = %self.host, "stopped");
    }
}
