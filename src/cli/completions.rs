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
    #[arg(required_unless_present = "jobs")]
    shell: Option<Shell>,
    /// Print the names of the jobs, one per line. The scripts call this.
    #[arg(long, hide = true)]
    jobs: bool,
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

/// A shell that has completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    Bash,
    Fish,
    Zsh,
}

pub(super) fn run(args: &Args, cli: Command) -> Result<ExitCode, Failure> {
    let text = match args.shell {
        Some(_) if args.jobs => {
            return Err(Failure::Usage("--jobs takes no shell".to_owned()));
        }
        Some(Shell::Bash) => bash::script(&cli),
        Some(Shell::Fish) => fish::script(&cli),
        Some(Shell::Zsh) => zsh::script(cli),
        None => job_names(args)?,
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
