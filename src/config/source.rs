//! The files a job list is made of, and places within them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A place in one of the files: where it begins and how far it reaches on that line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Span {
    /// The index of the file.
    pub(super) file: usize,
    /// The line, from 1; 0 stands for the file as a whole.
    pub(super) line: usize,
    /// The column in characters, from 1.
    pub(super) column: usize,
    /// How many characters it covers, at least 1.
    pub(super) width: usize,
}

impl Span {
    /// The file as a whole.
    pub(super) const fn of_file(file: usize) -> Self {
        Self {
            file,
            line: 0,
            column: 0,
            width: 1,
        }
    }
}

/// One file and its text.
#[derive(Debug)]
pub(super) struct Source {
    /// Where it is, as a person would name it.
    pub(super) path: PathBuf,
    /// What it says.
    pub(super) text: String,
    /// Whether everybody on the machine may read it.
    pub(super) world_readable: bool,
    /// Whether YAML counts lines as this module does, and the place of each scalar is that of its text:
    /// no value has an anchor or tag before it.
    pub(super) has_plain_places: bool,
    line_starts: Vec<usize>,
    wide: HashMap<usize, Vec<usize>>,
}

/// Why a file cannot be read as a text.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// The operating system refused.
    Io(std::io::Error),
    /// It is a pipe, a device or a socket, which may have no end, or may wait for a writer.
    NotAFile(&'static str),
    /// The text before the first byte that is not UTF-8.
    NotUtf8 {
        /// The line of that byte, from 1.
        line: usize,
        /// Its column in characters, from 1.
        column: usize,
        /// The text with a mark (U+FFFD) in the place of what is not UTF-8.
        readable: String,
    },
}

/// A longer file is not a job list, and would only fill the memory.
const SIZE_MAX: u64 = 64 << 20;

/// Refuses whatever is not a regular file.
fn kind(metadata: &std::fs::Metadata) -> Result<(), Unreadable> {
    use std::os::unix::fs::FileTypeExt as _;

    let kind = metadata.file_type();
    Err(if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        Unreadable::Io(std::io::ErrorKind::IsADirectory.into())
    } else if kind.is_fifo() {
        Unreadable::NotAFile("a pipe")
    } else if kind.is_socket() {
        Unreadable::NotAFile("a socket")
    } else {
        Unreadable::NotAFile("a device")
    })
}

impl Source {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, Unreadable> {
        use std::io::Read as _;
        use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

