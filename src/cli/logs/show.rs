//! Prints the output of a run: its bytes, with times, or as JSON.

use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write as _};

use crate::cli::output;
use crate::observe::{plain, plain_line};
use crate::output::{LineEnd, OutputEntry, OutputItem, OutputNote, OutputOrigin};

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As the command wrote it; on a terminal, without what would control the terminal.
    Bytes,
    /// Each line with its time and its stream.
    Timestamps,
    /// JSON, one object a line.
    Json,
}

/// A stream of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli) enum StreamName {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl StreamName {
    pub(super) fn is(self, origin: OutputOrigin) -> bool {
        origin.word() == self.word()
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Stdout => OutputOrigin::Stdout.word(),
            Self::Stderr => OutputOrigin::Stderr.word(),
        }
    }
}

/// A line of the output, or a note, as JSON; `None` for a note that cannot be read.
pub(super) fn json_of(entry: &OutputEntry<'_>) -> io::Result<Option<String>> {
    let line = if entry.origin == OutputOrigin::Note {
        let Some(note) = entry.note() else {
            return Ok(None);
        };
        let mut line = serde_json::to_value(&note)?;
        line["time"] = serde_json::to_value(entry.at)?;
        line["stream"] = OutputOrigin::Note.word().into();
        line
    } else {
        serde_json::json!({
            "time": entry.at,
            "stream": entry.origin.word(),
            "text": String::from_utf8_lossy(entry.text),
            "complete": entry.end == LineEnd::Whole,
        })
    };
    Ok(Some(plain(&line.to_string()).into_owned()))
}

/// Prints to standard output; what cronlatch adds goes to standard error.
#[derive(Debug)]
pub(super) struct Printer {
    form: Form,
    only: Option<StreamName>,
    out: BufWriter<Stdout>,
    for_terminal: bool,
    /// How many bytes are missing here because the disk was too slow, and how many for another reason. They are
    /// told with one remark each before what comes next.
    too_slow: u64,
    missing: u64,
}

impl Printer {
    pub(super) fn new(form: Form, only: Option<StreamName>) -> Self {
        let out = io::stdout();
        Self {
            form,
            only,
            for_terminal: out.is_terminal(),
            out: BufWriter::new(out),
            too_slow: 0,
            missing: 0,
        }
    }

    /// Prints the next part of the output.
    pub(super) fn item(&mut self, item: &OutputItem<'_>) -> io::Result<()> {
        match item {
            OutputItem::Entry(entry) if entry.origin == OutputOrigin::Note => self.note(entry),
            OutputItem::Entry(entry) if self.wants(entry.origin) => {
                self.tell_missing()?;
                self.line(entry)
            }
            OutputItem::Entry(_) => Ok(()),
            OutputItem::Missing(bytes) => {
                self.missing += *bytes;
                Ok(())
            }
        }
    }

    /// Prints the last lines that a record has.
    pub(super) fn tail(&mut self, tail: &str) -> io::Result<()> {
        let text = match self.form {
            Form::Json => format!("{}\n", serde_json::json!({ "output_tail": tail })),
            Form::Bytes | Form::Timestamps if tail.is_empty() => String::new(),
            Form::Bytes | Form::Timestamps => format!("{tail}\n"),
        };
        self.out.write_all(plain(&text).as_bytes())?;
        self.flush()
    }

    /// Lets the reader see what was printed so far.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.tell_missing()?;
        self.out.flush()
    }

    fn wants(&self, origin: OutputOrigin) -> bool {
        self.only.is_none_or(|only| only.is(origin))
    }

    fn line(&mut self, entry: &OutputEntry<'_>) -> io::Result<()> {
        let text = String::from_utf8_lossy(entry.text);
        match self.form {
            Form::Bytes if self.for_terminal => {
                self.out.write_all(plain(&text).as_bytes())?;
                self.line_end(entry)
            }
            Form::Bytes => {
                self.out.write_all(entry.text)?;
                self.line_end(entry)
            }
            Form::Timestamps => {
                let (at, stream) = (entry.at, entry.origin.word());
                writeln!(self.out, "{at} {stream} {}", plain_line(&text))
            }
            Form::Json => self.json(entry),
        }
    }

    fn json(&mut self, entry: &OutputEntry<'_>) -> io::Result<()> {
        match json_of(entry)? {
            Some(line) => writeln!(self.out, "{line}"),
            None => Ok(()),
        }
    }

    fn line_end(&mut self, entry: &OutputEntry<'_>) -> io::Result<()> {
        match entry.end {
            LineEnd::Whole => self.out.write_all(b"\n"),
            LineEnd::Part => Ok(()),
        }
    }

    fn note(&mut self, entry: &OutputEntry<'_>) -> io::Result<()> {
        if self.form == Form::Json {
            return self.json(entry);
        }
        let Some(note) = entry.note() else {
            return Ok(());
        };
        if let OutputNote::Dropped { bytes } = note {
            self.too_slow += bytes;
            return Ok(());
        }
        match text_of(&note) {
            Some(text) => {
                self.tell_missing()?;
                self.remark(&text)
            }
            None => Ok(()),
        }
    }

    /// What is missing since the last line: a run that floods has a note for each chunk.
    fn tell_missing(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.too_slow) {
            0 => {}
            bytes => self.remark(&format!("{}: the disk was too slow", missing(bytes)))?,
        }
        match std::mem::take(&mut self.missing) {
            0 => Ok(()),
            bytes => self.remark(&missing(bytes)),
        }
    }

    /// A remark of cronlatch, which is not output of the command.
    fn remark(&mut self, text: &str) -> io::Result<()> {
        // JSON has the notes themselves; what else is missing follows from their offsets.
        if self.form == Form::Json {
            return Ok(());
        }
        // In its place among the lines.
        self.out.flush()?;
        output::report(&format!("-- {text} --"));
        Ok(())
    }
}

fn missing(bytes: u64) -> String {
    match bytes {
        1 => "1 byte of the output is missing here".to_owned(),
        n => format!("{n} bytes of the output are missing here"),
    }
}

/// What a person reads; `None` for what concerns the files alone.
fn text_of(note: &OutputNote) -> Option<String> {
    Some(match note {
        OutputNote::Begun {
            job,
            run_id,
            host,
            scheduled_at,
        } => {
            let due = scheduled_at.map_or_else(|| "by hand".to_owned(), |at| format!("due {at}"));
            format!("run {run_id} of job {job} on host {host}, {due}")
        }
        OutputNote::Attempt { attempt } => format!("attempt {attempt}"),
        OutputNote::Continued { .. } => return None,
        OutputNote::Dropped { bytes } => format!("{}: the disk was too slow", missing(*bytes)),
        OutputNote::Stopped { reason } => {
            format!("the rest of the output was not stored: {reason}")
        }
        OutputNote::Ended {
            outcome,
            reason: Some(reason),
            ..
        } => format!("{outcome}: {reason}"),
        OutputNote::Ended { outcome, .. } => outcome.clone(),
    })
}
