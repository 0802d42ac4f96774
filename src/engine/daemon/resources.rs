//! A host that lacks the resources to start processes returns what it was granted, counts as full
//! for a while, and reports it.

use std::time::Duration;

use super::Daemon;
use super::runs::NotStarted;
use crate::config::show_roughly;
use crate::engine::core::Event;
use crate::guard::Lack;
use crate::observe::run_log;
use crate::run::ReturnReason;
use crate::time::BootInstant;

/// The first pause without claims.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What this host lacks.
#[derive(Debug, Default)]
pub(super) struct Resources {
    short: Option<Short>,
}

#[derive(Debug, Clone, Copy)]
struct Short {
    lack: Lack,
    since: BootInstant,
    pause: Duration,
    until: BootInstant,
}

impl Resources {
    /// A run could not be started. Returns until when this host claims nothing. The pause doubles
    /// with every trial that fails; runs that were already granted belong to one trial.
    fn failed(&mut self, lack: Lack, now: BootInstant) -> BootInstant {
        let short = match self.short {
            Some(before) if now < before.until => Short { lack, ..before },
            before => {
                let pause = before.map_or(FIRST_PAUSE, |b| (b.pause * 2).min(LONGEST_PAUSE));
                Short {
                    lack,
                    since: before.map_or(now, |before| before.since),
                    pause,
                    until: now.plus(pause),
                }
            }
        };
        self.short = Some(short);
        short.until
    }

    /// What is lacking; `None` while runs start.
    pub(super) fn lack(&self) -> Option<Lack> {
        self.short.map(|short| short.lack)
    }
}

impl Daemon {
    /// A granted run could not be started, and its occurrence goes back undecided.
    pub(super) fn not_started(&mut self, run: &NotStarted) {
        let now = BootInstant::now();
        let reason = &run.reason;
        let until = match run.returned {
            ReturnReason::Lacks(lack) => {
                let until = self.resources.failed(lack, now);
                run_log!(
                    warn,
                    run.fields,
                    "not started: {reason}. This host is short of {lack}; the occurrence goes back to \
                     the store, and any host may run it. This host claims nothing for {}, then tries \
                     one run; {}",
                    show_roughly(until.remaining()),
                    lack.remedy()
                );
                Some(until)
            }
            ReturnReason::NoGuard
            | ReturnReason::Killed
            | ReturnReason::Draining
            | ReturnReason::LeaseLost => {
                run_log!(
                    warn,
                    run.fields,
                    "not started: {reason}. The occurrence goes back to the store, and any host may run \
                     it"
                );
                let pause = match run.returned {
                    // The daemon ends, and must not claim until then.
                    ReturnReason::NoGuard => Some(LONGEST_PAUSE),
                    // What killed it may kill the next one, too.
                    ReturnReason::Killed => Some(FIRST_PAUSE),
                    _ => None,
                };
                pause.map(|pause| now.plus(pause))
            }
        };
        self.tools.starts.watch();
        self.feed(Event::RunNotStarted {
            job: run.job,
            at: run.at,
            kind: run.kind,
            until,
        });
        self.announce();
        self.status();
    }

    /// A run was started after others could not be.
    pub(super) fn resources_back(&mut self) {
        if let Some(short) = self.resources.short.take() {
            tracing::info!(
                host = %self.host,
                "this host can start processes again; it was short of {} for {}",
                short.lack,
                show_roughly(BootInstant::now().since(short.since))
            );
        }
        self.feed(Event::ResourcesBack);
        self.announce();
        self.status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::seconds_after_boot as at;

    #[test]
    fn the_pause_doubles_with_each_trial_that_fails_and_not_with_each_run() {
        let mut resources = Resources::default();
        assert_eq!(resources.failed(Lack::Files, at(100)), at(101));
        assert_eq!(resources.failed(Lack::Files, at(100)), at(101), "one burst");
        assert_eq!(resources.failed(Lack::Memory, at(101)), at(103));
        assert_eq!(resources.lack(), Some(Lack::Memory));
        let mut now = at(103);
        for _ in 0..10 {
            now = resources.failed(Lack::Files, now);
        }
        assert_eq!(resources.failed(Lack::Files, now), now.plus(LONGEST_PAUSE));
    }
}
