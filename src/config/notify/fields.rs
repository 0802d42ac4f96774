//! The fields of a target, and how its secret values are read.

use super::url::HttpUrl;
use crate::config::node::{Value, quoted};
use crate::config::problem::{Problem, Problems};
use crate::config::section::{Section, ValueError};

/// The fields of a target, those that give its kind first.
pub(super) const FIELDS: &[&str] = &[
    "slack",
    "discord",
    "teams",
    "ntfy",
    "pagerduty",
    "webhook",
    "command",
    "mail",
    "headers",
    "template",
    "routing_key",
    "from",
    "sendmail",
    "on",
    "after",
    "repeat",
];

/// The fields that give the kind of a target. Each target has exactly one of them.
pub(super) const KINDS: &[&str] = FIELDS.split_at(8).0;

/// Reads a value that is never shown, not even if it is wrong.
pub(super) fn secret<T>(
    section: Section<'_>,
    key: &str,
    problems: &mut Problems,
    parse: impl FnOnce(&str) -> Result<T, ValueError>,
) -> Option<T> {
    let entry = section.entry(key)?;
    let refused =
        |message: String, help: &str| Problem::new(entry.span, message).help(help).secret();
    let text = match (&entry.value.value, entry.value.text()) {
        (Value::Unset(_) | Value::Broken, _) => return None,
        (_, Some(text)) if !text.trim().is_empty() => text.trim(),
        (Value::Null | Value::Text(_), _) => {
            problems.add(refused(
                format!("{} has no value", quoted(key)),
                "give it a value, or remove the line",
            ));
            return None;
        }
        _ => {
            problems.add(refused(
                format!("{} is not a string", quoted(key)),
                match key {
                    "ping" => "write `ping: healthchecks:UUID`, another service, or a URL",
                    _ => "write it as one string",
                },
            ));
            return None;
        }
    };
    match parse(text) {
        Ok(value) => Some(value),
        Err(error) => {
            problems.add(refused(error.message, &error.help));
            None
        }
    }
}

/// The error of a URL, which does not repeat it.
pub(super) fn url(text: &str) -> Result<HttpUrl, ValueError> {
    HttpUrl::parse(text).map_err(|error| ValueError::new(error.to_string(), error.help()))
}
