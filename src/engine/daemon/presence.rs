//! Announces the daemon: to the service manager, and through the store to other hosts and `status`.

use std::time::Duration;

use super::agreement::Agreement;
use super::clock::A_START;
use super::shutdown::counted;
use super::store_clock::Epoch;
use super::{Daemon, manual};
use crate::config::show_roughly;
use crate::engine::core::Event;
use crate::ground::tasks::SpawnBoxed as _;
use crate::preflight::Offset;
use crate::store::{HostInfo, StoreError};
use crate::time::BootInstant;

/// Every how many rounds it announces itself.
const ANNOUNCE_EVERY: u32 = 10;
/// Every how many rounds it has the store keep the jobs of its list.
const KEEP_LIST_EVERY: u32 = 60;
/// A watchdog thread that has not reported for this long hangs.
const BEAT_LIMIT: Duration = Duration::from_secs(5);

impl Daemon {
    pub(super) fn be_ready(&mut self) {
        if !self.is_ready {
            self.is_ready = true;
            self.said_status = self.status_text();
            self.manager.ready(&self.said_status);
            if self.clock.is_wrong() {
                tracing::warn!(
                    host = %self.host,
                    "ready, but this host starts no due jobs until its clock is corrected"
                );
            } else {
                tracing::info!(host = %self.host, "ready");
            }
            self.keep_list();
            self.announce();
            self.publish();
            self.spare_memory.at_rest_from(BootInstant::now());
        }
    }

    pub(super) fn is_ready_while_waiting(&mut self, error: &StoreError) {
        if !self.is_ready {
            self.is_ready = true;
            self.said_status = self.status_text();
            self.manager.ready(&self.said_status);
            tracing::warn!(
                host = %self.host,
                "ready, but the store cannot be used: {}; retrying. Due jobs wait (start_deadline, then \
                 catch_up)",
                error.reason()
            );
        }
    }

    pub(super) fn status_text(&self) -> String {
        let store = match self.health.is_up() {
            true if self.recovers.is_some() => "; waiting: the store may have lost data",
            true => "",
            false => "; waiting for the store",
        };
        let unusable = match self.unusable.len() {
            0 => String::new(),
            n => format!(", {n} with unusable keys (see the log)"),
        };
        let held_back = match self.admission.count() {
            0 => String::new(),
            n => format!(", {n} held back (their lock changes)"),
        };
        let draining = match (self.shutdown, self.runs.len()) {
            (None, _) => String::new(),
            (Some(_), 0) => "; draining".to_owned(),
            (Some(_), _) => format!("; draining: {}", self.runs.listed(BootInstant::now())),
        };
        let waits = match self.agreement {
            Agreement::Waits(_) => "; waiting: another store is in use for these jobs",
            Agreement::Unknown | Agreement::HostAgrees | Agreement::Claims(_) => "",
        };
        let lacks = (self.resources.lack())
            .map_or_else(String::new, |lack| format!("; lacks {lack} to start jobs"));
        let refused = (self.reloads.refused()).map_or_else(String::new, |why| format!("; {why}"));
        format!(
            "{}, {} running{unusable}{held_back}{store}{waits}{lacks}{draining}{refused}",
            counted(self.jobs.len(), "job"),
            self.runs.len()
        )
    }

    pub(super) fn status(&mut self) {
        self.publish();
        let status = self.status_text();
        if self.is_ready && status != self.said_status {
            self.manager.status(&status);
            self.said_status = status;
        }
    }

    pub(super) fn round(&mut self) {
        self.look_at_pauses();
        self.look_for_recovery();
        self.look_at_health();
        self.look_at_clock();
        self.look_at_admission();
        self.status();
        self.publish_metrics();
        self.spare_memory.look(BootInstant::now());
        self.extend_shutdown();
        self.report_drain();
        self.rounds += 1;
        if self.rounds.is_multiple_of(ANNOUNCE_EVERY) && self.is_ready {
            self.announce();
            self.look_after_registry();
        }
        if self.rounds.is_multiple_of(KEEP_LIST_EVERY) && self.is_ready {
            self.keep_list();
        }
        if self.rounds.is_multiple_of(manual::EVERY) && self.is_ready && self.health.is_up() {
            let link = self.link.clone();
            self.announcements
                .spawn_boxed(link.settle_manual_runs(self.settings.history));
        }
    }

    /// The clocks were compared.
    pub(super) fn clock_measured(&mut self, offset: Offset, epoch: Epoch) {
        let was_wrong = self.clock.is_wrong();
        let events = self.clock.measured(offset, epoch);
        if let Some(epoch) = self.clock.store_clock().epoch() {
            self.clock_file.keep(epoch);
        }
        self.set_lead();
        self.clock_moved(events);
        if self.is_ready && was_wrong != self.clock.is_wrong() {
            self.announce();
        }
    }

    /// Has the ticker fire as early as claims and starts take.
    pub(super) fn set_lead(&self) {
        if let Some(board) = &self.board {
            board.set_ahead(self.clock.lead(), A_START);
        }
    }

    fn clock_moved(&mut self, events: Vec<Event>) {
        if let Some(board) = &self.board
            && events.iter().any(|event| matches!(event, Event::ClockSet))
        {
            board.clock_set();
        }
        for event in events {
            self.feed(event);
        }
    }

    /// Looks whether the wall clock was stepped: it may be right or wrong now. Where the store has
    /// a clock of its own, the two are compared at once.
    fn look_at_clock(&mut self) {
        let event = self.clock.look(Epoch::now());
        if self.is_ready && (event.is_some() || self.clock.was_stepped()) {
            self.announce();
        }
        self.clock_moved(event.into_iter().collect());
    }

    pub(super) fn announce(&mut self) {
        if !self.health.is_up() {
            return;
        }
        let (info, measure) = (self.word(), self.clock.measure());
        self.announcements
            .spawn_boxed(self.link.clone().announce(info, measure));
        while self.announcements.try_join_next().is_some() {}
    }

    /// What this host says of itself.
    pub(super) fn word(&self) -> HostInfo {
        HostInfo {
            host: self.host.clone(),
            config: self.config.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            running: self.runs.len(),
            pid: std::process::id(),
            draining: self.shutdown.is_some(),
            started_at: self.started_at,
            clock_offset_ms: self.clock.offset(),
            lacks: self.resources.lack().map(|lack| lack.to_string()),
            held_back: self.admission.held_jobs(),
            nodes: None,
            waits: self.agreement.waits(),
            clock_wrong: self.clock.why_wrong(),
            up: Some(BootInstant::now().since(self.up_since)),
            namesake: self.namesakes.alive().cloned(),
            output: self.tools.outputs.directory(),
            http: self.front.address_for_others(),
        }
    }

    /// A sign of life, unless the watchdog thread gives none: then the manager shall act.
    pub(super) fn ping(&self) {
        let silent = BootInstant::now().since(self.tools.watchdog.last_beat());
        if silent < BEAT_LIMIT {
            self.manager.alive();
        } else {
            tracing::error!(
                "the watchdog thread has not renewed leases for {}; the guard kills each run when \
                 its lease expires. This is a bug, or this host hangs: please report it with this \
                 log",
                show_roughly(silent)
            );
        }
    }
}
