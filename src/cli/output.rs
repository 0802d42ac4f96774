//! What commands print: text for people, JSON for programs, on standard output.

use std::future::Future;
use std::io::{self, Write as _};
use std::time::Duration;

use super::Failure;
use super::page::{self, Cell, Page};
pub(super) use super::stderr::{report, report_page};
use crate::ground::tasks;
use crate::observe::plain;

/// Writes to standard output; what would drive a terminal is shown instead. A reader that went away
/// (`| head`) is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    write(&plain(text))
}

/// Writes to standard output, on a terminal with the colours of the page's tones, as [`print`] does.
pub(super) fn print_page(page: &Page) -> Result<(), Failure> {
    write(&page.coloured())
}

/// The stream removes colours where they are not wanted: in a pipe, and with `NO_COLOR`.
fn write(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    delivered(written).map(drop)
}

/// What became of a write to standard output. A reader that went away is no failure.
pub(super) fn delivered(written: io::Result<()>) -> Result<StdoutReader, Failure> {
    match written {
        Ok(()) => Ok(StdoutReader::Present),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(StdoutReader::Gone),
        Err(error) => Err(Failure::cannot_print(&error)),
    }
}

/// Whether somebody still reads what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StdoutReader {
    Present,
    Gone,
}

/// Writes a command for the terminal, which may be empty, then text as [`print`] writes it.
pub(super) fn draw(command: &str, text: &str) -> Result<StdoutReader, Failure> {
    let mut out = io::stdout().lock();
    let text = format!("{command}{}", plain(text));
    delivered(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// One JSON object a line.
pub(super) fn json_lines<T: serde::Serialize>(
    items: impl IntoIterator<Item = T>,
) -> Result<String, Failure> {
    let mut text = String::new();
    for item in items {
        let line = serde_json::to_string(&item);
        text += &line.map_err(|e| Failure::Internal(format!("cannot write JSON: {e}")))?;
        text.push('\n');
    }
    Ok(text)
}

/// A table of cells without tones.
pub(super) fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    page::table(header, rows.into_iter().map(|row| row.map(Cell::from))).text()
}

/// A length of time in the two units that matter: `43ms`, `1.2s`, `3m 20s`, `2h 5m`, `4d 1h`.
pub(super) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let two = |big, big_unit, small, small_unit| match small {
        0 => format!("{big}{big_unit}"),
        _ => format!("{big}{big_unit} {small}{small_unit}"),
    };
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{}.{}s", seconds, duration.subsec_millis() / 100),
        60..3600 => two(seconds / 60, 'm', seconds % 60, 's'),
        3600..86_400 => two(seconds / 3600, 'h', seconds % 3600 / 60, 'm'),
        _ => two(seconds / 86_400, 'd', seconds % 86_400 / 3600, 'h'),
    }
}

/// Runs a command's questions to the store.
pub(super) fn ask<T>(questions: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::Internal(format!("cannot start: {e}")))?;
    tasks::block_on(&runtime, questions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short_and_never_round_up() {
        let shown = |millis| short(Duration::from_millis(millis));
        assert_eq!(shown(0), "0ms");
        assert_eq!(shown(999), "999ms");
        assert_eq!(shown(1_250), "1.2s");
        assert_eq!(shown(59_999), "59.9s");
        assert_eq!(shown(60_000), "1m");
        assert_eq!(shown(200_000), "3m 20s");
        assert_eq!(shown(7_500_000), "2h 5m");
        assert_eq!(shown(349_200_000), "4d 1h");
    }
}
