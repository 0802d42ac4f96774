//! What a job runs, and what it runs in: command, user, environment, directory.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use super::model::Command;
use super::node::{KeyValue, Value, quoted};
use super::problem::{Problem, Problems};
use super::section::{Section, ValueError, doubled};
use super::source::Span;
use super::values;

const DEFAULT_SHELL: &str = "/bin/sh";

/// Reads `command:` and `shell:`; `None` when it was refused.
pub(super) fn read(
    section: Section<'_>,
    place: Span,
    meant: &[&str],
    problems: &mut Problems,
    warnings: &mut Vec<(Span, String)>,
) -> Option<Command> {
    let shell = shell(section, problems);
    if section.entry("command").is_none() && !meant.contains(&"command") {
        problems.add(
            Problem::new(place, "this job has no `command`")
                .help("write `command: [program, argument, …]`, or a string for the shell"),
        );
    }
    section.read("command", problems, |node| match &node.value {
        Value::List(_) => {
            let argv = values::texts(node)?;
            let Some((program, item)) = argv.first() else {
                return Err(ValueError::new(
                    "this command is empty",
                    "write `[program, argument, …]`",
                ));
            };
            if program.trim().is_empty() {
                return Err(ValueError::new("the program's name is empty", ""));
            }
            if argv.len() == 1 && program.contains(' ') {
                warnings.push((
                    item.span,
                    format!(
                        "{} is a single list item, so it is run as a program of exactly this \
                         name; write a string for the shell, or one list item per word",
                        item.found()
                    ),
                ));
            }
            if let Some(shell) = section.own_entry("shell") {
                warnings.push((
                    shell.span,
                    "`shell` has no effect on a command that is a list".to_owned(),
                ));
            }
            Ok(Command::Argv(
                argv.into_iter().map(|(text, _)| text).collect(),
            ))
        }
        Value::Map(_) => Err(ValueError::new(
            "expected a list or a string, found a mapping",
            "write `command: [program, argument, …]`; quote a string that contains `: `",
        )),
        _ => Ok(Command::Shell {
            shell: shell.unwrap_or_else(|| PathBuf::from(DEFAULT_SHELL)),
            script: values::filled(node)?,
        }),
    })
}

/// Reads `shell:`.
pub(super) fn shell(section: Section<'_>, problems: &mut Problems) -> Option<PathBuf> {
    section.read("shell", problems, |node| {
        values::absolute(node).map_err(|trouble| ValueError {
            help: "a program that takes `-c TEXT`, such as `/bin/bash`".to_owned(),
            ..trouble
        })
    })
}

/// What a job runs in.
#[derive(Debug)]
pub(super) struct ProcessSettings {
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    pub(super) umask: Option<u32>,
    pub(super) nice: Option<i32>,
    pub(super) working_dir: Option<PathBuf>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) env_file: Option<PathBuf>,
}

impl ProcessSettings {
    /// Reads what a job runs in.
    pub(super) fn read(section: Section<'_>, problems: &mut Problems) -> Self {
        Self {
            user: section.read("user", problems, values::account),
            group: section.read("group", problems, values::account),
            umask: section.read("umask", problems, values::umask),
            nice: section.read("nice", problems, |n| values::number(n, -20..=19)),
            working_dir: section.read("working_dir", problems, values::absolute),
            env: env(section, problems),
            env_file: section.read("env_file", problems, values::absolute),
        }
    }
}

/// A job's variables: its own, and those of `defaults:` that it does not set itself.
fn env(section: Section<'_>, problems: &mut Problems) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    let mut add = |entry: Option<&KeyValue>, problems: &mut Problems| {
        let Some(entry) = entry else { return };
        match &entry.value.value {
            Value::Broken => {}
            Value::Map(entries) => {
                let mut seen = HashMap::new();
                for entry in entries {
                    if let Some(first) = seen.insert(entry.key.as_str(), entry.span) {
                        problems.add(doubled(entry, first).secret());
                    }
                    match variable(entry) {
                        Ok(Some(value)) => {
                            env.insert(entry.key.clone(), value);
                        }
                        Ok(None) => {}
                        Err(problem) => problems.add(problem.secret()),
                    }
                }
            }
            _ => problems.add(
                Problem::new(
                    entry.value.span,
                    format!("expected a mapping, found {}", entry.value.found()),
                )
                .help("write `env: { NAME: value }`"),
            ),
        }
    };
    let own = section.own_entry("env");
    let inherited = section.inherited_entry("env");
    add(inherited, problems);
    add(own, problems);
    env
}

fn variable(entry: &KeyValue) -> Result<Option<String>, Problem> {
    let name = &entry.key;
    let fits = name.bytes().all(|b| b.is_ascii_graphic() && b != b'=')
        && !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !fits {
        return Err(
            Problem::new(entry.span, format!("{} cannot be a variable", quoted(name)))
                .help("use letters, digits and `_`"),
        );
    }
    if name.starts_with("CRONLATCH_") {
        return Err(Problem::new(
            entry.span,
            format!("{} is reserved: cronlatch sets it", quoted(name)),
        )
        .help("variables that begin with `CRONLATCH_` describe the run to the job"));
    }
    match &entry.value.value {
        Value::Broken => Ok(None),
        Value::Null => Err(
            Problem::new(entry.span, format!("{} has no value", quoted(name)))
                .help(format!("write `{name}: \"\"` for an empty one")),
        ),
        // Unlike other values a variable's is never shown: it may be a secret under any name.
        _ => values::text(&entry.value)
            .map(Some)
            .map_err(|trouble| Problem::new(entry.span, trouble.message).help(trouble.help)),
    }
}
