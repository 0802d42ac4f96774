//! What the command of a crontab does differently as a job.

use std::path::Path;

use super::line;
use super::model::RemarkKind::{self, NeedsLook, Note};
use crate::config::has_pipefail_by_default;
use crate::config::shell::{self, Operator};

/// Returns the remarks about a command that runs in this shell.
pub(super) fn remarks(command: &str, shell_path: &str) -> Vec<(RemarkKind, String)> {
    let mut remarks = Vec::new();
    let mut add = |applies: bool, kind: RemarkKind, text: &str| {
        if applies {
            remarks.push((kind, text.to_owned()));
        }
    };
    let operators = shell::operators(command);
    let first = shell::word(command).map_or_else(String::new, |(word, _)| word);
    let has = |wanted: Operator| operators.iter().any(|(_, operator)| *operator == wanted);
    add(
        command.contains("RANDOM") && command.contains("sleep"),
        NeedsLook,
        "a random `sleep` holds the lock while it sleeps: `jitter: 10m` delays each job by a time of \
         its own, the same on all hosts",
    );
    add(
        command.contains("RANDOM") && shell_path.ends_with("/sh"),
        NeedsLook,
        "`RANDOM` may be empty in `/bin/sh`: bash, zsh and ksh have it",
    );
    add(
        command.trim_end().ends_with('\\'),
        NeedsLook,
        "a crontab has no continuation lines: the backslash at the end belongs to the command",
    );
    add(
        has(Operator::Pipe) && has_pipefail_by_default(Path::new(shell_path)),
        NeedsLook,
        "with bash a pipe fails if any of its commands fails (`pipefail`); cron takes the exit code \
         of the last one, as does `pipefail: false`",
    );
    add(
        first.starts_with('*') || (!first.is_empty() && line::looks_like_a_field(&first, 0)),
        NeedsLook,
        "the command begins with what looks like a sixth field: cron has no seconds",
    );
    add(
        first == "timeout",
        Note,
        "`timeout` still works; the job's own field `timeout: 2h` kills the whole process tree",
    );
    add(
        command.contains("run-parts") || command.contains("anacron"),
        Note,
        "`cronlatch import /etc/cron.daily` makes a job of each script, and `catch_up_window` does \
         the work of anacron",
    );
    // A `&` at the very end is found when the list is checked.
    add(
        operators.iter().any(|(at, operator)| {
            let rest = command.get(at + 1..).unwrap_or("");
            *operator == Operator::Background && !rest.trim().is_empty()
        }),
        NeedsLook,
        "processes left in the background are killed when the shell of the command exits",
    );
    remarks
}

/// Returns the remarks about the input of a command, which follows a `%`.
pub(super) fn input_remarks(command: &str, shell_path: &str) -> Vec<(RemarkKind, String)> {
    let mut remarks = Vec::new();
    if is_cut_off(command) {
        remarks.push((
            NeedsLook,
            "cron ends this command at the first `%`, which was probably meant as a sign: write \
             `\\%` in the crontab"
                .to_owned(),
        ));
    }
    if !has_here_documents(shell_path) {
        remarks.push((
            NeedsLook,
            format!("the input after `%` became a here-document, which {shell_path} may not know"),
        ));
    }
    remarks
}

/// Whether a command ends within quotes, brackets or `date +`.
fn is_cut_off(command: &str) -> bool {
    let count = |wanted: char| command.chars().filter(|c| *c == wanted).count();
    command.ends_with('+')
        || count('(') != count(')')
        || count('"') % 2 == 1
        || count('\'') % 2 == 1
        || count('`') % 2 == 1
}

/// Whether a shell understands here-documents.
fn has_here_documents(shell_path: &str) -> bool {
    let name = shell_path.rsplit('/').next().unwrap_or(shell_path);
    name == "busybox" || (name.ends_with("sh") && !["csh", "tcsh", "fish"].contains(&name))
}
