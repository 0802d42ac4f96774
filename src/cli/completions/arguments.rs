//! What the scripts of all shells share: what clap generates, and which arguments are jobs.

use clap::Command;

/// Returns the script that clap generates for a shell.
pub(super) fn generated(shell: clap_complete::Shell, cli: &Command) -> String {
    let mut script = Vec::new();
    let mut cli = without_hidden(cli);
    clap_complete::generate(shell, &mut cli, "cronlatch", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The program without the commands that its help hides: clap would offer them.
fn without_hidden(cli: &Command) -> Command {
    let shown = (cli.get_subcommands()).filter(|command| !command.is_hide_set());
    Command::new("cronlatch")
        .version(env!("CARGO_PKG_VERSION"))
        .args(cli.get_arguments())
        .subcommands(shown)
}

/// Whether an argument is the name of a job: `JOB`, the `RUN|JOB` of `kill`, or the `NAME` of
/// `unlock`, which takes one too.
pub(super) fn is_job(arg: &clap::Arg) -> bool {
    let is_name = arg.get_id() == "name" && arg.is_positional();
    let is_job = matches!(arg.get_id().as_str(), "job" | "jobs" | "what");
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
