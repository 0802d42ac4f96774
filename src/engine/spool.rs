//! Verdicts that outlive the daemon: written to disk while the store does not take them, delivered
//! after its next start.
//!
//! One file per host, JSON lines, replaced as a whole; a run by hand whose record does not arrive
//! leaves a file of its own, for two processes cannot replace one file. The daemon reads all of
//! them at its start. A verdict delivered twice is written once, for the store knows its token.

mod file;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config;
use crate::names::{HostName, JobName, RunId, Token};
use crate::store::{Finish, Lock, LockKey, Record, StoreSettings};

/// The file.
#[derive(Debug, Clone)]
pub(crate) struct Spool {
    path: Option<PathBuf>,
    /// Files that runs by hand have left; what is in them goes into `path`.
    left: Vec<PathBuf>,
    store: String,
}

#[derive(Serialize, Deserialize)]
struct Line {
    store: String,
    lock: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    exclusive: bool,
    token: String,
    job: Option<String>,
    record: Option<Record>,
    give_back: bool,
    keep: u32,
}

impl Spool {
    /// The spool of a host's daemon for a store: beside the embedded store, in use or not.
    pub(crate) fn of(host: &HostName, settings: &StoreSettings) -> Self {
        let mut spool = Self::named(&format!("undelivered-{host}.jsonl"), settings);
        spool.left = spool.path.as_deref().map(left_by_hand).unwrap_or_default();
        spool
    }

    /// The spool of one run by hand: the next daemon of the host delivers it.
    pub(crate) fn of_run(host: &HostName, run_id: &RunId, settings: &StoreSettings) -> Self {
        Self::named(&format!("undelivered-{host}@{run_id}.jsonl"), settings)
    }

    /// Where it lies; `None` when this process has no place for one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn named(file: &str, settings: &StoreSettings) -> Self {
        let (store, beside) = if let StoreSettings::Sqlite { path } = settings {
            (settings.shown(), Some(path.clone()))
        } else {
            let embedded = match config::embedded_store() {
                Ok(StoreSettings::Sqlite { path }) => Some(path),
                Ok(_) | Err(_) => None,
            };
            let prefixes: Vec<_> = settings
                .servers()
                .iter()
                .map(|s| s.prefix.as_str())
                .collect();
            (
                format!("{}#{}", settings.shown(), prefixes.join(",")),
                embedded,
            )
        };
        Self {
            path: beside.map(|path| path.with_file_name(file)),
            left: Vec::new(),
            store,
        }
    }

    /// What an earlier daemon left, oldest first. Lines for another store stay where they are.
    pub(crate) fn load(&self) -> Vec<Finish> {
        let ours = |line: &Line| line.store == self.store;
        let lines = self.lines().into_iter().filter(ours);
        lines.filter_map(Line::into_finish).collect()
    }

    /// Everything of ours has been delivered.
    pub(crate) fn clear(&self) {
        if let Err(error) = self.keep(&[]) {
            tracing::warn!("cannot empty the file of undelivered results: {error}");
        }
    }

    /// Keeps these verdicts for the next start, and those of other stores.
    pub(crate) fn keep(&self, undelivered: &[Finish]) -> io::Result<()> {
        let Some(path) = &self.path else {
            return if undelivered.is_empty() {
                Ok(())
            } else {
                Err(io::Error::other(
                    "no state directory for undelivered results",
                ))
            };
        };
        let others = |line: &Line| line.store != self.store;
        let mut lines: Vec<Line> = self.lines().into_iter().filter(others).collect();
        lines.extend(undelivered.iter().map(|f| Line::of(f, &self.store)));
        if lines.is_empty() {
            return self
                .left
                .iter()
                .chain([path])
                .try_for_each(|file| file::remove(file));
        }
        let mut text = Vec::new();
        for line in &lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        file::replace(path, &text)?;
        // Only now: what was in them is in the one file, or delivered.
        self.left.iter().try_for_each(|file| file::remove(file))
    }

    fn lines(&self) -> Vec<Line> {
        let files = self.path.iter().chain(&self.left);
        files.flat_map(|file| lines_of(file)).collect()
    }
}

/// The files of runs by hand that lie beside the daemon's own.
fn left_by_hand(own: &Path) -> Vec<PathBuf> {
    let (Some(directory), Some(stem)) = (own.parent(), own.file_stem()) else {
        return Vec::new();
    };
    let begin = format!("{}@", stem.to_string_lossy());
    let is_left = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&begin) && name.ends_with(".jsonl")
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut left: Vec<_> = entries.map(|entry| entry.path()).filter(is_left).collect();
    left.sort();
    left
}

fn lines_of(path: &Path) -> Vec<Line> {
    let shown = path.display();
    let bytes = match file::read(path) {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(error) => {
            tracing::warn!(
                "cannot read the undelivered results in {shown}: {error}; they are not delivered"
            );
            return Vec::new();
        }
    };
    let parse = |(number, line): (usize, &[u8])| match serde_json::from_slice(line) {
        Ok(line) => Some(line),
        Err(error) => {
            tracing::warn!(
                "line {number} of {shown} is damaged: {error}; the result in it is lost"
            );
            None
        }
    };
    let lines = bytes.split(|&byte| byte == b'\n');
    let lines = (1..).zip(lines).filter(|(_, line)| !line.is_empty());
    lines.filter_map(parse).collect()
}

