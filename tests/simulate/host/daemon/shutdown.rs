//! The end of a daemon, as `engine::daemon::shutdown` brings it about.

use cronlatch::engine::simulated::Event;

use super::Daemon;
use crate::host::runner::Stop;
use crate::host::{Env, Timer};

/// How long verdicts may take to be delivered once the last run has ended.
const DELIVERY: i64 = 3_000;
/// What ending a process tree may take beyond its grace.
const MARGIN: i64 = 5_000;

#[derive(Debug, Clone, Copy)]
pub(super) enum Shutdown {
    Draining { until: i64 },
    Ending { until: i64 },
    Closing { until: i64 },
    Gone,
}

impl Daemon {
    pub(in crate::host) fn drain(&mut self, env: &mut Env<'_>) {
        if self.shutdown.is_some() {
            return;
        }
        let until = env.sim.now + self.drain_timeout;
        self.shutdown = Some(Shutdown::Draining { until });
        env.sim.trace.lives[self.noted].drains = Some(env.sim.now);
        env.arm(until, Timer::Shutdown);
        self.runner.stop(env, Stop::Drain);
        self.feed(env, Event::Drain);
        self.measure_and_announce(env);
        self.follow(env);
    }

    pub(super) fn deadline_passed(&mut self, env: &mut Env<'_>) {
        let now = env.sim.now;
        match self.shutdown {
            Some(Shutdown::Draining { until }) if until <= now => {
                let graces = self
                    .jobs
                    .values()
                    .map(|(job, _)| job.policies.kill.grace.as_millis());
                let limit = i64::try_from(graces.max().unwrap_or(0)).unwrap_or(0) + MARGIN;
                let until = now + limit;
                self.shutdown = Some(Shutdown::Ending { until });
                env.arm(until, Timer::Shutdown);
                self.runner.stop(env, Stop::End);
            }
            Some(Shutdown::Ending { until } | Shutdown::Closing { until }) if until <= now => {
                self.shutdown = Some(Shutdown::Gone);
                Self::withdraw(env);
            }
            _ => {}
        }
    }

    pub(super) fn look_at_shutdown(&mut self, env: &mut Env<'_>) {
        match self.shutdown {
            Some(Shutdown::Draining { .. } | Shutdown::Ending { .. }) if self.running == 0 => {
                let until = env.sim.now + DELIVERY;
                self.shutdown = Some(Shutdown::Closing { until });
                env.arm(until, Timer::Shutdown);
                self.finisher.retry_now(env);
                self.look_at_shutdown(env);
            }
            Some(Shutdown::Closing { .. }) if self.finisher.is_idle() => {
                self.shutdown = Some(Shutdown::Gone);
                Self::withdraw(env);
            }
            _ => {}
        }
    }
}
