//! A host that lacks the resources to start processes, as `engine::daemon::resources` has it.

use cronlatch::engine::simulated::Event;
use cronlatch::time::BootInstant;

use super::Daemon;
use crate::host::Env;
use crate::host::runner::{Over, Returned};
use crate::plan::millis;

/// The first pause without claims, and the longest, in milliseconds.
const FIRST_PAUSE: i64 = 1_000;
const LONGEST_PAUSE: i64 = 60_000;

/// What a host that could start nothing does without, and until when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Short {
    pause: i64,
    until: i64,
}

impl Daemon {
    /// A granted run could not be started, and its occurrence goes back undecided.
    pub(super) fn not_started(&mut self, env: &mut Env<'_>, over: &Over, why: Returned) {
        let until = match why {
            Returned::Short => Some(self.run_short(env)),
            // The daemon is about to end.
            Returned::Withdrawn if self.shutdown.is_some() => {
                Some(env.sim.boot().plus(millis(LONGEST_PAUSE)))
            }
            Returned::Withdrawn => None,
        };
        env.guard.watched = Some(env.life);
        if let (Some(job), Some(at)) = (over.place, over.record.scheduled_at) {
            let kind = over.record.kind;
            self.feed(
                env,
                Event::RunNotStarted {
                    job,
                    at,
                    kind,
                    until,
                },
            );
        }
    }

    /// Returns until when this host claims nothing.
    fn run_short(&mut self, env: &mut Env<'_>) -> BootInstant {
        let now = env.sim.now;
        let short = match self.short {
            Some(before) if now < before.until => before,
            before => {
                let twice = |before: Short| (before.pause * 2).min(LONGEST_PAUSE);
                let pause = before.map_or(FIRST_PAUSE, twice);
                let until = now + pause;
                Short { pause, until }
            }
        };
        self.short = Some(short);
        env.sim.boot().plus(millis(short.until - now))
    }

    /// A run was started after others could not be.
    pub(super) fn resources_back(&mut self, env: &mut Env<'_>) {
        self.short = None;
        self.feed(env, Event::ResourcesBack);
    }
}