        // Opening a FIFO waits for its writer, and opening a device may do anything: look first,
        // and look again at what was opened, for the name may belong to another file by then.
        kind(&std::fs::metadata(path).map_err(Unreadable::Io)?)?;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)
            .map_err(Unreadable::Io)?;
        let metadata = file.metadata().map_err(Unreadable::Io)?;
        kind(&metadata)?;
        if metadata.len() > SIZE_MAX {
            return Err(Unreadable::Io(std::io::ErrorKind::FileTooLarge.into()));
        }
        let mut bytes = Vec::new();
        file.take(SIZE_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(Unreadable::Io)?;
        if bytes.len() as u64 > SIZE_MAX {
            return Err(Unreadable::Io(std::io::ErrorKind::FileTooLarge.into()));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let last = valid.rsplit(|&b| b == b'\n').next().unwrap_or(valid);
            Unreadable::NotUtf8 {
                line: valid.split(|&b| b == b'\n').count(),
                column: String::from_utf8_lossy(last).chars().count() + 1,
                readable: String::from_utf8_lossy(error.as_bytes()).into_owned(),
            }
        })?;
        Ok(Self {
            world_readable: metadata.mode() & 0o004 != 0,
            ..Self::new(path, text)
        })
    }

    /// A file of this text.
    pub(super) fn new(path: &Path, mut text: String) -> Self {
        if text.starts_with('\u{feff}') {
            // A byte order mark would shift every column of the first line.
            text.drain(..'\u{feff}'.len_utf8());
        }
        let line_starts = std::iter::once(0)
            .chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1))
            .collect();
        Self {
            path: path.to_owned(),
            wide: wide_lines(&text),
            has_plain_places: !has_odd_line_ends(&text) && !may_have_properties(&text),
            text,
            world_readable: false,
            line_starts,
        }
    }

    /// Each line without its end, and its number, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..=self.line_starts.len()).map(|number| (number, self.line(number)))
    }

    /// The line of this number, from 1, without its end; `""` when there is none.
    pub(super) fn line(&self, number: usize) -> &str {
        let Some(&start) = number.checked_sub(1).and_then(|n| self.line_starts.get(n)) else {
            return "";
        };
        let end = self
            .line_starts
            .get(number)
            .map_or(self.text.len(), |&next| next - 1);
        let line = self.text.get(start..end).unwrap_or("");
        line.strip_suffix('\r').unwrap_or(line)
    }

    /// The rest of the file from each line on that begins between these bytes.
    pub(super) fn rests_from_lines(&self, from: usize, to: usize) -> impl Iterator<Item = &str> {
        let first = self.line_starts.partition_point(|start| *start < from);
        let starts = self.line_starts[first..]
            .iter()
            .take_while(move |start| **start < to);
        starts.map(|start| &self.text[*start..])
    }

    /// The index of the line with this byte of the text.
    pub(super) fn line_index(&self, byte: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= byte) - 1
    }

    /// Line and column, both from 1, of a byte that stands in the line of this index or in one of the next
    /// ones; `None` if that line is not ASCII.
    pub(super) fn ascii_place(&self, byte: usize, from_line: usize) -> Option<(usize, usize)> {
        let further = self.line_starts.get(from_line + 1..)?;
        let begins_by = |start: &&usize| **start <= byte;
        // Mostly it is one of the next lines, which are found at once.
        let lines = match further
            .iter()
            .take(NEXT_LINES)
            .take_while(begins_by)
            .count()
        {
            NEXT_LINES => further.partition_point(|start| *start <= byte),
            few => few,
        };
        let line = from_line + lines;
        let column = byte.checked_sub(*self.line_starts.get(line)?)?;
        (!self.wide.contains_key(&(line + 1))).then_some((line + 1, column + 1))
    }

    /// The key of the nearest line above that is indented less: what the line stands below. `""`
    /// if there is none, or if it names no key.
    pub(super) fn key_above(&self, number: usize) -> &str {
        let indent = |text: &str| text.len() - text.trim_start_matches([' ', '-']).len();
        let own = indent(self.line(number));
        let above = (1..number).rev().map(|number| self.line(number));
        let opens = |line: &&str| !line.trim().is_empty() && indent(line) < own;
        let key = above.take(KEY_REACH).find(opens).unwrap_or_default();
        let key = key.trim_start_matches([' ', '-']);
        key.split(':')
            .next()
            .unwrap_or_default()
            .trim_matches(['"', '\''])
    }

    /// What stands on that line from that column (in characters, from 1) on.
    pub(super) fn rest(&self, line: usize, column: usize) -> &str {
        let text = self.line(line);
        let wanted = column.saturating_sub(1);
        // A whole list may stand on one line (JSON is YAML): never count from its begin.
        let (from, known) = match self.wide.get(&line) {
            None => return text.get(wanted..).unwrap_or(""),
            Some(steps) => {
                let step = (wanted / STEP).min(steps.len() - 1);
                (steps[step], step * STEP)
            }
        };
        let tail = &text[from..];
        let at = tail
            .char_indices()
            .nth(wanted - known)
            .map_or(tail.len(), |(at, _)| at);
        &tail[at..]
    }
}

/// How many lines are looked at one by one before a binary search looks at the rest.
const NEXT_LINES: usize = 4;

/// How many lines above a line its key is looked for.
const KEY_REACH: usize = 1000;

/// How many characters lie between two known columns of a line that is not ASCII.
const STEP: usize = 256;

/// Whether YAML ends a line where this module does not.
fn has_odd_line_ends(text: &str) -> bool {
    // The last one is no line end, but the YAML library passes over it at the start of any line.
    let is_odd = |c: char| matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}');
    let bytes = text.as_bytes();
    memchr::memchr_iter(b'\r', bytes).any(|at| bytes.get(at + 1) != Some(&b'\n'))
        || (!text.is_ascii() && text.contains(is_odd))
}

/// Whether a value may have an anchor or a tag before it: a `&` or `!` stands where a value may begin.
fn may_have_properties(text: &str) -> bool {
    memchr::memchr2_iter(b'&', b'!', text.as_bytes()).any(|at| {
        let before = text[..at].trim_end_matches([' ', '\t']);
        before.is_empty() || before.ends_with(['\n', ':', '-', '?', ',', '[', '{'])
    })
}

/// For each line that is not ASCII, by its number, where every [`STEP`]th character begins.
fn wide_lines(text: &str) -> HashMap<usize, Vec<usize>> {
    if text.is_ascii() {
        return HashMap::new();
    }
    text.split('\n')
        .enumerate()
        .filter(|(_, line)| !line.is_ascii())
        .map(|(index, line)| {
            let steps = line.char_indices().map(|(at, _)| at).step_by(STEP);
            (index + 1, steps.collect())
        })
        .collect()
}
