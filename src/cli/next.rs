//! `cronlatch next`: the coming occurrences of a job list or of one expression.

use std::path::PathBuf;
use std::process::ExitCode;

use chrono_tz::Tz;

use super::page::{self, Cell, Page, Tone};
use super::{Failure, output};
use crate::config::{self, JobList};
use crate::names::JobName;
use crate::schedule::{CronError, Schedule};
use crate::time::Timestamp;

/// Options of `next`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job list (file or directory of *.yaml)
    #[arg(required_unless_present = "expr", conflicts_with_all = ["expr", "tz"])]
    file: Option<PathBuf>,
    /// Use this cron expression instead of a list
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    expr: Option<String>,
    /// The IANA time zone of the expression [default: UTC]
    #[arg(long, value_name = "TZ", value_parser = zone)]
    tz: Option<Tz>,
    /// Show occurrences after this time (RFC 3339) [default: now]
    #[arg(long, value_name = "T", value_parser = instant)]
    from: Option<Timestamp>,
    /// The number of occurrences per schedule
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Show only this job of the list
    #[arg(long, value_name = "NAME", conflicts_with = "expr")]
    job: Option<JobName>,
    /// Print one JSON object per schedule, one per line
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Whether one job is asked for.
    pub(super) fn names_a_job(&self) -> bool {
        self.job.is_some()
    }

    /// The number of occurrences per schedule.
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// The time after which occurrences are shown, if it is given.
    pub(super) fn from(&self) -> Option<Timestamp> {
        self.from
    }
}

/// A schedule and its coming occurrences.
#[derive(serde::Serialize)]
pub(super) struct Coming {
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    schedule: String,
    timezone: &'static str,
    occurrences: Vec<Timestamp>,
    #[serde(skip)]
    notes: Vec<String>,
    #[serde(skip)]
    rows: Vec<[String; 3]>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let from = args.from.unwrap_or_else(Timestamp::now);
    let all = match (&args.expr, &args.file) {
        (Some(text), _) => {
            let zone = args.tz.unwrap_or(Tz::UTC);
            let schedule = Schedule::cron(text, zone).map_err(|e| refused(text, &e))?;
            vec![coming(&schedule, from, args.count)]
        }
        (None, Some(file)) => {
            let list = config::load_without_secrets(file)?;
            of_list(&list, args, from)?
        }
        (None, None) => {
            return Err(Failure::Usage("name a job list, or give --expr".to_owned()));
        }
    };
    if args.json {
        output::print(&output::json_lines(&all)?)?;
    } else {
        let mut page = Page::default();
        for (index, coming) in all.iter().enumerate() {
            if index > 0 {
                page.push("\n");
            }
            page.append(for_people(coming));
        }
        output::print_page(&page)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The coming occurrences of the jobs of a list.
pub(super) fn of_list(
    list: &JobList,
    args: &Args,
    from: Timestamp,
) -> Result<Vec<Coming>, Failure> {
    let wanted = list
        .jobs
        .iter()
        .filter(|job| args.job.as_ref().is_none_or(|name| job.name == *name));
    let all: Vec<_> = wanted
        .map(|job| {
            let count = if job.enabled { args.count } else { 0 };
            let mut coming = coming(&job.schedule, from, count);
            coming.job = Some(job.name.to_string());
            if !job.enabled {
                coming.notes.push("disabled".to_owned());
            }
            let delay = job.delay();
            if !delay.is_zero() {
                let delay = humantime::format_duration(delay);
                coming.notes.push(format!("starts {delay} later (jitter)"));
            }
            coming
        })
        .collect();
    match &args.job {
        Some(name) if all.is_empty() => Err(super::unknown_job(name, list)),
        _ => Ok(all),
    }
}

fn coming(schedule: &Schedule, from: Timestamp, count: u32) -> Coming {
    let zone = schedule.zone();
    let mut previous = from;
    let mut coming = Coming {
        job: None,
        schedule: schedule.to_string(),
        timezone: zone.name(),
        occurrences: Vec::new(),
        notes: Vec::new(),
        rows: Vec::new(),
    };
    let end = Timestamp::from_millis(i64::MAX);
    for occurrence in schedule.between(from, end).take(count as usize) {
        let local = schedule.local(occurrence);
        let remark = schedule.remark(previous, occurrence);
        coming.rows.push([
            local.format("%a %Y-%m-%d %H:%M:%S %:z").to_string(),
            occurrence.to_string(),
            remark.map_or_else(String::new, |remark| remark.to_string()),
        ]);
        coming.occurrences.push(occurrence);
        previous = occurrence;
    }
    coming
}

fn for_people(coming: &Coming) -> Page {
    let mut page = Page::default();
    if let Some(job) = &coming.job {
        page.push_toned(Tone::Heading, job.clone());
        page.push(": ");
    }
    page.push(format!("{} ({})", coming.schedule, coming.timezone));
    for note in &coming.notes {
        page.push(format!("; {note}"));
    }
    page.push("\n");
    if !coming.rows.is_empty() {
        let rows = coming.rows.iter().map(|[local, utc, remark]| {
            let remark = Cell::toned(Tone::Doubtful, remark);
            [Cell::from(local.clone()), Cell::from(utc.clone()), remark]
        });
        page.append(page::table(["LOCAL", "UTC", ""], rows));
    }
    page
}

/// A refused expression, with marks under what is wrong.
fn refused(text: &str, error: &CronError) -> Failure {
    // A tab or a line's end would shift the marks.
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let indent = " ".repeat(error.columns.start);
    let marks = "^".repeat(error.columns.len().max(1));
    Failure::Config(format!(
        "--expr:{}: error: {}\n  {line}\n  {indent}{marks}\n      = {}",
        error.columns.start + 1,
        error.what,
        error.hint
    ))
}

fn zone(text: &str) -> Result<Tz, String> {
    config::parse_zone(text).map_err(|help| format!("not an IANA time zone: {help}"))
}

fn instant(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).map_err(|_| {
        "not a time such as 2026-03-29T00:00:00Z or 2026-03-29T02:00:00+01:00".to_owned()
    })
}
