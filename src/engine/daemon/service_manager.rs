//! Messages to the service manager (`sd_notify(3)`) and in the health file, sent without waiting for either.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::observe::{HEALTH_EVERY, HealthReport, HealthState, HealthWriter};
use crate::time::BootInstant;

/// Where the daemon reports its state: to a service manager, and in the health file.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    health: Option<HealthFile>,
    /// How often it wants a sign of life.
    ping_every: Option<Duration>,
}

/// The health file, and what it says.
#[derive(Debug)]
struct HealthFile {
    writer: HealthWriter,
    last: Mutex<HealthReport>,
}

impl HealthFile {
    /// Writes the last state and status again, with what has changed in them.
    fn write(&self, change: impl FnOnce(&mut HealthReport)) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut last);
        last.at = BootInstant::now();
        self.writer.write(last.clone());
    }
}

impl ServiceManager {
    /// The manager that `$NOTIFY_SOCKET` names, and the health file, if there is to be one. Fails if
    /// the file cannot be written.
    pub(crate) fn start(health: Option<PathBuf>) -> io::Result<Self> {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|path| {
            let opened = open(&path);
            if let Err(error) = &opened {
                tracing::warn!(
                    "cannot reach the service manager (NOTIFY_SOCKET): {error}; the daemon runs all \
                     the same, but the manager is not told that it is ready, and may end it"
                );
            }
            opened.ok()
        });
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let ping_every = number("WATCHDOG_USEC")
            .filter(|usec| for_us && *usec > 0)
            .map(|usec| Duration::from_micros(usec) / 2);
        let start = |path: PathBuf| {
            let shown = path.display().to_string();
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("{shown}: {error}"));
            HealthWriter::start(path).map_err(named)
        };
        let health = health.map(start).transpose()?;
        let health = health.map(|writer| HealthFile {
            writer,
            last: Mutex::new(HealthReport::first()),
        });
        let report_every = health.as_ref().map(|_| HEALTH_EVERY);
        Ok(Self {
            socket,
            health,
            ping_every: ping_every.into_iter().chain(report_every).min(),
        })
    }

    /// How often to say [`ServiceManager::alive`].
    pub(super) fn ping_every(&self) -> Option<Duration> {
        self.ping_every
    }

    /// The daemon serves.
    pub(super) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
        self.report(|last| last.set(HealthState::Ready, status));
    }

    /// What it is doing.
    pub(super) fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}"));
        self.report(|last| status.clone_into(&mut last.status));
    }

    /// It reads its job list again; [`ServiceManager::ready`] follows.
    pub(super) fn reloading(&self, status: &str) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
        let since_boot = now.map_or(Duration::ZERO, Duration::from);
        self.send(&format!(
            "RELOADING=1\nMONOTONIC_USEC={}\nSTATUS={status}",
            since_boot.as_micros()
        ));
    }

    /// The daemon begins to stop, which may take this long.
    pub(super) fn stopping(&self, limit: Duration, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={status}"));
        self.report(|last| last.set(HealthState::Stopping, status));
        self.extend(limit);
    }

    /// Ending takes so much longer from now.
    pub(super) fn extend(&self, limit: Duration) {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}", limit.as_micros()));
    }

    /// A sign of life.
    pub(super) fn alive(&self) {
        self.send("WATCHDOG=1");
        self.report(|_| {});
    }

    fn report(&self, change: impl FnOnce(&mut HealthReport)) {
        if let Some(health) = &self.health {
            health.write(change);
        }
    }

    /// A manager that does not read costs us the message, not our time.
    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(text.as_bytes(), address)
        {
            tracing::debug!("cannot notify the service manager: {error}");
        }
    }
}

fn open(path: &OsString) -> std::io::Result<(UnixDatagram, SocketAddr)> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_does_not_read_never_blocks_us() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let _deaf = UnixDatagram::bind(&path).expect("it can be bound");
        let manager = ServiceManager {
            socket: Some(open(&path.into_os_string()).expect("it can be reached")),
            health: None,
            ping_every: None,
        };
        for _ in 0..10_000 {
            manager.status("still here");
        }
    }
}
