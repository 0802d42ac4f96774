//! One target: what reaches it, and which events it receives.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::fields::{FIELDS, KINDS};
use super::http;
use super::model::{Channel, JobEvent, MailTarget, NotifyTarget};
use crate::config::node::{KeyValue, Node, Value};
use crate::config::problem::{Problem, Problems};
use crate::config::program::Command;
use crate::config::section::{Section, ValueError, Vocabulary};
use crate::config::{suggest, values};
use crate::names::TargetName;

/// The fields of a target.
pub(in crate::config) const TARGET: Vocabulary = Vocabulary {
    what: "a target of `notify`",
    fields: FIELDS,
    other_words: &[
        ("url", "write `webhook: https://…`"),
        ("http", "write `webhook: https://…`"),
        ("https", "write `webhook: https://…`"),
        ("hook", "did you mean `webhook`?"),
        (
            "mattermost",
            "write `slack: https://…`, which it understands",
        ),
        ("email", "did you mean `mail`?"),
        ("to", "did you mean `mail`?"),
        ("exec", "did you mean `command`?"),
        ("cmd", "did you mean `command`?"),
        ("events", "did you mean `on`?"),
        ("when", "did you mean `on`?"),
        ("every", "did you mean `repeat`?"),
        ("token", "write `headers: { Authorization: \"Bearer …\" }`"),
        ("key", "did you mean `routing_key`?"),
    ],
    elsewhere: &[],
    not_yet: &[],
};

const SENDMAIL: &str = "/usr/sbin/sendmail";
const DEFAULT_ON: [JobEvent; 4] = [
    JobEvent::Failed,
    JobEvent::Lost,
    JobEvent::Missed,
    JobEvent::Recovered,
];

/// Whether a field of a target is part of the identity of a list. Addresses are not: they are secrets, and
/// may differ between hosts.
pub(in crate::config) fn is_in_identity(field: &str) -> bool {
    matches!(field, "on" | "after" | "repeat")
}

/// Reads one target; `None` when it was refused.
pub(super) fn read(
    name: TargetName,
    entry: &KeyValue,
    problems: &mut Problems,
) -> Option<NotifyTarget> {
    let fields = match &entry.value.value {
        Value::Map(fields) => fields,
        Value::Unset(_) | Value::Broken => return None,
        _ => {
            problems.add(
                Problem::new(entry.span, format!("the target `{name}` is not a mapping"))
                    .help(format!("write `{name}: {{ slack: \"${{SLACK_URL}}\" }}`"))
                    .secret(),
            );
            return None;
        }
    };
    let meant = TARGET.check(fields, problems);
    let section = Section::new(fields, &[]);
    let on = section.read("on", problems, events);
    let after = section.read("after", problems, |n| values::number(n, 1..=100));
    let repeat = section.read_or_none("repeat", problems, |n| {
        let least = Duration::from_secs(60);
        values::duration_in(n, least..=Duration::MAX, "leave it out to send each event")
    });
    let is_kind = |field: &&str| KINDS.contains(field);
    if !KINDS.iter().any(|kind| section.entry(kind).is_some()) && meant.iter().any(is_kind) {
        // The error about the kind has been reported.
        return None;
    }
    let channel = channel(&name, entry, section, problems)?;
    Some(NotifyTarget {
        name,
        channel,
        on: on.unwrap_or_else(|| DEFAULT_ON.into()),
        after: after.unwrap_or(1),
        repeat,
    })
}

fn events(node: &Node) -> Result<BTreeSet<JobEvent>, ValueError> {
    let words: Vec<&str> = JobEvent::WORDS.iter().map(|(word, _)| *word).collect();
    let all = || format!("the events are {}", words.join(", "));
    let events = values::texts(node).map_err(|error| ValueError {
        help: "write `on: [failed, recovered]`".to_owned(),
        ..error
    })?;
    let on = ValueError::of_each(events, |(text, item)| {
        let event = JobEvent::WORDS.iter().find(|(word, _)| *word == text);
        let Some((_, event)) = event else {
            let near = suggest::nearest(&text, words.iter().copied());
            let help = near.map_or_else(all, |near| format!("did you mean `{near}`?"));
            let message = format!("{} is not an event", item.found());
            return Err(ValueError::new(message, help).with_item(item));
        };
        Ok(*event)
    })?;
    if on.is_empty() {
        return Err(ValueError::new("no event would be sent", all()));
    }
    Ok(on.into_iter().collect())
}

