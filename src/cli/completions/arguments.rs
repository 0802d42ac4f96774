//! What the scripts of all shells share: what clap generates, and which arguments are jobs.

use clap::Command;

/// Returns the script that clap generates for a shell.
pub(super) fn generated(shell: clap_complete::Shell, mut cli: Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli, "cronlatch", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Whether an argument is the name of a job: `JOB`, or the `NAME` of `unlock`, which takes one too.
pub(super) fn is_job(arg: &clap::Arg) -> bool {
    let is_name = arg.get_id() == "name" && arg.is_positional();
    let is_job = matches!(arg.get_id().as_str(), "job" | "jobs");
    (is_job || is_name) && arg.get_action().takes_values()
}

/// Returns the names of the commands that have an argument like this one.
pub(super) fn commands_with(cli: &Command, wanted: impl Fn(&clap::Arg) -> bool) -> Vec<&str> {
    (cli.get_subcommands()
        .filter(|command| !command.is_hide_set()))
    .filter(|command| command.get_positionals().any(&wanted))
    .map(Command::get_name)
    .collect()
}
