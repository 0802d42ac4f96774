//! Habits from crontabs and shells that do something else here, without an error.

use std::path::Path;

use super::shell::{self, Operator};

/// Shells that know `set -o pipefail`, by the names of their programs.
const WITH_PIPEFAIL: [&str; 6] = ["bash", "zsh", "ksh", "ksh93", "mksh", "busybox"];

/// Whether `pipefail` is the default for a shell: it is for bash.
pub(crate) fn has_pipefail_by_default(shell: &Path) -> bool {
    shell.file_name().is_some_and(|name| name == "bash")
}

/// Whether a shell is known to have the option.
pub(super) fn knows_pipefail(shell: &Path) -> bool {
    let name = shell.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| WITH_PIPEFAIL.contains(&name))
}

/// What decides whether a pipe fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PipeStatus {
    /// `pipefail` is set.
    AnyCommand,
    /// `pipefail: false` was written.
    LastCommandByChoice,
    /// Nothing was written, and the shell has no `pipefail` by default.
    LastCommandByDefault,
}

/// Returns a warning for each part of a script that probably does something else than intended.
pub(super) fn of_script(script: &str, pipes: PipeStatus) -> Vec<String> {
    let mut found = Vec::new();
    let operators = shell::operators(script);
    let has_pipe = operators.iter().any(|(_, found)| *found == Operator::Pipe);
    // The patterns of `case` contain `|` as well.
    let is_plain = !script.contains("pipefail") && !script.contains("esac");
    if has_pipe && is_plain && pipes == PipeStatus::LastCommandByDefault {
        found.push(
            "the exit code of a pipe is that of its last command: if another one fails, the job \
             still succeeds; `shell: /bin/bash` makes any failure count (`pipefail`), and \
             `pipefail: false` hides this warning"
                .to_owned(),
        );
    }
    if script.contains("\\%") {
        found.push(
            "`\\%` is an escape of crontabs; `%` has no special meaning here: remove the backslash"
                .to_owned(),
        );
    }
    if ends_in_background(script, &operators) {
        found.push(
            "the command ends with `&`: the process in the background is killed when the shell \
             exits; remove the `&`"
                .to_owned(),
        );
    }
    found
}

fn ends_in_background(script: &str, operators: &[(usize, Operator)]) -> bool {
    for (at, operator) in operators.iter().rev() {
        let is_last = script
            .get(at + 1..)
            .is_none_or(|rest| rest.trim().is_empty());
        match operator {
            Operator::Sequence if is_last => {}
            Operator::Background => return is_last,
            _ => return false,
        }
    }
    false
}

/// Returns a warning for the first argument that only a shell would understand, and its index.
pub(super) fn of_arguments(argv: &[&str]) -> Option<(usize, String)> {
    const SIGNS: [&str; 11] = [
        "|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1", "|&",
    ];
    const REDIRECTIONS: [&str; 4] = ["2>/", ">/", ">>/", "&>/"];
    let program = argv.first()?;
    let of_program = |argument: &str| {
        let ends_exec = argument == ";" && argv.contains(&"-exec");
        let name = Path::new(program)
            .file_name()
            .and_then(|name| name.to_str());
        ends_exec || matches!(name, Some("test" | "[" | "expr" | "echo" | "printf"))
    };
    let (index, argument) = argv.iter().enumerate().skip(1).find(|(index, argument)| {
        let is_sign =
            SIGNS.contains(*argument) || REDIRECTIONS.iter().any(|sign| argument.starts_with(sign));
        is_sign && !of_program(argument) && !is_delimiter_option(argv.get(index - 1))
    })?;
    let text = format!(
        "`{argument}` is passed to `{program}` as an argument, because a list runs without a \
         shell: write the command as a string"
    );
    Some((index, text))
}

/// `cut -d '|'`, `sort -t ';'`.
fn is_delimiter_option(argument: Option<&&str>) -> bool {
    const OPTIONS: [&str; 7] = [
        "-d",
        "-t",
        "-F",
        "-s",
        "--delimiter",
        "--field-separator",
        "--separator",
    ];
    argument.is_some_and(|argument| OPTIONS.contains(argument))
}

/// Variables that differ between the daemon and the user of a job.
const OF_A_USER: [&str; 6] = [
    "HOME",
    "LOGNAME",
    "MAIL",
    "SHELL",
    "USER",
    "XDG_RUNTIME_DIR",
];

/// Returns a warning for a `${HOME}` in a value, as written, of a job with a user of its own.
pub(super) fn of_expanded(written: &str, user: &str) -> Option<String> {
    OF_A_USER.iter().find_map(|name| {
        let form = format!("${{{name}");
        let at = written.find(&form)?;
        let ends = written[at + form.len()..].starts_with(['}', ':']);
        // `$${HOME}` is left to the shell.
        (ends && !written[..at].ends_with('$')).then(|| {
            format!(
                "`${{{name}}}` is replaced by the daemon's own value, not by that of user {user}; \
                 in a command for the shell write `${name}`, elsewhere the value itself"
            )
        })
    })
}

/// Returns a warning for a `SHELL` in `env` that differs from the shell of the command.
pub(super) fn of_shell_variable(value: &str, shell: &Path) -> Option<String> {
    (Path::new(value) != shell).then(|| {
        format!(
            "`SHELL` in `env` does not choose the shell of the command, which is {}: write `shell: \
             {value}`",
            shell.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_a_shell_in_a_list_are_found_and_delimiters_are_not() {
        let found = |line: &str| {
            let argv: Vec<&str> = line.split(' ').collect();
            of_arguments(&argv).map(|(index, _)| index)
        };
        assert_eq!(found("mysqldump --all-databases | gzip"), Some(2));
        assert_eq!(found("backup >>/var/log/x 2>&1"), Some(1));
        assert_eq!(found("a && b"), Some(1));
        for meant in [
            "cut -d | -f 1",
            "sort -t ; x",
            "find / -exec rm {} ;",
            "test 2 > 1",
            "/usr/bin/expr 1 | 0",
            "| a",
            "a b",
        ] {
            assert_eq!(found(meant), None, "{meant}");
        }
        assert!(found("find / ; x").is_some());
    }

    #[test]
    fn scripts_are_warned_of_what_cron_and_shells_do_differently() {
        let count = |script: &str| of_script(script, PipeStatus::LastCommandByDefault).len();
        assert_eq!(count("mysqldump | gzip > x"), 1);
        assert_eq!(count("date \"+\\%F\""), 1);
        assert_eq!(count("server &"), 1);
        assert_eq!(count("server & \n"), 1);
        for plain in [
            "echo 'a | b'",
            "set -o pipefail; a | b",
            "case x in a | b) ;; esac",
            "a & b; wait",
            "a || b && c",
            "date +%F",
        ] {
            assert_eq!(count(plain), 0, "{plain}");
        }
        for status in [PipeStatus::AnyCommand, PipeStatus::LastCommandByChoice] {
            assert_eq!(of_script("a | b", status), Vec::<String>::new());
        }
    }

    #[test]
    fn variables_that_the_daemon_replaces_with_its_own_are_found() {
        let found = |text: &str| of_expanded(text, "app").is_some();
        assert!(found("ls ${HOME}/x"));
        assert!(found("${USER:-x}"));
        for plain in ["$HOME", "$${HOME}", "${HOMEPAGE}", "HOME", "${TARGET}"] {
            assert!(!found(plain), "{plain}");
        }
    }
}