/// How the target is reached.
fn channel(
    name: &TargetName,
    entry: &KeyValue,
    section: Section<'_>,
    problems: &mut Problems,
) -> Option<Channel> {
    let given: Vec<&KeyValue> = (KINDS.iter())
        .filter_map(|kind| section.entry(kind))
        .collect();
    let kind = match given.as_slice() {
        [kind] => *kind,
        [] => {
            problems.add(
                Problem::new(entry.span, format!("the target `{name}` has no address"))
                    .help(format!("give it one of {}", KINDS.join(", ")))
                    .secret(),
            );
            return None;
        }
        [first, second, ..] => {
            problems.add(
                Problem::new(second.span, "a target has one kind: give each its own name")
                    .other(first.span, "the other kind is at")
                    .secret(),
            );
            return None;
        }
    };
    misplaced(section, &kind.key, problems);
    let is_unset = |field: &&str| {
        let value = section.entry(field).map(|entry| &entry.value.value);
        matches!(value, Some(Value::Unset(_))) && !is_in_identity(field)
    };
    if FIELDS.iter().any(is_unset) {
        let kind = KINDS.iter().find(|word| **word == kind.key)?;
        return Some(Channel::Unset(kind));
    }
    match kind.key.as_str() {
        "command" => command(section, problems).map(Channel::Command),
        "mail" => mail(section, problems).map(Channel::Mail),
        key => http::read(key, section, problems).map(Channel::Http),
    }
}

/// Fields that belong to targets of another kind.
fn misplaced(section: Section<'_>, kind: &str, problems: &mut Problems) {
    let is_http = !matches!(kind, "command" | "mail");
    let rules = [
        ("headers", is_http, "targets that are reached over HTTP"),
        ("template", kind == "webhook", "`webhook`"),
        (
            "routing_key",
            kind == "webhook",
            "`webhook` with `template: pagerduty`",
        ),
        ("from", kind == "mail", "`mail`"),
        ("sendmail", kind == "mail", "`mail`"),
    ];
    for (field, fits, owner) in rules {
        if let (Some(entry), false) = (section.entry(field), fits) {
            let message = format!("`{field}` is for {owner}, not for `{kind}`");
            problems.add(Problem::new(entry.span, message).secret());
        }
    }
}

/// A program, as a list, or as a text for the shell.
fn command(section: Section<'_>, problems: &mut Problems) -> Option<Command> {
    section.read("command", problems, |node| match &node.value {
        Value::List(_) => {
            let argv: Vec<String> = (values::texts(node)?.into_iter())
                .map(|(text, _)| text)
                .collect();
            match argv.first() {
                Some(program) if !program.trim().is_empty() => Ok(Command::Argv(argv)),
                _ => Err(ValueError::new(
                    "this command is empty",
                    "write `[program, argument, …]`",
                )),
            }
        }
        _ => Ok(Command::Shell {
            shell: PathBuf::from("/bin/sh"),
            script: values::filled(node)?,
            pipefail: false,
        }),
    })
}

fn mail(section: Section<'_>, problems: &mut Problems) -> Option<MailTarget> {
    let to = section.read("mail", problems, |node| {
        if !matches!(node.value, Value::List(_)) {
            let text = values::filled(node)?;
            address(&text, node)?;
            return Ok(vec![text]);
        }
        let addresses = ValueError::of_each(values::texts(node)?, |(text, item)| {
            address(&text, item).map_err(|error| error.with_item(item))?;
            Ok(text)
        })?;
        if addresses.is_empty() {
            return Err(ValueError::new("no address is given", ""));
        }
        Ok(addresses)
    });
    let from = section.read("from", problems, |node| {
        let text = values::filled(node)?;
        address(&text, node)?;
        Ok(text)
    });
    let sendmail = section.read("sendmail", problems, values::absolute);
    Some(MailTarget {
        to: to?,
        from,
        sendmail: sendmail.unwrap_or_else(|| PathBuf::from(SENDMAIL)),
    })
}

/// Whether a text is an address that `sendmail` can take for neither an option nor a line of a header.
pub(in crate::config) fn is_address(text: &str) -> bool {
    let fits = text
        .bytes()
        .all(|b| b.is_ascii_graphic() && !b",;<>\"()".contains(&b));
    fits && !text.starts_with('-') && !text.is_empty()
}

fn address(text: &str, node: &Node) -> Result<(), ValueError> {
    if is_address(text) {
        return Ok(());
    }
    let help = "such as `ops@example.org` or a local user; several go into a list";
    Err(ValueError::new(
        format!("{} is not a mail address", node.found()),
        help,
    ))
}
