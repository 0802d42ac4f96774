//! The store's clock, kept for a daemon that starts during an outage.
//!
//! One line in the state directory: boot id, epoch, store. It counts until the machine is started
//! again, because the boot clock does.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::store_clock::Epoch;
use crate::config::CLOCK_FILES;
use crate::engine::spool::Spool;
use crate::names::HostName;
use crate::store::StoreSettings;

/// Where the epoch of the store's clock is kept; the default keeps nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct ClockFile {
    path: Option<PathBuf>,
    boot: String,
    store: String,
    /// What is in the file, as far as this daemon knows.
    kept: Option<Epoch>,
}

impl ClockFile {
    /// Returns the path of the clock file of a host's daemon, in the directory of its spool. The
    /// embedded store needs none.
    pub(super) fn of(spool: &Spool, host: &HostName, settings: &StoreSettings) -> Self {
        if let StoreSettings::Sqlite { .. } = settings {
            return Self::default();
        }
        Self::beside(spool.path(), host, settings.shown())
    }

    fn beside(neighbour: Option<&Path>, host: &HostName, store: String) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim().to_owned();
        let path = neighbour.map(|path| path.with_file_name(format!("{CLOCK_FILES}{host}")));
        Self {
            path: path.filter(|_| !boot.is_empty()),
            boot,
            store,
            kept: None,
        }
    }

    /// Returns what an earlier daemon measured since this machine was started.
    pub(super) fn load(&self) -> Option<Epoch> {
        let text = fs::read_to_string(self.path.as_deref()?).ok()?;
        let mut parts = text.trim_end().splitn(3, ' ');
        let is_ours = parts.next() == Some(&self.boot);
        let epoch = parts.next()?.parse().ok()?;
        (is_ours && parts.next() == Some(&self.store)).then_some(epoch)
    }

    /// Keeps the epoch, unless the file has about the same. A file that cannot be written costs
    /// only what [`Self::load`] is for.
    pub(super) fn keep(&mut self, epoch: Epoch) {
        let alike = |kept: Epoch| kept.distance(epoch).as_millis() < 20;
        let Some(path) = self.path.clone().filter(|_| !self.kept.is_some_and(alike)) else {
            return;
        };
        self.kept = Some(epoch);
        let line = format!("{} {epoch} {}\n", self.boot, self.store);
        if let Err(error) = replace(&path, &line) {
            tracing::debug!(
                "cannot keep the store's clock in {}: {error}",
                path.display()
            );
        }
    }
}

fn replace(path: &Path, line: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let fresh = path.with_file_name(name);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Creates a new file only, so that another user cannot have put a link there.
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(line.as_bytes())?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{BootInstant, Timestamp};

    fn epoch(seconds: i64) -> Epoch {
        let boot = BootInstant::from_duration(std::time::Duration::from_secs(5));
        Epoch::of(Timestamp::from_secs(seconds), boot)
    }

    #[test]
    fn the_next_daemon_of_the_same_boot_and_store_reads_what_was_measured() {
        let dir = tempfile::tempdir().expect("a directory");
        let beside = dir.path().join("undelivered.jsonl");
        let host = HostName::parse("web1").expect("a name");
        let file = |store: &str| ClockFile::beside(Some(&beside), &host, store.to_owned());
        let mut first = file("redis://a with spaces");
        assert_eq!(first.load(), None);
        first.keep(epoch(1_000));
        assert_eq!(first.load(), Some(epoch(1_000)));
        first.keep(epoch(2_000));
        assert_eq!(file("redis://a with spaces").load(), Some(epoch(2_000)));
        assert_eq!(file("redis://b").load(), None, "another store");
        let rebooted = ClockFile {
            boot: "another".to_owned(),
            ..first
        };
        assert_eq!(rebooted.load(), None);
    }

    #[test]
    fn a_link_in_the_place_of_the_file_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let host = HostName::parse("web1").expect("a name");
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").expect("it can be written");
        for name in ["clock-web1", "clock-web1.tmp"] {
            std::os::unix::fs::symlink(&victim, dir.path().join(name)).expect("a link");
        }
        let beside = dir.path().join("undelivered.jsonl");
        ClockFile::beside(Some(&beside), &host, "s".to_owned()).keep(epoch(1));
        assert_eq!(
            std::fs::read_to_string(&victim).expect("it is there"),
            "precious"
        );
    }
}
