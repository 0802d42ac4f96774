//! The files of one run: the beginning of its output, and the newest of what follows.

use std::fs::File;
use std::io::{self, Write as _};

use nix::fcntl::{Flock, FlockArg};

use super::directory::Directory;
use super::entry::{self, LineEnd, OutputNote, OutputOrigin};
use crate::names::{JobName, RunId};
use crate::time::Timestamp;

/// The files of a run in progress.
#[derive(Debug)]
pub(super) struct RunFiles {
    name: String,
    /// The first file. Its lock shows that the run is in progress.
    first: Flock<File>,
    /// The file that is written now, if it is not the first.
    later: Option<File>,
    /// The number of the file that is written now.
    number: u32,
    /// The bytes of the file that is written now, of the one before it, and of the first.
    sizes: Sizes,
    /// How many bytes of the output were written to the files, also to those that are removed by now.
    pub(super) taken: u64,
}

#[derive(Debug, Default)]
struct Sizes {
    current: u64,
    previous: u64,
    first: u64,
}

/// The name of a run's first file.
pub(super) fn file_name(job: &JobName, run: &RunId) -> String {
    format!("{job}@{run}.log")
}

/// The name of a run's file with this number.
pub(super) fn numbered(name: &str, number: u32) -> String {
    match number {
        0 => name.to_owned(),
        n => format!("{name}.{n}"),
    }
}

impl RunFiles {
    /// Creates the first file, and locks it.
    pub(super) fn create(directory: &Directory, name: String) -> io::Result<Self> {
        let file = directory.create(&name)?;
        // Another process holds the lock at most for a moment, to see whether the run is in progress.
        let first = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        Ok(Self {
            name,
            first,
            later: None,
            number: 0,
            sizes: Sizes::default(),
            taken: 0,
        })
    }

    /// The name of the first file.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The bytes of all its files.
    pub(super) fn bytes(&self) -> u64 {
        self.sizes.current + self.sizes.previous + self.sizes.first
    }

    /// The names of its files, the first one first.
    pub(super) fn names(&self) -> Vec<String> {
        let later = self.number.saturating_sub(1).max(1)..=self.number;
        let numbers = std::iter::once(0).chain(later);
        numbers.map(|n| numbered(&self.name, n)).collect()
    }

    /// Writes what the command wrote. All files together have at most `limit` bytes.
    pub(super) fn write(
        &mut self,
        (directory, limit): (&Directory, u64),
        (at, origin): (Timestamp, OutputOrigin),
        bytes: &[u8],
    ) -> io::Result<()> {
        let at = at.to_string();
        let mut buffer = Vec::with_capacity(bytes.len() + entry::most_added(bytes));
        for (text, end) in entry::lines(bytes) {
            let before = buffer.len();
            entry::append(&mut buffer, (&at, origin), text, end);
            if self.sizes.current + buffer.len() as u64 > self.most(limit) && before > 0 {
                let line = buffer.split_off(before);
                self.put(&buffer)?;
                buffer = line;
            }
            if self.sizes.current + buffer.len() as u64 > self.most(limit) {
                self.next_file(directory, &at)?;
            }
            self.taken += text.len() as u64 + u64::from(end == LineEnd::Whole);
        }
        self.put(&buffer)
    }

    /// Writes a note of cronlatch.
    pub(super) fn note(&mut self, note: &OutputNote) -> io::Result<()> {
        self.note_of(Timestamp::now(), note)
    }

    /// The same, of an earlier instant.
    pub(super) fn note_of(&mut self, at: Timestamp, note: &OutputNote) -> io::Result<()> {
        let mut buffer = Vec::new();
        let at = at.to_string();
        entry::append(
            &mut buffer,
            (&at, OutputOrigin::Note),
            &note.text(),
            LineEnd::Whole,
        );
        self.put(&buffer)
    }

    /// Removes all its files.
    pub(super) fn remove(self, directory: &Directory) -> io::Result<()> {
        let mut names = self.names().into_iter().rev();
        names.try_for_each(|name| directory.remove(&name))
    }

    /// The most that the file which is written now may have: half of the limit for the first file, a
    /// quarter for each of the newest two.
    fn most(&self, limit: u64) -> u64 {
        limit / if self.number == 0 { 2 } else { 4 }
    }

    /// Writes whole lines to the file. Of a line that does not fit on the disk nothing stays.
    fn put(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut file: &File = self.later.as_ref().unwrap_or(&self.first);
        if let Err(error) = file.write_all(lines) {
            let _ = file.set_len(self.sizes.current);
            return Err(error);
        }
        self.sizes.current += lines.len() as u64;
        Ok(())
    }

    fn next_file(&mut self, directory: &Directory, at: &str) -> io::Result<()> {
        let next = directory.create(&numbered(&self.name, self.number + 1))?;
        if self.number == 0 {
            self.sizes.first = self.sizes.current;
        } else {
            if self.number > 1 {
                directory.remove(&numbered(&self.name, self.number - 1))?;
            }
            self.sizes.previous = self.sizes.current;
        }
        self.sizes.current = 0;
        self.number += 1;
        self.later = Some(next);
        let mut buffer = Vec::new();
        let offset = self.taken;
        entry::append(
            &mut buffer,
            (at, OutputOrigin::Note),
            &OutputNote::Continued { offset }.text(),
            LineEnd::Whole,
        );
        self.put(&buffer)
    }
}
