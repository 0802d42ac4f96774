//! Standard error as the destination of the log. It must not block the daemon.
//!
//! A terminal held by Ctrl-S, a pipe that nobody reads or a journal that hangs would block a plain
//! write forever, and with it the thread that logs. Here a line waits briefly for its reader, so a
//! flood is slowed down rather than lost. After that, lines are dropped and counted until there is
//! room again.

use std::borrow::Cow;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::plain::{plain_but_colours, plain_event};

/// How long a line waits for room.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a pipe that has room accepts without blocking (`PIPE_BUF`, pipe(7)); other destinations
/// accept more.
const CHUNK: usize = 4096;

static STATE: Mutex<StderrState> = Mutex::new(StderrState::new());

#[derive(Debug)]
struct StderrState {
    /// Lines dropped since there was room last.
    dropped: u64,
    /// The last line was written in part.
    torn: bool,
}

/// Standard error for one line.
#[derive(Debug)]
pub(super) struct Stderr {
    /// Whether the line has colours of its own.
    pub(super) colours: bool,
}

impl Write for Stderr {
    /// Takes the whole line, always: what cannot be written is counted.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let end = io::stderr();
        // What a job or another program wrote may be in it. It must not look like another line.
        let text = String::from_utf8_lossy(line);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = if self.colours {
            plain_but_colours(text)
        } else {
            plain_event(text)
        };
        let shown = match line.strip_suffix(b"\n") {
            Some(same) if same == text.as_bytes() => Cow::Borrowed(line),
            _ => Cow::Owned([text.as_bytes(), b"\n"].concat()),
        };
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        state.line(end.as_fd(), &shown, PATIENCE);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl StderrState {
    const fn new() -> Self {
        Self {
            dropped: 0,
            torn: false,
        }
    }

    fn line(&mut self, end: BorrowedFd<'_>, line: &[u8], patience: Duration) {
        // While lines are dropped none waits: the reader is known to be away.
        let patience = if self.dropped == 0 {
            patience
        } else {
            Duration::ZERO
        };
        let until = Instant::now() + patience;
        let newline = if self.torn { "\n" } else { "" };
        let text = match self.dropped {
            0 => newline.to_owned(),
            1 => format!("{newline}(1 log line was dropped because stderr was blocked)\n"),
            n => format!("{newline}({n} log lines were dropped because stderr was blocked)\n"),
        };
        match put(end, text.as_bytes(), until) {
            Put::All => {
                self.dropped = 0;
                self.torn = false;
            }
            Put::None => {
                self.dropped += 1;
                return;
            }
            Put::Part => {
                self.dropped += 1;
                self.torn = true;
                return;
            }
        }
        match put(end, line, until) {
            Put::All => {}
            Put::None => self.dropped = 1,
            Put::Part => {
                self.dropped = 1;
                self.torn = true;
            }
        }
    }
}

/// How much of a line was written.
enum Put {
    All,
    Part,
    None,
}

fn put(end: BorrowedFd<'_>, mut text: &[u8], until: Instant) -> Put {
    let len = text.len();
    while !text.is_empty() {
        if !has_room(end, until) {
            return if text.len() == len {
                Put::None
            } else {
                Put::Part
            };
        }
        match nix::unistd::write(end, &text[..text.len().min(CHUNK)]) {
            Ok(n) => text = &text[n..],
            Err(Errno::EINTR) => {}
            // Somebody else had the room.
            Err(Errno::EAGAIN) if Instant::now() < until => {}
            Err(Errno::EAGAIN) if text.len() == len => return Put::None,
            Err(Errno::EAGAIN) => return Put::Part,
            // Standard error is closed or its disk is full; there is nowhere to report that.
            Err(_) => return Put::All,
        }
    }
    Put::All
}

/// Waits for room. A broken destination counts as having room; the write then returns its error.
fn has_room(end: BorrowedFd<'_>, until: Instant) -> bool {
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(rest).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(end, PollFlags::POLLOUT)], timeout) {
            Ok(0) => return false,
            Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read as _};

    use super::*;

    /// What a reader finds now, without waiting for more.
    fn read(reader: &mut PipeReader) -> String {
        let mut text = Vec::new();
        let mut chunk = [0; CHUNK];
        while has_some(reader) {
            let n = reader.read(&mut chunk).expect("there is some");
            text.extend_from_slice(&chunk[..n]);
        }
        String::from_utf8(text).expect("it was text")
    }

    fn has_some(reader: &PipeReader) -> bool {
        let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) == Ok(1)
    }

    #[test]
    fn a_reader_who_is_away_stops_nobody_and_is_told_what_it_missed() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut state = StderrState::new();
        let line = format!("{}\n", "x".repeat(999));
        let lines = 1_000;
        for _ in 0..lines {
            state.line(writer.as_fd(), line.as_bytes(), Duration::ZERO);
        }
        let seen = read(&mut reader).lines().count() as u64;
        assert!(seen > 0 && state.dropped > 0);
        assert_eq!(seen + state.dropped, lines);
        state.line(writer.as_fd(), b"back\n", Duration::ZERO);
        let missed = lines - seen;
        assert_eq!(
            read(&mut reader),
            format!("({missed} log lines were dropped because stderr was blocked)\nback\n")
        );
    }

    #[test]
    fn a_line_longer_than_the_room_is_ended_before_the_next() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut state = StderrState::new();
        let long = format!("{}\n", "x".repeat(1 << 21));
        state.line(writer.as_fd(), long.as_bytes(), Duration::ZERO);
        let part = read(&mut reader);
        assert!(part.chars().all(|c| c == 'x') && part.len() < long.len());
        state.line(writer.as_fd(), b"next\n", Duration::ZERO);
        assert_eq!(
            read(&mut reader),
            "\n(1 log line was dropped because stderr was blocked)\nnext\n"
        );
    }

    #[test]
    fn a_reader_who_has_gone_stops_nobody() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut state = StderrState::new();
        state.line(writer.as_fd(), b"a line\n", Duration::ZERO);
        assert_eq!(state.dropped, 0);
    }
}
