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
    missing: MissingOutput,
}

/// What is missing of the output since the last line that was printed: a run that floods has a note for each
/// chunk, and there is one remark for all of them.
#[derive(Debug, Default)]
struct MissingOutput {
    /// How many bytes are missing because the disk was too slow.
    too_slow: u64,
    /// How many are missing for another reason.
    other: u64,
}

impl MissingOutput {
    /// Returns the remarks on what is missing, and begins anew.
    fn take_remarks(&mut self) -> Vec<String> {
        let Self { too_slow, other } = std::mem::take(self);
        let too_slow =
            (too_slow > 0).then(|| format!("{}: the disk was too slow", missing(too_slow)));
        let other = (other > 0).then(|| missing(other));
        too_slow.into_iter().chain(other).collect()
    }
}

impl Printer {
    pub(super) fn new(form: Form, only: Option<StreamName>) -> Self {
        let out = io::stdout();
        Self {
            form,
            only,
            for_terminal: out.is_terminal(),
            out: BufWriter::new(out),
            missing: MissingOutput::default(),
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
                self.missing.other += *bytes;
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
            self.missing.too_slow += bytes;
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

    fn tell_missing(&mut self) -> io::Result<()> {
        let remarks = self.missing.take_remarks();
        remarks.iter().try_for_each(|remark| self.remark(remark))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn entry(origin: OutputOrigin, text: &[u8]) -> OutputItem<'_> {
        OutputItem::Entry(OutputEntry {
            at: Timestamp::EPOCH,
            origin,
            text,
            end: LineEnd::Whole,
        })
    }

    #[test]
    fn adjoining_remarks_on_missing_output_are_summed() {
        let mut printer = Printer::new(Form::Timestamps, Some(StreamName::Stderr));
        let mut print = |item: OutputItem<'_>| {
            printer.item(&item).expect("it can be printed");
            (printer.missing.too_slow, printer.missing.other)
        };
        let dropped =
            |bytes: u64| serde_json::to_vec(&OutputNote::Dropped { bytes }).expect("JSON");
        assert_eq!(print(OutputItem::Missing(3)), (0, 3));
        assert_eq!(print(entry(OutputOrigin::Note, &dropped(10))), (10, 3));
        // A line that is not printed does not separate them.
        assert_eq!(print(entry(OutputOrigin::Stdout, b"hidden")), (10, 3));
        assert_eq!(print(entry(OutputOrigin::Note, &dropped(20))), (30, 3));
        assert_eq!(print(OutputItem::Missing(4)), (30, 7));
        let remarks = printer.missing.take_remarks();
        let expected = [
            "30 bytes of the output are missing here: the disk was too slow",
            "7 bytes of the output are missing here",
        ];
        assert_eq!(remarks, expected);
        assert_eq!(printer.missing.take_remarks(), Vec::<String>::new());
        printer
            .item(&OutputItem::Missing(1))
            .expect("it can be printed");
        printer
            .item(&entry(OutputOrigin::Stderr, b""))
            .expect("it can be printed");
        assert_eq!(printer.missing.other, 0, "a line ends them");
    }
}
