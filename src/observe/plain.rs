//! Makes text from jobs and other programs safe for a terminal.
//!
//! Control characters (C0, DEL and C1) move the cursor, change the window's title or send input in
//! the reader's place; bidirectional overrides make text read as something else. Each is shown as
//! `\uXXXX`, which is also how JSON writes it, so that one rule serves both forms of output.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes everything that controls a terminal, except line breaks and tabs.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    shown(text, |c| drives(c) && c != '\n' && c != '\t')
}

/// The same for text that must stay on one line.
pub(crate) fn plain_line(text: &str) -> Cow<'_, str> {
    shown(text, drives)
}

/// The same for an event of the log, which is one line. Tabs are kept.
pub(super) fn plain_event(text: &str) -> Cow<'_, str> {
    shown(text, |c| drives(c) && c != '\t')
}

/// The same for an event that contains colours (`ESC [ … m`). They are kept.
pub(super) fn plain_but_colours(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') {
        return plain_event(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        out.push_str(&plain_event(&rest[..at]));
        let tail = &rest[at..];
        let parameters = tail.strip_prefix("\x1b[").map_or("", |tail| {
            let end = tail.find(|c: char| !c.is_ascii_digit() && c != ';');
            &tail[..end.unwrap_or(tail.len())]
        });
        let colour = 2 + parameters.len();
        let length = if tail.starts_with("\x1b[") && tail[colour..].starts_with('m') {
            out.push_str(&tail[..=colour]);
            colour + 1
        } else {
            out.push_str("\\u001b");
            1
        };
        rest = &tail[length..];
    }
    out.push_str(&plain_event(rest));
    Cow::Owned(out)
}

fn drives(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

fn shown(text: &str, hides: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hides) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hides(c) {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drives_a_terminal_is_shown_and_text_stays() {
        let odd = "a\tb\nä€ \x1b[2J \u{9b}31m \u{7f} \r \u{202e}x\u{2066}";
        assert_eq!(
            plain(odd),
            "a\tb\nä€ \\u001b[2J \\u009b31m \\u007f \\u000d \\u202ex\\u2066"
        );
        assert_eq!(plain_line("a\nb"), "a\\u000ab");
        assert!(matches!(plain("plain text\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_log_line_keeps_its_colours_and_nothing_else() {
        assert_eq!(
            plain_but_colours("\x1b[2mwhen\x1b[0m\t\x1b[1;31mx\x1b[2J\x1b]0;t\x07\r\n\x1b"),
            "\x1b[2mwhen\x1b[0m\t\x1b[1;31mx\\u001b[2J\\u001b]0;t\\u0007\\u000d\\u000a\\u001b"
        );
        assert_eq!(plain_event("a\tb\nc"), "a\tb\\u000ac");
        assert_eq!(plain_but_colours("\x1b[3"), "\\u001b[3");
    }

    #[test]
    fn what_is_shown_in_json_is_still_json() {
        let value = serde_json::json!({ "by": "x\u{9b}y\u{202e}\n" });
        let line = plain(&value.to_string()).into_owned();
        assert!(!line.contains('\u{9b}'));
        let read: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
        assert_eq!(read, value);
    }
}
