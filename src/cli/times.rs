//! Times on the command line and on the terminal: `--since yesterday`, and local times on a terminal.

use std::io::IsTerminal as _;
use std::time::Duration;

use chrono::{
    DateTime, Local, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeZone, Timelike as _,
};

use crate::config::parse_duration;
use crate::time::Timestamp;

const EXPECTED: &str = "expected a time such as 2026-01-31T02:30:00Z, `2026-01-31 02:30`, `02:30`, \
                        `today` or `yesterday`, or a duration before now such as `2h`";

/// Reads a duration of the command line.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| format!("it {error}"))
}

/// Reads an instant as people write it, on this machine's wall clock and in its time zone.
///
/// Accepts RFC 3339, a date with or without a time, a time of today, `now`, `today` and `yesterday`
/// (their midnight), and a duration before now (`2h`, `2h ago`).
pub(super) fn instant(text: &str) -> Result<Timestamp, String> {
    read(text, Timestamp::now(), &Local).ok_or_else(|| EXPECTED.to_owned())
}

fn read<Z: TimeZone>(text: &str, now: Timestamp, zone: &Z) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(instant) = Timestamp::parse(text) {
        return Some(instant);
    }
    let today = now.to_utc().with_timezone(zone).date_naive();
    let time = |text: &str| {
        let mut formats = ["%H:%M:%S", "%H:%M"].into_iter();
        formats.find_map(|format| NaiveTime::parse_from_str(text, format).ok())
    };
    let date = |text: &str| match text {
        "today" => Some(today),
        "yesterday" => today.pred_opt(),
        _ => NaiveDate::parse_from_str(text, "%Y-%m-%d").ok(),
    };
    if text == "now" {
        return Some(now);
    }
    let local = match text.split_once([' ', 'T']) {
        Some((day, rest)) => date(day).zip(time(rest)),
        None => date(text)
            .map(|day| (day, NaiveTime::MIN))
            .or_else(|| time(text).map(|time| (today, time))),
    };
    if let Some((day, time)) = local {
        return first_at(day.and_time(time), zone);
    }
    let ago = text.strip_suffix("ago").unwrap_or(text).trim();
    Some(now.minus(humantime::parse_duration(ago).ok()?))
}

/// A quarter of an hour in seconds.
const QUARTER: u32 = 15 * 60;

/// The first instant at or after a local time: a time that the clocks skip counts as the end of
/// the gap, and of a time that is shown twice the first one counts.
fn first_at<Z: TimeZone>(local: NaiveDateTime, zone: &Z) -> Option<Timestamp> {
    let past_quarter = u64::from(local.num_seconds_from_midnight() % QUARTER);
    let quarter = local - Duration::from_secs(past_quarter);
    // Gaps end at full quarters of an hour, and no zone has ever skipped more than a day.
    let later = (1..=24 * 4).map(|n| quarter + n * Duration::from_secs(u64::from(QUARTER)));
    let candidates = std::iter::once(local).chain(later);
    let mut found = candidates.filter_map(|at| zone.from_local_datetime(&at).earliest());
    let at: DateTime<Z> = found.next()?;
    Some(Timestamp::from_millis(at.timestamp_millis()))
}

/// How a command shows instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    /// RFC 3339 in UTC, for programs and pipes.
    Utc,
    /// In the zone of this machine, with its offset, for people at a terminal.
    Local,
}

impl Times {
    /// Local times on a terminal, UTC elsewhere and with `--utc`.
    pub(super) fn for_stdout(options: TimeArgs) -> Self {
        if !options.utc && std::io::stdout().is_terminal() {
            Self::Local
        } else {
            Self::Utc
        }
    }

    /// The instant as text. A local one can be passed to `--since`.
    pub(super) fn show(self, at: Timestamp) -> String {
        match self {
            Self::Utc => at.to_string(),
            Self::Local => local(at, &Local),
        }
    }
}

fn local<Z: TimeZone>(at: Timestamp, zone: &Z) -> String
where
    Z::Offset: std::fmt::Display,
{
    let precision = if at.millis() % 1000 == 0 {
        SecondsFormat::Secs
    } else {
        SecondsFormat::Millis
    };
    let text = at
        .to_utc()
        .with_timezone(zone)
        .to_rfc3339_opts(precision, false);
    text.replacen('T', " ", 1)
}

/// Options of commands that show instants.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct TimeArgs {
    /// Show times in UTC also on a terminal [default: local times on a terminal, else UTC]
    #[arg(long)]
    utc: bool,
}

#[cfg(test)]
mod tests {
    use chrono_tz::Europe::Berlin;
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-24T09:00:00+01:00.
    const NOW: Timestamp = Timestamp::from_secs(1_795_507_200);

    #[track_caller]
    fn reads(text: &str, expected: &str) {
        let instant = read(text, NOW, &Berlin).unwrap_or_else(|| panic!("{text} is refused"));
        assert_eq!(instant.to_string(), expected, "{text}");
    }

    #[test]
    fn instants_are_read_as_people_write_them() {
        reads("2026-11-23T10:00:00+01:00", "2026-11-23T09:00:00Z");
        reads("now", "2026-11-24T08:00:00Z");
        reads("today", "2026-11-23T23:00:00Z");
        reads("yesterday", "2026-11-22T23:00:00Z");
        reads("yesterday 02:30", "2026-11-23T01:30:00Z");
        reads("2026-11-01", "2026-10-31T23:00:00Z");
        reads("2026-11-01 12:00", "2026-11-01T11:00:00Z");
        reads("2026-11-01T12:00:05", "2026-11-01T11:00:05Z");
        reads("02:30", "2026-11-24T01:30:00Z");
        reads("2h", "2026-11-24T06:00:00Z");
        reads("1day 2h ago", "2026-11-23T06:00:00Z");
    }

    #[test]
    fn a_time_that_the_clocks_skip_is_the_end_of_the_gap_and_of_two_the_first_counts() {
        reads("2026-03-29 02:00", "2026-03-29T01:00:00Z");
        reads("2026-03-29 02:10", "2026-03-29T01:00:00Z");
        reads("2026-03-29 02:30", "2026-03-29T01:00:00Z");
        reads("2026-03-29 02:59:59", "2026-03-29T01:00:00Z");
        reads("2026-03-29 03:00", "2026-03-29T01:00:00Z");
        reads("2026-10-25 02:30", "2026-10-25T00:30:00Z");
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for text in ["", "soon", "25:00", "2026-13-01", "yesterday noon", "-"] {
            assert_eq!(read(text, NOW, &Berlin), None, "{text}");
        }
    }

    #[test]
    fn a_time_shown_to_people_has_its_offset() {
        let at = Timestamp::parse("2026-03-29T01:00:00.250Z").unwrap();
        assert_eq!(local(at, &Berlin), "2026-03-29 03:00:00.250+02:00");
    }

    proptest! {
        #[test]
        fn a_time_shown_to_people_is_read_as_the_same_instant(millis in 0_i64..4_102_444_800_000) {
            let at = Timestamp::from_millis(millis);
            prop_assert_eq!(read(&local(at, &Berlin), NOW, &Berlin), Some(at));
        }
    }
}
