//! What commands print on standard error: text, or with `--json` one JSON object a line.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::page::Page;
use crate::observe::plain;

/// Whether the command was given `--json`.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Has everything that follows printed as JSON.
pub(super) fn print_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

/// Whether it is.
pub(super) fn prints_json() -> bool {
    AS_JSON.load(Ordering::Relaxed)
}

/// What a command reports that is no error: `{"warning":{…}}` or `{"note":{…}}`.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum WarningOrNote<'a> {
    Warning(MessageBody<'a>),
    Note(MessageBody<'a>),
}

#[derive(Serialize)]
struct MessageBody<'a> {
    message: &'a str,
    hint: Option<&'a str>,
}

impl<'a> WarningOrNote<'a> {
    fn of(text: &'a str) -> Self {
        let (message, hint) = message_and_hint(text);
        if let Some(message) = message.strip_prefix("warning: ") {
            return Self::Warning(MessageBody { message, hint });
        }
        // Among the output of a run, remarks are marked.
        let message = message.trim_start_matches("-- ").trim_end_matches(" --");
        Self::Note(MessageBody { message, hint })
    }
}

/// Writes a text and a line end to standard error, with control characters escaped. An error is
/// ignored, because there is nowhere to report it; the macros of the standard library would panic.
pub(super) fn report(text: &str) {
    if prints_json() {
        return report_json(&WarningOrNote::of(text));
    }
    write(&plain(text));
}

/// Writes a page and a line end to standard error, as [`report`] does, on a terminal with colours.
pub(super) fn report_page(page: &Page) {
    if prints_json() {
        return report(&page.text());
    }
    write(&page.coloured());
}

/// Writes one JSON object and a line end to standard error.
pub(super) fn report_json(object: &impl Serialize) {
    let text = serde_json::to_string(object).unwrap_or_else(|_| "{}".to_owned());
    write(&plain(&text));
}

fn write(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = writeln!(stderr, "{text}");
}

/// Splits a message for people into what happened and what to do, which begins with `help:`.
pub(super) fn message_and_hint(text: &str) -> (&str, Option<&str>) {
    let split = text
        .split_once("\nhelp: ")
        .or_else(|| text.split_once("\n  help: "));
    match split {
        Some((message, hint)) => (message, Some(hint)),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::WarningOrNote;

    #[test]
    fn programs_get_the_kind_the_message_and_the_hint_of_a_remark() {
        let json = |text| serde_json::to_string(&WarningOrNote::of(text)).expect("JSON");
        let cases = [
            (
                "warning: a\n  help: b",
                r#"{"warning":{"message":"a","hint":"b"}}"#,
            ),
            ("-- c --", r#"{"note":{"message":"c","hint":null}}"#),
            ("d\ne", r#"{"note":{"message":"d\ne","hint":null}}"#),
        ];
        for (text, expected) in cases {
            assert_eq!(json(text), expected);
        }
    }
}
