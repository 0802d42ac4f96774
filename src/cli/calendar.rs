//! The coming occurrences of jobs as iCalendar (RFC 5545), for calendar programs.

use crate::config::{Job, show_duration};
use crate::ground::sorting::SortShort as _;
use crate::time::Timestamp;

/// The most events of a calendar.
const EVENTS_MAX: usize = 10_000;
/// The most bytes of a line before its end.
const LINE_MAX: usize = 75;

/// The occurrences that a calendar has.
#[derive(Debug, Clone, Copy)]
pub(super) struct CalendarSpan {
    /// After this.
    pub(super) from: Timestamp,
    /// Up to this.
    pub(super) until: Timestamp,
    /// The most of each job.
    pub(super) per_job: usize,
}

/// Returns the calendar of these jobs. If there are more events than a calendar may have, it has the
/// next ones.
pub(super) fn of_jobs<'a>(jobs: impl Iterator<Item = &'a Job>, span: CalendarSpan) -> String {
    let mut events: Vec<(Timestamp, &Job)> = Vec::new();
    for job in jobs.filter(|job| job.enabled) {
        let coming = job.schedule.between(span.from, span.until);
        events.extend(coming.take(span.per_job).map(|at| (at, job)));
    }
    events.sort_short_by(|(at, a), (other, b)| (at, &a.name).cmp(&(other, &b.name)));
    events.truncate(EVENTS_MAX);
    let mut text = String::new();
    for line in [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//cronlatch//cronlatch//EN",
        "NAME:cronlatch",
        "X-WR-CALNAME:cronlatch",
        "REFRESH-INTERVAL;VALUE=DURATION:PT1H",
    ] {
        push(&mut text, line);
    }
    for (at, job) in events {
        event(&mut text, job, at, span.from);
    }
    push(&mut text, "END:VCALENDAR");
    text
}

fn event(text: &mut String, job: &Job, at: Timestamp, now: Timestamp) {
    let zone = job.schedule.zone();
    let mut description = format!("{} ({zone})", job.schedule);
    let delay = job.delay();
    if !delay.is_zero() {
        description += &format!("\nstarts {} later (jitter)", show_duration(delay));
    }
    let at = instant(at);
    push(text, "BEGIN:VEVENT");
    // The same in each calendar of each host.
    push(text, &format!("UID:{}-{at}@cronlatch", job.name));
    push(text, &format!("DTSTAMP:{}", instant(now)));
    push(text, &format!("DTSTART:{at}"));
    push(text, &format!("SUMMARY:{}", escaped(job.name.as_str())));
    push(text, &format!("DESCRIPTION:{}", escaped(&description)));
    // It takes up nobody's time.
    push(text, "TRANSP:TRANSPARENT");
    push(text, "END:VEVENT");
}

fn instant(at: Timestamp) -> String {
    at.to_utc().format("%Y%m%dT%H%M%SZ").to_string()
}

/// A text as a value.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | ';' | ',' => {
                escaped.push('\\');
                escaped.push(c);
            }
            '\n' => escaped.push_str("\\n"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Appends a line, folded if it is long.
fn push(text: &mut String, line: &str) {
    let mut length = 0;
    for c in line.chars() {
        if length + c.len_utf8() > LINE_MAX {
            text.push_str("\r\n ");
            length = 1;
        }
        text.push(c);
        length += c.len_utf8();
    }
    text.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn calendar(list: &str, per_job: usize) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("jobs.yaml");
        std::fs::write(&path, list).expect("a file");
        let list = match crate::config::load(&path) {
            Ok(list) => list,
            Err(errors) => panic!("{errors}"),
        };
        let from = Timestamp::parse("2026-03-28T12:00:00Z").expect("a time");
        let until = from.plus(Duration::from_secs(2 * 86_400));
        let span = CalendarSpan {
            from,
            until,
            per_job,
        };
        of_jobs(list.jobs.iter().map(AsRef::as_ref), span)
    }

    #[test]
    fn occurrences_are_events_in_utc_with_escaped_text_and_the_same_ids_each_time() {
        let list = "\
jobs:
- { name: night, schedule: '30 2,3 * * *', timezone: Europe/Berlin, command: x }
- { name: off, every: 1h, command: x, enabled: false }
";
        let text = calendar(list, 100);
        // The clocks go forward: 02:30 does not exist.
        let expected = "BEGIN:VEVENT\r\nUID:night-20260329T010000Z@cronlatch\r\n\
                        DTSTAMP:20260328T120000Z\r\nDTSTART:20260329T010000Z\r\nSUMMARY:night\r\n\
                        DESCRIPTION:30 2\\,3 * * * (Europe/Berlin)\r\nTRANSP:TRANSPARENT\r\n\
                        END:VEVENT\r\n";
        assert!(text.contains(expected), "{text}");
        assert_eq!(text.matches("BEGIN:VEVENT").count(), 4, "{text}");
        assert!(!text.contains("off"), "{text}");
        assert!(text.starts_with("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:"));
        assert!(text.ends_with("END:VEVENT\r\nEND:VCALENDAR\r\n"));
        assert_eq!(text, calendar(list, 100));
    }

    #[test]
    fn a_calendar_is_bounded_and_its_lines_are_folded() {
        let name = "n".repeat(100);
        let mut list = format!("jobs:\n- {{ name: {name}, every: 1s, command: x }}\n");
        for n in 0..20 {
            list += &format!("- {{ name: j{n}, every: 1s, command: x }}\n");
        }
        let text = calendar(&list, 1000);
        assert_eq!(text.matches("BEGIN:VEVENT").count(), EVENTS_MAX);
        assert!(text.split("\r\n").all(|line| line.len() <= LINE_MAX));
        let unfolded = text.replace("\r\n ", "");
        assert!(unfolded.contains(&format!("SUMMARY:{name}\r\n")));
        assert_eq!(calendar(&list, 3).matches("BEGIN:VEVENT").count(), 63);
        assert_eq!(escaped("a\\b;c,d\ne\tf"), "a\\\\b\\;c\\,d\\ne f");
    }
}
