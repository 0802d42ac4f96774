//! `status --watch`: the same table again and again, on the same place of a terminal.
//!
//! A plain redraw: no mode of the terminal is changed, so that Ctrl-C leaves nothing to restore, and a
//! library for it would add twenty crates.

use std::io::{IsTerminal as _, stdout};
use std::sync::Arc;
use std::time::Duration;

use super::{Failure, JobList, Target};
use crate::cli::output::{self, StdoutReader};
use crate::store::{self, Store, StoreSettings};

/// Moves to the top and clears the screen from there.
const REDRAW: &str = "\x1b[H\x1b[2J";
/// The height of a terminal that does not report it.
const ROWS: usize = 24;

/// The store that is watched. An embedded one that does not exist is opened once a daemon has created it, and one whose
/// file is deleted is not created again.
#[derive(Debug)]
pub(super) struct WatchedStore<'a> {
    pub(super) settings: &'a StoreSettings,
    store: Arc<dyn Store>,
    is_absent: bool,
}

impl<'a> WatchedStore<'a> {
    /// Opens the store; warns about one that does not exist.
    pub(super) fn open(
        target: &Target,
        list: Option<&JobList>,
        settings: &'a StoreSettings,
    ) -> Result<Self, Failure> {
        // Before it is opened: a store that is created in between is then opened for the next page.
        let is_absent = store::is_absent(settings);
        Ok(Self {
            settings,
            store: target.open_existing(list, settings)?,
            is_absent,
        })
    }

    /// Returns the store, opened again if its file has appeared or gone since the last call.
    pub(super) fn current(&mut self) -> Result<&Arc<dyn Store>, Failure> {
        let is_absent = store::is_absent(self.settings);
        if is_absent != self.is_absent {
            self.store = if is_absent {
                store::open_empty()?
            } else {
                store::open(self.settings)?
            };
            self.is_absent = is_absent;
        }
        Ok(&self.store)
    }
}

/// Where the table is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Screen {
    /// It is drawn over the one before.
    Terminal,
    /// Each follows the one before: a pipe or a file.
    Stream,
}

impl Screen {
    /// What standard output is.
    pub(super) fn of_stdout() -> Self {
        if stdout().is_terminal() {
            Self::Terminal
        } else {
            Self::Stream
        }
    }

    /// Draws a page.
    pub(super) fn draw(self, page: &str, every: Duration) -> Result<StdoutReader, Failure> {
        match self {
            Self::Stream => output::draw("", page),
            Self::Terminal => {
                let rows = terminal_size::terminal_size().map(|(_, height)| height.0.into());
                let head = format!("every {}, Ctrl-C ends\n\n", output::short(every));
                let page = cropped(&format!("{head}{page}"), rows.unwrap_or(ROWS));
                output::draw(REDRAW, &page)
            }
        }
    }
}

/// Returns as much of a page as fits into so many rows, and how much more there is.
fn cropped(page: &str, rows: usize) -> String {
    let lines: Vec<&str> = page.lines().collect();
    // The cursor stands in a row of its own.
    let room = rows.saturating_sub(1).max(1);
    if lines.len() <= room {
        return page.to_owned();
    }
    let shown = room - 1;
    let mut text = String::new();
    for line in &lines[..shown] {
        text += line;
        text.push('\n');
    }
    text += &format!("… {} more lines\n", lines.len() - shown);
    text
}

#[cfg(test)]
mod tests {
    use super::cropped;

    #[test]
    fn a_page_that_does_not_fit_says_how_much_is_missing() {
        let page = "a\nb\nc\nd\n";
        assert_eq!(cropped(page, 5), page);
        assert_eq!(cropped(page, 4), "a\nb\n… 2 more lines\n");
        assert_eq!(cropped(page, 1), "… 4 more lines\n");
    }
}
