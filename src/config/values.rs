//! Scalars and short lists: from a node to a value, or why not.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::duration::{parse_duration, show_duration};
use super::foreign;
use super::node::{Node, Value};
use super::section::ValueError;
use super::spelling;
use super::suggest;

/// A text; numbers and booleans count as written.
pub(super) fn text(node: &Node) -> Result<String, ValueError> {
    let Some(text) = node.text() else {
        return Err(ValueError::new(
            format!("expected a string, found {}", node.found()),
            "",
        ));
    };
    if text.contains('\0') {
        return Err(ValueError::new(
            "a string cannot contain a NUL character",
            "",
        ));
    }
    Ok(text.to_owned())
}

/// A text that says something.
pub(super) fn filled(node: &Node) -> Result<String, ValueError> {
    let text = text(node)?;
    if text.trim().is_empty() {
        return Err(ValueError::new(
            "this is empty",
            "write a string, or remove the line",
        ));
    }
    Ok(text)
}

/// A name with a rule of its own.
pub(super) fn name<T>(node: &Node) -> Result<T, ValueError>
where
    T: FromStr,
    T::Err: Display,
{
    let name = text(node)?;
    name.parse().map_err(|error: T::Err| {
        let fit = spelling::in_ascii(&name);
        let help = match T::from_str(&fit) {
            Ok(_) if fit.contains(|c: char| c.is_ascii_alphanumeric()) => {
                format!("such as `{fit}`")
            }
            _ => String::new(),
        };
        ValueError::new(error.to_string(), help)
    })
}

/// `true` or `false`.
pub(super) fn boolean(node: &Node) -> Result<bool, ValueError> {
    match (&node.value, node.text()) {
        (Value::Bool(value, _), _) => Ok(*value),
        (_, Some("true")) => Ok(true),
        (_, Some("false")) => Ok(false),
        _ => {
            let help = match node.text().map(str::to_ascii_lowercase).as_deref() {
                Some("yes" | "on" | "y") => "write `true`",
                Some("no" | "off" | "n") => "write `false`",
                _ => "",
            };
            Err(ValueError::new(
                format!("expected `true` or `false`, found {}", node.found()),
                help,
            ))
        }
    }
}

/// A whole number within a range.
pub(super) fn integer(node: &Node, range: RangeInclusive<i64>) -> Result<i64, ValueError> {
    let number = node.text().and_then(|t| t.trim().parse::<i64>().ok());
    number.filter(|n| range.contains(n)).ok_or_else(|| {
        ValueError::new(
            format!(
                "expected a whole number from {} to {}, found {}",
                range.start(),
                range.end(),
                node.found()
            ),
            "",
        )
    })
}

/// The same, as another type.
pub(super) fn number<T>(node: &Node, range: RangeInclusive<i64>) -> Result<T, ValueError>
where
    T: TryFrom<i64>,
{
    let number = integer(node, range)?;
    T::try_from(number).map_err(|_| ValueError::new("this number is out of range", ""))
}

/// A duration.
pub(super) fn duration(node: &Node) -> Result<Duration, ValueError> {
    let Some(text) = node.text() else {
        return Err(ValueError::new(
            format!("expected a duration, found {}", node.found()),
            "write a number and a unit, such as `30s`, `15m` or `1h30m`",
        ));
    };
    parse_duration(text).map_err(|error| {
        let (what, help) = match error.to_string().split_once(": ") {
            Some((what, help)) => (what.to_owned(), help.to_owned()),
            None => (error.to_string(), String::new()),
        };
        ValueError::new(format!("{} {what}", node.found()), help)
    })
}

/// A duration within a range.
pub(super) fn duration_in(
    node: &Node,
    range: RangeInclusive<Duration>,
    help: &str,
) -> Result<Duration, ValueError> {
    let duration = duration(node)?;
    if duration < *range.start() {
        return Err(ValueError::new(
            format!(
                "{} is too short: the minimum is {}",
                node.found(),
                show_duration(*range.start())
            ),
            help,
        ));
    }
    if duration > *range.end() {
        return Err(ValueError::new(
            format!(
                "{} is too long: the maximum is {}",
                node.found(),
                show_duration(*range.end())
            ),
            help,
        ));
    }
    Ok(duration)
}

/// One word out of a few.
pub(super) fn word<T: Copy>(node: &Node, words: &[(&str, T)]) -> Result<T, ValueError> {
    word_or_foreign(node, words, &[])
}

