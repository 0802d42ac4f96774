//! Reads the output of a run back, also while the run goes on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::entry::{LineEnd, OutputEntry, OutputNote, OutputOrigin};
use super::run_files::numbered;

const CHUNK: usize = 64 * 1024;

/// The output of a run that lies in a directory of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredRun {
    directory: PathBuf,
    /// The name of its first file.
    name: String,
}

impl StoredRun {
    /// All runs whose output lies in a directory.
    pub(crate) fn all(directory: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let Ok(name) = entry?.file_name().into_string() else {
                continue;
            };
            if name.contains('@') && name.strip_suffix(".log").is_some() {
                found.push(Self {
                    directory: directory.to_owned(),
                    name,
                });
            }
        }
        Ok(found)
    }

    /// The job.
    pub(crate) fn job(&self) -> &str {
        self.name.split_once('@').map_or("", |(job, _)| job)
    }

    /// The run's id. Ids sort by the time at which their runs began.
    pub(crate) fn run_id(&self) -> &str {
        let (_, rest) = self.name.split_once('@').unwrap_or_default();
        rest.strip_suffix(".log").unwrap_or(rest)
    }
}

/// What is read.
#[derive(Debug)]
pub(crate) enum OutputItem<'a> {
    /// A line, or a part of one.
    Entry(OutputEntry<'a>),
    /// This many bytes of the output are missing here.
    Missing(u64),
}

/// Whether there may be more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The run is in progress, and may write more.
    InProgress,
    /// Everything was read.
    Complete,
}

/// Reads the files of a run in their order.
#[derive(Debug)]
pub(crate) struct RunReader {
    run: StoredRun,
    /// Kept open: its lock shows whether the run is in progress.
    first: File,
    current: File,
    number: u32,
    /// What was read of a line that is not complete.
    rest: Vec<u8>,
    /// How many bytes of the command's output were read or are known to be missing.
    offset: u64,
}

impl RunReader {
    /// Opens the first file.
    pub(crate) fn open(run: &StoredRun) -> io::Result<Self> {
        let first = open(&run.directory.join(&run.name))?;
        Ok(Self {
            current: first.try_clone()?,
            first,
            run: run.clone(),
            number: 0,
            rest: Vec::new(),
            offset: 0,
        })
    }

    /// Passes on everything that is there.
    pub(crate) fn read(
        &mut self,
        mut each: impl FnMut(OutputItem<'_>) -> io::Result<()>,
    ) -> io::Result<Progress> {
        loop {
            // Before what is there is read: a run that has ended writes nothing more.
            let progress = self.progress()?;
            let next = self.next_number()?;
            self.read_current(&mut each)?;
            match next {
                Some(number) => {
                    // A newer one may have taken its place.
                    if let Ok(file) = open(&self.path(number)) {
                        self.current = file;
                        self.rest.clear();
                        self.number = number;
                    }
                }
                None => return Ok(progress),
            }
        }
    }

    fn path(&self, number: u32) -> PathBuf {
        self.run.directory.join(numbered(&self.run.name, number))
    }

    fn progress(&self) -> io::Result<Progress> {
        match Flock::lock(self.first.try_clone()?, FlockArg::LockSharedNonblock) {
            Ok(_) => Ok(Progress::Complete),
            Err(_) => Ok(Progress::InProgress),
        }
    }

    /// The number of the next file that there is: those between may have been removed.
    fn next_number(&self) -> io::Result<Option<u32>> {
        let prefix = format!("{}.", self.run.name);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.run.directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(&prefix));
            numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        Ok(numbers.into_iter().filter(|n| *n > self.number).min())
    }

    fn read_current(
        &mut self,
        each: &mut impl FnMut(OutputItem<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let len = self.current.read(&mut chunk)?;
            if len == 0 {
                return Ok(());
            }
            self.rest.extend_from_slice(&chunk[..len]);
            let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
                continue;
            };
            let lines: Vec<u8> = self.rest.drain(..=end).collect();
            for line in lines.split(|byte| *byte == b'\n') {
                // A damaged line is what a crash of the machine leaves.
                let Some(entry) = OutputEntry::parse(line) else {
                    continue;
                };
                if let Some(OutputNote::Continued { offset }) = entry.note() {
                    if offset > self.offset {
                        each(OutputItem::Missing(offset - self.offset))?;
                    }
                    self.offset = offset;
                }
                if entry.origin != OutputOrigin::Note {
                    let end = u64::from(entry.end == LineEnd::Whole);
                    self.offset += entry.text.len() as u64 + end;
                }
                each(OutputItem::Entry(entry))?;
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}
