//! Verdicts that outlive the daemon: written to disk at its end, delivered after its next start.
//!
//! One file per host, JSON lines, replaced as a whole. A verdict delivered twice is written once,
//! for the store knows its token.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config;
use crate::names::{HostName, JobName, Token};
use crate::store::{Finish, Lock, LockKey, Record, StoreSettings};

/// The file.
#[derive(Debug, Clone)]
pub(crate) struct Spool {
    path: Option<PathBuf>,
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
    /// The spool of a host for a store: beside the embedded store, in use or not.
    pub(crate) fn of(host: &HostName, settings: &StoreSettings) -> Self {
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
            path: beside.map(|path| path.with_file_name(format!("undelivered-{host}.jsonl"))),
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
            tracing::warn!("cannot empty the spool: {error}");
        }
    }

    /// Keeps these verdicts for the next start, and those of other stores.
    pub(crate) fn keep(&self, undelivered: &[Finish]) -> io::Result<()> {
        let Some(path) = &self.path else {
            return if undelivered.is_empty() {
                Ok(())
            } else {
                Err(io::Error::other("there is no place for a spool"))
            };
        };
        let others = |line: &Line| line.store != self.store;
        let mut lines: Vec<Line> = self.lines().into_iter().filter(others).collect();
        lines.extend(undelivered.iter().map(|f| Line::of(f, &self.store)));
        if lines.is_empty() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let directory = path.parent().unwrap_or(path);
        fs::create_dir_all(directory)?;
        let fresh = path.with_extension("tmp");
        let mut file = File::create(&fresh)?;
        for line in &lines {
            serde_json::to_writer(&mut file, line)?;
            file.write_all(b"\n")?;
        }
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        File::open(directory)?.sync_all()
    }

    fn lines(&self) -> Vec<Line> {
        let text = match self.path.as_ref().map(fs::read_to_string) {
            Some(Ok(text)) => text,
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot read the spool: {error}");
                return Vec::new();
            }
            Some(Err(_)) | None => return Vec::new(),
        };
        let parse = |line: &str| match serde_json::from_str(line) {
            Ok(line) => Some(line),
            Err(error) => {
                tracing::warn!("a line of the spool is not understood and dropped: {error}");
                None
            }
        };
        text.lines().filter_map(parse).collect()
    }
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
    use crate::names::{LockName, RunId};

    fn spool(dir: &tempfile::TempDir, store: &str) -> Spool {
        Spool {
            path: Some(dir.path().join("deep/undelivered-a.jsonl")),
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
}
