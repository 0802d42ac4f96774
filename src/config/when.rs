//! `schedule:`, `every:`, `timezone:` and `jitter:`.

use std::time::Duration;

use chrono_tz::Tz;

use super::duration::show_duration;
use super::node::Node;
use super::problem::{Problem, Problems};
use super::section::{Section, ValueError};
use super::source::Span;
use super::suggest;
use super::values;
use crate::schedule::Schedule;

/// When a job is due.
#[derive(Debug)]
pub(super) struct When {
    pub(super) schedule: Schedule,
    pub(super) jitter: Duration,
    /// Cron fields are read in UTC because nobody said otherwise.
    pub(super) zone_by_default: bool,
}

/// Reads when a job is due; `None` when that was refused.
pub(super) fn read(
    section: Section<'_>,
    place: Span,
    meant: &[&str],
    problems: &mut Problems,
    warnings: &mut Vec<(Span, String)>,
) -> Option<When> {
    let zone = section.read("timezone", problems, timezone);
    let read_cron = |problems: &mut Problems| {
        section.read("schedule", problems, |n| cron(n, zone.unwrap_or(Tz::UTC)))
    };
    let schedule = match (section.entry("schedule"), section.entry("every")) {
        (Some(_), None) => read_cron(problems),
        (None, Some(_)) => {
            if let Some(zone) = section.own_entry("timezone") {
                warnings.push((
                    zone.span,
                    "`timezone` has no effect on `every`, whose occurrences are multiples of the \
                     interval since 1970 in UTC"
                        .to_owned(),
                ));
            }
            section.read("every", problems, every)
        }
        (Some(schedule), Some(every)) => {
            // Whichever stays is to be right.
            read_cron(problems);
            section.read("every", problems, self::every);
            problems.add(
                Problem::new(every.span, "a job has either `schedule` or `every`")
                    .other(schedule.span, "`schedule` is at"),
            );
            None
        }
        (None, None) if meant.contains(&"schedule") || meant.contains(&"every") => None,
        (None, None) => {
            problems.add(
                Problem::new(place, "this job has neither `schedule` nor `every`")
                    .help("write `schedule: \"30 2 * * *\"` or `every: 15m`"),
            );
            None
        }
    };
    let jitter = section.read("jitter", problems, |node| {
        let jitter = values::duration(node)?;
        match &schedule {
            Some(schedule) if jitter >= schedule.interval() => Err(ValueError::new(
                format!(
                    "a jitter of {} is not shorter than the interval of {}",
                    show_duration(jitter),
                    show_duration(schedule.interval())
                ),
                "a delayed occurrence must not start after the next one",
            )),
            _ => Ok(jitter),
        }
    });
    Some(When {
        zone_by_default: section.entry("schedule").is_some() && section.entry("timezone").is_none(),
        schedule: schedule?,
        jitter: jitter.unwrap_or(Duration::ZERO),
    })
}

/// Checks what `defaults:` may say of schedules.
pub(super) fn check_defaults(section: Section<'_>, problems: &mut Problems) {
    section.read("timezone", problems, timezone);
    section.read("jitter", problems, values::duration);
}

fn cron(node: &Node, zone: Tz) -> Result<Schedule, ValueError> {
    let Some(text) = node.text() else {
        return Err(ValueError::new(
            format!("expected a cron expression, found {}", node.found()),
            "write `schedule: \"30 2 * * *\"`",
        ));
    };
    let interval = ["@every ", "every "]
        .iter()
        .find_map(|word| text.trim().strip_prefix(word));
    if let Some(interval) = interval {
        return Err(ValueError::new(
            "intervals have their own field",
            format!("write `every: {}` instead of `schedule`", interval.trim()),
        ));
    }
    Schedule::cron(text, zone).map_err(|error| ValueError {
        message: format!("not a valid cron expression: {}", error.what),
        help: error.hint,
        within: Some((error.columns.start, error.columns.len())),
        item: None,
    })
}

fn every(node: &Node) -> Result<Schedule, ValueError> {
    let period = values::duration(node).map_err(|trouble| {
        if node.text().is_some_and(|t| t.trim().contains(' ')) {
            let help = "a cron expression belongs in `schedule`; `every` is a duration such as \
                        `15m`";
            ValueError::new(trouble.message, help)
        } else {
            trouble
        }
    })?;
    Schedule::every(period).map_err(|e| ValueError::new(e.to_string(), "such as `15m`"))
}

fn timezone(node: &Node) -> Result<Tz, ValueError> {
    let text = values::filled(node)?;
    text.parse().map_err(|_| {
        let names = || chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
        // People write the city alone, or in small letters.
        let city = |name: &str| {
            let plain = text.replace(' ', "_");
            name.rsplit('/')
                .next()
                .is_some_and(|n| n.eq_ignore_ascii_case(&plain))
        };
        let near = names()
            .find(|name| name.eq_ignore_ascii_case(&text))
            .or_else(|| names().find(|name| city(name)))
            .or_else(|| suggest::nearest(&text, names()));
        let help = match (near, text.to_ascii_lowercase().as_str()) {
            (_, "local" | "localtime") => {
                "the local zone may differ between hosts: name a zone, such as `Europe/Berlin`"
                    .to_owned()
            }
            (Some(name), _) => format!("did you mean `{name}`?"),
            (None, _) => "expected an IANA time zone such as `Europe/Berlin` or `UTC`".to_owned(),
        };
        ValueError::new(format!("{} is not a time zone", node.found()), help)
    })
}
