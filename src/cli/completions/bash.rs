//! Completions for bash.

use std::collections::BTreeSet;

use clap::{Command, ValueHint};

use super::arguments::{commands_with, generated, is_job};

/// The function that bash calls. It corrects what the generated one returns: arguments that are the
/// name of a job become these names, and arguments that are a file are left to bash.
const FUNCTION: &str = r#"
_cronlatch_with_names() {
    _cronlatch "$@"
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD - 1]}" command="" i
    local -a list=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${COMP_WORDS[i]}" in
            -c | --config)
                list=(--config "${COMP_WORDS[i + 1]}")
                # Bash cuts words at `=`.
                [[ "${list[1]}" != = ]] || list[1]="${COMP_WORDS[i + 2]}"
                ;;
            COMMANDS) [[ -n "${command}" ]] || command="${COMP_WORDS[i]}" ;;
        esac
    done
    if [[ "${cur}" == -* || -z "${command}" ]]; then
        return
    fi
    case "${prev}" in
        --job) command=JOB_COMMAND ;;
        VALUE_OPTIONS) return ;;
    esac
    case "${command}" in
        JOB_COMMANDS)
            COMPREPLY=($(compgen -W "$("$1" completions job-names "${list[@]}" 2>/dev/null)" -- "${cur}"))
            ;;
        FILE_COMMANDS) COMPREPLY=() ;;
    esac
}

complete -F _cronlatch_with_names -o nosort -o bashdefault -o default cronlatch
"#;

/// The script.
pub(super) fn script(cli: &Command) -> String {
    let shown = cli
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let names: Vec<&str> = shown.map(Command::get_name).collect();
    let jobs = commands_with(cli, is_job);
    let files = commands_with(cli, |arg| {
        let hint = arg.get_value_hint();
        matches!(
            hint,
            ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath
        )
    });
    let function = FUNCTION
        .replace("JOB_COMMANDS", &jobs.join(" | "))
        .replace("FILE_COMMANDS", &files.join(" | "))
        .replace("VALUE_OPTIONS", &value_options(cli).join(" | "))
        .replace("JOB_COMMAND", jobs.first().copied().unwrap_or("none"))
        .replace("COMMANDS", &names.join(" | "));
    // The last statement registers the generated function.
    let script = generated(clap_complete::Shell::Bash, cli);
    let functions = script
        .rfind("\nif [[")
        .map_or(&*script, |at| &script[..=at]);
    format!("{functions}{function}")
}

/// All options that are followed by a value.
fn value_options(cli: &Command) -> Vec<String> {
    let arguments = cli.get_subcommands().flat_map(Command::get_arguments);
    let mut names = BTreeSet::new();
    for arg in arguments.chain(cli.get_arguments()) {
        if arg.is_positional() || !arg.get_action().takes_values() || is_job(arg) {
            continue;
        }
        names.extend(arg.get_long().map(|long| format!("--{long}")));
        names.extend(arg.get_short().map(|short| format!("-{short}")));
    }
    names.into_iter().collect()
}
