//! What commands print on standard error.

use std::io::Write as _;

use super::page::Page;
use crate::observe::plain;

/// Writes a text and a line end to standard error, with control characters escaped. An error is
/// ignored, because there is nowhere to report it; the macros of the standard library would panic.
pub(super) fn report(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = writeln!(stderr, "{}", plain(text));
}

/// Writes a page and a line end to standard error, as [`report`] does, on a terminal with colours.
pub(super) fn report_page(page: &Page) {
    let mut stderr = anstream::stderr().lock();
    let _ = writeln!(stderr, "{}", page.coloured());
}