/// The same; words of other tools are explained.
pub(super) fn word_or_foreign<T: Copy>(
    node: &Node,
    words: &[(&str, T)],
    foreign_words: &'static [(&'static str, &'static str)],
) -> Result<T, ValueError> {
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let text = node.text().unwrap_or("");
    words
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value)
        .ok_or_else(|| {
            let near = suggest::nearest(text, names.iter().copied());
            let help = match foreign::meaning(text, foreign_words) {
                Some(meaning) => meaning.to_owned(),
                None => near.map_or_else(String::new, |n| format!("did you mean `{n}`?")),
            };
            ValueError::new(
                format!(
                    "expected {}, found {}",
                    suggest::one_of(&names),
                    node.found()
                ),
                help,
            )
        })
}

/// A list of texts.
pub(super) fn texts(node: &Node) -> Result<Vec<(String, &Node)>, ValueError> {
    let Value::List(list) = &node.value else {
        return Err(ValueError::new(
            format!("expected a list, found {}", node.found()),
            node.text()
                .map_or_else(String::new, |t| format!("write `[{t:?}]`")),
        ));
    };
    let items = (list.iter()).filter(|item| !matches!(item.value, Value::Broken));
    ValueError::of_each(items, |item| match text(item) {
        Ok(text) => Ok((text, item)),
        Err(trouble) => Err(trouble.with_item(item)),
    })
}

/// An absolute path.
pub(super) fn absolute(node: &Node) -> Result<PathBuf, ValueError> {
    let text = filled(node)?;
    if text.starts_with('/') {
        return Ok(PathBuf::from(text));
    }
    let help = if text.starts_with('~') {
        "`~` is not replaced: write `${HOME}`"
    } else {
        "the path must not depend on the daemon's working directory: begin with `/`"
    };
    Err(ValueError::new(
        format!("expected an absolute path, found {}", node.found()),
        help,
    ))
}

/// Exit codes.
pub(super) fn exit_codes(node: &Node) -> Result<BTreeSet<u8>, ValueError> {
    let Value::List(list) = &node.value else {
        return Err(ValueError::new(
            format!("expected a list of exit codes, found {}", node.found()),
            "write `[0]` or `[0, 1]`",
        ));
    };
    let codes = ValueError::of_each(list, |item| {
        number(item, 0..=255).map_err(|t| t.with_item(item))
    })?;
    if codes.is_empty() {
        return Err(ValueError::new(
            "no exit code would count as success",
            "write `[0]`",
        ));
    }
    Ok(codes.into_iter().collect())
}

/// A file mode mask in octal digits.
pub(super) fn umask(node: &Node) -> Result<u32, ValueError> {
    let digits = node.text().unwrap_or("");
    let digits = digits.strip_prefix("0o").unwrap_or(digits);
    let fits = (1..=4).contains(&digits.len());
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mask| fits && *mask <= 0o777)
        .ok_or_else(|| {
            ValueError::new(
                format!("expected three octal digits, found {}", node.found()),
                "such as `\"022\"` or `\"077\"`",
            )
        })
}

/// The signals that ask a process to end, or that programs use for it.
const SIGNALS: [(&str, Signal); 11] = [
    ("TERM", Signal::SIGTERM),
    ("INT", Signal::SIGINT),
    ("QUIT", Signal::SIGQUIT),
    ("HUP", Signal::SIGHUP),
    ("USR1", Signal::SIGUSR1),
    ("USR2", Signal::SIGUSR2),
    ("WINCH", Signal::SIGWINCH),
    ("ALRM", Signal::SIGALRM),
    ("ABRT", Signal::SIGABRT),
    ("PWR", Signal::SIGPWR),
    ("KILL", Signal::SIGKILL),
];

/// A signal, with or without `SIG`, in any case.
pub(super) fn signal(node: &Node) -> Result<Signal, ValueError> {
    let text = node.text().unwrap_or("").to_ascii_uppercase();
    let short = text.strip_prefix("SIG").unwrap_or(&text);
    let names: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
    SIGNALS
        .iter()
        .find(|(name, _)| *name == short)
        .map(|(_, signal)| *signal)
        .ok_or_else(|| {
            ValueError::new(
                format!("expected a signal, found {}", node.found()),
                suggest::help(short, &names),
            )
        })
}

/// Whether a text may be the name or the number of a user or a group.
pub(super) fn is_account(text: &str) -> bool {
    text.chars()
        .all(|c| !c.is_whitespace() && !c.is_control() && !matches!(c, ':' | '/' | ','))
        && !text.starts_with('-')
        && !text.is_empty()
}

/// A user or a group: a name, or a number.
pub(super) fn account(node: &Node) -> Result<String, ValueError> {
    let text = filled(node)?;
    if is_account(&text) {
        return Ok(text);
    }
    let help = match text.split_once(':') {
        Some((user, group)) => format!("write `user: {user}` and `group: {group}`"),
        None => String::new(),
    };
    Err(ValueError::new(
        format!("expected a name or a number, found {}", node.found()),
        help,
    ))
}
