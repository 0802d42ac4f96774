//! What a job runs, and what it runs in: command, user, environment, directory.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::habits::{self, PipeStatus};
use super::model::ProcessSettings;
use super::node::{KeyValue, Node, Value, quoted};
use super::problem::{Problem, Problems, Warning};
use super::program::Command;
use super::section::{Section, ValueError, doubled};
use super::source::Span;
use super::values;

/// `shell` of a job that does not set it.
pub(crate) const DEFAULT_SHELL: &str = "/bin/sh";

/// Reads `command:` and `shell:`; `None` when it was refused.
pub(super) fn read(
    section: Section<'_>,
    place: Span,
    meant: &[&str],
    problems: &mut Problems,
    warnings: &mut Vec<Warning>,
) -> Option<Command> {
    let shell = shell(section, problems).unwrap_or_else(|| PathBuf::from(DEFAULT_SHELL));
    let pipefail = pipefail(section, &shell, problems);
    if section.entry("command").is_none() && !meant.contains(&"command") {
        problems.add(
            Problem::new(place, "this job has no `command`")
                .help("write `command: [program, argument, …]`, or a string for the shell"),
        );
    }
    section.read("command", problems, |node| match &node.value {
        Value::List(_) => {
            for field in ["shell", "pipefail"] {
                if let Some(entry) = section.own_entry(field) {
                    let text = format!("`{field}` has no effect on a command that is a list");
                    warnings.push(Warning::new(entry.span, text));
                }
            }
            argv(node, warnings)
        }
        Value::Map(_) => Err(ValueError::new(
            "expected a list or a string, found a mapping",
            "write `command: [program, argument, …]`; quote a string that contains `: `",
        )),
        Value::Number(number) => Err(ValueError::new(
            "expected a list or a string, found a number",
            format!(
                "write `command: [program, argument, …]`, or quote it: `command: \"{number}\"`"
            ),
        )),
        _ => {
            let script = values::filled(node)?;
            let pipes = match (pipefail, section.entry("pipefail")) {
                (true, _) => PipeStatus::AnyCommand,
                (false, Some(_)) => PipeStatus::LastCommandByChoice,
                (false, None) => PipeStatus::LastCommandByDefault,
            };
            let found = habits::of_script(&script, pipes);
            warnings.extend(found.into_iter().map(|text| Warning::new(node.span, text)));
            Ok(Command::Shell {
                shell,
                script,
                pipefail,
            })
        }
    })
}

fn argv(node: &Node, warnings: &mut Vec<Warning>) -> Result<Command, ValueError> {
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
        warnings.push(Warning::new(
            item.span,
            format!(
                "{} is a single list item, so it is run as a program of exactly this name; write \
                 a string for the shell, or one list item per word",
                item.found()
            ),
        ));
    }
    let words: Vec<&str> = argv.iter().map(|(text, _)| text.as_str()).collect();
    if let Some((index, text)) = habits::of_arguments(&words)
        && let Some((_, item)) = argv.get(index)
    {
        warnings.push(Warning::new(item.span, text));
    }
    let mut words: Vec<String> = argv.into_iter().map(|(text, _)| text).collect();
    // Collected in place, they would keep the room of what they are made from.
    words.shrink_to_fit();
    Ok(Command::Argv(words))
}

/// Reads `pipefail:`; by default it is set for bash.
fn pipefail(section: Section<'_>, shell: &Path, problems: &mut Problems) -> bool {
    let given = section.read("pipefail", problems, |node| {
        let given = values::boolean(node)?;
        if given && !habits::knows_pipefail(shell) {
            return Err(ValueError::new(
                format!("{} may not know `pipefail`", shell.display()),
                "write `shell: /bin/bash`, for which it is the default",
            ));
        }
        Ok(given)
    });
    given.unwrap_or_else(|| habits::has_pipefail_by_default(shell))
}

/// Returns warnings about how a command, its user and its variables fit together.
pub(super) fn doubts(
    section: Section<'_>,
    command: Option<&Command>,
    settings: &ProcessSettings,
) -> Vec<Warning> {
    let mut doubts = Vec::new();
    if let Some(user) = &settings.user {
        let fields = ["command", "env", "working_dir", "env_file"];
        let entries = fields.iter().filter_map(|field| section.entry(field));
        doubts.extend(entries.filter_map(|entry| expanded(&entry.value, user)));
    }
    if let (Some(Command::Shell { shell, .. }), Some(value)) = (command, settings.env.get("SHELL"))
        && let Some(env) = section.own_entry("env")
    {
        let doubt = habits::of_shell_variable(value, shell);
        doubts.extend(doubt.map(|text| Warning::new(env.span, text)));
    }
    doubts
}

/// The first text of a value in which the daemon replaces a variable that its user has, too.
fn expanded(node: &Node, user: &str) -> Option<Warning> {
    match &node.value {
        Value::Text(text) => {
            let written = text.written.as_deref()?;
            Some(Warning::new(node.span, habits::of_expanded(written, user)?))
        }
        Value::List(list) => list.iter().find_map(|item| expanded(item, user)),
        Value::Map(entries) => entries
            .iter()
            .find_map(|entry| expanded(&entry.value, user)),
        _ => None,
    }
}

/// Checks `shell` and `pipefail` of `defaults:`.
pub(super) fn check_defaults(section: Section<'_>, problems: &mut Problems) {
    shell(section, problems);
    section.read("pipefail", problems, values::boolean);
}

/// Reads `shell:`.
fn shell(section: Section<'_>, problems: &mut Problems) -> Option<PathBuf> {
    section.read("shell", problems, |node| {
        values::absolute(node).map_err(|trouble| ValueError {
            help: "a program that takes `-c TEXT`, such as `/bin/bash`".to_owned(),
            ..trouble
        })
    })
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
