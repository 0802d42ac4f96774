//! What the daemon says of itself: to the service manager, and through the store to `status`.

use std::time::Duration;

use super::Daemon;
use crate::store::HostInfo;
use crate::time::BootInstant;

/// Every how many rounds it announces itself.
const ANNOUNCE_EVERY: u32 = 10;
/// A watchdog thread silent for so long hangs.
const BEAT_LIMIT: Duration = Duration::from_secs(5);

/// Reading a long list takes several times the memory of what it means; without this the
/// allocator keeps it for good.
fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` may be called at any time from any thread; no safe wrapper exists.
    unsafe {
        libc::malloc_trim(0);
    }
}

impl Daemon {
    pub(super) fn be_ready(&mut self) {
        if !self.is_ready {
            self.is_ready = true;
            self.said_status = self.status_text();
            self.manager.ready(&self.said_status);
            tracing::info!(host = %self.host, "ready");
            self.announce();
            give_back_memory();
        }
    }

    pub(super) fn is_ready_while_waiting(&mut self) {
        if !self.is_ready {
            self.is_ready = true;
            self.said_status = self.status_text();
            self.manager.ready(&self.said_status);
            tracing::warn!(host = %self.host, "ready, and waiting for the store");
        }
    }

    pub(super) fn status_text(&self) -> String {
        let store = match self.health.is_up() {
            true if self.recovers.is_some() => "; waiting: the store may have lost data",
            true => "",
            false => "; waiting for the store",
        };
        let draining = if self.shutdown.is_some() {
            "; draining"
        } else {
            ""
        };
        format!(
            "{} jobs, {} running{store}{draining}",
            self.jobs.len(),
            self.running
        )
    }

    pub(super) fn status(&mut self) {
        let status = self.status_text();
        if self.is_ready && status != self.said_status {
            self.manager.status(&status);
            self.said_status = status;
        }
    }

    pub(super) fn round(&mut self) {
        self.look_for_recovery();
        self.look_at_health();
        self.status();
        self.extend_shutdown();
        self.rounds += 1;
        if self.rounds.is_multiple_of(ANNOUNCE_EVERY) && self.is_ready {
            self.announce();
        }
    }

    pub(super) fn announce(&mut self) {
        if !self.health.is_up() {
            return;
        }
        let (info, measure) = (self.word(), self.clock.measure());
        self.announcements
            .spawn(self.link.clone().announce(info, measure));
        while self.announcements.try_join_next().is_some() {}
    }

    /// What this host says of itself.
    pub(super) fn word(&self) -> HostInfo {
        HostInfo {
            host: self.host.clone(),
            config: self.config.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            running: self.running,
            pid: std::process::id(),
            draining: self.shutdown.is_some(),
            started_at: self.started_at,
            clock_offset_ms: self.clock.offset(),
        }
    }

    /// A sign of life, unless the watchdog thread gives none: then the manager shall act.
    pub(super) fn ping(&self) {
        let silent = BootInstant::now().since(self.tools.watchdog.last_beat());
        if silent < BEAT_LIMIT {
            self.manager.alive();
        } else {
            tracing::error!("the watchdog thread has hung for {silent:.1?}");
        }
    }
}
