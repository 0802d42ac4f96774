//! `cronlatch completions`: scripts by which shells complete commands, options, files and job names.

mod arguments;
mod bash;
mod fish;
mod zsh;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;

use super::{Failure, Target, output};

/// Options of `completions`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    wanted: CompletionText,
    /// The job list with the names of the jobs.
    #[arg(
        short,
        long,
        env = "CRONLATCH_CONFIG",
        value_name = "FILE",
        hide = true
    )]
    config: Option<PathBuf>,
}

/// What is printed: the script for a shell that has completions, or what the scripts ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum CompletionText {
    Bash,
    Fish,
    Zsh,
    /// The names of the jobs, one per line.
    #[value(name = "job-names", hide = true)]
    JobNames,
}

pub(super) fn run(args: &Args, cli: Command) -> Result<ExitCode, Failure> {
    let text = match args.wanted {
        CompletionText::Bash => bash::script(&cli),
        CompletionText::Fish => fish::script(&cli),
        CompletionText::Zsh => zsh::script(cli),
        CompletionText::JobNames => job_names(args)?,
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn job_names(args: &Args) -> Result<String, Failure> {
    let list = Target::with_config(args.config.clone()).list()?;
    let mut text = String::new();
    for job in list.jobs {
        text += job.name.as_str();
        text.push('\n');
    }
    Ok(text)
}
