//! `schedule:`, `every:`, `timezone:` and `jitter:`.

use std::collections::HashMap;
use std::time::Duration;

use chrono_tz::Tz;

use super::duration::{parse_duration, show_duration};
use super::node::Node;
use super::problem::{Problem, Problems, Warning};
use super::section::{Section, ValueError};
use super::source::Span;
use super::values;
use super::zone;
use crate::schedule::{Reading, Schedule, reading};

/// The schedule of a job.
#[derive(Debug)]
pub(super) struct When {
    pub(super) schedule: Schedule,
    pub(super) jitter: Duration,
    /// Cron fields are read in UTC because neither the job nor `defaults:` names a zone.
    pub(super) zone_by_default: bool,
}

/// The schedules of the jobs before, by their texts. Jobs with the same text share one.
#[derive(Debug, Default)]
pub(super) struct KnownSchedules {
    cron: HashMap<Tz, HashMap<String, Schedule>>,
    every: HashMap<String, Schedule>,
}

impl KnownSchedules {
    fn cron(&mut self, node: &Node, zone: Tz) -> Result<Schedule, ValueError> {
        let known = self.cron.entry(zone).or_default();
        Self::of_text(known, node, |node| cron(node, zone))
    }

    fn every(&mut self, node: &Node) -> Result<Schedule, ValueError> {
        Self::of_text(&mut self.every, node, every)
    }

    fn of_text(
        known: &mut HashMap<String, Schedule>,
        node: &Node,
        read: impl FnOnce(&Node) -> Result<Schedule, ValueError>,
    ) -> Result<Schedule, ValueError> {
        if let Some(schedule) = node.text().and_then(|text| known.get(text)) {
            return Ok(schedule.clone());
        }
        let schedule = read(node)?;
        if let Some(text) = node.text() {
            known.insert(text.to_owned(), schedule.clone());
        }
        Ok(schedule)
    }
}

