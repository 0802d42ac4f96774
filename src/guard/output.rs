//! Output of commands: bytes to lines, lines to events, and the tail that history keeps.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, oneshot};

use super::process::{Exit, OutputSink, ProcessEvent, Stream};

/// The longest line passed on, in bytes; the rest of it is dropped.
pub const LINE_MAX: usize = 8 * 1024;

/// What stands at the end of a line that was cut.
pub const CUT_MARK: &str = " [...]";

/// The most that is read from a pipe once the command's tree is dead; more can only come from a
/// process that is not of the tree.
const REST_MAX: usize = 4 * 1024 * 1024;

const CHUNK: usize = 8 * 1024;

/// Splits bytes into lines. `\r\n` ends a line as `\n` does. A `\r` within one stays in it, so a progress
/// bar is one line; one that is longer than [`LINE_MAX`] becomes several, which end where a `\r` was.
#[derive(Debug, Default)]
struct Lines {
    line: Vec<u8>,
    /// Where in the line the part after its last `\r` begins.
    part: usize,
    /// What came after [`LINE_MAX`] was dropped.
    cut: bool,
    /// The last byte was a `\r`: it ends the line, or another part follows.
    returned: bool,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], lines: &mut Vec<String>) {
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match part.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (part, None),
            };
            if !text.is_empty() {
                self.add(text, lines);
            }
            match end {
                Some(b'\n') => lines.push(self.take()),
                Some(_) => self.returned = true,
                None => {}
            }
        }
    }

    /// Adds text without a line end.
    fn add(&mut self, text: &[u8], lines: &mut Vec<String>) {
        if std::mem::take(&mut self.returned) {
            if self.cut || self.line.len() == LINE_MAX {
                lines.push(self.take());
            } else {
                self.line.push(b'\r');
                self.part = self.line.len();
            }
        }
        if self.part > 0 && text.len() > LINE_MAX - self.line.len() {
            let begun = self.line.split_off(self.part);
            // Without the `\r` behind which it is split.
            self.line.pop();
            lines.push(self.take());
            self.line = begun;
        }
        let room = LINE_MAX - self.line.len();
        self.cut |= text.len() > room;
        self.line.extend_from_slice(&text[..text.len().min(room)]);
    }

    /// The last line, when it has no line end.
    fn finish(&mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> String {
        let mut text = String::from_utf8_lossy(&self.line).into_owned();
        if self.cut {
            // The cut may have gone through a character.
            let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
            text.truncate(whole);
            text.push_str(CUT_MARK);
        }
        *self = Self::default();
        text
    }
}

/// The reading end of one stream.
#[derive(Debug)]
pub(super) struct StreamReader {
    pipe: Option<Receiver>,
    stream: Stream,
    lines: Lines,
    /// Receives the bytes as they are.
    sink: Option<Arc<dyn OutputSink>>,
}

/// The reading ends of both.
#[derive(Debug)]
pub(super) struct StreamReaders {
    pub(super) out: StreamReader,
    pub(super) err: StreamReader,
}

impl StreamReader {
    pub(super) fn new(
        pipe: OwnedFd,
        stream: Stream,
        sink: Option<Arc<dyn OutputSink>>,
    ) -> io::Result<Self> {
        Ok(Self {
            pipe: Some(Receiver::from_owned_fd(pipe)?),
            stream,
            lines: Lines::default(),
            sink,
        })
    }

    /// The command wrote this.
    fn arrived(&mut self, bytes: &[u8], lines: &mut Vec<String>) {
        if let Some(sink) = &self.sink {
            sink.take(self.stream, bytes);
        }
        self.lines.push(bytes, lines);
    }

    /// Waits until there is something to read; for ever once the stream has ended. Cancel-safe.
    async fn readable(&self) {
        match &self.pipe {
            Some(pipe) if pipe.readable().await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }

    /// Reads what is there, at most one chunk, and returns its lines.
    fn read(&mut self, chunk: &mut [u8]) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(pipe) = &self.pipe else {
            return lines;
        };
        match pipe.try_read(chunk) {
            Ok(len) if len > 0 => self.arrived(&chunk[..len], &mut lines),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => {
                self.pipe = None;
                lines.extend(self.lines.finish());
            }
        }
        lines
    }

    async fn pass_on(&mut self, chunk: &mut [u8], events: &mpsc::Sender<ProcessEvent>) {
        let stream = self.stream;
        for text in self.read(chunk) {
            // No receiver: the pipe is read anyway, because the command would stop at a full one.
            let _ = events.send(ProcessEvent::Line { stream, text }).await;
        }
    }

