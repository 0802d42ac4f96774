//! The textfile: the page in a file, which the textfile collector of `node_exporter` reads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use super::page::MetricsPage;
use super::text::TextFormat;
use crate::ground::tasks;

/// How often the file is replaced.
const EVERY: Duration = Duration::from_secs(15);

/// How the pages of this program begin.
const FIRST_LINE: &str = "# HELP cronlatch_";

/// Where the file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetricsFile(PathBuf);

/// The task that replaces the file.
#[derive(Debug)]
pub(crate) struct MetricsFileTask {
    file: MetricsFile,
    task: JoinHandle<()>,
}

impl MetricsFile {
    /// Fails if the file cannot be written, or if something else than metrics is there, which the
    /// daemon would replace and, at its end, delete. The file is empty until the daemon runs.
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        let created = refuse_another_file(&path)
            .and_then(|()| refuse_another_file(&beside(&path)))
            .and_then(|()| write(&path, ""));
        match created {
            Ok(()) => Ok(Self(path)),
            Err(error) => {
                let text = format!("{}: {error}", path.display());
                Err(io::Error::new(error.kind(), text))
            }
        }
    }

    /// Replaces the file from now on, on the current runtime.
    pub(crate) fn keep(self, page: MetricsPage) -> MetricsFileTask {
        let file = self.clone();
        let task = tasks::spawn(keep(self.0, page));
        MetricsFileTask { file, task }
    }
}

impl MetricsFileTask {
    /// Removes the file: a collector must not go on reporting what a daemon did that has ended.
    pub(crate) fn remove(self) {
        self.task.abort();
        let path = &self.file.0;
        if let Err(error) = refuse_another_file(path).and_then(|()| fs::remove_file(path)) {
            let path = self.file.0.display();
            tracing::warn!("cannot remove the metrics file {path}: {error}");
        }
    }
}

async fn keep(path: PathBuf, page: MetricsPage) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_failure_logged = false;
    loop {
        ticks.tick().await;
        let text = page.text(TextFormat::Prometheus).await;
        let to = path.clone();
        // A disk that hangs holds up this task alone.
        let written = spawn_blocking(move || write(&to, &text)).await;
        match written.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(()) => is_failure_logged = false,
            Err(error) if !std::mem::replace(&mut is_failure_logged, true) => tracing::warn!(
                "cannot write the metrics file {}: {error}; retrying every {EVERY:?}",
                path.display()
            ),
            Err(_) => {}
        }
    }
}

/// The file that is written before it replaces the one at `path`.
fn beside(path: &Path) -> PathBuf {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    new.into()
}

/// Fails if anything but a file of metrics is at `path`: a job list, a device, a directory, a link.
fn refuse_another_file(path: &Path) -> io::Result<()> {
    let is_metrics = match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => false,
        // Before its first page, or cut off by a full disk.
        Ok(found) if found.len() == 0 => true,
        Ok(_) => {
            let mut start = Vec::new();
            let head = FIRST_LINE.len() as u64;
            File::open(path)?.take(head).read_to_end(&mut start)?;
            FIRST_LINE.as_bytes().starts_with(&start)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error),
    };
    if is_metrics {
        return Ok(());
    }
    let text = "this file exists and is not a metrics file of cronlatch; name another path";
    Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
}

/// Replaces the file. A reader, which may be another user, finds the old or the new one.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = beside(path);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(&new)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(text.as_bytes())?;
    drop(file);
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_may_be_read_by_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("cronlatch.prom");
        MetricsFile::create(path.clone()).expect("it is written");
        write(&path, "a 1\n").expect("it is written");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "a 1\n");
        // One that is of another program is left alone from now on.
        MetricsFile::create(path.clone()).expect_err("it is no page");
        let page = "# HELP cronlatch_build_info a\n";
        write(&path, page).expect("it is written");
        MetricsFile::create(path.clone()).expect("it is one of ours");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
        assert!(MetricsFile::create(dir.path().join("no/such/file")).is_err());
    }
}
