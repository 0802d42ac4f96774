//! What commands print on standard error.

use std::io::Write as _;

use crate::observe::plain;

/// Writes a text and a line end to standard error, made harmless in the same way. An error is ignored,
/// because there is nowhere to report it; the macros of the standard library would panic.
pub(super) fn report(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = writeln!(stderr, "{}", plain(text));
}
