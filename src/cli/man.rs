//! `cronlatch man`: the manual pages.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::failure::{CONFIG, INTERNAL, NOT_ACQUIRED, OUTPUT, UNAVAILABLE, USAGE};
use super::{Failure, examples, output};

/// Options of `man`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write a page for each command into this directory [default: print the page of cronlatch]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(super) fn run(args: &Args, cli: Command) -> Result<ExitCode, Failure> {
    let mut cli = cli.disable_help_subcommand(true);
    cli.build();
    let Some(directory) = &args.directory else {
        let page = page(&cli, &cli).map_err(|error| Failure::Internal(error.to_string()))?;
        output::print(&String::from_utf8_lossy(&page))?;
        return Ok(ExitCode::SUCCESS);
    };
    let written = write_all(&cli, directory);
    let pages = written.map_err(|error| Failure::cannot_write(directory, &error))?;
    // Not on standard output: a package's build script may read that.
    output::report(&format!("{pages} pages written to {}", directory.display()));
    Ok(ExitCode::SUCCESS)
}

/// Returns how many pages it has written.
fn write_all(cli: &Command, directory: &Path) -> io::Result<usize> {
    std::fs::create_dir_all(directory)?;
    let mut pages = 0;
    for command in std::iter::once(cli).chain(shown_subcommands(cli)) {
        let path = directory.join(format!("{}.1", page_name(command)));
        std::fs::write(path, page(cli, command)?)?;
        pages += 1;
    }
    Ok(pages)
}

fn shown_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    let all = command.get_subcommands();
    all.filter(|command| !command.is_hide_set())
}

fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

/// The page of a command.
fn page(cli: &Command, command: &Command) -> io::Result<Vec<u8>> {
    let version = cli.get_version().unwrap_or_default();
    let man = Man::new(with_folded_options(command.clone()))
        .source(format!("cronlatch {version}"))
        .manual("cronlatch");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let is_main = command.has_subcommands();
    if is_main {
        man.render_subcommands_section(&mut page)?;
    }
    let mut more = Roff::new();
    exit_status(&mut more, command);
    if is_main {
        files(&mut more);
    }
    let examples = examples::of(command.get_name());
    if !examples.is_empty() {
        more.control("SH", ["EXAMPLES"]);
        for example in examples {
            more.control("TP", []);
            more.text([roman(format!("{}:", example.does))]);
            more.text([bold(example.line)]);
        }
    }
    see_also(&mut more, cli, command);
    more.to_writer(&mut page)?;
    Ok(page)
}

/// The short help folds the options that commands share; the page describes them.
fn with_folded_options(command: Command) -> Command {
    command.mut_args(|option| option.hide_short_help(false))
}

const EXIT_CODES: [(u8, &str); 7] = [
    (0, "success"),
    (USAGE, "the command line is wrong"),
    (UNAVAILABLE, "the store is unavailable"),
    (INTERNAL, "an internal error"),
    (OUTPUT, "standard output or a file cannot be written"),
    (NOT_ACQUIRED, "the lock was not acquired, or it was lost"),
    (CONFIG, "the configuration or a cron expression is wrong"),
];

fn exit_status(page: &mut Roff, command: &Command) {
    page.control("SH", ["EXIT STATUS"]);
    if let Some(text) = command.get_after_help() {
        let text = text.to_string();
        // The help has no headings; here one says this already.
        let text = ["Exit codes: ", "Exit status: "]
            .iter()
            .find_map(|heading| text.strip_prefix(heading))
            .unwrap_or(&text);
        for paragraph in text.split("\n\n") {
            page.control("PP", []);
            page.text([roman(paragraph)]);
        }
        return;
    }
    for (code, meaning) in EXIT_CODES {
        page.control("TP", []);
        page.text([bold(code.to_string())]);
        page.text([roman(meaning)]);
    }
}

fn files(page: &mut Roff) {
    page.control("SH", ["FILES"]);
    page.control("TP", []);
    page.text([bold("/etc/cronlatch/jobs.yaml")]);
    page.text([roman(
        "the job list, unless --config or CRONLATCH_CONFIG names another one",
    )]);
}

fn see_also(page: &mut Roff, cli: &Command, command: &Command) {
    let mut pages: Vec<&str> = if command.has_subcommands() {
        shown_subcommands(command).map(page_name).collect()
    } else {
        vec![page_name(cli)]
    };
    pages.sort_unstable();
    page.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for (index, name) in pages.iter().enumerate() {
        line.extend([
            roman(if index == 0 { "" } else { ", " }),
            bold(*name),
            roman("(1)"),
        ]);
    }
    line.extend([roman(", "), bold("crontab"), roman("(5)")]);
    page.text(line);
}
