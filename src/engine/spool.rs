//! Results of runs that outlive the daemon: written to disk while the store does not accept them, delivered
//! after the daemon's next start.
//!
//! One file per host, JSON lines, replaced as a whole; a run by hand whose record does not arrive
//! leaves a file of its own, for two processes cannot replace one file. The daemon reads all of
//! them at its start. A result delivered twice is recorded once, for the store knows its token.

mod file;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{self, SPOOL_FILES};
use crate::names::{HostName, JobName, RunId, Token};
use crate::store::{Finish, Lock, LockKey, Record, Retention, StoreSettings};

/// The file.
#[derive(Debug, Clone)]
pub(crate) struct Spool {
    path: Option<PathBuf>,
    /// Files that runs by hand have left; what is in them goes into `path`.
    left: Vec<PathBuf>,
    store: String,
}

#[derive(Serialize, Deserialize)]
struct SpoolLine {
    store: String,
    lock: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    exclusive: bool,
    token: String,
    job: Option<String>,
    record: Option<Record>,
    give_back: bool,
    keep: Retention,
}

impl Spool {
    /// Returns the spool of a host's daemon for a store. Its file lies in the state directory.
    pub(crate) fn of(host: &HostName, settings: &StoreSettings) -> Self {
        let mut spool = Self::named(&format!("{SPOOL_FILES}{host}.jsonl"), settings);
        spool.left = spool.path.as_deref().map(left_by_hand).unwrap_or_default();
        spool
    }

    /// The spool of one run by hand: the next daemon of the host delivers it.
    pub(crate) fn of_run(host: &HostName, run_id: &RunId, settings: &StoreSettings) -> Self {
        Self::named(&format!("{SPOOL_FILES}{host}@{run_id}.jsonl"), settings)
    }

    /// Where it lies; `None` when this process has no place for one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The same for people.
    pub(crate) fn place(&self) -> String {
        let place = self.path().unwrap_or(Path::new("the state directory"));
        place.display().to_string()
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
    ///
    /// Reports what cannot be read, and puts damaged lines aside: the next [`Self::keep`] drops them.
    pub(crate) fn load(&self) -> Vec<Finish> {
        let (lines, faults) = self.read();
        for fault in &faults {
            tracing::warn!("{}", fault.text);
            if let Err(error) = fault.put_aside() {
                tracing::warn!("cannot keep a damaged line of undelivered results: {error}");
            }
        }
        let ours = lines.into_iter().filter(|line| line.store == self.store);
        ours.filter_map(SpoolLine::into_finish).collect()
    }

    /// Everything of ours has been delivered.
    pub(crate) fn clear(&self) {
        if let Err(error) = self.keep(&[]) {
            tracing::warn!("cannot empty the file of undelivered results: {error}");
        }
    }

    /// Keeps these results for the next start, and those for other stores.
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
        let others = |line: &SpoolLine| line.store != self.store;
        let (lines, _) = self.read();
        let mut lines: Vec<SpoolLine> = lines.into_iter().filter(others).collect();
        lines.extend(undelivered.iter().map(|f| SpoolLine::of(f, &self.store)));
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

    /// All lines that can be read, and what is wrong with the others.
    fn read(&self) -> (Vec<SpoolLine>, Vec<Fault>) {
        let (mut lines, mut faults) = (Vec::new(), Vec::new());
        for file in self.path.iter().chain(&self.left) {
            for read in lines_of(file) {
                match read {
                    Ok(line) => lines.push(line),
                    Err(fault) => faults.push(fault),
                }
            }
        }
        (lines, faults)
    }
}

/// Returns the files of manual runs in the directory of the daemon's own file.
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

/// What is wrong with a file, or with one of its lines.
#[derive(Debug)]
struct Fault {
    text: String,
    /// The damaged line, and where it is kept.
    line: Option<(PathBuf, Vec<u8>)>,
}

impl Fault {
    /// Adds the line to the file of damaged ones, if it is not in there.
    fn put_aside(&self) -> io::Result<()> {
        let Some((aside, line)) = &self.line else {
            return Ok(());
        };
        let mut text = file::read(aside)?.unwrap_or_default();
        if text.split(|&byte| byte == b'\n').any(|known| known == line) {
            return Ok(());
        }
        text.extend_from_slice(line);
        text.push(b'\n');
        file::replace(aside, &text)
    }
}

/// Where the damaged lines of a file are kept.
fn aside_of(path: &Path) -> PathBuf {
    path.with_extension("damaged")
}

/// The lines of a file, or what is wrong with it or with one of them.
fn lines_of(path: &Path) -> Vec<Result<SpoolLine, Fault>> {
    let shown = path.display();
    let bytes = match file::read(path) {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(error) => {
            return vec![Err(Fault {
                text: format!(
                    "cannot read {shown}: {error}; if an earlier daemon left results there, they \
                     are not delivered. Run cronlatch as the owner of this directory"
                ),
                line: None,
            })];
        }
    };
    let parse = |(number, line): (usize, &[u8])| {
        serde_json::from_slice(line).map_err(|error| Fault {
            text: format!(
                "line {number} of {shown} is damaged: {error}; the result in it is not delivered, \
                 and the line is kept in {}",
                aside_of(path).display()
            ),
            line: Some((aside_of(path), line.to_vec())),
        })
    };
    let lines = bytes.split(|&byte| byte == b'\n');
    let lines = (1..).zip(lines).filter(|(_, line)| !line.is_empty());
    lines.map(parse).collect()
}

impl SpoolLine {
    fn of(finish: &Finish, store: &str) -> Self {
        Self {
            store: store.to_owned(),
            lock: finish.lock.name.clone(),
            key: match &finish.lock.key {
                LockKey::Named => None,
                LockKey::Raw(key) => Some(key.clone()),
            },
            exclusive: finish.lock.exclusive,
            token: finish.token.as_str().to_owned(),
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
mod tests;
