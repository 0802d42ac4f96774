//! Results of runs that outlive the daemon: written to disk while the store does not accept them, delivered
//! after the daemon's next start.
//!
//! One file per host and store, JSON lines, replaced as a whole: two processes cannot replace one file, and
//! daemons of a host that use different stores may share a state directory. For the same reason a run by hand
//! whose record does not arrive leaves a file of its own. The daemon reads all of them at its start. A result
//! delivered twice is recorded once, because the store knows its token.

mod file;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::{self, SPOOL_FILES};
use crate::names::{HostName, JobName, RunId, Token};
use crate::store::{Finish, Lock, LockKey, Record, Retention, StoreSettings};

/// The file.
#[derive(Debug, Clone)]
pub(crate) struct Spool {
    path: Option<PathBuf>,
    /// Files that runs by hand have left; what is in them goes into `path`.
    left: Vec<PathBuf>,
    /// Files of a version in which all stores of a host had one. Results for other stores stay there.
    former: Vec<PathBuf>,
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
        let mut spool = Self::named(host, "", settings);
        if let Some(path) = &spool.path {
            spool.left = left_by_hand(path);
            let former = path.with_file_name(format!("{SPOOL_FILES}{host}.jsonl"));
            spool.former = left_by_hand(&former);
            spool.former.insert(0, former);
        }
        spool
    }

    /// The spool of one run by hand: the next daemon of the host delivers it.
    pub(crate) fn of_run(host: &HostName, run_id: &RunId, settings: &StoreSettings) -> Self {
        Self::named(host, &format!("@{run_id}"), settings)
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

    fn named(host: &HostName, run: &str, settings: &StoreSettings) -> Self {
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
        let file = format!("{SPOOL_FILES}{host}+{}{run}.jsonl", short_digest(&store));
        Self {
            path: beside.map(|path| path.with_file_name(file)),
            left: Vec::new(),
            former: Vec::new(),
            store,
        }
    }

    /// What an earlier daemon left, oldest first. Lines for another store stay where they are.
    ///
    /// Reports what cannot be read, and puts damaged lines aside: the next [`Self::keep`] drops them.
    pub(crate) fn load(&self) -> Vec<Finish> {
        let (mut lines, mut faults) = read(self.path.iter().chain(&self.left));
        let (formerly, more) = read(&self.former);
        lines.extend(formerly);
        faults.extend(more);
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
        let (lines, _) = read(self.path.iter().chain(&self.left));
        let mut lines: Vec<SpoolLine> = lines.into_iter().filter(others).collect();
        lines.extend(undelivered.iter().map(|f| SpoolLine::of(f, &self.store)));
        write(path, &lines)?;
        // Only now: what was in them is in the one file, or delivered.
        self.left.iter().try_for_each(|file| file::remove(file))?;
        self.former.iter().try_for_each(|file| self.leave(file))
    }

    /// Takes the results for this store out of a former file. Its damaged lines have been put aside.
    fn leave(&self, file: &PathBuf) -> io::Result<()> {
        let (mut lines, faults) = read([file]);
        if faults.iter().any(|fault| fault.line.is_none()) {
            // It cannot be read.
            return Ok(());
        }
        let before = lines.len();
        lines.retain(|line| line.store != self.store);
        if lines.len() < before || lines.is_empty() {
            write(file, &lines)?;
        }
        Ok(())
    }
}

/// All lines of these files that can be read, and what is wrong with the others.
fn read<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> (Vec<SpoolLine>, Vec<Fault>) {
    let (mut lines, mut faults) = (Vec::new(), Vec::new());
    for read in files.into_iter().flat_map(|file| lines_of(file)) {
        match read {
            Ok(line) => lines.push(line),
            Err(fault) => faults.push(fault),
        }
    }
    (lines, faults)
}

/// Replaces a file; one without lines is removed.
fn write(path: &Path, lines: &[SpoolLine]) -> io::Result<()> {
    if lines.is_empty() {
        return file::remove(path);
    }
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    file::replace(path, &text)
}

/// Eight hexadecimal digits that tell the stores of a host apart in the names of files. Each line names its store,
/// so two stores with the same digits do no harm.
fn short_digest(store: &str) -> String {
    let digest = Sha256::digest(store);
    digest.iter().take(4).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
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
