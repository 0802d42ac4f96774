//! `cronlatch import`: crontabs as a job list, with a report of what needs a look.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::page::{Page, Tone};
use super::{Failure, output};
use crate::config;
use crate::config::crontab::{
    CrontabKind, Crontabs, ImportedList, LineRef, ReadOptions, RemarkKind,
};

/// Options of `import`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Crontabs, /etc/cron.d, or directories of scripts such as /etc/cron.daily; `-` reads standard
    /// input, as from `crontab -l`
    #[arg(value_name = "CRONTAB", required = true)]
    crontabs: Vec<PathBuf>,
    /// Whether the crontabs have a field for the user (system) or not (user) [default: from path and
    /// content]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// The owner of a user's crontab: its jobs get `user: NAME`
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Write the list to this file, which must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print one JSON object with the list and the report
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// The form of a crontab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// The crontab of one user, as `crontab -l` prints it
    User,
    /// /etc/crontab and files in /etc/cron.d
    System,
}

/// `import --json`.
#[derive(Debug, Serialize)]
struct Imported {
    list: String,
    jobs: usize,
    report: Vec<ReportLine>,
}

#[derive(Debug, Serialize)]
struct ReportLine {
    kind: RemarkKind,
    path: String,
    /// From 1; 0 if the remark is about the file as a whole.
    line: usize,
    text: String,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let options = ReadOptions {
        kind: args.format.map(|format| match format {
            Format::User => CrontabKind::User,
            Format::System => CrontabKind::System,
        }),
        owner: args.user.clone(),
    };
    let mut crontabs = Crontabs::new();
    for path in &args.crontabs {
        read(path, &options, &mut crontabs)?;
    }
    let list = crontabs.list();
    let report = report(&crontabs, &list)?;
    if args.json {
        let imported = Imported {
            list: list.text,
            jobs: crontabs.job_count(),
            report,
        };
        output::print(&output::json_lines([imported])?)?;
        return Ok(ExitCode::SUCCESS);
    }
    match &args.output {
        Some(path) => write_new(path, &list.text)?,
        None => output::print(&list.text)?,
    }
    output::report_page(&for_people(&report, crontabs.job_count()));
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path, options: &ReadOptions, crontabs: &mut Crontabs) -> Result<(), Failure> {
    let cannot =
        |error: std::io::Error| Failure::Config(format!("cannot read {}: {error}", path.display()));
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(cannot)?;
        let name = Path::new("standard input");
        refuse_list(name, &text)?;
        crontabs.add(name, &text, options);
        return Ok(());
    }
    if !path.is_dir() {
        let text = config::read_crontab(path)?;
        refuse_list(path, &text)?;
        crontabs.add(path, &text, options);
        return Ok(());
    }
    if Crontabs::is_script_directory(path) {
        return crontabs.add_scripts(path).map_err(cannot);
    }
    let entries = std::fs::read_dir(path).map_err(cannot)?;
    let files: Result<Vec<PathBuf>, _> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut files = files.map_err(cannot)?;
    files.sort();
    // The files of /etc/cron.d have a user in each line.
    let options = ReadOptions {
        kind: options.kind.or(Some(CrontabKind::System)),
        ..options.clone()
    };
    for file in files.iter().filter(|file| file.is_file()) {
        let name = file.file_name().and_then(|name| name.to_str());
        match name {
            Some(name) if name.starts_with('.') => {}
            Some(name) if is_read_by_cron(name) => read(file, &options, crontabs)?,
            _ => crontabs.add_ignored(file),
        }
    }
    Ok(())
}

/// Fails for a job list, and for what contains one: a report on each of its lines would hide what is wrong.
fn refuse_list(path: &Path, text: &str) -> Result<(), Failure> {
    if !config::looks_like_a_list(text) {
        return Ok(());
    }
    let what = if config::has_fields_of_a_list(text) {
        "is a job list already: there is nothing to import"
    } else {
        "is not a crontab: it has sections of a job list, but is not a job list either"
    };
    Err(Failure::Config(format!("{} {what}", path.display())))
}

/// Whether cron reads a file of this name: editors and package managers leave others behind.
fn is_read_by_cron(name: &str) -> bool {
    name.chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// What was remarked while the crontabs were read, and what `check` would warn of in the list. What
/// needs a look comes first.
fn report(crontabs: &Crontabs, list: &ImportedList) -> Result<Vec<ReportLine>, Failure> {
    let line = |kind, at: LineRef, text: String| ReportLine {
        kind,
        path: (crontabs.paths.get(at.file))
            .map_or_else(String::new, |path| path.display().to_string()),
        line: at.line,
        text,
    };
    let mut remarks: Vec<(RemarkKind, LineRef, String)> = (crontabs.remarks.iter())
        .map(|remark| (remark.kind, remark.line, remark.text.clone()))
        .collect();
    for (number, warning) in config::warnings_of(&list.text).map_err(|errors| {
        Failure::Internal(format!(
            "the list that was made is not valid, and is not written:\n{errors}"
        ))
    })? {
        let at = list.origin(number).unwrap_or(LineRef { file: 0, line: 0 });
        remarks.push((RemarkKind::NeedsLook, at, warning));
    }
    remarks.sort();
    remarks.dedup();
    Ok(remarks
        .into_iter()
        .map(|(kind, at, text)| line(kind, at, text))
        .collect())
}

fn write_new(path: &Path, list: &str) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| match error.kind() {
        // A list is never replaced: that is for the person to decide.
        ErrorKind::AlreadyExists => {
            Failure::Config(format!("cannot write {}: {error}", path.display()))
        }
        _ => Failure::cannot_write(path, &error),
    };
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(cannot)?;
    file.write_all(list.as_bytes()).map_err(|error| {
        // Half a list would be taken for one, and be in the way of the next try.
        let _ = std::fs::remove_file(path);
        cannot(error)
    })
}

fn for_people(report: &[ReportLine], jobs: usize) -> Page {
    let is_look = |line: &&ReportLine| line.kind == RemarkKind::NeedsLook;
    let looks = report.iter().filter(is_look).count();
    let jobs = match jobs {
        1 => "1 job".to_owned(),
        n => format!("{n} jobs"),
    };
    let mut page = Page::default();
    page.push(match looks {
        0 => format!("{jobs} imported"),
        1 => format!("{jobs} imported; 1 point needs a look"),
        n => format!("{jobs} imported; {n} points need a look"),
    });
    for line in report {
        let (tone, kind) = match line.kind {
            RemarkKind::NeedsLook => (Tone::Doubtful, "needs a look"),
            RemarkKind::Note => (Tone::Faint, "note"),
        };
        let place = match line.line {
            0 => line.path.clone(),
            number => format!("{}:{number}", line.path),
        };
        page.push("\n");
        page.push_toned(tone, format!("{kind}:"));
        page.push(format!(" {place}: {}", line.text));
    }
    page
}
