//! The files of runs that have ended: how much room they take, and which of them go first.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use nix::fcntl::{Flock, FlockArg};

use super::directory::Directory;
use crate::time::Timestamp;

/// The files of runs that have ended, and what others write.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Oldest first: when the run ended and the name of its first file.
    runs: BTreeMap<(Timestamp, String), RunFilesFound>,
    /// The bytes of `runs`.
    bytes: u64,
    /// The bytes of runs in progress of other processes, which use the same directory.
    others: u64,
}

#[derive(Debug, Default)]
struct RunFilesFound {
    names: Vec<String>,
    bytes: u64,
    modified: Option<Timestamp>,
}

/// The first file's name, of any file of a run; `None` for other files.
fn run_of(name: &str) -> Option<&str> {
    let end = name.rfind(".log")? + ".log".len();
    let (run, rest) = name.split_at(end);
    let number = rest.strip_prefix('.').unwrap_or(rest);
    let numbered =
        rest.is_empty() || (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
    (numbered && run.contains('@')).then_some(run)
}

impl Stored {
    /// Finds what earlier daemons left, and what other processes write. `own` are the runs in progress
    /// of this process.
    pub(super) fn scan(directory: &Directory, own: &BTreeSet<&str>) -> io::Result<Self> {
        let mut found: BTreeMap<String, RunFilesFound> = BTreeMap::new();
        for file in directory.files()? {
            let Some(run) = run_of(&file.name).filter(|run| !own.contains(run)) else {
                continue;
            };
            let of_run = found.entry(run.to_owned()).or_default();
            of_run.bytes += file.bytes;
            of_run.modified = of_run.modified.max(Some(file.modified));
            of_run.names.push(file.name);
        }
        let mut stored = Self::default();
        for (run, files) in found {
            if is_in_progress(directory, &run) {
                stored.others += files.bytes;
            } else {
                stored.bytes += files.bytes;
                let ended = files.modified.unwrap_or(Timestamp::EPOCH);
                stored.runs.insert((ended, run), files);
            }
        }
        Ok(stored)
    }

    /// All bytes that are not of this process's runs in progress.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + self.others
    }

    /// A run of this process has ended, and its files stay.
    pub(super) fn add(&mut self, names: Vec<String>, bytes: u64) {
        let now = Timestamp::now();
        let run = names.first().cloned().unwrap_or_default();
        self.bytes += bytes;
        let files = RunFilesFound {
            names,
            bytes,
            modified: Some(now),
        };
        self.runs.insert((now, run), files);
    }

    /// Removes the files of runs that ended before then.
    pub(super) fn expire(&mut self, directory: &Directory, before: Timestamp) {
        while let Some(((ended, _), _)) = self.runs.first_key_value()
            && *ended < before
        {
            self.remove_oldest(directory);
        }
    }

    /// Removes the files of the run that ended first, and returns whether there was one.
    pub(super) fn remove_oldest(&mut self, directory: &Directory) -> bool {
        let Some((_, files)) = self.runs.pop_first() else {
            return false;
        };
        self.bytes -= files.bytes;
        for name in &files.names {
            if let Err(error) = directory.remove(name) {
                tracing::debug!("cannot remove the output file {name}: {error}");
            }
        }
        true
    }
}

/// Whether a process has the run in progress.
fn is_in_progress(directory: &Directory, first: &str) -> bool {
    match directory.read(first) {
        Ok(file) => Flock::lock(file, FlockArg::LockSharedNonblock).is_err(),
        // Without its first file, what is left of a run does not count as a run in progress.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::run_of;

    #[test]
    fn files_of_runs_are_told_from_others() {
        assert_eq!(run_of("a.log.b@1.log"), Some("a.log.b@1.log"));
        assert_eq!(run_of("a@1.log.12"), Some("a@1.log"));
        for other in ["a.log", "a@1.log.x", "a@1.log.", "a@1.txt", "a@1.logs"] {
            assert_eq!(run_of(other), None, "{other}");
        }
    }
}
