//! Completions for zsh.

use clap::{Command, ValueHint};

use super::arguments::{generated, is_job};

/// Prints the names of the jobs in the list that the command line names.
const FUNCTION: &str = r#"
_cronlatch_jobs() {
    local -a list jobs
    local at=${words[(I)(-c|--config)]}
    (( at )) && list=(--config ${words[at + 1]})
    at=${words[(I)--config=*]}
    (( at )) && list=(${words[at]})
    jobs=(${(f)"$(_call_program jobs cronlatch completions job-names ${(q)list[@]} 2>/dev/null)"})
    compadd -a jobs
}

"#;

/// Returns the completion script for zsh.
pub(super) fn script(cli: Command) -> String {
    let names: Vec<String> = (cli.get_subcommands())
        .map(|command| command.get_name().to_owned())
        .collect();
    // The generator has no hint for the names of jobs; no argument is the name of a user.
    let hinted = names.into_iter().fold(cli, |cli, name| {
        cli.mut_subcommand(name, |command| {
            command.mut_args(|arg| {
                if is_job(&arg) {
                    arg.value_hint(ValueHint::Username)
                } else {
                    arg
                }
            })
        })
    });
    let script =
        generated(clap_complete::Shell::Zsh, &hinted).replace(":_users", ":_cronlatch_jobs");
    match script.find("\n_cronlatch() {") {
        Some(at) => format!("{}{FUNCTION}{}", &script[..at], &script[at + 1..]),
        None => script,
    }
}
