//! From YAML to a validated job list; every error with file, line, column and a way out.
//!
//! The only module that knows `serde_yaml`. It leaves opening stores and computing occurrences
//! to others.
//!
//! | file | contents |
//! | --- | --- |
//! | `source`, `nesting`, `reader`, `parts`, `node` | text -> a tree in which every value knows its place |
//! | `merge`, `expand` | merge keys and `${VAR}`, on that tree |
//! | `section`, `fields`, `values`, `duration` | fields and scalars, each refused with a reason |
//! | `list`, `job`, `when`, `lock`, `policies`, `command`, `store`, `notify`, `history`, `output`, `http` | the tree -> the model |
//! | `model`, `program` | the validated list, its jobs and their commands |
//! | `crontab` | a crontab -> the same tree, or the text of a list |
//! | `habits`, `shell` | commands that probably do something else than intended |
//! | `machine` | users, groups and shells that this machine lacks |
//! | `cross` | what holds between jobs |
//! | `fingerprint`, `revision` | the identity of a schedule and of a list, the versions of its files |
//! | `tokens` | the file of tokens that `http` names |
//! | `zone` | names of time zones |
//! | `problem`, `suggest`, `spelling`, `foreign`, `syntax`, `mask` | what a person reads when something is wrong |
//! | `environment` | what is read of the process and its machine |

mod command;
pub(crate) mod crontab;
mod cross;
mod duration;
mod environment;
mod expand;
mod fields;
mod fingerprint;
mod foreign;
mod habits;
mod history;
mod http;
mod job;
mod list;
mod lock;
mod machine;
mod mask;
mod merge;
mod model;
mod nesting;
mod node;
mod notify;
mod output;
mod parts;
mod policies;
mod problem;
mod program;
mod reader;
mod revision;
mod section;
mod shell;
mod source;
mod spelling;
mod store;
mod suggest;
mod syntax;
mod tokens;
mod values;
mod when;
mod zone;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

pub(crate) use self::command::DEFAULT_SHELL;
pub use self::duration::{InvalidDuration, parse_duration, show_duration, show_roughly};
pub(crate) use self::environment::{
    CLOCK_FILES, OUTPUT_DIRECTORY, SPOOL_FILES, machine_time_zone, state_directory,
};
pub use self::environment::{embedded_store, machine_host_name};
pub(crate) use self::fingerprint::{changed_fields, is_unchanged, listed_jobs};
pub(crate) use self::habits::has_pipefail_by_default;
pub use self::http::{HttpSettings, ListenAddress};
pub use self::model::{
    CatchUp, HostPatterns, Job, JobList, JobPolicies, KeepOutput, KillPlan, LockPolicy, OnCrash,
    OnLost, OnOverlap, OnStoreDown, OutputPolicy, Retry, Scope,
};
pub use self::notify::{
    Alerts, Channel, HttpTarget, HttpUrl, InvalidUrl, JobEvent, LATE_AFTER, MailTarget,
    NotifyTarget, Ping, Secret, Template,
};
pub(crate) use self::policies::{
    DEFAULT_CATCH_UP_WINDOW, DEFAULT_MAX_RERUNS, DEFAULT_QUEUE_LIMIT, DEFAULT_START_DEADLINE,
};
pub use self::problem::{ConfigError, ConfigErrors};
pub use self::program::Command;
pub use self::revision::{Revision, revision};
pub use self::tokens::{TokenFileError, TokenRight, Tokens};
pub(crate) use self::zone::parse as parse_zone;

use self::environment::Environment;
use self::node::Value;
use self::problem::Problems;
use self::source::{Source, Unreadable};

/// Reads and validates a job list: a file, or a directory of `*.yaml` and `*.yml` files.
///
/// `${VAR}` in values is replaced from the environment of this process.
pub fn load(path: &Path) -> Result<JobList, ConfigErrors> {
    load_in(path, &Environment::of_process())
}

/// As [`load`], for commands that start no job: variables that only `notify` and `ping` need may be
/// unset, because the daemon alone has these secrets. The list then names them, and the targets and pings
/// that need them cannot be used. Its fingerprint is that of the daemon: no secret is part of it. Only if
/// the kind of a ping, or what a target receives, stands in such a variable, the list has no fingerprint.
pub fn load_without_secrets(path: &Path) -> Result<JobList, ConfigErrors> {
    load_in(path, &Environment::of_process().without_secrets())
}

/// Reads the text of a crontab.
pub(crate) fn read_crontab(path: &Path) -> Result<String, ConfigErrors> {
    const EXPECTED: &str = "name a crontab, /etc/cron.d, a directory of scripts, or `-` for standard \
                            input";
    let whole = |message: String| ConfigErrors::of_path(path.to_owned(), message, EXPECTED);
    let errors = match Source::read(path) {
        Ok(source) => return Ok(source.text),
        Err(Unreadable::NotUtf8 { line, column, .. }) => whole(format!(
            "this is not a crontab: it has a byte that is no text (line {line}, column {column})"
        )),
        Err(Unreadable::NotAFile(what)) => whole(format!("this is {what}, not a file")),
        Err(Unreadable::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            whole(format!("this file cannot be read: {error}"))
        }
        Err(error) => unreadable(path, &error),
    };
    Err(errors)
}