    /// Reads what the command has left in the pipe.
    ///
    /// The pipe itself is asked. The runtime returns `WouldBlock` until its event loop has seen that
    /// there is something to read, and on a busy machine it may see the exit first.
    async fn finish(&mut self, chunk: &mut [u8], events: &mpsc::Sender<ProcessEvent>) {
        let pipe = self.pipe.take().map(Receiver::into_nonblocking_fd);
        let mut rest = pipe.and_then(Result::ok).map(File::from);
        let stream = self.stream;
        let mut read = 0;
        while read < REST_MAX
            && let Some(pipe) = &mut rest
        {
            let mut lines = Vec::new();
            match pipe.read(chunk) {
                Ok(len) if len > 0 => {
                    self.arrived(&chunk[..len], &mut lines);
                    read += len;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => rest = None,
            }
            for text in lines {
                let _ = events.send(ProcessEvent::Line { stream, text }).await;
            }
        }
        if let Some(text) = self.lines.finish() {
            let _ = events.send(ProcessEvent::Line { stream, text }).await;
        }
    }
}

/// Passes a command's output on as events, and its exit as the last one. A full channel stops
/// the reading, and with it a command that floods, but never the guard.
pub(super) async fn pump(
    mut sources: Option<StreamReaders>,
    mut exited: oneshot::Receiver<Exit>,
    events: mpsc::Sender<ProcessEvent>,
) {
    let mut chunk = vec![0; if sources.is_some() { CHUNK } else { 0 }];
    let exit = match &mut sources {
        None => exited.await,
        Some(StreamReaders { out, err }) => loop {
            // All three waits are cancel-safe: they take nothing out.
            tokio::select! {
                exit = &mut exited => break exit,
                () = out.readable() => out.pass_on(&mut chunk, &events).await,
                () = err.readable() => err.pass_on(&mut chunk, &events).await,
            };
        },
    };
    if let Some(StreamReaders { out, err }) = &mut sources {
        out.finish(&mut chunk, &events).await;
        err.finish(&mut chunk, &events).await;
    }
    // The serving task ends only with the runtime; then there is no receiver.
    if let Ok(exit) = exit {
        let _ = events.send(ProcessEvent::Exited(exit)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(parts: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        for part in parts {
            lines.push(part, &mut out);
        }
        out.extend(lines.finish());
        out
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_are_cut_into_reads() {
        let text = b"one\ntwo\r\n\nthree\r\n10%\r20%\r\nlast";
        let expected = ["one", "two", "", "three", "10%\r20%", "last"];
        assert_eq!(split(&[text]), expected);
        for at in 0..text.len() {
            let (head, tail) = text.split_at(at);
            assert_eq!(split(&[head, tail]), expected, "cut at {at}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(split(&single), expected);
    }

    #[test]
    fn a_progress_bar_that_is_longer_than_a_line_becomes_several_and_loses_nothing() {
        let steps: Vec<String> = (0..3000).map(|n| format!("{n} of 3000")).collect();
        let text = format!("{}\r\n", steps.join("\r")).into_bytes();
        let lines = split(&[&text]);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= LINE_MAX));
        assert_eq!(lines.join("\r"), steps.join("\r"));
        for size in [1, 7, 4096] {
            let parts: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(split(&parts), lines, "in reads of {size} bytes");
        }
    }

    #[test]
    fn what_follows_a_part_that_was_cut_is_a_line_of_its_own() {
        let long = vec![b'x'; LINE_MAX + 1];
        let lines = split(&[b"a\r", &long, b"\r", b"b\r"]);
        assert_eq!(lines.len(), 3);
        assert_eq!((lines[0].as_str(), lines[2].as_str()), ("a", "b"));
        assert!(lines[1].ends_with(CUT_MARK), "{}", lines[1]);
    }

    #[test]
    fn what_is_no_utf_8_is_replaced() {
        assert_eq!(split(&[b"a\xffb\n"]), ["a\u{fffd}b"]);
    }

    #[test]
    fn a_long_line_is_cut_with_a_mark_and_the_next_one_is_whole() {
        let long = vec![b'x'; LINE_MAX * 3];
        let lines = split(&[&long, b"\nnext\n"]);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), LINE_MAX + CUT_MARK.len());
        assert!(lines[0].ends_with(CUT_MARK));
        assert_eq!(lines[1], "next");
    }

    #[test]
    fn a_line_is_not_cut_through_a_character() {
        let mut long = vec![b'x'; LINE_MAX - 1];
        long.extend_from_slice("é\n".as_bytes());
        let lines = split(&[&long]);
        assert_eq!(lines[0], format!("{}{CUT_MARK}", "x".repeat(LINE_MAX - 1)));
    }
}
