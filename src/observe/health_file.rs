//! The health file: how a container manager, which gives the daemon no socket, learns that it is alive.
//!
//! The daemon replaces the file every [`HEALTH_EVERY`] and at each change of its state; `cronlatch
//! health` reads it. A thread writes, so a disk that hangs never holds up the daemon's loop.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use std::{fs, io, thread};

use crate::time::BootInstant;

/// How often the daemon writes the file.
pub(crate) const HEALTH_EVERY: Duration = Duration::from_secs(5);

/// Whether a daemon serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthState {
    /// It has not begun to serve.
    Starting,
    /// It serves, or waits for its store.
    Ready,
    /// It waits for its runs to end.
    Stopping,
}

impl HealthState {
    const WORDS: [(&'static str, Self); 3] = [
        ("starting", Self::Starting),
        ("ready", Self::Ready),
        ("stopping", Self::Stopping),
    ];

    /// The name in the file and in messages.
    pub(crate) fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, state)| *state == self);
        found.map_or("", |(word, _)| word)
    }
}

/// What a daemon reports of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HealthReport {
    /// When it was made, by the boot clock, which all processes of a machine share.
    pub(crate) at: BootInstant,
    pub(crate) state: HealthState,
    /// The status of the daemon, for people.
    pub(crate) status: String,
}

impl HealthReport {
    /// Returns the report of a daemon that starts now.
    pub(crate) fn first() -> Self {
        Self {
            at: BootInstant::now(),
            state: HealthState::Starting,
            status: String::new(),
        }
    }

    /// Changes what is reported.
    pub(crate) fn set(&mut self, state: HealthState, status: &str) {
        self.state = state;
        status.clone_into(&mut self.status);
    }

    fn text(&self) -> String {
        let millis = self.at.to_duration().as_millis();
        let status = self.status.replace(char::is_control, " ");
        format!("{} {millis} {status}\n", self.state.word())
    }

    fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.trim_end().split_once(' ')?;
        let (millis, status) = rest.split_once(' ').unwrap_or((rest, ""));
        let state = HealthState::WORDS
            .iter()
            .find(|(known, _)| *known == word)?;
        Some(Self {
            at: BootInstant::from_duration(Duration::from_millis(millis.parse().ok()?)),
            state: state.1,
            status: status.to_owned(),
        })
    }

    /// Reads the file of a daemon.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let not_ours = || io::Error::new(io::ErrorKind::InvalidData, "not a health file");
        Self::parse(&text).ok_or_else(not_ours)
    }

    /// Replaces the file. A reader finds the old or the new report.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        fs::write(&new, self.text())?;
        fs::rename(&new, path)
    }
}

/// Writes the reports of a daemon.
#[derive(Debug)]
pub(crate) struct HealthWriter {
    reports: SyncSender<HealthReport>,
}

impl HealthWriter {
    /// Starts the thread that writes. Fails if the file cannot be written.
    pub(crate) fn start(path: PathBuf) -> io::Result<Self> {
        HealthReport::first().write(&path)?;
        let (reports, waiting) = sync_channel(1);
        thread::Builder::new()
            .name("health-file".to_owned())
            .spawn(move || write_all(&waiting, &path))?;
        Ok(Self { reports })
    }

    /// Queues a report to be written. One report can wait while another one is written; if one waits
    /// already, this one is left out: another follows within [`HEALTH_EVERY`].
    pub(crate) fn write(&self, report: HealthReport) {
        let _ = self.reports.try_send(report);
    }
}

fn write_all(reports: &Receiver<HealthReport>, path: &Path) {
    let mut failed = false;
    for report in reports {
        match report.write(path) {
            Ok(()) => failed = false,
            Err(error) if !std::mem::replace(&mut failed, true) => {
                tracing::warn!(
                    "cannot write the health file {}: {error}; `cronlatch health` will report this \
                     daemon as hanging",
                    path.display()
                );
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_can_be_read_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("health");
        for (state, status) in [
            (HealthState::Starting, ""),
            (
                HealthState::Ready,
                "5 jobs, 2 running; waiting for the store",
            ),
            (HealthState::Stopping, "a\nb"),
        ] {
            let report = HealthReport {
                at: BootInstant::from_duration(Duration::from_millis(12_345)),
                state,
                status: status.to_owned(),
            };
            report.write(&path).expect("it is written");
            let read = HealthReport::read(&path).expect("it is read");
            let status = status.replace('\n', " ");
            assert_eq!(read, HealthReport { status, ..report });
        }
        for other in ["", "ready", "ready x 5 jobs", "well 5 x"] {
            fs::write(&path, other).expect("a file");
            assert!(HealthReport::read(&path).is_err(), "{other}");
        }
    }
}