/// Whether a text that should be a crontab is none: one of the sections of a job list begins at the left margin.
pub(crate) fn looks_like_a_list(text: &str) -> bool {
    let is_section = |line: &str| {
        let name = line.split_once(':').map_or("", |(name, _)| name);
        matches!(name, "jobs" | "defaults" | "store" | "notify")
    };
    text.lines().any(is_section)
}

/// Whether a text is YAML with fields of a job list.
pub(crate) fn has_fields_of_a_list(text: &str) -> bool {
    let source = Source::new(Path::new("list"), text.to_owned());
    let root = reader::read(&source, 0).ok().flatten();
    root.is_some_and(|root| match root.value {
        Value::Map(fields) => fields
            .iter()
            .any(|field| list::TOP.fields.contains(&&*field.key)),
        _ => false,
    })
}

/// Returns the warnings about a list that is not in a file yet, each with its line.
pub(crate) fn warnings_of(text: &str) -> Result<Vec<(usize, String)>, ConfigErrors> {
    let path = Path::new("list");
    let source = Source::new(path, text.to_owned());
    let found = list::read(path, &[source], &Environment::of_process())?;
    // Each reads `list:LINE:COLUMN: TEXT`.
    let numbered = found.warnings.iter().map(|warning| {
        let (place, text) = warning.split_once(": ").unwrap_or(("", warning));
        let line = place.split(':').nth(1).and_then(|line| line.parse().ok());
        (line.unwrap_or(0), text.to_owned())
    });
    Ok(numbered.collect())
}

fn load_in(path: &Path, environment: &Environment) -> Result<JobList, ConfigErrors> {
    let files = if path.is_dir() {
        files_of(path)?
    } else {
        vec![path.to_owned()]
    };
    let mut sources = Vec::with_capacity(files.len());
    let mut problems = Problems::default();
    let mut refused: Option<ConfigErrors> = None;
    for file in &files {
        match Source::read(file) {
            Ok(source) => sources.push(source),
            // Its other mistakes are found as well, and those of other files, which may depend on it.
            Err(Unreadable::NotUtf8 {
                line,
                column,
                readable,
            }) => {
                problems.add(list::not_utf8(sources.len(), line, column));
                sources.push(Source::new(file, readable));
            }
            Err(error) => {
                let errors = unreadable(file, &error);
                refused = Some(match refused {
                    Some(before) => before.and(errors),
                    None => errors,
                });
            }
        }
    }
    match refused {
        // What the other files mean may depend on the ones that cannot be read, but not whether they
        // are YAML.
        Some(errors) => Err(errors.and(list::wrong_by_themselves(&sources, environment, problems))),
        None => list::read_further(path, &sources, environment, problems),
    }
}

/// The job lists of a directory, by name; hidden files are not ours (Kubernetes keeps the versions
/// of a mounted directory in some, editors their own).
fn files_of(directory: &Path) -> Result<Vec<PathBuf>, ConfigErrors> {
    let refused = |error: &io::Error| {
        let message = format!("this directory cannot be read: {error}");
        ConfigErrors::of_path(directory.to_owned(), message, "")
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|e| refused(&e))? {
        let path = entry.map_err(|e| refused(&e))?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_list = path
            .extension()
            .is_some_and(|ext| ext == "yaml" || ext == "yml");
        if is_list && !hidden && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(ConfigErrors::of_path(
            directory.to_owned(),
            "this directory holds no job list",
            "its files must be named *.yaml or *.yml",
        ));
    }
    Ok(files)
}

fn unreadable(path: &Path, error: &Unreadable) -> ConfigErrors {
    match error {
        Unreadable::Io(error) => {
            let help = match error.kind() {
                io::ErrorKind::NotFound => "name a file, or a directory of *.yaml files",
                io::ErrorKind::PermissionDenied => {
                    "the user that runs cronlatch must be able to read it"
                }
                io::ErrorKind::FileTooLarge => "a job list has at most 64 MiB",
                _ => "",
            };
            ConfigErrors::of_path(
                path.to_owned(),
                format!("this file cannot be read: {error}"),
                help,
            )
        }
        Unreadable::NotAFile(what) => ConfigErrors::of_path(
            path.to_owned(),
            format!("this is {what}, not a file"),
            "write the list into a file, or name a directory of *.yaml files",
        ),
        Unreadable::NotUtf8 { line, column, .. } => {
            ConfigErrors::not_utf8(path.to_owned(), *line, *column)
        }
    }
}