/// Reads when a job is due; `None` if that is invalid.
pub(super) fn read(
    section: Section<'_>,
    (place, meant): (Span, &[&str]),
    known: &mut KnownSchedules,
    problems: &mut Problems,
    warnings: &mut Vec<Warning>,
) -> Option<When> {
    let zone = section.read("timezone", problems, timezone);
    if let Some(entry) = section.own_entry("timezone") {
        let doubt = entry.value.text().and_then(zone::doubtful);
        warnings.extend(doubt.map(|text| Warning::new(entry.value.span, text)));
    }
    let read_cron = |known: &mut KnownSchedules, problems: &mut Problems| {
        let zone = zone.unwrap_or(Tz::UTC);
        section.read("schedule", problems, |node| known.cron(node, zone))
    };
    let schedule = match (section.entry("schedule"), section.entry("every")) {
        (Some(_), None) => read_cron(known, problems),
        (None, Some(_)) => {
            if let Some(zone) = section.own_entry("timezone") {
                warnings.push(Warning::new(
                    zone.span,
                    "`timezone` has no effect on `every`, whose occurrences are multiples of the \
                     interval since 1970 in UTC",
                ));
            }
            section.read("every", problems, |node| known.every(node))
        }
        (Some(schedule), Some(every)) => {
            // Both are checked, because either may be the one that the user keeps.
            read_cron(known, problems);
            section.read("every", problems, |node| known.every(node));
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
    let jitter = read_jitter(section, schedule.as_ref(), problems);
    Some(When {
        zone_by_default: section.entry("schedule").is_some() && section.entry("timezone").is_none(),
        schedule: schedule?,
        jitter: jitter.unwrap_or(Duration::ZERO),
    })
}

fn read_jitter(
    section: Section<'_>,
    schedule: Option<&Schedule>,
    problems: &mut Problems,
) -> Option<Duration> {
    let own_jitter = section.own_entry("jitter").is_some();
    section.read("jitter", problems, |node| {
        let limit = match jitter(node)? {
            Jitter::Limit(limit) => limit,
            Jitter::Auto => return automatic(schedule, own_jitter),
        };
        match schedule {
            Some(schedule) if limit >= schedule.interval() => Err(ValueError::new(
                format!(
                    "a jitter of {} is not shorter than the interval of {}",
                    show_duration(limit),
                    show_duration(schedule.interval())
                ),
                "a delayed occurrence must not start after the next one",
            )),
            _ => Ok(limit),
        }
    })
}

/// Checks the fields of `defaults:` that concern schedules.
pub(super) fn check_defaults(section: Section<'_>, problems: &mut Problems) {
    section.read("timezone", problems, timezone);
    section.read("jitter", problems, jitter);
}

/// Returns a warning if the time zone of `defaults:` probably differs from the one intended.
pub(super) fn doubt_of_defaults(section: Section<'_>) -> Option<Warning> {
    let entry = section.entry("timezone")?;
    let doubt = entry.value.text().and_then(zone::doubtful)?;
    Some(Warning::new(entry.value.span, doubt))
}

/// `jitter:` as written.
#[derive(Debug, Clone, Copy)]
enum Jitter {
    /// Delays are shorter than this.
    Limit(Duration),
    /// Delays spread over the interval of `every:`.
    Auto,
}

/// `jitter: auto` delays by no more than this, however long the interval is.
const LONGEST_AUTO: Duration = Duration::from_secs(3600);

fn jitter(node: &Node) -> Result<Jitter, ValueError> {
    if node.text() == Some("auto") {
        return Ok(Jitter::Auto);
    }
    values::duration(node).map(Jitter::Limit)
}

/// The limit that `jitter: auto` stands for: the interval, which delays stay below, or an hour. Cron
/// text names its instants: a job that inherits `auto` from `defaults:` keeps them.
fn automatic(schedule: Option<&Schedule>, is_own: bool) -> Result<Duration, ValueError> {
    match schedule.map(Schedule::period) {
        Some(Some(period)) => Ok(period.min(LONGEST_AUTO)),
        Some(None) if is_own => Err(ValueError::new(
            "`jitter: auto` spreads the jobs of an interval (`every`), and cron text names its \
             instants",
            "write the longest delay that is still right, such as `jitter: 5m`",
        )),
        Some(None) | None => Ok(Duration::ZERO),
    }
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
    if let (Some(interval), None) = (interval, reading(text)) {
        let interval = interval.trim();
        return Err(if parse_duration(interval).is_ok() {
            ValueError::new(
                "intervals have their own field",
                format!("write `every: {interval}` instead of `schedule`"),
            )
        } else {
            ValueError::new(
                "not a valid cron expression: a schedule is cron text, not words",
                "write five fields: minute hour day-of-month month weekday; an interval is \
                 `every: 15m` instead of `schedule`",
            )
        });
    }
    let zoned = ["CRON_TZ=", "TZ="];
    if let Some(zoned) = zoned.iter().find_map(|it| text.trim().strip_prefix(it)) {
        let (zone, rest) = zoned.split_once(char::is_whitespace).unwrap_or((zoned, ""));
        return Err(ValueError::new(
            "the time zone has its own field",
            format!(
                "write `timezone: {zone}` and `schedule: \"{}\"`",
                rest.trim()
            ),
        ));
    }
    Schedule::cron(text, zone).map_err(|error| ValueError {
        message: format!("not a valid cron expression: {}", error.what),
        help: error.hint,
        within: Some((error.columns.start, error.columns.len())),
        item: None,
        further: None,
    })
}

fn every(node: &Node) -> Result<Schedule, ValueError> {
    let period = values::duration(node).map_err(|trouble| {
        let text = node.text().unwrap_or("").trim();
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            // An interval without its unit, and no hour of the day.
            return trouble;
        }
        let help = match reading(&format!("every {text}")) {
            Some(Reading::Every(period)) => format!("write `every: {period}`"),
            Some(Reading::Cron(cron)) => {
                format!("write `schedule: \"{cron}\"` instead of `every`")
            }
            None if text.contains(' ') => "a cron expression belongs in `schedule`; `every` is a \
                                           duration such as `15m`"
                .to_owned(),
            None => return trouble,
        };
        ValueError::new(trouble.message, help)
    })?;
    Schedule::every(period).map_err(|e| ValueError::new(e.to_string(), "such as `15m`"))
}

fn timezone(node: &Node) -> Result<Tz, ValueError> {
    let text = values::filled(node)?;
    zone::parse(&text)
        .map_err(|help| ValueError::new(format!("{} is not a time zone", node.found()), help))
}
