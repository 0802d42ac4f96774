//! The commands: one file each. This module parses, dispatches and maps failures to exit codes.

mod actions;
mod calendar;
mod check;
mod completions;
mod doctor;
mod examples;
mod exec;
mod explain;
mod failure;
mod forget;
mod health;
mod history;
mod import;
mod init;
mod kill;
mod logs;
mod man;
mod nearest;
mod next;
mod notify_test;
mod output;
mod page;
mod pause;
mod request;
mod requester;
mod run;
mod schema;
mod status;
mod stderr;
mod sweep;
mod target;
mod times;
mod trigger;
mod unknown_job;
mod unlock;
mod views;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub use failure::Failure;
pub use target::Target;
use unknown_job::{job_without_data, unknown_job};

/// The cron that a fleet can trust.
#[derive(Debug, Parser)]
#[command(name = "cronlatch", version, about, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    log: crate::observe::LogArgs,
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Run the jobs of a list until stopped.
    Run(run::Args),
    /// Check a job list and show what it means.
    Check(check::Args),
    /// Show the next occurrences of a job list or a cron expression.
    Next(next::Args),
    /// Write crontabs as a job list, with a report of what needs a look.
    Import(import::Args),
    /// Run one command under a lock.
    Exec(exec::Args),
    /// Have a daemon run a job now, under its lock.
    Trigger(trigger::Args),
    /// Have runs killed, or send them a signal.
    Kill(kill::Args),
    /// Show hosts, jobs and current runs.
    Status(status::Args),
    /// Show the result of each occurrence.
    History(history::Args),
    /// Show the output of a run.
    Logs(logs::Args),
    /// Explain what became of an occurrence and why, or what will.
    Explain(explain::Args),
    /// Diagnose store, clocks, permissions and this host.
    Doctor(doctor::Args),
    /// Tell whether a daemon is alive, for container managers.
    Health(health::Args),
    /// Send a sample message to a target of notifications.
    NotifyTest(notify_test::Args),
    /// Initialise a new, empty store.
    Init(init::Args),
    /// Start no runs of jobs until they are resumed.
    Pause(pause::PauseArgs),
    /// Start the runs of paused jobs again.
    Resume(pause::ResumeArgs),
    /// Delete a job's data from the store.
    Forget(forget::Args),
    /// Release a lock whose holder is gone.
    Unlock(unlock::Args),
    /// Print the JSON Schema of job lists, for editors, or of what commands print.
    Schema(schema::Args),
    /// Print a script that completes commands, options and job names in a shell.
    Completions(completions::Args),
    /// Print the manual, or write a page for each command.
    Man(man::Args),
    /// Kill what the runs of a dead daemon have left in other control groups (for the unit).
    #[command(hide = true)]
    Sweep(sweep::Args),
}

/// The commands, with their examples.
fn command() -> clap::Command {
    examples::add(Cli::command())
}

fn parse() -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let json = matches
        .subcommand()
        .map(|(_, args)| args.try_get_one("json"));
    if matches!(json, Some(Ok(Some(true)))) {
        stderr::print_json();
    }
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Whether a command line that cannot be parsed asks for JSON. Behind `--` nothing is an option.
fn asks_for_json(args: impl Iterator<Item = OsString>) -> bool {
    args.take_while(|arg| arg != "--")
        .any(|arg| arg == "--json")
}

/// Parses the command line, runs the command and returns its exit code.
pub fn main() -> ExitCode {
    // The guard is this same program under a hidden name; it must not pass through clap.
    if let Some(code) = crate::guard::guard_main() {
        return code;
    }
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && asks_for_json(std::env::args_os()) => {
            stderr::print_json();
            return failure::of_command_line(&error).report();
        }
        Err(error) => {
            let printed = output::delivered(error.print());
            return match printed {
                _ if error.use_stderr() => ExitCode::from(failure::USAGE),
                Ok(_) => ExitCode::SUCCESS,
                Err(failure) => failure.report(),
            };
        }
    };
    let result = match cli.command {
        Subcommands::Run(args) => run::run(args, &cli.log),
        Subcommands::Check(args) => check::run(&args),
        Subcommands::Next(args) => next::run(&args),
        Subcommands::Import(args) => import::run(&args),
        Subcommands::Exec(args) => exec::run(args, &cli.log),
        Subcommands::Trigger(args) => trigger::run(&args, &cli.log),
        Subcommands::Kill(args) => kill::run(&args),
        Subcommands::Status(args) => status::run(&args),
        Subcommands::History(args) => history::run(&args),
        Subcommands::Logs(args) => logs::run(&args),
        Subcommands::Explain(args) => explain::run(&args),
        Subcommands::Doctor(args) => doctor::run(&args),
        Subcommands::Health(args) => health::run(&args),
        Subcommands::NotifyTest(args) => notify_test::run(&args),
        Subcommands::Init(args) => init::run(&args),
        Subcommands::Pause(args) => pause::pause(&args),
        Subcommands::Resume(args) => pause::resume(&args),
        Subcommands::Forget(args) => forget::run(&args),
        Subcommands::Unlock(args) => unlock::run(&args),
        Subcommands::Schema(args) => schema::run(&args),
        Subcommands::Completions(args) => completions::run(&args, command()),
        Subcommands::Man(args) => man::run(&args, command()),
        Subcommands::Sweep(args) => sweep::run(&args),
    };
    result.unwrap_or_else(|failure| failure.report())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_each_command_is_the_one_that_was_read_last() {
        let mut cli = command().disable_help_subcommand(true).term_width(100);
        cli.build();
        let mut text = cli.render_long_help().to_string();
        for command in cli.get_subcommands().filter(|it| !it.is_hide_set()) {
            text += &format!("\n\n=== {}\n\n", command.get_name());
            // The values of this environment are not part of the help.
            let mut shown = command.clone().mut_args(|arg| arg.hide_env_values(true));
            text += &shown.render_long_help().to_string();
        }
        insta::assert_snapshot!(text);
    }
}
