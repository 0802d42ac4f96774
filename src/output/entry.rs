//! The lines of an output file: `TIME STREAM F|P TEXT`, the format that container runtimes use.
//!
//! `F` marks a whole line and `P` a part, so that the bytes of the command can be restored exactly. The
//! stream `note` is of cronlatch itself; its text is a [`OutputNote`] in JSON.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// What wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputOrigin {
    /// The command, on standard output.
    Stdout,
    /// The command, on standard error.
    Stderr,
    /// cronlatch.
    Note,
}

impl OutputOrigin {
    /// The word in the file.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Note => "note",
        }
    }
}

/// What cronlatch itself writes into an output file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum OutputNote {
    /// The first line of a run's first file.
    Begun {
        /// The job.
        job: String,
        /// The run.
        run_id: String,
        /// The host.
        host: String,
        /// The occurrence; `None` for a manual run.
        scheduled_at: Option<Timestamp>,
    },
    /// A further attempt starts.
    Attempt {
        /// Its number.
        attempt: u32,
    },
    /// The first line of each further file.
    Continued {
        /// How many bytes the command had written before.
        offset: u64,
    },
    /// The disk was slower than the command.
    Dropped {
        /// How many bytes are missing here.
        bytes: u64,
    },
    /// Nothing more of this run is stored.
    Stopped {
        /// Why.
        reason: String,
    },
    /// The run has ended.
    Ended {
        /// How.
        outcome: String,
        /// Why.
        reason: Option<String>,
        /// How many bytes the command wrote.
        bytes: u64,
    },
}

impl OutputNote {
    /// The text of the line.
    pub(super) fn text(&self) -> Vec<u8> {
        // A struct of texts and numbers can always be written.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Appends one line to `buffer`. `text` has no line end; `is_whole` is whether the command wrote one.
pub(super) fn append(
    buffer: &mut Vec<u8>,
    (at, origin): (&str, OutputOrigin),
    text: &[u8],
    end: LineEnd,
) {
    buffer.extend_from_slice(at.as_bytes());
    buffer.push(b' ');
    buffer.extend_from_slice(origin.word().as_bytes());
    buffer.extend_from_slice(match end {
        LineEnd::Whole => b" F ",
        LineEnd::Part => b" P ",
    });
    buffer.extend_from_slice(text);
    buffer.push(b'\n');
}

/// Whether the command ended a line there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnd {
    /// It did.
    Whole,
    /// It did not.
    Part,
}

/// A line of an output file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutputEntry<'a> {
    /// When it was read from the command.
    pub(crate) at: Timestamp,
    /// What wrote it.
    pub(crate) origin: OutputOrigin,
    /// Whether the command ended a line there.
    pub(crate) end: LineEnd,
    /// Its text, without a line end.
    pub(crate) text: &'a [u8],
}

impl<'a> OutputEntry<'a> {
    /// Reads a line, without its line end; `None` for one that is damaged.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let at = std::str::from_utf8(parts.next()?).ok()?;
        Some(Self {
            at: Timestamp::parse(at).ok()?,
            origin: match parts.next()? {
                b"stdout" => OutputOrigin::Stdout,
                b"stderr" => OutputOrigin::Stderr,
                b"note" => OutputOrigin::Note,
                _ => return None,
            },
            end: match parts.next()? {
                b"F" => LineEnd::Whole,
                b"P" => LineEnd::Part,
                _ => return None,
            },
            text: parts.next()?,
        })
    }

    /// The note in it, if it has one.
    pub(crate) fn note(&self) -> Option<OutputNote> {
        let of_us = self.origin == OutputOrigin::Note;
        of_us.then(|| serde_json::from_slice(self.text).ok())?
    }
}

/// Splits bytes into lines.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = (&[u8], LineEnd)> {
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(|part| match part.strip_suffix(b"\n") {
            Some(text) => (text, LineEnd::Whole),
            None => (part, LineEnd::Part),
        })
}

/// The most that [`append`] adds to the bytes of a chunk.
pub(super) fn most_added(bytes: &[u8]) -> usize {
    const PER_LINE: usize = 40;
    bytes.split(|byte| *byte == b'\n').count() * PER_LINE
}