impl Line {
    fn of(finish: &Finish, store: &str) -> Self {
        Self {
            store: store.to_owned(),
            lock: finish.lock.name.clone(),
            key: match &finish.lock.key {
                LockKey::Named => None,
                LockKey::Raw(key) => Some(key.clone()),
            },
            exclusive: finish.lock.exclusive,
            token: finish.token.to_string(),
            job: finish.job.as_ref().map(ToString::to_string),
            record: finish.record.clone(),
            give_back: finish.give_back,
            keep: finish.keep,
        }
    }

    fn into_finish(self) -> Option<Finish> {
        Some(Finish {
            lock: Lock {
                name: self.lock,
                key: self.key.map_or(LockKey::Named, LockKey::Raw),
                exclusive: self.exclusive,
            },
            token: Token::from_text(&self.token),
            record: self.record,
            job: match self.job {
                Some(job) => Some(JobName::parse(&job).ok()?),
                None => None,
            },
            give_back: self.give_back,
            keep: self.keep,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::LockName;

    fn spool(dir: &tempfile::TempDir, store: &str) -> Spool {
        Spool {
            path: Some(dir.path().join("deep/undelivered-a.jsonl")),
            left: Vec::new(),
            store: store.to_owned(),
        }
    }

    fn finish(lock: &str) -> Finish {
        let host = HostName::parse("a").expect("a name");
        Finish {
            lock: Lock::named(&LockName::parse(lock).expect("a name")),
            token: Token::new(&host, &RunId::new()),
            record: None,
            job: Some(JobName::parse("job").expect("a name")),
            give_back: true,
            keep: 100,
        }
    }

    #[test]
    fn what_is_kept_is_loaded_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = spool(&dir, "one");
        let kept = [finish("x"), finish("y")];
        spool.keep(&kept).expect("it can be written");
        assert_eq!(spool.load(), kept);
        spool.clear();
        assert_eq!(spool.load(), []);
    }

    #[test]
    fn verdicts_of_another_store_are_neither_delivered_nor_lost() {
        let dir = tempfile::tempdir().expect("a directory");
        let other = finish("x");
        let kept = std::slice::from_ref(&other);
        spool(&dir, "one").keep(kept).expect("it can be written");
        assert_eq!(spool(&dir, "two").load(), []);
        spool(&dir, "two").clear();
        assert_eq!(spool(&dir, "one").load(), [other]);
    }

    #[test]
    fn what_runs_by_hand_have_left_is_the_daemons_and_of_no_other_host() {
        let dir = tempfile::tempdir().expect("a directory");
        let settings = StoreSettings::Sqlite {
            path: dir.path().join("store.db"),
        };
        let host = |name: &str| HostName::parse(name).expect("a name");
        let kept = [finish("x"), finish("y"), finish("z")];
        let (a, other) = (host("a"), host("a.b"));
        let keep = |spool: Spool, at: usize| spool.keep(&kept[at..=at]).expect("it can be written");
        keep(Spool::of(&a, &settings), 0);
        keep(Spool::of_run(&a, &RunId::new(), &settings), 1);
        keep(Spool::of_run(&other, &RunId::new(), &settings), 2);
        let spool = Spool::of(&a, &settings);
        assert_eq!(spool.load(), kept[..2]);
        // One that comes while the daemon is up waits for its next start.
        keep(Spool::of_run(&a, &RunId::new(), &settings), 0);
        spool.keep(&kept[1..2]).expect("it can be written");
        assert_eq!(
            Spool::of(&a, &settings).load(),
            [kept[1].clone(), kept[0].clone()]
        );
        Spool::of(&a, &settings).clear();
        assert_eq!(Spool::of(&a, &settings).load(), []);
        assert_eq!(Spool::of(&other, &settings).load(), kept[2..]);
    }

    #[test]
    fn a_torn_line_costs_only_itself() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = spool(&dir, "one");
        let kept = [finish("x")];
        spool.keep(&kept).expect("it can be written");
        let path = spool.path.clone().expect("it has a path");
        let text = fs::read_to_string(&path).expect("it was written");
        fs::write(&path, format!("{text}{{\"store\":\"on")).expect("it can be written");
        assert_eq!(spool.load(), kept);
    }

    #[test]
    fn a_stray_byte_costs_only_its_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = spool(&dir, "one");
        let kept = [finish("x"), finish("y"), finish("z")];
        spool.keep(&kept).expect("it can be written");
        let path = spool.path.clone().expect("it has a path");
        let mut bytes = fs::read(&path).expect("it was written");
        let second = bytes.iter().position(|&b| b == b'\n').expect("a line");
        bytes[second + 20] = 0xff;
        fs::write(&path, bytes).expect("it can be written");
        assert_eq!(spool.load(), [kept[0].clone(), kept[2].clone()]);
    }

    #[test]
    fn its_files_are_private_and_links_in_their_place_are_not_followed() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let dir = tempfile::tempdir().expect("a directory");
        let spool = spool(&dir, "one");
        let path = spool.path.clone().expect("it has a path");
        let (fresh, victim) = (path.with_extension("tmp"), dir.path().join("victim"));
        fs::create_dir(dir.path().join("deep")).expect("a directory");
        fs::write(&victim, "precious").expect("a file");
        symlink(&victim, &fresh).expect("a link");
        let kept = [finish("x")];
        spool.keep(&kept).expect("it can be written");
        let mode = fs::metadata(&path).expect("it was written").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&victim).expect("a file"), "precious");

        // Nor is it read through a link.
        let moved = dir.path().join("moved");
        fs::rename(&path, &moved).expect("it can be moved");
        symlink(&moved, &path).expect("a link");
        assert_eq!(spool.load(), []);
    }
}
